"""The environments that are built in: their names, what is known of each, what its runs are called, and what is said of
it where environments are packages. Imports little, because the loader asks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.core.errors import ConfigError
from harness.settings.packages import FoundEnvironment

AGENT_EVAL = "agent-eval"
"""An agent over the rows of a file: `bench eval`."""

MULTI_EVAL = "multi-eval"
"""A list of tasks, scored as documented: `bench multi`."""

_LONGEST = 80
"""Characters of a name: it becomes part of a folder's."""


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """One environment that is no package."""

    env_id: str
    kind: str
    """`Manifest.kind` of its runs."""
    found: FoundEnvironment
    rows: str
    """The argument that names the file of its rows. Runs of the Python API have none: their rows are in a program."""
    name_of: Callable[[Mapping[str, object]], str]
    """What tables, folders and datasets call a run of it, from its arguments."""
    about: str
    """What is said of it where environments are packages."""

    def has_rows(self, env_args: Mapping[str, object]) -> bool:
        """Whether the arguments say where its rows are, so that settings alone can repeat a run."""
        return self.rows in env_args

    def require_rows(self, env_args: Mapping[str, object], where: str) -> None:
        """Refuse a run without rows.

        Args:
            env_args: Its arguments.
            where: What names it, a flag or a file with key path.

        Raises:
            ConfigError: says how to name the file, and what to do about a run of the Python API.
        """
        if self.has_rows(env_args):
            return
        suite = " or as `dataset` of an [[eval]]" if self.rows == "dataset" else ""
        raise ConfigError(
            f"{where}: {self.env_id} without a {self.rows} file: name one with -a {self.rows}=FILE{suite}. Settings of "
            "a run that a Python program made cannot repeat it, since its rows are in that program: run the program "
            "again, with resume=True to go on"
        )


def _found(module: str, env_id: str) -> FoundEnvironment:
    # The whole file once, as `bench eval` and `bench multi` do: the rows are the user's own.
    defaults: dict[str, object] = {"num_examples": -1, "rollouts_per_example": 1}
    return FoundEnvironment(module, defaults=defaults, defaults_source=f"{env_id} [built-in]")


def _agent_and_rows(env_args: Mapping[str, object]) -> str:
    """An agent and its rows, such as `Loop-rows`."""
    agent, folder = env_args.get("agent"), env_args.get("mcp")
    player = str(agent).rpartition(":")[2] if agent else Path(str(folder or ".")).resolve().name
    return _as_name(f"{player}-{Path(str(env_args.get('dataset') or 'rows')).stem}", AGENT_EVAL)


def _task_file(env_args: Mapping[str, object]) -> str:
    """The stem of the file."""
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
        f"{AGENT_EVAL} is built in, an agent over the rows of a file: `bench eval -m MODULE:AGENT -d FILE --eval-fn "
        "MODULE:FUNCTION --model MODEL` evaluates one, and with --dry-run shows and checks it",
    ),
    MULTI_EVAL: BuiltIn(
        MULTI_EVAL,
        "multi",
        _found("harness.multi.environment", MULTI_EVAL),
        "tasks",
        _task_file,
        f"{MULTI_EVAL} is built in, a list of tasks for several models: `bench multi TASKS -m MODEL -m MODEL` "
        "evaluates them, and with --dry-run shows and checks it",
    ),
}
"""By env_id."""


def built_in(found: FoundEnvironment | None) -> BuiltIn | None:
    """The built-in environment that `found` is; None if it is a package's, or a file's."""
    return next((each for each in BUILT_INS.values() if each.found is found), None)


def as_built_in(name: str) -> BuiltIn | None:
    """The built-in environment that a name without a version would pass for, however it is spelled: a package of that
    name is somebody else's."""
    return BUILT_INS.get(re.sub(r"[-_.]+", "-", name.strip().lower()))
