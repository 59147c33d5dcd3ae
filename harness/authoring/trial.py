"""Run reference policies on an environment to check it, with the settings, plan, engine, server and journal of
`bench run`. The results are read from run folders in a temporary folder."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import cast

from harness.core.messages import COMMANDS
from harness.core.records import Failed, Scored
from harness.core.types import JsonDict, Prompt
from harness.engine.evaluation import Evaluation
from harness.engine.prepare import LiveRun, StartOptions
from harness.settings.resolver import ResolvedRun, resolve
from harness.store.journal import scan
from harness.store.outcomes import Outcome, outcomes, read_journal
from harness.store.rundir import RunDir
from harness.usercode import event_loop

WATCHDOG = "harness.engine.watchdog"


@dataclass(frozen=True, slots=True)
class TrialRequest:
    """Environment to check, and number of examples."""

    target: str
    """Name or path of the environment."""
    env_args: JsonDict
    num_examples: int
    """Number of examples; −1 for all. Fewer are drawn at random from the whole dataset, to cover more kinds of them."""
    per_example: int | None = 1
    """Rollouts per example; None for the environment's own setting."""

    def resolved(self, policy: str, folder: Path, **more: object) -> ResolvedRun:
        """Resolve the settings of a run of a reference policy on the environment.

        Raises:
            UsageError: the environment does not exist, or a setting that applies to it is wrong.
        """
        flags: dict[str, object] = {
            "model": f"reference/{policy}",
            "env_args": self.env_args,
            "num_examples": self.num_examples,
            "rollouts_per_example": self.per_example,
            "shuffle": self.num_examples != -1,
            "output_dir": str(folder),
            "save_every": -1,
            **more,
        }
        [run] = resolve(self.target, flags).runs
        return run


@dataclass(frozen=True, slots=True)
class PlayedRollout:
    """One rollout, read from its journal."""

    example: str
    """Id of the example, as text."""
    reward: float | None
    metrics: dict[str, float | None]
    why: str
    """Reason for a missing reward; "" if the rollout has one."""
    culprits: tuple[str, ...]
    """Names of reward functions that returned no score."""
    completion: Prompt
    seconds: float
    """Seconds that scoring took."""
    state: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


@dataclass(slots=True)
class Trial:
    """Rollouts of one policy."""

    policy: str
    rollouts: dict[str, PlayedRollout] = field(default_factory=dict[str, PlayedRollout])
    """Rollouts by rollout key."""
    note: str = ""
    """Reason why the run failed or ended early; "" if it is complete."""
    folder: Path | None = None
    """Folder of the run."""


@dataclass(slots=True)
class Played:
    """The trials of one pass, which run concurrently, and the warnings logged during the pass."""

    trials: list[Trial]
    blocked: dict[str, int] = field(default_factory=dict[str, int])
    """Functions that blocked the event loop, as `function (file:line)`, each with the number of times."""
    warnings: list[str] = field(default_factory=list[str])
    """Other warnings that bench logged, such as a failed cleanup."""

    @property
    def rollouts(self) -> list[PlayedRollout]:
        """Rollouts of all trials."""
        return [rollout for trial in self.trials for rollout in trial.rollouts.values()]


def play_policies(asked: TrialRequest, policies: Sequence[str], folder: Path, *, resume: bool = False) -> Played:
    """Load the environment and run policies on it.

    Args:
        asked: Environment and examples to run.
        policies: Names of reference policies: `oracle`, `null`, …
        folder: Output folder of the runs; may be used again.
        resume: Resume the runs in that folder, and score one rollout at a time.

    Raises:
        UsageError: `bench run` would reject the settings.
    """
    import uvloop

    gate: Mapping[str, object] = {"max_concurrent_scoring": 1} if resume else {}
    runs = [asked.resolved(policy, folder, **gate) for policy in policies]
    evaluation = Evaluation(runs, start=StartOptions(command=COMMANDS["check_command"], resume=resume))
    with _logged() as records:
        prepared = evaluation.prepare()
        ready = [run for run in prepared if isinstance(run, LiveRun)]
        if ready:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                event_loop.run(runner, evaluation.play(ready))
    trials = [Trial(policy) for policy in policies]
    for trial, run in zip(trials, prepared, strict=True):
        if run.progress.state != "done":
            trial.note = run.progress.note or run.progress.state
        if isinstance(run, LiveRun) and run.folder.journal_path.exists():
            trial.folder = run.folder.path
            trial.rollouts = {each.base.key: _rollout(each) for each in outcomes(read_journal(run.folder))}
    return Played(
        trials,
        _blocked([record for record in records if record.name == WATCHDOG]),
        list(dict.fromkeys(record.getMessage() for record in records if record.name != WATCHDOG)),
    )


def _blocked(records: Sequence[logging.LogRecord]) -> dict[str, int]:
    """Count how often each function blocked the event loop, from the log of the watchdog. The watchdog logs a function
    when it first blocks the loop, and at the end of the run with the total number."""
    times: dict[tuple[object, str], int] = {}
    for record in records:
        run, where, *more = cast("tuple[object, ...]", record.args or ("", record.getMessage()))
        known = times.get((run, str(where)), 0)
        times[run, str(where)] = max(known, more[0] if more and isinstance(more[0], int) else 1)
    found = Counter[str]()
    for (_, where), number in times.items():
        found[where] += number
    return found


def score_from_journal(asked: TrialRequest, played: Played, folder: Path) -> Played:
    """Score again from the journals alone, as after a crash before scoring.

    Args:
        asked: The request that led to `played`.
        played: Rollouts to score.
        folder: Folder for copies of the runs; must be empty.

    Raises:
        UsageError: the runs cannot be resumed, because the environment has changed.
    """
    for trial in played.trials:
        if trial.folder is None:
            continue
        source = RunDir(trial.folder)
        target = RunDir(folder / "evals" / trial.folder.parent.name / trial.folder.name)
        target.path.mkdir(parents=True)
        target.manifest_path.write_bytes(source.manifest_path.read_bytes())
        raw = source.journal_path.read_bytes()
        with target.journal_path.open("wb") as file:
            for start, end, document in scan(source.journal_path):
                if document.get("type") != Scored.kind:
                    file.write(raw[start:end])
    return play_policies(asked, [trial.policy for trial in played.trials], folder, resume=True)


def _rollout(outcome: Outcome) -> PlayedRollout:
    base, score, name = outcome.base, outcome.score, str(outcome.example.example_id)
    if isinstance(base, Failed):
        return PlayedRollout(name, None, {}, f"failed: {base.error or base.reason}", (), base.completion, 0.0)
    state, lost = tuple(base.state), base.lost
    if score is None:
        return PlayedRollout(name, None, {}, "was not scored", (), base.completion, 0.0, state, lost)
    reasons = score.reasons if score.reward is None else {}
    why = "; ".join(f"{function} {words}" for function, words in reasons.items())
    culprits = tuple(function for function in reasons if function != "*")
    return PlayedRollout(name, score.reward, score.metrics, why, culprits, base.completion, score.seconds, state, lost)


@contextlib.contextmanager
def _logged() -> Generator[list[logging.LogRecord]]:
    """Collect the warnings that bench logs instead of printing them, so that a finding can list them."""
    collector, ours = BufferingHandler(sys.maxsize), logging.getLogger("harness")
    collector.setLevel(logging.WARNING)
    level, propagates = ours.level, ours.propagate
    ours.addHandler(collector)
    ours.setLevel(logging.WARNING)
    ours.propagate = False
    try:
        yield collector.buffer
    finally:
        ours.removeHandler(collector)
        ours.setLevel(level)
        ours.propagate = propagates
