"""Runs side by side in one process: what they share, how they are stopped, and that none can end another."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from engine_parts import until

from harness.core.errors import ConfigError
from harness.engine.budget import Budget
from harness.engine.evaluation import Evaluation
from harness.engine.listeners import EvaluationListener
from harness.engine.prepare import FailedRun, LiveRun, StartOptions, prepare, progress_of
from harness.settings.budget import BudgetLimits
from harness.settings.resolver import resolve
from harness.store.journal_index import Recorded

HELD = """
import asyncio
from harness import Rubric, SingleTurnEnv, teardown

class Held(SingleTurnEnv):
    waiting = 0
    torn_down = 0
    release = None

    async def setup_state(self, state):
        if state["answer"] == "cancel":
            asyncio.current_task().cancel()
            await asyncio.sleep(0)
        if state["answer"] == "hold":
            Held.waiting += 1
            await asyncio.Event().wait()

    def reference_reply(self, example, messages):
        return "yes"

    @teardown
    async def count(self):
        Held.torn_down += 1

class Broken(Rubric):
    @property
    def needs_live_state(self):
        return 1 / 0

async def fine():
    return 1.0

def load_environment(answers=("a", "b", "c"), broken=False):
    rows = [{"question": f"{n}", "answer": answer} for n, answer in enumerate(answers)]
    return Held(dataset=rows, rubric=(Broken if broken else Rubric)([fine]))
"""


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[LiveRun]]:
    """Runs of `held_<n>` modules that exist for this test alone, one for each given set of arguments."""
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "modules").mkdir()
    name = f"held_{abs(hash(tmp_path)) % 10**12}"
    (tmp_path / "modules" / f"{name}.py").write_text(HELD)

    def make(*args: dict[str, object], **options: object) -> list[LiveRun]:
        suite = "".join(f'[[eval]]\nenv_id = "{name}"\nname = "run-{n}"\n' for n, _ in enumerate(args))
        for number, each in enumerate(args):
            text = ", ".join(f"{key} = {json.dumps(value)}" for key, value in each.items())
            suite = suite.replace(f'name = "run-{number}"\n', f'name = "run-{number}"\nenv_args = {{ {text} }}\n')
        (tmp_path / "suite.toml").write_text(suite)
        flags = {"model": "reference/oracle", "num_examples": -1, "rollouts_per_example": 1, **options}
        resolution = resolve("suite.toml", flags)
        runs = prepare(resolution.runs, [progress_of(run) for run in resolution.runs], StartOptions())
        assert not [run.error for run in runs if isinstance(run, FailedRun)]
        return [run for run in runs if isinstance(run, LiveRun)]

    return make


def status(run: LiveRun) -> str:
    return json.loads(run.folder.manifest_path.read_text())["status"]


def test_what_does_not_finish_within_the_drain_is_given_up(prepared: Callable[..., list[LiveRun]]) -> None:
    quick, held = prepared({}, {"answers": ["a", "hold", "hold"]})

    async def main() -> None:
        suite = Evaluation([], drain=0.1)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(suite.play([quick, held]))
            await until(lambda: held.plan.environment.waiting == 2 and held.progress.scored == 1)  # type: ignore[attr-defined]
            await until(lambda: quick.progress.state == "done")
            suite.interrupt()
            suite.interrupt()

    asyncio.run(main())
    assert (quick.progress.state, held.progress.state) == ("done", "interrupted")
    assert (status(quick), status(held)) == ("done", "interrupted")
    assert held.summary is not None
    assert (held.summary.scored, held.summary.unscored, held.summary.not_run) == (1, {}, 2)
    assert held.progress.generating == 0


def test_runs_of_one_environment_share_it_and_it_is_torn_down_once(prepared: Callable[..., list[LiveRun]]) -> None:
    first, second, other = prepared({}, {}, {"answers": ["z"]})
    assert first.plan.environment is second.plan.environment
    assert first.plan.environment is not other.plan.environment
    asyncio.run(Evaluation([]).play([first, second, other]))
    assert [run.progress.state for run in (first, second, other)] == ["done"] * 3
    assert type(first.plan.environment).torn_down == 2  # type: ignore[attr-defined]


def test_what_a_resume_finds_is_known_from_its_beginning(prepared: Callable[..., list[LiveRun]]) -> None:
    [first] = prepared({})
    asyncio.run(Evaluation([]).play([first]))
    flags = {"model": "reference/oracle", "num_examples": -1, "rollouts_per_example": 2}
    resolution = resolve("suite.toml", flags)
    [again] = prepare(resolution.runs, [progress_of(run) for run in resolution.runs], StartOptions(resume=True))
    assert isinstance(again, LiveRun) and (again.folder.path, again.progress.held) == (first.folder.path, 0)
    asyncio.run(Evaluation([]).play([again]))
    assert (again.progress.held, again.progress.resumed, again.progress.done) == (3, 3, 6)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are listed on Linux")
def test_an_interrupted_resume_leaves_its_journal_closed(prepared: Callable[..., list[LiveRun]]) -> None:
    flags = {"max_concurrent_generation": 1, "rollouts_per_example": 1}
    [first] = prepared({"answers": ["a", "hold", "c"]}, **flags)

    async def interrupt_the_second_rollout(run: LiveRun) -> Evaluation:
        evaluation, waiting = Evaluation([], drain=0.1), run.plan.environment.waiting  # type: ignore[attr-defined]
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(evaluation.play([run]))
            await until(lambda: run.plan.environment.waiting == waiting + 1 and run.progress.scored == 1)  # type: ignore[attr-defined]
            evaluation.interrupt()
        return evaluation

    asyncio.run(interrupt_the_second_rollout(first))
    resolution = resolve("suite.toml", {"model": "reference/oracle", "num_examples": -1, **flags})
    [again] = prepare(resolution.runs, [progress_of(run) for run in resolution.runs], StartOptions(resume=True))
    assert isinstance(again, LiveRun)
    evaluation = asyncio.run(interrupt_the_second_rollout(again))
    assert len(evaluation.schedules) == 1 and again.progress.state == "interrupted"
    open_files = [Path(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
    assert again.folder.journal_path.resolve() not in [each.readlink() for each in open_files if each.is_symlink()]


def test_each_run_has_a_status_until_it_ends(prepared: Callable[..., list[LiveRun]]) -> None:
    quick, held = prepared({}, {"answers": ["hold"]})

    def have_status() -> list[bool]:
        return [(run.folder.path / "status.json").exists() for run in (quick, held)]

    async def main() -> None:
        suite = Evaluation([], drain=0.0)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(suite.play([quick, held]))
            await until(lambda: have_status()[1] and quick.progress.state == "done")
            assert have_status() == [False, True]
            suite.interrupt()

    asyncio.run(main())
    assert have_status() == [False, False]


def test_a_bug_in_one_run_is_noted_there_and_ends_no_other(
    prepared: Callable[..., list[LiveRun]], caplog: pytest.LogCaptureFixture
) -> None:
    good, bad = prepared({}, {"broken": True})
    asyncio.run(Evaluation([]).play([good, bad]))
    assert (good.progress.state, bad.progress.state) == ("done", "failed")
    assert bad.progress.note == "internal error: ZeroDivisionError: division by zero"
    assert status(bad) == "stopped"
    assert bad.folder.read_manifest().note == bad.progress.note
    assert [record.message for record in caplog.records] == ["internal error in run run-1"]
    assert type(good.plan.environment).torn_down == 2  # type: ignore[attr-defined]


def test_a_folder_that_vanishes_ends_its_run_alone(prepared: Callable[..., list[LiveRun]]) -> None:
    good, lost = prepared({}, {"answers": ["a", "hold"]})

    async def main() -> None:
        suite = Evaluation([], drain=0.1)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(suite.play([good, lost]))
            await until(lambda: lost.progress.scored == 1 and good.progress.state == "done")
            await asyncio.to_thread(shutil.rmtree, lost.folder.path)
            suite.interrupt()

    asyncio.run(main())
    assert (good.progress.state, lost.progress.state) == ("done", "failed")
    assert str(lost.folder.path) in lost.progress.note
    assert good.summary is not None and good.summary.scored == 3


def test_an_interrupt_before_the_first_rollout_starts_none(prepared: Callable[..., list[LiveRun]]) -> None:
    [run] = prepared({"answers": ["hold"] * 3})

    async def main() -> None:
        suite = Evaluation([])
        suite.interrupt()
        await suite.play([run])

    asyncio.run(main())
    assert (run.progress.state, run.plan.environment.waiting) == ("interrupted", 0)  # type: ignore[attr-defined]
    assert run.summary is not None and run.summary.not_run == 3


def test_quitting_while_a_run_is_written_down_waits_for_that_and_says_how_it_ended(
    prepared: Callable[..., list[LiveRun]],
) -> None:
    [run] = prepared({})
    quitting, goes_on = threading.Event(), threading.Event()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        whole = asyncio.current_task()
        assert whole is not None

        def quit_now() -> None:
            whole.cancel()
            loop.call_later(0.05, goes_on.set)

        def recorded(_run: LiveRun, _: Recorded) -> None:
            quitting.set()
            loop.call_soon_threadsafe(quit_now)
            assert goes_on.wait(60)

        await Evaluation([], listener=EvaluationListener(recorded=recorded)).play([run])

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    assert quitting.is_set()
    assert (run.progress.state, status(run), run.folder.has_data()) == ("done", "done", True)
    assert run.summary is not None and run.summary.scored == 3


def test_a_joint_bound_holds_over_all_runs(prepared: Callable[..., list[LiveRun]]) -> None:
    first, second = prepared({}, {"answers": ["x", "y", "z"]})
    most = 0
    for run in (first, second):
        play = run.plan.environment.play

        async def counted(state: object, play: Callable[..., object] = play) -> None:
            nonlocal most
            most = max(most, first.progress.generating + second.progress.generating)
            await play(state)  # type: ignore[misc]

        run.plan.environment.play = counted  # type: ignore[method-assign]
    asyncio.run(Evaluation([], in_flight=1).play([first, second]))
    assert most == 1
    assert [run.progress.scored for run in (first, second)] == [3, 3]
    assert [run.progress.state for run in (first, second)] == ["done", "done"]


def test_a_listener_hears_each_outcome_once_and_the_journal_is_shown_before_it_goes(
    prepared: Callable[..., list[LiveRun]],
) -> None:
    [run] = prepared({}, save_results=False, rollouts_per_example=2)
    heard: list[tuple[str, int, float | None]] = []
    seen: list[int] = []
    listener = EvaluationListener(
        finished=lambda _run, record, scored: heard.append(
            (record.example_key, record.rollout_index, scored.reward if scored else None)
        ),
        recorded=lambda _run, recorded: seen.append(len(recorded)),
    )
    asyncio.run(Evaluation([], listener=listener).play([run]))
    keys = [example.key for example in run.plan.rollouts.examples()]
    assert sorted(heard) == sorted((key, index, 1.0) for key in keys for index in (0, 1))
    assert seen == [6]
    assert not run.folder.path.exists()


def test_a_refusal_at_the_last_moment_makes_no_folder(prepared: Callable[..., list[LiveRun]], tmp_path: Path) -> None:
    prepared({})
    runs = resolve("suite.toml", {"model": "reference/oracle", "output_dir": "elsewhere"}).runs

    def refuse(_: object) -> None:
        raise ConfigError("not today")

    with pytest.raises(ConfigError, match="not today"):
        prepare(runs, [progress_of(run) for run in runs], StartOptions(), admit=refuse)
    assert not (tmp_path / "elsewhere").exists()


def test_rollouts_that_cancel_what_runs_them_are_no_run_that_is_done(prepared: Callable[..., list[LiveRun]]) -> None:
    good, bad = prepared({}, {"answers": ["cancel", "b", "cancel"]})
    asyncio.run(Evaluation([]).play([good, bad]))
    assert (good.progress.state, bad.progress.state) == ("done", "failed")
    assert bad.progress.note.startswith("2 rollouts ended without a result")
    assert bad.summary is not None and (bad.summary.scored, bad.summary.not_run) == (1, 2)


def test_when_the_time_is_up_nothing_new_begins_and_what_hangs_is_given_up(
    prepared: Callable[..., list[LiveRun]],
) -> None:
    runs = prepared({"answers": ["hold", "hold", "b"]}, {"answers": ["hold", "c"]}, max_concurrent=2)
    told: list[str] = []
    budget = Budget(BudgetLimits(max_time=0.2, sources={"max_time": "--max-time 0.2"}))
    budget.on_reached = lambda: told.append(str(budget.reached))
    asyncio.run(Evaluation([], drain=0.05, budget=budget).play(runs))
    first, second = [run.progress for run in runs]
    assert (first.state, first.done, second.state) == ("stopped", 0, "stopped")
    assert second.done in (0, 1), "c may come to its end, if it begins in time"
    assert first.note.startswith("the budget is reached (--max-time 0.2)")
    assert told == ["max_time"]
    written = [json.loads((run.folder.path / "run.json").read_text()) for run in runs]
    assert [(each["status"], each["budget"]["reached"]) for each in written] == [("stopped", "max_time")] * 2


def test_runs_that_wait_for_their_turn_do_not_begin_once_the_budget_is_spent(
    prepared: Callable[..., list[LiveRun]],
) -> None:
    runs = prepared({}, {}, {}, max_concurrent=1)
    budget = Budget(BudgetLimits(max_tokens_total=1))
    asyncio.run(Evaluation([], at_once=1, budget=budget).play(runs))
    assert [(run.progress.state, run.progress.done) for run in runs] == [("stopped", 1), ("stopped", 0), ("stopped", 0)]


def test_a_timer_of_the_budget_does_not_outlive_its_suite(prepared: Callable[..., list[LiveRun]]) -> None:
    runs = prepared({})
    budget = Budget(BudgetLimits(max_time=3600.0))

    async def main() -> list[asyncio.TimerHandle]:
        await Evaluation([], budget=budget).play(runs)
        scheduled: list[asyncio.TimerHandle] = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
        return [each for each in scheduled if not each.cancelled()]

    assert asyncio.run(main()) == []
    assert [run.progress.state for run in runs] == ["done"]
