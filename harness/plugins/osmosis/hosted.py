"""What stands for the SDK's hosted serving in agent files, which build their app beside the agent. Owns the refusal:
such a file imports as it is, and whatever would really serve or call the service says that bench does not."""

from __future__ import annotations

from typing import NoReturn

from harness.core.errors import UsageError

DEFAULT_HOST = "0.0.0.0"
DEFAULT_PORT = 9000


class UnservedApp:
    """What `create_app` gives: an app in name only.

    Args:
        agent_loop: The agent that it would serve.
    """

    def __init__(self, agent_loop: object) -> None:
        self.agent_loop = agent_loop

    async def __call__(self, scope: object, receive: object, send: object) -> None:
        """What a web server calls.

        Raises:
            UsageError: always.
        """
        _refuse("this app")

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        _refuse(f"app.{name}")


def create_app(agent_loop: object, **settings: object) -> UnservedApp:
    """The agent's app: it can be made, as agent files do when they are imported, but not served.

    Args:
        agent_loop: The agent.
        settings: Of the server that there is not: limits, credentials, folders.
    """
    return UnservedApp(agent_loop)


def serve_agent_loop(agent_loop: object, *arguments: object, **settings: object) -> NoReturn:
    """Refuse to serve an agent.

    Raises:
        UsageError: always.
    """
    _refuse("serve_agent_loop")


def validate_and_report(agent_loop: object, *arguments: object, **settings: object) -> NoReturn:
    """Refuse to check an agent for serving.

    Raises:
        UsageError: always.
    """
    _refuse("validate_and_report")


def validate_agent_loop(agent_loop: object, *arguments: object, **settings: object) -> NoReturn:
    """Refuse to check an agent for serving.

    Raises:
        UsageError: always.
    """
    _refuse("validate_agent_loop")


class OsmosisLLMClient:
    """The client of the hosted service: a name for annotations. `ctx.llm` has its `chat_completions`."""

    def __init__(self, *arguments: object, **settings: object) -> None:
        _refuse("OsmosisLLMClient")


def _refuse(what: str) -> NoReturn:
    raise UsageError(
        f"{what} belongs to osmosis-ai's hosted serving, which bench does not have: it runs agents itself. "
        "Use `bench eval -m module:attribute …`, or `bench test` to try an agent on a few rows"
    )
