"""Built-in environments: names, defaults, names of their runs, and messages. Imports few modules, because the
environment loader imports it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.core.errors import ConfigError
from harness.settings.packages import FoundEnvironment

AGENT_EVAL = "agent-eval"
"""Id of the built-in environment that evaluates an agent on the rows of a file (`bench eval`)."""

MULTI_EVAL = "multi-eval"
"""Id of the built-in environment that evaluates models on a list of tasks (`bench multi`)."""

_LONGEST = 80
"""Maximum length of a name, which becomes part of a folder's name."""


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """An environment that is part of this program."""

    env_id: str
    kind: str
    """Kind of the environment's runs, as in `Manifest.kind`."""
    found: FoundEnvironment
    rows: str
    """Argument that names the file of rows. Runs started from Python lack it, since their rows are in a program."""
    name_of: Callable[[Mapping[str, object]], str]
    """Function from the environment's arguments to the name of a run in tables, folders and datasets."""
    about: str
    """Message for commands that expect an environment package."""
    remedy: str
    """Advice to show with `about`: the template of a message."""

    def has_rows(self, env_args: Mapping[str, object]) -> bool:
        """Return whether the arguments name a file of rows, so that a run can be repeated from its settings alone."""
        return self.rows in env_args

    def require_rows(self, env_args: Mapping[str, object], where: str) -> None:
        """Raise an error if the arguments do not name a file of rows.

        Args:
            env_args: Arguments of the environment.
            where: Flag, or file with key path, that names the environment; for the message.

        Raises:
            ConfigError: the message explains how to name the file, and how to resume a run started from Python.
        """
        if self.has_rows(env_args):
            return
        suite = " or as `dataset` of an [[eval]]" if self.rows == "dataset" else ""
        raise ConfigError(
            f"{where}: {self.env_id} needs a {self.rows} file",
            remedy=f"give one with {{env_args}} {self.rows}=FILE{suite}. A run started by a Python program cannot be "
            "repeated from its settings, since its rows are in that program: run the program again, with resume=True "
            "to resume",
        )


def _found(module: str, env_id: str) -> FoundEnvironment:
    # Defaults of a built-in environment: all rows of the file, one rollout each, as `bench eval` and `bench multi` use.
    defaults: dict[str, object] = {"num_examples": -1, "rollouts_per_example": 1}
    return FoundEnvironment(module, defaults=defaults, defaults_source=f"{env_id} [built-in]")


def _agent_and_rows(env_args: Mapping[str, object]) -> str:
    """Return the name of an agent evaluation, which consists of agent and rows, such as `Loop-rows`."""
    agent, folder = env_args.get("agent"), env_args.get("mcp")
    player = str(agent).rpartition(":")[2] if agent else Path(str(folder or ".")).resolve().name
    return _as_name(f"{player}-{Path(str(env_args.get('dataset') or 'rows')).stem}", AGENT_EVAL)


def _task_file(env_args: Mapping[str, object]) -> str:
    """Return the name of a multi-model run: the name of its task file without the extension."""
    return _as_name(Path(str(env_args.get("tasks") or "tasks")).stem, MULTI_EVAL)


def _as_name(text: str, otherwise: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text).strip("._-")[:_LONGEST] or otherwise


BUILT_INS: Mapping[str, BuiltIn] = {
    AGENT_EVAL: BuiltIn(
        AGENT_EVAL,
        "eval",
        _found("harness.agents.environment", AGENT_EVAL),
        "dataset",
        _agent_and_rows,
        f"{AGENT_EVAL} is built in: it evaluates an agent over the rows of a file",
        "run it with `{eval_command}`, which can also show and check the settings (dry_run)",
    ),
    MULTI_EVAL: BuiltIn(
        MULTI_EVAL,
        "multi",
        _found("harness.multi.environment", MULTI_EVAL),
        "tasks",
        _task_file,
        f"{MULTI_EVAL} is built in: it evaluates several models on a list of tasks",
        "run it with `{multi_command}`, which can also show and check the settings (dry_run)",
    ),
}
"""Built-in environments by `env_id`."""


def built_in(found: FoundEnvironment | None) -> BuiltIn | None:
    """Return the built-in environment that was found; None if the found environment comes from a package or file."""
    return next((each for each in BUILT_INS.values() if each.found is found), None)


def as_built_in(name: str) -> BuiltIn | None:
    """Return the built-in environment with this name, in any spelling; None if no built-in environment has this name.
    Used to refuse the installation of an unrelated package with this name."""
    return BUILT_INS.get(re.sub(r"[-_.]+", "-", name.strip().lower()))
