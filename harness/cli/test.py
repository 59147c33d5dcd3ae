"""Implement `bench test`: run an agent on rows without scoring, all in sequence or one model call at a time. The steps
are in `cli.agent_runs`, `cli.test_run` and `cli.session`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, cast

from harness.cli.eval_options import RehearsalOptions, command_of, masked
from harness.cli.stdout import print_notices

if TYPE_CHECKING:
    from harness.cli.agent_runs import AgentInvocation

_SETTINGS: dict[str, object] = {"rollouts_per_example": 1, "max_concurrent": 1, "save_results": False}


def rehearse(state: dict[str, object], options: RehearsalOptions) -> int:
    """Run an agent over rows without scoring it: does it work, and what does it do?

    One row after the other; nothing is kept but what -o writes. With -i it stops before every model call.
    """
    from harness.cli.agent_runs import make_job

    job = make_job(options, "test", _SETTINGS)
    print_notices(job.resolution.notices)
    return _step(options, job) if options.interactive else _run(options, job, cast("list[str]", state["argv"]))


def _run(options: RehearsalOptions, job: AgentInvocation, argv: list[str]) -> int:
    from harness.cli.eval_view import STDOUT, check_target
    from harness.cli.execute import execute
    from harness.cli.options import RunOptions
    from harness.cli.progress import Progress, header
    from harness.cli.run import command_text
    from harness.cli.stdout import kept_stdout
    from harness.cli.test_run import RehearsalView
    from harness.engine.evaluation import Evaluation
    from harness.report.live import wants_live
    from harness.report.text import make_console

    private = any(run.settings.save.private for run in job.resolution.runs)
    check_target(options.output, job.files, private=private)
    is_live = wants_live(os.environ, quiet=options.quiet)
    chosen = RunOptions(quiet=options.quiet, verbose=options.is_verbose, command=command_text(masked(argv)))
    with kept_stdout() as stdout:
        console = make_console(stderr=True) if options.output == STDOUT else make_console(file=stdout)
        first = () if options.quiet else tuple(header(options, job))
        view = RehearsalView(options, job, Progress(console, first, is_live=is_live, quiet=options.quiet))
        evaluation = Evaluation(job.resolution.runs, job.loader, keys=job.keys, in_flight=1)
        return execute(job.resolution, chosen, view, evaluation)


def _step(options: RehearsalOptions, job: AgentInvocation) -> int:
    from harness.cli.connection import check_connections
    from harness.cli.progress import header
    from harness.cli.session import TestSession, rows_of
    from harness.cli.stdout import own_stdout
    from harness.cli.stepping import Prompter, Screen, StdinLines
    from harness.report.text import make_console

    with own_stdout() as stdout:  # keep output of the agent off our stdout
        screen = Screen(make_console(file=stdout), is_typed=sys.stdin.isatty())
        session = TestSession(job, Prompter(StdinLines(), screen, rows_of(job)), screen, options.row)
        if not options.quiet:
            for line in header(options, job):
                screen.say(line)
        say = _nothing if options.quiet else screen.say
        check_connections([(run, False) for run in job.resolution.runs], job.keys, say)
        return 0 if session.run() else 1


def _nothing(_words: str) -> None:
    pass


app = command_of(RehearsalOptions, rehearse)
