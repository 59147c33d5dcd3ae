"""Implement `bench test`: run an agent on rows without scoring, all in sequence or one model call at a time. The steps
are in `cli.agent_runs`, `cli.test_run` and `cli.interactive`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.cli.eval_options import GROUPS, AgentTestOptions
from harness.cli.grouped import command_of
from harness.cli.stdout import print_notices

if TYPE_CHECKING:
    from harness.cli.agent_runs import AgentInvocation

_SETTINGS: dict[str, object] = {"rollouts_per_example": 1, "max_concurrent": 1, "save_results": False}


def run_test(options: AgentTestOptions) -> int:
    """Run an agent over rows without scoring it, to see whether it works and what it does.

    Rows run one after another; results are saved only with -o. With -i, stop before every model call.
    """
    from harness.cli.agent_runs import make_job

    job = make_job(options, "test", _SETTINGS)
    print_notices(job.resolution.notices)
    if options.interactive:
        return _step(options, job)
    from harness.cli.eval_view import check_target, execute_agents
    from harness.cli.test_run import AgentTestView

    private = any(run.settings.save.private for run in job.resolution.runs)
    check_target(options.output, job.files, private=private)
    return execute_agents(options, job, lambda progress: AgentTestView(options, job, progress))


def _step(options: AgentTestOptions, job: AgentInvocation) -> int:
    from harness.cli.connection_check import check_connections
    from harness.cli.interactive import TestSession
    from harness.cli.progress import header
    from harness.cli.stdout import own_stdout
    from harness.report.text import make_console

    with own_stdout() as stdout:  # keep output of the agent off our stdout
        console = make_console(file=stdout)
        session = TestSession(job, console, options.row)
        for line in () if options.quiet else header(options, job):
            console.print(line, soft_wrap=True)
        runs = [(run, False) for run in job.resolution.runs]
        check_connections(runs, job.keys, lambda words: None if options.quiet else console.print(words, soft_wrap=True))
        return 0 if session.run() else 1


app = command_of(AgentTestOptions, run_test, GROUPS, settings=AgentTestOptions.setting_keys)
