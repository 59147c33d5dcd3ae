"""Implement `bench eval`: run an agent over the rows of a dataset and score it with eval functions, optionally together
with a baseline. The steps are in `cli.agent_runs`, `cli.eval_view` and `cli.execute`."""

from __future__ import annotations

import sys

from harness.cli.eval_options import GROUPS, EvalOptions
from harness.cli.grouped import command_of
from harness.cli.stdout import print_notices


def evaluate(options: EvalOptions) -> int:
    """Evaluate an agent over the rows of a dataset, and score every run.

    The agent is your class or instance (-m), or the built-in loop with the tools of a folder (--mcp). Each run is saved
    when it ends: --resume continues an evaluation that was interrupted or killed. `bench run` evaluates environments
    (gsm8k, a suite).
    """
    from harness.cli.agent_runs import make_job
    from harness.cli.eval_view import EvalView, check_target, execute_agents

    own: dict[str, object] = {
        "rollouts_per_example": options.n,
        "pass_threshold": None if options.pass_threshold == 1.0 else options.pass_threshold,
        "max_concurrent": options.batch_size,
    }
    job = make_job(options, "eval", own)
    print_notices(job.resolution.notices)
    private = any(run.settings.save.private for run in job.resolution.runs)
    check_target(options.output, job.files, make_folders=not options.dry_run, private=private)
    if options.dry_run:
        from harness.cli.dry_run import show

        show(job.resolution, sys.stdout)
        return 0
    return execute_agents(options, job, lambda progress: EvalView(options, job, progress), options.batch_size)


app = command_of(EvalOptions, evaluate, GROUPS, settings=EvalOptions.setting_keys)
