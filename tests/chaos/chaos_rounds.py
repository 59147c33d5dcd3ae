"""One round of chaos: start the suite, strike it one or more times, resume it to its end, and compare. Owns the order
of things; the catalogue of strikes is `chaos_catalogue`."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from chaos_reader import Findings, check_dead, check_done, journal
from chaos_scene import ENVIRONMENTS, ROLLOUTS, Child, Scene

KILLED = (-signal.SIGKILL,)
INTERRUPTED = (130,)

Damage: TypeAlias = Callable[[Mapping[str, Path]], Sequence[str]]
"""Does something to run folders that nobody writes; returns the keys whose generated lines it has doubled."""


@dataclass(frozen=True)
class Strike:
    """What one start of the suite meets."""

    rules: tuple[Mapping[str, Any], ...] = ()
    codes: tuple[int, ...] = KILLED
    damage: Damage | None = None
    """Done before the start."""
    at_request: int = 0
    """The request at which this process sends a signal; 0 for none."""
    number: signal.Signals = signal.SIGKILL
    twice: bool = False
    """Sends the signal once more when the child says that it is stopping."""
    says: str = ""
    """What must stand on stderr."""
    may_miss: bool = False
    """Whether the run may be over before it comes to that, as with random points."""


@dataclass(frozen=True)
class Round:
    """One to several strikes, each but the first on a resume."""

    group: str
    name: str
    strikes: tuple[Strike, ...]
    singly: bool = False
    """Go on with `bench resume RUN` for each run, instead of the whole suite."""
    trouble: tuple[str, ...] = ()
    """Faults of the server besides the usual ones."""

    @property
    def title(self) -> str:
        """What it is about."""
        return f"{self.group}: {self.name}"

    def verdict(self, scene: Scene, output_dir: str) -> Verdict:
        """Play it in an output folder of its own. What keeps it from its end is a finding, too."""
        verdict, began = Verdict(self), time.monotonic()
        scene.trouble(*self.trouble)
        try:
            _play(scene, self, output_dir, verdict)
        except (AssertionError, ValueError, OSError) as error:
            verdict.found.wrong.append(f"cut short: {type(error).__name__}: {error}")
        verdict.requests, verdict.seconds = scene.asked(), time.monotonic() - began
        return verdict


@dataclass
class Verdict:
    """What came of a round."""

    round: Round
    faults: int = 0
    requests: int = 0
    seconds: float = 0.0
    found: Findings = field(default_factory=Findings)


@dataclass
class Seen:
    """What was on disk when a process had ended."""

    mark: int
    generated: set[str]
    scored: set[str]


def _play(scene: Scene, this: Round, output_dir: str, verdict: Verdict) -> None:
    seen: list[Seen] = []
    doubled: set[str] = set()
    for number, strike in enumerate(this.strikes):
        if strike.damage is not None:
            doubled.update(strike.damage(scene.runs(output_dir)))
            verdict.faults += 1
        if not strike.rules and not strike.at_request:
            continue
        child = scene.start(strike.rules, output_dir, *(["--resume"] if number else []))
        _strike(scene, child, strike, verdict)
        seen.append(look(scene, output_dir, verdict.found))
    if this.trouble:
        scene.relent()
    _finish(scene, this, output_dir, verdict.found)
    verdict.found.duplicated += asked_again(scene, seen)
    runs = scene.runs(output_dir)
    verdict.found.lost += [f"no run of {name}" for name in ENVIRONMENTS.keys() - runs.keys()]
    for name, calm in scene.runs("calm").items():
        if name in runs:
            verdict.found.lost += _gone(runs[name], seen, calm)
            verdict.found.add(check_done(runs[name], calm, doubled=doubled))


def _strike(scene: Scene, child: Child, strike: Strike, verdict: Verdict) -> None:
    if strike.at_request:
        wanted = scene.asked() + strike.at_request
        until(lambda: scene.asked() >= wanted or child.running.process.poll() is not None)
        verdict.faults += child.running.process.poll() is None
        child.running.send(strike.number)
    if strike.twice:
        until(lambda: "stopping:" in child.running.err or child.running.process.poll() is not None)
        child.running.send(strike.number)
        verdict.faults += 1
    done = child.wait()
    codes = (*strike.codes, 0) if strike.may_miss else strike.codes
    verdict.found.add(child.check(done, codes))
    met = child.met()
    verdict.faults += len(met)
    if strike.rules and not met and not strike.may_miss:
        verdict.found.wrong.append(f"never came to {strike.rules}, and proves nothing")
    if strike.says not in " ".join(done.err.split()):
        verdict.found.wrong.append(f"does not say {strike.says!r}: {done.err[-800:]}")


def look(scene: Scene, output_dir: str, found: Findings) -> Seen:
    """Look at what a process has left that is gone."""
    seen = Seen(scene.asked(), set(), set())
    for run in scene.runs(output_dir).values():
        found.add(check_dead(run))
        told = journal(run)
        seen.generated |= told.generated.keys()
        seen.scored |= {key for key, line in told.scored.items() if line["reward"] is not None}
    return seen


def _finish(scene: Scene, this: Round, output_dir: str, found: Findings) -> None:
    """Resume until done."""
    if this.singly:
        commands = [["resume", str(run), "-q"] for run in scene.runs(output_dir).values()]
    else:
        commands = [scene.command(output_dir, "--resume")]
    for command in commands:
        child = scene.start_command(command)
        found.add(child.check(child.wait(), (0,)))


def asked_again(scene: Scene, seen: Iterable[Seen]) -> list[str]:
    """Requests about rollouts that were on disk before: the model's for what was generated, a judge's for what was
    scored."""
    again: list[str] = []
    for each in seen:
        for key, is_judge in scene.asked_since(each.mark):
            assert key, "the server knows who asks"
            if key in (each.scored if is_judge else each.generated):
                again.append(f"{key} was on disk, and {'judged' if is_judge else 'asked for'} again")
    return again


def _gone(run: Path, seen: Iterable[Seen], calm: Path) -> list[str]:
    told, wanted = journal(run), journal(calm).generated.keys()
    once = set[str]().union(*(each.generated for each in seen)) & wanted
    return [f"{key} was on disk, and is gone" for key in once - told.generated.keys()]


def until(condition: Callable[[], bool], patience: float = 60.0) -> None:
    """Return when it holds."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, "never came true"
        time.sleep(0.002)


def report(verdicts: Sequence[Verdict], *, seed: int, seconds: float) -> str:
    """The outcome for people: a line a group of faults, the totals, and every finding in words."""
    groups = list(dict.fromkeys(verdict.round.group for verdict in verdicts))
    table: list[tuple[str, ...]] = [("faults", "rounds", "tried", "lost", "duplicated", "wrong", "left behind")]
    for group in [*groups, "all"]:
        mine = [verdict for verdict in verdicts if group in (verdict.round.group, "all")]
        counts = [sum(len(verdict.found.lists()[at]) for verdict in mine) for at in range(4)]
        table.append((group, *map(str, (len(mine), sum(verdict.faults for verdict in mine), *counts))))
    widths = [max(len(row[at]) for row in table) for at in range(len(table[0]))]
    lines = [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in table
    ]
    rule = "─" * len(lines[0])
    rollouts, requests = ROLLOUTS * len(verdicts), sum(verdict.requests for verdict in verdicts)
    size = f"{rollouts:,} rollouts in {len(ENVIRONMENTS)} environments, {requests:,} requests"
    head = f"chaos, seed {seed}: {size}, {seconds:.0f} s"
    words = [
        f"{kind}: {verdict.round.title}: {text}"
        for verdict in verdicts
        for kind, texts in zip(table[0][3:], verdict.found.lists(), strict=True)
        for text in texts
    ]
    return "\n".join([head, "", lines[0], rule, *lines[1:-1], rule, lines[-1], *([""] if words else []), *words])
