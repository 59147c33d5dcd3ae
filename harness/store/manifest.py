"""What `run.json` says of a run. Owns its fields, their JSON and the rule that no secret is in it; knows nothing of
where the file lies."""

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
"""Raised when a reader of the former version would misread a file; new fields alone do not raise it."""

PRIVATE = "save.private"
"""The setting that says who may read a run's files."""

RunStatus: TypeAlias = Literal["running", "done", "stopped", "interrupted", "failed"]


@dataclass(frozen=True, slots=True)
class Manifest:
    """One run, as far as it is known before its first rollout, and how it ended."""

    id: str
    """The run folder's name."""
    env_id: str
    model: str
    name: str = ""
    """The run's label in its suite; tells two runs of one environment apart."""
    kind: str = "run"
    """What was evaluated: `run` an environment, `eval` an agent, `multi` a list of tasks."""
    status: RunStatus = "running"
    """`running` in the file of a run that nobody holds a lock on means that the process died."""
    created: str = ""
    """UTC, ISO 8601 with microseconds."""
    command: str = ""
    """The command line as it was typed."""
    settings: JsonDict = field(default_factory=dict[str, Any])
    """Every setting by its dotted path."""
    origins: JsonDict = field(default_factory=dict[str, Any])
    """Where each setting came from, by the same path."""
    identity: JsonDict = field(default_factory=dict[str, Any])
    """Everything that changes results, by name; a resume needs it equal."""
    versions: JsonDict = field(default_factory=dict[str, Any])
    """Python, this package, the environment's distribution and whatever else shapes results."""
    git: JsonDict = field(default_factory=dict[str, Any])
    """`commit` and `dirty` of the working directory; never a remote, whose URL may hold credentials."""
    seed: int | None = None
    metric_names: tuple[str, ...] = ()
    state_columns: tuple[str, ...] = ()
    reward_range: tuple[float, float] = (0.0, 1.0)
    planned: dict[str, int] = field(default_factory=dict[str, int])
    """`num_examples` and `rollouts_per_example`."""
    parent: str | None = None
    """The run that this one was made from (replayed, rescored), if any."""
    derived: JsonDict = field(default_factory=dict[str, Any])
    """How it was made from that run (`how`, `parent`, `path`, …); empty if it was not."""
    suite: str | None = None
    """Id of the suite that it belongs to."""
    budget: JsonDict = field(default_factory=dict[str, Any])
    """What the invocation that made it last might spend, what it spent, and which bound it met; empty without one. No
    part of the identity: a run may go on with a larger budget."""
    given_up: JsonDict = field(default_factory=dict[str, Any])
    """What replies took that no line of the journal holds, since their rollouts were given up half-way: a `Usage`, of
    all attempts together. Empty if there are none."""
    note: str = ""
    """Why it ended early, in words; "" if it did not."""
    schema_version: int = SCHEMA_VERSION

    @property
    def is_private(self) -> bool:
        """Whether the run was made for the eyes of its owner only."""
        return self.settings.get(PRIVATE) is True

    @property
    def functions(self) -> tuple[str, ...]:
        """The evaluation functions of an agent evaluation that has several; else none. Each is a score of its own: the
        mean of unlike functions, which is the reward, says little."""
        return tuple(self.metric_names) if self.kind == "eval" and len(self.metric_names) > 1 else ()

    def range_of(self, measure: str) -> tuple[float, float]:
        """The least and the greatest value of the reward, or of a metric; infinite where it is unknown.

        Args:
            measure: `reward`, or the name of a metric.
        """
        return self.reward_range if measure == "reward" or self.kind == "eval" else (-math.inf, math.inf)

    def to_json(self) -> JsonDict:
        """The object that goes into `run.json`: plain JSON, known secrets and whatever looks like one taken out."""
        values: JsonDict = {"schema_version": self.schema_version}
        values |= {name: getattr(self, name) for name in _FIELDS}
        return cast(JsonDict, without_secrets(_hidden(values)))

    @classmethod
    def from_json(cls, value: object) -> Manifest:
        """Reads `run.json`; fields that a newer minor version added are left out.

        Raises:
            StoreError: this is no manifest, or one that this version cannot read.
        """
        if not isinstance(value, dict):
            raise StoreError("not a JSON object")
        known = cast(JsonDict, value)
        version = known.get("schema_version")
        if not isinstance(version, int) or version > SCHEMA_VERSION:
            raise StoreError(f"schema_version is {version!r}, this version reads up to {SCHEMA_VERSION}; update bench")
        if missing := [name for name in ("id", "env_id", "model") if not isinstance(known.get(name), str)]:
            raise StoreError(f"{', '.join(missing)} missing or not text")
        picked = {name: known[name] for name in _FIELDS if name in known}
        _check(picked)
        for name in ("metric_names", "state_columns", "reward_range"):
            if name in picked:
                picked[name] = tuple(picked[name])
        if "reward_range" in picked:  # JSON has no infinity
            ends = cast("tuple[object, ...]", picked["reward_range"])
            if len(ends) != 2 or not all(end is None or type(end) in (int, float) for end in ends):
                raise StoreError("reward_range is no pair of numbers")
            low, high = picked["reward_range"]
            picked["reward_range"] = (-math.inf if low is None else low, math.inf if high is None else high)
        return cls(**_hidden(picked))  # one that an older version wrote may hold them

    def ended(self, status: RunStatus, note: str = "") -> Manifest:
        """The same run with another status.

        Args:
            status: The status.
            note: Why it ended early, in words.
        """
        return dataclasses.replace(self, status=status, note=note)


_FIELDS = tuple(f.name for f in dataclasses.fields(Manifest) if f.name != "schema_version")

_TYPES: Mapping[str, tuple[type, str]] = {
    **dict.fromkeys(("name", "kind", "status", "note", "created", "command"), (str, "text")),
    **dict.fromkeys(
        ("settings", "origins", "identity", "versions", "git", "planned", "derived", "budget", "given_up"),
        (dict, "JSON object"),
    ),
    **dict.fromkeys(("metric_names", "state_columns", "reward_range"), (list, "list")),
}
"""What readers rely on; files can be edited, and damaged."""


_NUMBERS: Mapping[str, tuple[type, ...]] = {"planned": (int,), "given_up": (int, float, type(None))}
"""Tables of amounts; `cost` may be unknown."""


def _hidden(values: JsonDict) -> JsonDict:
    """The fields of a manifest without secrets that stand under their names, in settings and in the command line."""
    clean = {name: hidden(values[name]) for name in ("settings", "identity") if name in values}
    if "command" in values:
        clean["command"] = hidden_command(cast(str, values["command"]))
    if "origins" in values:
        clean["origins"] = {path: _origin(line) for path, line in cast(JsonDict, values["origins"]).items()}
    return {**values, **clean}


def _origin(line: object) -> object:
    """An origin without a secret that the text of its flag or `--set` holds."""
    if not isinstance(line, dict):
        return line
    origin = cast(JsonDict, line)
    source: object = origin.get("source")
    return {**origin, "source": hidden_source(source)} if isinstance(source, str) else origin


def _check(picked: JsonDict) -> None:
    """Refuse what no reader of a manifest could do anything with.

    Raises:
        StoreError: names the field.
    """
    for name, (kind, words) in _TYPES.items():
        if not isinstance(picked.get(name, kind()), kind):
            raise StoreError(f"{name} is no {words}")
    for name, kinds in _NUMBERS.items():
        amounts = cast(JsonDict, picked.get(name, {}))
        if wrong := [key for key, value in amounts.items() if not _is_amount(value, kinds)]:
            raise StoreError(f"{name}: {', '.join(wrong)} is no number of 0 or more")


def _is_amount(value: object, kinds: tuple[type, ...]) -> bool:
    return type(value) in kinds and (value is None or cast(float, value) >= 0)


def without_secrets(value: object, name: str = "") -> object:
    """A copy of a JSON value in which no text holds a secret. Tuples become lists.

    Args:
        value: Any JSON value.
        name: The key it stands under: `X-Api-Key` says of its value what the value alone does not.
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
