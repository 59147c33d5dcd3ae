"""Manifest of a run (`run.json`): fields, JSON form, and removal of secrets."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

from harness.core.errors import StoreError
from harness.core.redact import hidden, hidden_command, hidden_source, redactor
from harness.core.types import JsonDict

SCHEMA_VERSION = 1
"""Version of the file format. It is increased if older readers would misread the file, but not for new fields."""

PRIVATE = "save.private"
"""Path of the setting that makes a run private."""

RunStatus: TypeAlias = Literal["running", "done", "stopped", "interrupted", "failed"]


@dataclass(frozen=True, slots=True)
class Manifest:
    """Metadata of one run: all that is known before its first rollout, and how it ended."""

    id: str
    """The run folder's name."""
    env_id: str
    model: str
    name: str = ""
    """The run's label in its suite, which distinguishes several runs of one environment."""
    kind: str = "run"
    """Kind of evaluation: `run` for an environment, `eval` for an agent, `multi` for a list of tasks."""
    status: RunStatus = "running"
    """Status of the run; if it is `running` and no process holds the run's lock, the process has died."""
    created: str = ""
    """Creation time of the run in UTC, as ISO 8601 with microseconds."""
    command: str = ""
    """The command line as typed."""
    settings: JsonDict = field(default_factory=dict[str, Any])
    """All settings by dotted path."""
    origins: JsonDict = field(default_factory=dict[str, Any])
    """Origin of each setting, by the same path."""
    identity: JsonDict = field(default_factory=dict[str, Any])
    """Everything that affects results, by name; must be the same when the run is resumed."""
    versions: JsonDict = field(default_factory=dict[str, Any])
    """Versions of Python, this package, the environment's distribution and other packages that affect results."""
    git: JsonDict = field(default_factory=dict[str, Any])
    """`commit` and `dirty` of the working directory; never a remote, whose URL may contain credentials."""
    seed: int | None = None
    metric_names: tuple[str, ...] = ()
    state_columns: tuple[str, ...] = ()
    reward_range: tuple[float, float] = (0.0, 1.0)
    planned: dict[str, int] = field(default_factory=dict[str, int])
    """Planned number of examples and rollouts: `num_examples` and `rollouts_per_example`."""
    parent: str | None = None
    """Id of the run that this one was made from (replayed, rescored), if any."""
    derived: JsonDict = field(default_factory=dict[str, Any])
    """How the run was made from its parent (`how`, `parent`, `path`, …); empty for other runs."""
    suite: str | None = None
    """Id of the run's suite; None if it has no suite."""
    budget: JsonDict = field(default_factory=dict[str, Any])
    """Budget of the last invocation: limits, amounts spent, and the limit reached; empty without a budget. Not part of
    the identity: a run may be resumed with a larger budget."""
    given_up: JsonDict = field(default_factory=dict[str, Any])
    """Usage of abandoned rollouts, which have no line in the journal: a `Usage`, summed over all attempts; may be
    empty."""
    gate: JsonDict = field(default_factory=dict[str, Any])
    """Baseline of a sequential gate: `baseline` (its id), `path`, `model`, `margin`, `order` (seed of the order of the
    examples) and `scores` (the baseline's mean of each example of the plan, in order; the lowest and highest possible
    one where scores are missing). Empty for other runs."""
    note: str = ""
    """Reason for an early end; "" if there is no reason."""
    cluster_key: str = ""
    """Key of the examples' clusters, as the setting or the environment declares it; "" without clusters. Not part of
    the identity, since scores do not depend on it."""
    schema_version: int = SCHEMA_VERSION

    @property
    def is_private(self) -> bool:
        """Whether the run is private to its owner (`--private`)."""
        return self.settings.get(PRIVATE) is True

    @property
    def is_imported(self) -> bool:
        """Whether the run was made from results of another tool, so that it has no settings to repeat it with."""
        return self.derived.get("how") == "import"

    @property
    def functions(self) -> tuple[str, ...]:
        """The evaluation functions of an agent evaluation with several; otherwise empty. Each function is a separate
        score, since a mean over different functions has little meaning."""
        return tuple(self.metric_names) if self.kind == "eval" and len(self.metric_names) > 1 else ()

    def range_of(self, measure: str) -> tuple[float, float]:
        """Minimum and maximum possible value of the reward or a metric; infinite if unknown.

        Args:
            measure: `reward`, or the name of a metric.
        """
        return self.reward_range if measure == "reward" or self.kind == "eval" else (-math.inf, math.inf)

    def to_json(self) -> JsonDict:
        """Content of `run.json`: plain JSON without known secrets or text that looks like one."""
        values: JsonDict = {"schema_version": self.schema_version}
        values |= {name: getattr(self, name) for name in _FIELDS}
        return cast(JsonDict, without_secrets(_hidden(values)))

    @classmethod
    def from_json(cls, value: object) -> Manifest:
        """Parse `run.json`; fields of a newer minor version are ignored.

        Raises:
            StoreError: this is not a manifest, or one of a newer version.
        """
        if not isinstance(value, dict):
            raise StoreError("not a JSON object")
        known = cast(JsonDict, value)
        version = known.get("schema_version")
        if not isinstance(version, int) or version > SCHEMA_VERSION:
            raise StoreError(f"schema_version is {version!r}, this version reads up to {SCHEMA_VERSION}; update bench")
        if missing := [name for name in ("id", "env_id", "model") if not isinstance(known.get(name), str)]:
            raise StoreError(f"fields missing or not strings: {', '.join(missing)}")
        picked = {name: known[name] for name in _FIELDS if name in known}
        _check(picked)
        for name in ("metric_names", "state_columns", "reward_range"):
            if name in picked:
                picked[name] = tuple(picked[name])
        if "reward_range" in picked:  # JSON has no infinity
            ends = cast("tuple[object, ...]", picked["reward_range"])
            if len(ends) != 2 or not all(end is None or type(end) in (int, float) for end in ends):
                raise StoreError("reward_range is not a pair of numbers")
            low, high = picked["reward_range"]
            picked["reward_range"] = (-math.inf if low is None else low, math.inf if high is None else high)
        return cls(**_hidden(picked))  # an older version may have written secrets

    def ended(self, status: RunStatus, note: str = "") -> Manifest:
        """Return a copy with another status.

        Args:
            status: New status.
            note: Why the run ended early.
        """
        return dataclasses.replace(self, status=status, note=note)


_FIELDS = tuple(f.name for f in dataclasses.fields(Manifest) if f.name != "schema_version")

_TYPES: Mapping[str, tuple[type, str]] = {
    **dict.fromkeys(("name", "kind", "status", "note", "created", "command", "cluster_key"), (str, "text")),
    **dict.fromkeys(
        ("settings", "origins", "identity", "versions", "git", "planned", "derived", "gate", "budget", "given_up"),
        (dict, "a JSON object"),
    ),
    **dict.fromkeys(("metric_names", "state_columns", "reward_range"), (list, "a list")),
}
"""Types of fields, with their descriptions for messages. They are validated, since files can be edited or damaged."""


_NUMBERS: Mapping[str, tuple[type, ...]] = {"planned": (int,), "given_up": (int, float, type(None))}
"""Fields that are tables of numbers, with the allowed types of the numbers; None is an unknown cost."""


def _hidden(values: JsonDict) -> JsonDict:
    """Return the fields of a manifest, without named secrets in settings and command line."""
    clean = {name: hidden(values[name]) for name in ("settings", "identity") if name in values}
    if "command" in values:
        clean["command"] = hidden_command(cast(str, values["command"]))
    if "origins" in values:
        origins: JsonDict = {}
        for path, origin in cast(JsonDict, values["origins"]).items():
            # The text of a flag or of `--set` may contain a secret.
            source = cast(JsonDict, origin).get("source") if isinstance(origin, dict) else None
            origins[path] = {**origin, "source": hidden_source(source)} if isinstance(source, str) else origin
        clean["origins"] = origins
    return {**values, **clean}


def _check(picked: JsonDict) -> None:
    """Validate the types of a manifest's fields.

    Raises:
        StoreError: a field has the wrong type; the message names it.
    """
    for name, (kind, words) in _TYPES.items():
        if not isinstance(picked.get(name, kind()), kind):
            raise StoreError(f"{name} must be {words}")
    for name, kinds in _NUMBERS.items():
        amounts = cast(JsonDict, picked.get(name, {}))
        is_valid = {key: type(value) in kinds and (value is None or value >= 0) for key, value in amounts.items()}
        if wrong := [key for key, is_amount in is_valid.items() if not is_amount]:
            raise StoreError(f"{name}: these values must be numbers, 0 or more: {', '.join(wrong)}")


def without_secrets(value: object, name: str = "") -> object:
    """Copy a JSON value, with secrets in its strings redacted. Tuples become lists.

    Args:
        value: Any JSON value.
        name: Key of the value: a key such as `X-Api-Key` marks its value as a secret.
    """
    if isinstance(value, str):
        labelled = redactor.text(f"{name}={value}") if name else redactor.text(value)
        prefix = f"{name}=" if name else ""
        return labelled.removeprefix(prefix) if labelled.startswith(prefix) else redactor.text(value)
    if isinstance(value, Mapping):
        table = cast("Mapping[object, object]", value)
        return {str(key): without_secrets(item, str(key)) for key, item in table.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(item, name) for item in cast("list[object]", value)]
    return value
