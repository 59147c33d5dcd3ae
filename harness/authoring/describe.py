"""Description of an environment: settings with origins, arguments, dataset, rewards, one sample row. If the environment
cannot be loaded, the description has the parts that need no loading, and the reason."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness.authoring.arguments import LoaderFunction, find_loader
from harness.authoring.package import FUNCTION, Package, code_path, function_of, package_of
from harness.core.errors import ConfigError, HarnessError, UsageError
from harness.core.messages import COMMANDS
from harness.core.records import Row
from harness.core.types import JsonDict
from harness.engine.load_environments import Loader as Builder
from harness.envs.environment import Environment
from harness.envs.multi_turn import MultiTurnEnv
from harness.envs.single_turn import SingleTurnEnv
from harness.settings.environment_lookup import require_environment
from harness.settings.resolver import ResolvedRun, resolve

LOOKED_AT = 200
"""Number of rows to search for columns."""


@dataclass(frozen=True, slots=True)
class EnvironmentDetails:
    """Properties that require a loaded environment."""

    kind: str
    """Name of the environment's class."""
    turns: str
    rows: int
    columns: dict[str, int]
    """Column name → number of rows with a value, among the first `looked_at` rows; keys of `info` are `info.key`."""
    looked_at: int
    rewards: tuple[tuple[str, float | None], ...]
    """Reward functions with their weights: 0 for a metric, None if the weight is unknown."""
    reward_range: tuple[float, float]
    tools: tuple[JsonDict, ...]
    judges: tuple[str, ...]
    has_reference: bool
    needs_live_state: bool
    sample: Row

    def to_json(self) -> JsonDict:
        """Entry `content` of `bench env info --json`."""
        fields = asdict(self)
        del fields["looked_at"]
        rewards = [{"name": name, "weight": weight} for name, weight in self.rewards]
        return {"class": fields.pop("kind"), **fields, "columns": list(self.columns), "rewards": rewards}


@dataclass(frozen=True, slots=True)
class Description:
    """Description of one environment."""

    env_id: str
    module: str
    package: Package
    path: str
    files: tuple[Path, ...]
    loader: LoaderFunction | None
    """The environment's `load_environment`; None if the source was not found."""
    function: str
    settings: dict[str, JsonDict] = field(default_factory=dict[str, JsonDict])
    """The `env` part of `ResolvedRun.described`."""
    content: EnvironmentDetails | None = None
    problem: str = ""
    """Error while loading the environment; "" if it was loaded."""
    exit_code: int = 0
    """Exit code of `bench env info`: 2 if the caller's arguments are the problem."""

    def to_json(self) -> JsonDict:
        """JSON of `bench env info --json`."""
        package, loader, content = self.package, self.loader, self.content
        return {
            "environment": self.env_id,
            "module": self.module,
            "distribution": None if package.kind in ("file", "folder") else package.name,
            "version": package.version or None,
            "summary": package.summary or None,
            "kind": package.kind,
            "classic": package.is_classic,
            "path": self.path,
            "source_files": [str(file) for file in self.files],
            "entry_points": package.entry_points,
            "arguments": None if loader is None else [asdict(each) for each in loader.arguments],
            "settings": self.settings,
            "content": None if content is None else content.to_json(),
            "problem": self.problem or None,
        }  # fmt: skip


def describe(target: str, env_args: Mapping[str, Any] | None = None, *, index: int = 0) -> Description:
    """Describe one environment.

    Args:
        target: Name or path of the environment.
        env_args: Arguments of its `load_environment`.
        index: Row to show as the sample.

    Returns:
        The description. If the environment does not load with these arguments, `content` is None and `problem` has the
        reason.

    Raises:
        UsageError: a setting that applies to the environment is wrong, or there is no such row.
        EnvironmentNotFound: there is no such environment.
    """
    if "," in target or target.endswith(".toml"):
        raise ConfigError(f"{target}: only one environment can be described at a time; give its name or path")
    require_environment(target, COMMANDS["info_command"], Path.cwd())
    [run] = resolve(target, {"model": "reference/null", "env_args": dict(env_args) if env_args else None}).runs
    found = run.found
    assert found is not None
    package = package_of(found)
    function = function_of(package, found.module)
    content, problem, exit_code = _load(run, index)
    return Description(
        run.env_id, found.module, package, code_path(found) or str(found.path or ""), found.source_files,
        find_loader(found.source_files, function) or find_loader(found.source_files, FUNCTION), function,
        _settings(run), content, problem, exit_code,
    )  # fmt: skip


def _settings(run: ResolvedRun) -> dict[str, JsonDict]:
    own = {path.partition(".")[2]: line for path, line in run.described().items() if path.startswith("env.")}
    return {name: line for name, line in own.items() if "." not in name and name not in ("env_id", "name")}


def _load(run: ResolvedRun, index: int) -> tuple[EnvironmentDetails | None, str, int]:
    try:
        environment = Builder().load(run)
        try:
            return _content(environment, index), "", 0
        finally:
            asyncio.run(environment.teardown())
    except UsageError:
        raise
    except HarnessError as error:
        return None, str(error), error.exit_code


def _content(environment: Environment, index: int) -> EnvironmentDetails:
    rows = environment.row_count
    if not 0 <= index < rows:
        raise ConfigError(f"--example {index}: the dataset has {rows:,} rows, numbered from 0")
    rubric = environment.rubric
    looked_at = min(rows, LOOKED_AT)
    columns = Counter[str]()
    for number in range(looked_at):
        columns.update(_columns(environment.row(number), number))
    return EnvironmentDetails(
        type(environment).__name__,
        _turns(environment),
        rows,
        dict(columns),
        looked_at,
        tuple((name, rubric.weights.get(name)) for name in rubric.metric_names),
        rubric.reward_range,
        tuple(environment.tool_defs),
        tuple(judge.model for judge in rubric.judges),
        environment.has_reference,
        rubric.needs_live_state,
        environment.row(index),
    )


def _columns(row: Row, number: int) -> list[str]:
    """Names of the dataset columns that have a value in this row."""
    named = [("answer", row.answer), ("task", row.task)]
    columns = ["prompt", *(name for name, value in named if value), *(f"info.{key}" for key in row.info)]
    return columns if row.example_id == number else [*columns, "example_id"]


def _turns(environment: Environment) -> str:
    if isinstance(environment, SingleTurnEnv):
        return "one reply"
    if not isinstance(environment, MultiTurnEnv):
        return "decided by the environment's own loop"
    if environment.max_turns < 0:
        return "no limit"
    return f"at most {environment.max_turns} {'reply' if environment.max_turns == 1 else 'replies'}"
