"""Implement `bench eval`: run an agent over the rows of a dataset and score it with eval functions, optionally beside a
baseline. The steps are in `cli.agent_runs`, `cli.eval_view` and `cli.execute`."""

from __future__ import annotations

import os
import sys
from typing import cast

from harness.cli.eval_options import EvalOptions, command_of, masked
from harness.cli.stdout import print_notices


def evaluate(state: dict[str, object], options: EvalOptions) -> int:
    """Evaluate an agent over the rows of a dataset, and score every run.

    The agent is a class or instance of yours (-m), or the tools of a folder (--mcp) in a loop of ours. Each run is on
    disk as soon as it has ended: --resume goes on with what was interrupted or killed. Environments (gsm8k, a suite)
    are evaluated by `bench run`.
    """
    from harness.cli.agent_runs import make_job
    from harness.cli.eval_view import STDOUT, EvalView, check_target
    from harness.cli.execute import execute
    from harness.cli.options import RunOptions
    from harness.cli.progress import Progress, header
    from harness.cli.run import command_text
    from harness.cli.stdout import kept_stdout
    from harness.engine.evaluation import Evaluation
    from harness.report.live import wants_live
    from harness.report.text import make_console

    argv = masked(cast("list[str]", state["argv"]))
    job = make_job(options, "eval", own_flags(options))
    print_notices(job.resolution.notices)
    private = any(run.settings.save.private for run in job.resolution.runs)
    check_target(options.output, job.files, make_folders=not options.dry_run, private=private)
    if options.dry_run:
        from harness.cli.dry_run import show

        show(job.resolution, sys.stdout)
        return 0
    chosen = RunOptions(
        resume=options.is_resuming,
        retry_failed=options.retry_failed,
        quiet=options.quiet,
        verbose=options.is_verbose,
        command=command_text(argv),
    )
    is_live = wants_live(os.environ, quiet=options.quiet)
    with kept_stdout() as stdout:
        console = make_console(stderr=True) if options.output == STDOUT else make_console(file=stdout)
        first = () if options.quiet else tuple(header(options, job))
        view = EvalView(options, job, argv, Progress(console, first, is_live=is_live, quiet=options.quiet))
        evaluation = Evaluation(job.resolution.runs, job.loader, keys=job.keys, in_flight=options.batch_size)
        return execute(job.resolution, chosen, view, evaluation)


def own_flags(options: EvalOptions) -> dict[str, object]:
    """Settings of `bench eval` that `bench test` lacks; None selects the default."""
    return {
        "rollouts_per_example": options.n,
        "pass_threshold": None if options.pass_threshold == 1.0 else options.pass_threshold,
        "max_concurrent": options.batch_size,
        "max_cost": options.max_cost,
        "max_tokens_total": options.max_tokens_total,
        "max_time": options.max_time,
        "state_columns": options.state_columns,
        "save_results": None if options.save_results else False,
        "save_to_hf_hub": options.save_to_hf_hub or None,
        "hf_hub_dataset_name": options.hf_hub_dataset_name,
        "hf_public": options.hf_public or None,
        "output_dir": None if options.output_dir == "outputs" else options.output_dir,
        "private": options.private or None,
    }


app = command_of(EvalOptions, evaluate)
