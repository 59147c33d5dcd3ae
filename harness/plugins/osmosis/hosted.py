"""Substitutes for the functions of osmosis_ai that serve an agent over HTTP, since agent files often also create their
web app. Such files can be imported, but serving an app or calling the service raises `UsageError`."""

from __future__ import annotations

from typing import NoReturn

from harness.core.errors import UsageError

DEFAULT_HOST = "0.0.0.0"
DEFAULT_PORT = 9000


class UnservedApp:
    """Return value of `create_app`: a web app that cannot be served, since bench runs agents itself.

    Args:
        agent_loop: The agent.
    """

    def __init__(self, agent_loop: object) -> None:
        self.agent_loop = agent_loop

    async def __call__(self, scope: object, receive: object, send: object) -> None:
        """Refuse to serve a request; the entry point of ASGI web servers.

        Raises:
            UsageError: always.
        """
        _refuse("this app")

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        _refuse(f"app.{name}")


def create_app(agent_loop: object, **settings: object) -> UnservedApp:
    """Create the web app of an agent, as agent files do on import. The app cannot be served.

    Args:
        agent_loop: The agent.
        settings: Server settings such as limits, credentials and folders; ignored.
    """
    return UnservedApp(agent_loop)


def serve_agent_loop(agent_loop: object, *arguments: object, **settings: object) -> NoReturn:
    """Refuse to serve an agent over HTTP, since bench runs agents itself.

    Raises:
        UsageError: always.
    """
    _refuse("serve_agent_loop")


def validate_and_report(agent_loop: object, *arguments: object, **settings: object) -> NoReturn:
    """Refuse to validate an agent for serving.

    Raises:
        UsageError: always.
    """
    _refuse("validate_and_report")


def validate_agent_loop(agent_loop: object, *arguments: object, **settings: object) -> NoReturn:
    """Refuse to validate an agent for serving.

    Raises:
        UsageError: always.
    """
    _refuse("validate_agent_loop")


class OsmosisLLMClient:
    """Client class of the hosted service, for type annotations only. Agents call the model with the method
    `ctx.llm.chat_completions` instead."""

    def __init__(self, *arguments: object, **settings: object) -> None:
        _refuse("OsmosisLLMClient")


def _refuse(what: str) -> NoReturn:
    raise UsageError(
        f"{what} is part of the hosted serving of osmosis-ai, which bench does not support: it runs agents itself. "
        "Use `bench eval -m module:attribute …`, or `bench test` to try an agent on a few rows"
    )
