"""Execution of an evaluation for a command: display, signals, push, final table, exit code. A command prints only here
and in its view; the engine prints nothing."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import signal
from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Protocol

import uvloop

from harness.cli.log_handlers import logging_to
from harness.cli.options import RunOptions
from harness.cli.stdout import own_stdout
from harness.cli.view import View, browse_suggestion, compare_suggestion, run_report
from harness.core.errors import PublishError, StoreError, UsageError
from harness.engine.budget import Budget, BudgetedRun, overrun_notices, price_notices
from harness.engine.evaluation import DRAIN_SECONDS, Evaluation, end_interrupted
from harness.engine.judges import embedded_judge_note
from harness.engine.listeners import EvaluationListener
from harness.engine.prepare import FailedRun, LiveRun
from harness.engine.privacy import check_own_folder, own_folder
from harness.report.final_table import RunReport
from harness.report.live import Display, open_display
from harness.settings.notices import unset_key_notices
from harness.settings.resolver import Resolution, ResolvedRun, missing_keys
from harness.store.rundir import new_run_id, write_suite
from harness.usercode import event_loop

INTERRUPTED = 130
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_DEBUG_DIR = "--debug-dir"


class Pushing(Protocol):
    """Progress display while runs are pushed to the Hub."""

    def say(self, text: str, /) -> None:
        """Print a line for the user."""
        ...

    def tick(self) -> None:
        """Update the display."""
        ...


def execute(
    resolution: Resolution, options: RunOptions, view: View | None = None, evaluation: Evaluation | None = None
) -> int:
    """Execute all runs and print their results.

    Args:
        resolution: The runs, with their settings.
        options: Options of the command that are not settings.
        view: Prints the results; by default as `bench run` does.
        evaluation: The evaluation of these runs, if it has more than their settings, such as environments or keys.

    Returns:
        The exit code: 0 done; 1 a run stopped early or scored nothing, or a push failed; 130 interrupted; for runs with
        a sequential gate that are done, that of `bench gate`.

    Raises:
        UsageError: the request is invalid, so nothing was started.
    """
    # Arrow's own allocator keeps memory of checkpoints in per-thread pools; the system's returns it.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    _allow_connections()
    view, evaluation = view or View(), evaluation or Evaluation(resolution.runs)
    view.budget = evaluation.budget = budget = Budget(resolution.limits)  # starts the budget's clock
    environ = ChainMap(dict(evaluation.keys), os.environ)
    if evaluation.start.asks_model:
        missing_keys(resolution, environ)
    check_hub(resolution)
    suite_id = new_run_id()
    evaluation.start = replace(
        evaluation.start, command=options.command, suite_id=suite_id, resume=options.is_resuming,
        resume_from=options.resume_from, retry_failed=options.retry_failed, is_ours=options.is_ours,
    )  # fmt: skip
    evaluation.listener = EvaluationListener(partial(_admit, view, environ), view.begin, view.finished, view.recorded)
    # Inspects stdout, so it must precede the redirection.
    display = open_display(evaluation.progress, quiet=options.quiet, plain=view.plain_lines, budget=budget.words)
    view.display = display
    budget.on_reached = partial(_say_reached, budget, display)
    with own_stdout(), display, logging_to(display, verbose=options.is_verbose):
        runs = evaluation.prepare()
        ready = [run for run in runs if isinstance(run, LiveRun)]
        _say_what_differs(ready, display)
        record_suite(resolution, options.command, suite_id, runs)
        for folder in _private_traces([run.plan.resolved for run in ready]):
            own_folder(folder, _DEBUG_DIR)
        evaluation.listener.begin(ready)
        interrupted = _drive(ready, display, evaluation)
        failures = _left_unpublished(ready) if interrupted else push_runs(ready, display)
    errors = {id(run): str(error) for run, error in failures}
    try:
        is_well = view.show(runs, _reports(runs, errors, budget, is_short=options.json or options.quiet), options)
    except OSError as error:  # such as a full disk behind stdout: the results themselves are saved
        raise StoreError(f"cannot write to the terminal or file that shows the results: {error.strerror}") from error
    return INTERRUPTED if interrupted else int(bool(failures) or not is_well) or view.gate_code


def _reports(
    runs: Sequence[LiveRun | FailedRun], errors: Mapping[int, str], budget: Budget, *, is_short: bool
) -> list[RunReport]:
    """Summarize the runs for the final table; with `is_short`, without suggestions to compare or to browse them."""
    ready = [run for run in runs if isinstance(run, LiveRun)]
    example = next((run for run in ready if run.is_saved and run.folder.has_data()), None)
    rival, browse = (None, None) if is_short else (compare_suggestion(ready), browse_suggestion(ready))
    return [
        run_report(
            run, errors.get(id(run), ""), budget, is_example=run is example,
            compare=rival if run is example else None, browse=browse,
        )
        for run in runs
    ]  # fmt: skip


def _admit(
    view: View, environ: Mapping[str, str], runs: Sequence[LiveRun | FailedRun], asking: Sequence[BudgetedRun]
) -> None:
    """Run the checks before the first request: first those of all commands, then those of the command's view."""
    ready = [run.plan.resolved for run in runs if isinstance(run, LiveRun)]
    for folder in _private_traces(ready):
        check_own_folder(folder, _DEBUG_DIR)
    notices = [*price_notices(asking), *overrun_notices(view.budget.limits, asking)]
    for notice in (*(unset_key_notices(ready, environ) if asking else ()), *notices):
        view.display.say(f"note: {notice}")
    failed = next((run for run in runs if isinstance(run, FailedRun)), None)
    if failed is not None and view.needs_all_runs:
        raise failed.error
    view.admit(runs)


def _private_traces(runs: Sequence[ResolvedRun]) -> list[Path]:
    """Return the debug-trace folders of private runs, to which only their owner may have access."""
    folders = [run.settings.env.env_args.get("debug_dir") for run in runs if run.settings.save.private]
    return [Path(folder) for folder in folders if isinstance(folder, str)]


def _say_reached(budget: Budget, display: Display) -> None:
    rest = "no further request is sent; requests in flight are finished"
    if budget.reached == "max_time":
        rest = f"no new rollouts start; rollouts in flight get {DRAIN_SECONDS:g} s to finish"
    display.say(f"stopping: {budget.words()} spent; {rest}")


def _allow_connections() -> None:
    """Raise the soft limit of open files to the hard limit: each request in flight is a connection, and 256 is a common
    limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # macOS rejects "unlimited"; the soft limit has to do
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _say_what_differs(runs: Sequence[LiveRun], display: Display) -> None:
    """Print notes where a run will differ from the request, such as fewer examples than requested."""
    for run in runs:
        name, asked, there = run.progress.name, run.plan.rollouts.asked_examples, run.plan.rollouts.num_examples
        origin = run.plan.resolved.origins["env.num_examples"]
        if asked > there and origin.layer != "builtin":
            source = origin.source
            typed = f"{source} = {asked}" if ": " in source else source  # a file and key, or an option with its value
            display.say(f"note: {name}: {typed} asks for more than the {there} examples of its dataset")
        if note := embedded_judge_note(run.plan.judges):
            display.say(f"note: {name}: {note}")
        if run.plan.environment.rubric.needs_live_state and not run.plan.resolved.settings.env.interleave_scoring:
            display.say(
                f"note: {name}: -N has no effect: its rubric needs live state, which later scoring would not have"
            )


def check_hub(resolution: Resolution) -> None:
    """Check before the first request that a push to the Hub can work."""
    saves = [run.settings.save for run in resolution.runs if run.settings.save.save_to_hf_hub]
    if saves:
        from harness.store.hub import check_ready

        for save in saves:
            try:
                check_ready(save.hf_hub_dataset_name)
            except PublishError as error:  # like a missing key: nothing was started
                raise UsageError(str(error)) from error


def _drive(runs: Sequence[LiveRun], display: Display, evaluation: Evaluation) -> bool:
    """Run the event loop until all runs have ended; return whether the user interrupted them."""
    if not runs:
        return False
    signals = 0

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(event_loop.tell_lost_error)
        whole = asyncio.current_task()
        assert whole is not None

        def end(how_often: int) -> None:
            if how_often == 1:
                display.say(f"stopping: {DRAIN_SECONDS:g} s for rollouts in flight; press Ctrl-C again to quit now")
                evaluation.interrupt()
            else:
                display.say("quitting; press Ctrl-C once more to skip the rest of the cleanup")
                whole.cancel()

        def on_signal(_number: int, _frame: FrameType | None) -> None:
            nonlocal signals
            signals += 1
            if signals > 2:
                os._exit(INTERRUPTED)  # the journal is on disk; something here ignores cancellation
            loop.call_soon_threadsafe(end, signals)

        # Handlers of the interpreter, not of the loop: the third signal must reach code that blocks the loop, too.
        before = {number: signal.signal(number, on_signal) for number in _SIGNALS}
        try:
            await evaluation.play(runs)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler or signal.SIG_DFL)

    gc.freeze()  # garbage collection leaves out the imported modules
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, contextlib.suppress(asyncio.CancelledError):
        event_loop.run(runner, main())
    for run in runs:
        end_interrupted(run)  # if the second signal cancelled the run
    return signals > 0


def record_suite(resolution: Resolution, command: str, suite_id: str, runs: Sequence[LiveRun | FailedRun]) -> None:
    """Write the invocation's suite file: its runs, and the environments that did not load. An invocation without any
    run still counts as the newest."""
    saves = [each.settings.save for each in resolution.runs if each.settings.save.save_results]
    if saves:
        write_suite(
            saves[0].output_dir,
            suite_id,
            file=str(resolution.source) if resolution.source is not None else None,
            command=command,
            runs=[(run.folder, run.manifest) for run in runs if isinstance(run, LiveRun) and run.is_saved],
            failed=[run.progress.name for run in runs if isinstance(run, FailedRun)],
        )


def _left_unpublished(runs: Sequence[LiveRun]) -> list[tuple[LiveRun, PublishError]]:
    """Return the runs that completed before the interrupt but were not pushed; incomplete runs are pushed on resume."""
    error = PublishError("not published, because it was interrupted")
    wanted = [run for run in runs if run.plan.resolved.settings.save.save_to_hf_hub]
    return [(run, error) for run in wanted if run.progress.state == "done"]


def push_runs(runs: Sequence[LiveRun], display: Pushing) -> list[tuple[LiveRun, PublishError]]:
    """Push the runs that request it to the Hub; return those that failed, with their errors."""
    failures: list[tuple[LiveRun, PublishError]] = []
    display.tick()  # print how the runs ended before the pushes
    for run in runs:
        save = run.plan.resolved.settings.save
        if not save.save_to_hf_hub or run.progress.state != "done":
            continue
        from harness.store.hub import push_run

        display.tick()  # print that the run has ended, before later lines
        display.say(f"pushing {run.progress.name} to the Hub")
        try:
            result = push_run(run.folder.path, repo=save.hf_hub_dataset_name, public=save.hf_public)
        except PublishError as error:
            failures.append((run, error))
            display.say(str(error))
        else:
            display.say(f"pushed {run.progress.name} to {result.url}")
    return failures
