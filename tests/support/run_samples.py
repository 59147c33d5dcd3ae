"""Runs that have ended, or have not, for tests of what is shown of them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from store_samples import generated, make_run, scored, write
from store_samples import rollouts as sums

from harness.core.records import Record
from harness.core.types import Usage
from harness.stats.summary import summarize
from harness.store.outcomes import read_journal
from harness.store.rundir import RunDir
from harness.store.score_table import tally


class Done(Protocol):
    """What one command left behind."""

    @property
    def code(self) -> int: ...
    @property
    def out(self) -> str: ...
    @property
    def err(self) -> str: ...


class Bench(Protocol):
    """The fixture `bench`: a command run in this process."""

    def __call__(self, *arguments: str) -> Done: ...


START = datetime(2026, 11, 21, 9, 15, 3, 250_000, tzinfo=UTC)

SETTINGS: dict[str, Any] = {
    "env.env_id": "sums",
    "env.env_args": {"size": 4},
    "env.env_args.size": 4,
    "env.num_examples": 4,
    "env.pass_threshold": 1.0,
    "env.timeout": None,
    "model.model": "lab/m-1",
}
ORIGINS: dict[str, Any] = {
    "env.env_id": {"origin": "cli", "source": "bench run sums"},
    "env.env_args": {"origin": "cli", "source": "-a size"},
    "env.env_args.size": {"origin": "cli", "source": "-a size"},
    "env.num_examples": {"origin": "builtin", "source": "built-in"},
    "env.pass_threshold": {"origin": "builtin", "source": "built-in"},
    "env.timeout": {"origin": "builtin", "source": "built-in"},
    "model.model": {"origin": "eval", "source": "suite.toml eval[0].model"},
}


def named(run: RunDir, run_id: str) -> RunDir:
    """The same run under another id, in its manifest as well."""
    manifest = run.read_manifest()
    moved = RunDir(run.path.rename(run.parent / run_id))
    moved.write_manifest(type(manifest)(**{**_fields(manifest), "id": run_id}))
    return moved


def _fields(manifest: object) -> dict[str, Any]:
    return {name: getattr(manifest, name) for name in manifest.__dataclass_fields__}  # type: ignore[attr-defined]


def run_at(output_dir: Path, minute: int = 0, letters: str = "aaaa", **changes: Any) -> RunDir:
    """A run that began so many minutes after START, without a journal."""
    moment = START + timedelta(minutes=minute)
    created = changes.pop("created", moment.isoformat(timespec="microseconds").replace("+00:00", "Z"))
    values: dict[str, Any] = {
        "status": "done", "created": created, "planned": {"num_examples": 4, "rollouts_per_example": 1},
        "settings": SETTINGS, "origins": ORIGINS, "versions": {"python": "3.13.1"}, "command": "bench run sums -n 4",
    }  # fmt: skip
    return named(make_run(output_dir, **{**values, **changes}), f"{moment:%Y%m%dT%H%M%SZ}-{letters}")


def finished(output_dir: Path, records: Iterable[Record] = (), **changes: Any) -> RunDir:
    """A run with a journal, four sums by default, and the summary that the engine would leave."""
    run = run_at(output_dir, **changes)
    write(run.journal_path, records or sums(4))
    summarized(run)
    return run


def summarized(run: RunDir) -> None:
    """Write the summary of what the journal holds."""
    planned = run.read_manifest().planned
    rollouts = planned["rollouts_per_example"]
    summary = summarize(
        tally(read_journal(run)), pass_threshold=1.0, rollouts_per_example=rollouts,
        planned=planned["num_examples"] * rollouts, reward_range=(0.0, 1.0), wall_s=61.0,
    )  # fmt: skip
    run.write_summary(summary.to_json())


def paid(index: int, reward: float, *, rollout: int = 0, cost: float | None = None, **changes: Any) -> list[Record]:
    """A rollout that used tokens, with its score."""
    usage = Usage(1000, 200, requests=1, cost=cost)
    return [generated(index, rollout, usage=usage, **changes), scored(index, rollout, reward)]
