"""Rounds that are no sequence of strikes: two processes at once, environments in processes of their own, damage in the
middle of a journal, a clock that jumps. Owns those; each is judged as every other round is."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from bench_runs import PATIENCE
from chaos_catalogue import EARLY, GENERATED, at
from chaos_reader import Findings, check_done, journal
from chaos_rounds import Round, Verdict, asked_again, look, until
from chaos_scene import Child, Scene

DAY = 86_400.0

Play: TypeAlias = Callable[[Scene, str, Verdict], None]


@dataclass(frozen=True)
class Other:
    """A round and how it goes."""

    round: Round
    play: Play

    @property
    def title(self) -> str:
        """What it is about."""
        return self.round.title

    def verdict(self, scene: Scene, output_dir: str) -> Verdict:
        """Play it."""
        verdict, began = Verdict(self.round), time.monotonic()
        scene.trouble()
        try:
            self.play(scene, output_dir, verdict)
        except (AssertionError, ValueError, OSError) as error:
            verdict.found.wrong.append(f"cut short: {type(error).__name__}: {error}")
        verdict.requests, verdict.seconds = scene.asked(), time.monotonic() - began
        return verdict


def others() -> list[Other]:
    """All of them."""
    two, workers, clock = "two processes", "--workers 2", "clock"
    return [
        Other(Round("damage", "a line in the middle", ()), _corrupt_middle),
        Other(Round(two, "a resume of a run that goes on", ()), _resume_of_a_live_run),
        Other(Round(two, "two resumes of a dead run at once", ()), _two_resumes),
        Other(Round(two, "two new runs in the same second", ()), _same_second),
        Other(Round(workers, "SIGKILL of the parent", ()), _dead_parent),
        Other(Round(workers, "SIGKILL of a worker", ()), _dead_worker),
        Other(Round(clock, "a day forward in a run", ()), _jump(DAY)),
        Other(Round(clock, "a day back in a run", ()), _jump(-DAY)),
        Other(Round(clock, "a day ahead, killed, and set right", ()), _ahead),
    ]


def _corrupt_middle(scene: Scene, output_dir: str, verdict: Verdict) -> None:
    """It is refused by file and line, nothing is changed, nothing is asked; a restored copy goes on."""
    child = scene.start(EARLY.rules, output_dir)
    child.wait()
    verdict.faults += 1
    runs = scene.runs(output_dir)
    run = max(runs.values(), key=lambda each: (each / "journal.jsonl").stat().st_size)
    path = run / "journal.jsonl"
    good = path.read_bytes()
    lines = good.split(b"\n")
    assert len(lines) > 3, "there is a middle"
    lines[1] = lines[1][: len(lines[1]) // 2]
    path.write_bytes(b"\n".join(lines))
    bad, mark = path.read_bytes(), scene.asked()
    refused = scene.start_command(["resume", str(run), "-q"])
    done = refused.wait()
    verdict.found.add(refused.check(done, (1,)))
    expect(verdict.found, f"{path.name}:2 " in done.err and "cannot be read" in done.err, done.err)
    expect(verdict.found, path.read_bytes() == bad, "the damaged journal was changed")
    expect(verdict.found, scene.asked() == mark, "something was asked for")
    path.write_bytes(good)
    seen = [look(scene, output_dir, verdict.found)]
    _end(scene, output_dir, verdict)
    verdict.found.duplicated += asked_again(scene, seen)


def _resume_of_a_live_run(scene: Scene, output_dir: str, verdict: Verdict) -> None:
    with _held(scene, output_dir) as (child, run):
        pid = child.running.process.pid
        for command, words in (
            (["resume", str(run), "-q"], "is being written by another process"),
            (scene.command(output_dir, "--resume"), f"is being written by another process (pid {pid})"),
        ):
            second = scene.start_command(command)
            done = second.wait()
            verdict.faults += 1
            verdict.found.add(second.check(done, (1,)))
            expect(verdict.found, words in " ".join(done.err.split()), done.err)
        assert child.running.process.poll() is None, "the first one goes on"
    seen = [look(scene, output_dir, verdict.found)]
    _end(scene, output_dir, verdict)
    verdict.found.duplicated += asked_again(scene, seen)


def _two_resumes(scene: Scene, output_dir: str, verdict: Verdict) -> None:
    scene.start(EARLY.rules, output_dir).wait()
    seen = [look(scene, output_dir, verdict.found)]
    pair = [scene.start([], output_dir, "--resume") for _ in range(2)]
    verdict.faults += 2
    for child in pair:
        verdict.found.add(child.check(child.wait(), (0, 1)))
    # Each run is resumed by the one that comes first, which need not be the same for all four.
    states = {
        name: json.loads((run / "run.json").read_text())["status"] for name, run in scene.runs(output_dir).items()
    }
    expect(verdict.found, set(states.values()) == {"done"}, f"neither of two resumes came to an end: {states}")
    mark = scene.asked()
    _end(scene, output_dir, verdict)
    expect(verdict.found, scene.asked() == mark, "both were done, and something was asked for")
    verdict.found.duplicated += asked_again(scene, seen)


def _dead_parent(scene: Scene, output_dir: str, verdict: Verdict) -> None:
    """Its workers end with it, and a process without any goes on."""
    child = scene.start(EARLY.rules, output_dir, "--workers", "2")
    expect(verdict.found, child.wait().code == -signal.SIGKILL, "it was not killed")
    verdict.faults += len(child.met())
    until(lambda: not list(child.processes()))
    seen = [look(scene, output_dir, verdict.found)]
    _end(scene, output_dir, verdict)
    verdict.found.duplicated += asked_again(scene, seen)


def _dead_worker(scene: Scene, output_dir: str, verdict: Verdict) -> None:
    """The run goes on with another, and what the dead one held is tried again when that is asked for."""
    scene.trouble(latency=0.1)
    child = scene.start([], output_dir, "--workers", "2")
    until(lambda: scene.asked() >= 12)
    os.kill(_worker(child), signal.SIGKILL)
    verdict.faults += 1
    done = child.wait()
    verdict.found.add(child.check(done, (0,)))
    expect(verdict.found, "killed by SIGKILL" in " ".join(done.err.split()), done.err)
    seen = [look(scene, output_dir, verdict.found)]
    scene.relent()
    ended(scene.start([], output_dir, "--resume", "--retry-failed"), verdict.found)
    found = Findings()
    compare(scene, output_dir, found)
    # What the dead process had asked for was paid for, and is made again: the bill is larger, and nothing else is.
    found.wrong = [words for words in found.wrong if ": usage is " not in words]
    verdict.found.add(found)
    verdict.found.duplicated += asked_again(scene, seen)


def _worker(child: Child) -> int:
    """A process that runs an environment: the last of those that have started one another."""
    pids, parents = set(child.processes()), set[int]()
    for pid in pids:
        with suppress(OSError):  # gone by now
            parents.add(int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]))
    return min(pids - parents)


def _same_second(scene: Scene, output_dir: str, verdict: Verdict) -> None:
    """Both are whole, each in a folder of its own, and the card knows both."""
    pair = [scene.start([], output_dir) for _ in range(2)]
    verdict.faults += 1
    for child in pair:
        ended(child, verdict.found)
    folders: dict[str, list[Path]] = defaultdict(list)
    for path in sorted((scene.cwd / output_dir / "evals").glob("*/*/run.json")):
        folders[json.loads(path.read_text())["env_id"]].append(path.parent)
    for name, calm in scene.runs("calm").items():
        expect(verdict.found, len(folders[name]) == 2, f"{name} has the runs {folders[name]}")
        for run in folders[name]:
            verdict.found.add(check_done(run, calm))
            card = (run.parent / "README.md").read_text()
            expect(verdict.found, f"- config_name: {run.name}\n" in card, f"the card does not know {run.name}")


def _jump(seconds: float) -> Play:
    def play(scene: Scene, output_dir: str, verdict: Verdict) -> None:
        """Deadlines, pauses and times hang on no wall clock: nothing times out, nothing lasts a day."""
        rules = [{"call": "time", "do": str(seconds), "nth": 60}]
        child = scene.start_command(scene.command(output_dir), rules, own=True)
        ended(child, verdict.found)
        verdict.faults += len(child.met())
        expect(verdict.found, len(child.met()) == 1, f"the clock jumped {len(child.met())} times")
        for name, run in scene.runs(output_dir).items():
            whole = json.loads((run / "summary.json").read_text())
            expect(verdict.found, 0 < whole["wall_s"] < DAY / 2, f"{name} lasted {whole['wall_s']} s")
            for line in journal(run).generated.values():
                spans = [line["timing"][part] for part in ("generation", "model", "waiting")]
                expect(verdict.found, all(0 <= span < DAY / 2 for span in spans), f"{name}: {line['timing']}")
        compare(scene, output_dir, verdict.found)

    return play


def _ahead(scene: Scene, output_dir: str, verdict: Verdict) -> None:
    """The run that is resumed has an id of tomorrow."""
    rules = [{"call": "time", "do": str(DAY)}, at("write", holds=GENERATED, nth=6, when="after")]
    child = scene.start_command(scene.command(output_dir), rules, own=True)
    child.wait()
    verdict.faults += len(child.met())
    expect(verdict.found, len(child.met()) == 2, f"met {child.met()}")
    seen = [look(scene, output_dir, verdict.found)]
    _end(scene, output_dir, verdict)
    verdict.found.duplicated += asked_again(scene, seen)


@contextmanager
def _held(scene: Scene, output_dir: str) -> Iterator[tuple[Child, Path]]:
    """A run of the suite that is under way as long as the block lasts; with the folder of one that has begun."""
    scene.relent("hang@at=20-")
    child = scene.start([], output_dir)
    until(lambda: "hang" in scene.server.met)
    run = max(scene.runs(output_dir).values(), key=lambda each: len(journal(each).generated))
    yield child, run
    scene.relent()
    child.running.process.kill()
    child.wait()


def ended(child: Child, found: Findings, patience: float = PATIENCE) -> None:
    """Wait for a command that must succeed and leave nothing."""
    found.add(child.check(child.wait(patience), (0,)))


def _end(scene: Scene, output_dir: str, verdict: Verdict) -> None:
    ended(scene.start([], output_dir, "--resume"), verdict.found)
    compare(scene, output_dir, verdict.found)


def compare(scene: Scene, output_dir: str, found: Findings) -> None:
    """Compare each run with the undisturbed one."""
    runs = scene.runs(output_dir)
    for name, calm in scene.runs("calm").items():
        found.add(check_done(runs[name], calm))


def expect(found: Findings, holds: bool, words: str) -> None:
    """Count as wrong what does not hold."""
    if not holds:
        found.wrong.append(words)
