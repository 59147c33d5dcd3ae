"""Catalogue of runs, from manifests and summaries: state of each run, damaged files, filters. Reads no journal."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from harness.core.errors import ConfigError, StoreError
from harness.core.types import JsonDict
from harness.settings.wording import suggestion
from harness.store.find_runs import all_runs
from harness.store.manifest import Manifest
from harness.store.rundir import RunDir
from harness.store.values import table

State: TypeAlias = Literal["running", "done", "stopped", "interrupted", "failed", "died", "damaged"]
"""Status of a run as in its manifest, with two more values. `died`: the manifest says `running`, but no process holds
the run's lock. `damaged`: the manifest cannot be read."""

STATES: tuple[str, ...] = get_args(State)
KINDS = ("run", "eval", "multi")

ENDED_EARLY: frozenset[str] = frozenset({"stopped", "interrupted", "failed"})
"""States of runs that ended early and recorded it."""

UNFINISHED: frozenset[str] = frozenset({"died", *ENDED_EARLY})
"""States of incomplete runs, which `bench resume` can resume."""

_AGES = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_AGE = re.compile(r"(\d{1,6})([mhdw])")
_ID_TIME = "%Y%m%dT%H%M%SZ"


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run in a list of runs: its folder, state, manifest and summary."""

    run: RunDir
    state: State
    manifest: Manifest | None
    """The run's manifest; None if it cannot be read."""
    summary: JsonDict | None = None
    """Content of `summary.json`, written when the run last stopped; None if missing or unreadable."""
    problems: tuple[str, ...] = ()
    """Sentences about damaged files."""

    @property
    def id(self) -> str:
        """The run's id."""
        return self.run.id

    @property
    def env_id(self) -> str:
        """Id of the environment; for a damaged run, the name of the folder that contains it."""
        return self.manifest.env_id if self.manifest else self.run.parent.name

    @property
    def name(self) -> str:
        """The run's label; if it has no label, its environment."""
        return (self.manifest.name if self.manifest else "") or self.env_id

    @property
    def title(self) -> str:
        """The environment, followed by the run's label if that is different."""
        return self.env_id if self.name in (self.env_id, self.model) else f"{self.env_id} · {self.name}"

    @property
    def model(self) -> str:
        """Name of the model; "" for a damaged run."""
        return self.manifest.model if self.manifest else ""

    @property
    def kind(self) -> str:
        """Kind of the run, `run`, `eval` or `multi`; "" for a damaged run."""
        return self.manifest.kind if self.manifest else ""

    @property
    def note(self) -> str:
        """Reason for an early end, from the manifest; "" if there is no reason."""
        return self.manifest.note if self.manifest and self.state in ENDED_EARLY else ""

    @property
    def created(self) -> datetime | None:
        """Start time in UTC from the manifest, otherwise from the id; None if unknown."""
        if self.manifest is not None:
            try:
                moment = datetime.fromisoformat(self.manifest.created)
                return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
            except (ValueError, TypeError, OverflowError):  # in UTC, it may be before the year 1
                pass
        try:
            return datetime.strptime(self.id[:16], _ID_TIME).replace(tzinfo=UTC)
        except ValueError:
            return None

    @property
    def planned(self) -> int | None:
        """Number of planned rollouts; None if unknown."""
        planned: Mapping[str, object] = self.manifest.planned if self.manifest else {}
        examples, rollouts = planned.get("num_examples"), planned.get("rollouts_per_example")
        return examples * rollouts if isinstance(examples, int) and isinstance(rollouts, int) else None

    @property
    def final(self) -> JsonDict | None:
        """The summary, if it covers the whole journal; None for a running or killed run."""
        return None if self.state in ("running", "died") else self.summary

    def to_json(self) -> JsonDict:
        """JSON form; the keys are documented in docs/reference/runs.md."""
        names = ("env_id", "name", "model", "created", "command", "suite", "parent")
        return {
            "id": self.id,
            "path": str(self.run.path),
            "state": self.state,
            "note": self.note or None,
            "kind": self.kind or None,
            **{name: getattr(self.manifest, name, None) for name in names},
            "derived": self.manifest.derived if self.manifest else {},
            "planned": self.planned,
            "summary": self.summary,
            "problems": list(self.problems),
        }


def read_entry(path: Path) -> ListedRun:
    """Read the list entry of a run folder. Never raises `StoreError`: errors become `problems`."""
    run = RunDir(path)
    problems: list[str] = []
    manifest = summary = None
    state: State = "damaged"
    try:
        manifest = run.read_manifest()
        if manifest.status not in STATES:
            status = f"the status {manifest.status!r} is not known"
            raise StoreError(f"cannot read {run.manifest_path}: {status}; update bench")
        state = manifest.status
        if state == "running" and not run.is_in_use():
            state = "died"
    except StoreError as error:
        problems.append(str(error))
    try:
        summary = run.read_summary()
    except StoreError as error:
        problems.append(str(error))
    return ListedRun(run, state, manifest if state != "damaged" else None, summary, tuple(problems))


@dataclass(frozen=True, slots=True)
class Filter:
    """Filter of a list of runs. Several values of one field are alternatives; all given fields must match."""

    envs: Sequence[str] = ()
    """Substrings of environment ids or run names; with `*`, patterns for the whole id or name."""
    models: Sequence[str] = ()
    """Substrings of model names; with `*`, patterns for the whole name."""
    states: Sequence[str] = ()
    kinds: Sequence[str] = ()
    since: datetime | None = None
    """Runs that began at this time or later."""
    until: datetime | None = None
    """Runs that began before this time."""

    def __post_init__(self) -> None:
        """Validate states and kinds.

        Raises:
            ConfigError: there is no such state or kind.
        """
        for what, names, known in (("state", self.states, STATES), ("kind", self.kinds, KINDS)):
            for name in names:
                if name not in known:
                    raise ConfigError(suggestion(name, known), setting=what, given=name)

    def keeps(self, entry: ListedRun) -> bool:
        """Return whether a run matches the filter. Fields of a damaged run that cannot be read match."""
        created = entry.created
        return (
            _matches(self.envs, (entry.env_id, entry.name))
            and (entry.manifest is None or _matches(self.models, (entry.model,)))
            and (not self.states or entry.state in self.states)
            and (entry.manifest is None or not self.kinds or entry.kind in self.kinds)
            and (created is None or self.since is None or created >= self.since)
            and (created is None or self.until is None or created < self.until)
        )


def _matches(patterns: Sequence[str], names: Iterable[str]) -> bool:
    """Return whether one of the names contains one of the patterns or, if that has a `*`, matches it completely."""
    for pattern, name in itertools.product(patterns, names):
        parts = [re.escape(part) for part in pattern.casefold().split("*")]
        search = re.fullmatch if len(parts) > 1 else re.search
        if search(".*".join(parts), name.casefold(), re.DOTALL):
            return True
    return not patterns


def moment(text: str, where: str, *, now: datetime | None = None, end: bool = False) -> datetime:
    """Parse a time given by the user, as UTC.

    Args:
        text: A date or time in ISO 8601 (`2026-11-21`, `2026-11-21T09:15`), or an age (`90m`, `12h`, `7d`, `2w`).
        where: The option, for messages.
        now: Current time.
        end: Whether a date means its end instead of its beginning.

    Raises:
        ConfigError: the text is neither a date or time nor an age.
    """
    text = text.strip()
    try:
        if age := _AGE.fullmatch(text):
            return (now or datetime.now(UTC)) - timedelta(**{_AGES[age[2]]: int(age[1])})
        found = datetime.fromisoformat(text)
        found = found if found.tzinfo else found.replace(tzinfo=UTC)
        return found + timedelta(days=1) if end and not re.search("[T ]", text) else found
    except (ValueError, OverflowError):
        raise ConfigError(
            f"{where} {text}: give a date or time in UTC, such as 2026-11-21 or 2026-11-21T09:15, "
            "or an age, such as 90m, 12h, 7d or 2w"
        ) from None


@dataclass(slots=True)
class Catalogue:
    """The runs of one output folder, newest first. Manifests are read on demand and cached.

    Raises:
        StoreError: the output folder cannot be read.
    """

    output_dir: Path
    paths: list[Path] = field(init=False, default_factory=list[Path])
    """All run folders, newest first."""
    _read: dict[Path, ListedRun] = field(init=False, default_factory=dict[Path, ListedRun])

    def __post_init__(self) -> None:
        self.paths = all_runs(self.output_dir)[::-1]

    def __len__(self) -> int:
        """Number of runs in the folder."""
        return len(self.paths)

    def __iter__(self) -> Iterator[ListedRun]:
        """The runs, newest first; each is read once."""
        for path in self.paths:
            if path not in self._read:
                self._read[path] = read_entry(path)
            yield self._read[path]

    def newest(self, most: int) -> Iterator[ListedRun]:
        """Iterate over the newest runs, newest first: at most `most`, or all if `most` is negative."""
        return itertools.islice(self, most if most >= 0 else None)

    def children(self, run_id: str) -> list[ListedRun]:
        """Return the runs derived from the given run, newest first."""
        return [entry for entry in self if entry.manifest is not None and entry.manifest.parent == run_id]


def reward_of(summary: Mapping[str, Any] | None) -> JsonDict:
    """Return the `reward` table of a summary; empty if it has no such table."""
    return table((summary or {}).get("reward"))
