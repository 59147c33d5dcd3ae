"""Implement `bench estimate`: the mean of a run over a random sample, without and with controls."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import typer

from harness.cli.grouped import flag, output_dir_flag, positional
from harness.cli.output import write_result
from harness.core.errors import StoreError, UsageError
from harness.plugins.estimate.controlled import (
    check_sample,
    controlled_json,
    controlled_lines,
    controlled_run,
    dataset_of,
)
from harness.report.compare.pairing import finished_runs
from harness.report.compare.sides import REWARD, ComparedRun, read_side
from harness.report.text import clean
from harness.store.find_runs import choose, find_run
from harness.store.rundir import RunDir

RUN_HELP = "The run of a random sample of the examples: an id, the beginning of exactly one id, a path, or latest."
CONTROLS_HELP = (
    "Runs of other models on more of the examples, best on all; or suites. [the newest finished run of each model on "
    "this environment with more examples]"
)
RANDOM_HELP = "Take the examples for a random sample, although the run was not made with --shuffle."
METRIC_HELP = "Estimate this metric. [the reward; of bench eval with several functions, name one]"


def estimate(
    run: str = positional("RUN", RUN_HELP, ...),
    controls: list[str] | None = positional("CONTROL", CONTROLS_HELP),
    metric: str | None = flag("--metric NAME", METRIC_HELP),
    assume_random: bool = flag("--assume-random", RANDOM_HELP, False),
    as_json: bool = flag("--json", "Print it all as JSON on stdout.", False),
    output_dir: Path = output_dir_flag(),
) -> None:
    """Estimate the mean of a run from a small random sample, with finished runs of other models as controls.

    The controls say how hard the sampled examples are beside the rest. The corrected mean has no bias, and its interval
    is narrower, as if more examples had been run. The plain mean is shown beside it.
    """
    folder = RunDir(find_run(output_dir, run))
    functions = folder.read_manifest().functions
    if functions and metric is None:
        raise UsageError(f"{folder.path} has several functions: name one with --metric: {', '.join(functions)}")
    measure = metric or REWARD
    side = read_side(folder, measure=measure)
    check_sample(side, assume_random=assume_random)
    others, notes = _controls(controls or [], side, output_dir)
    made = controlled_run(side, others, assume_random=assume_random)
    for each in notes:
        typer.echo(f"note: {clean(each, 1000)}", err=True)
    write_result(partial(controlled_lines, made), controlled_json(made), as_json=as_json)


def _controls(names: list[str], side: ComparedRun, output_dir: Path) -> tuple[list[ComparedRun], list[str]]:
    """Read the named runs or, without names, all that may be controls; also return sentences about unreadable ones."""
    notes: list[str] = []
    found: list[ComparedRun] = []
    if names:
        chosen = choose(output_dir, names)
        paths = chosen.runs
        notes += [f"{each} could not be loaded" for each in chosen.failed]
        notes += [f"{each} no longer exists" for each in chosen.gone]
    else:
        paths = finished_runs(output_dir, [side.manifest.env_id])
    for path in paths:
        folder = RunDir(path)
        try:
            manifest = folder.read_manifest()
            if not names:
                is_alike = dataset_of(manifest) == dataset_of(side.manifest) and folder.id != side.run.id
                if not is_alike or manifest.planned.get("num_examples", 0) <= len(side.cells):
                    continue
            found.append(read_side(folder, measure=side.measure))
        except (StoreError, UsageError) as error:
            notes.append(f"not used: {error}")
    return found, notes
