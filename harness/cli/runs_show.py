"""Implement `bench runs show RUN`: print a run, its settings, or one transcript. `report.run_facts` collects the data,
`report.run_page` and `report.transcript` format it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from harness.cli.grouped import RUN_HELP, flag, positional
from harness.cli.output import write, write_fitted, write_json
from harness.cli.runs_list import OUTPUT_DIR_HELP, OUTPUTS, naming
from harness.core.errors import UsageError
from harness.store.catalogue import read_entry
from harness.store.find_runs import find_run
from harness.store.rundir import RunDir


def show(
    run: str = positional("RUN", f"{RUN_HELP} [latest]", "latest"),
    example: str | None = flag("--example ID", "Print this example's transcripts in full."),
    rollout: int | None = flag("--rollout K", "Only rollout K of that example, from 0."),
    settings: bool = flag("--settings", "Print only the settings, with their origins.", False),
    as_json: bool = flag("--json", "Print the same as JSON on stdout.", False),
    output_dir: Path = flag("--output-dir -o DIR", OUTPUT_DIR_HELP, OUTPUTS),
) -> None:
    """Show a run: scores, failures with their reasons, worst and best examples, settings, next steps.

    All figures are computed from the journal, also while the run is in progress.
    """
    if rollout is not None and example is None:
        raise UsageError("--rollout K says which rollout of an example: name that with --example ID")
    if settings and example is not None:
        raise UsageError("--settings and --example: ask for one at a time")
    folder = find_run(output_dir, run)
    if example is not None:
        _transcript(RunDir(folder), example, rollout, as_json=as_json)
    elif settings:
        from harness.report.run_facts import settings_json
        from harness.report.run_page import settings_lines

        manifest = RunDir(folder).read_manifest()
        if as_json:
            write_json(settings_json(manifest))
        else:
            write_fitted(lambda width: settings_lines(manifest, width))
    else:
        from harness.report.run_facts import facts_json, facts_of
        from harness.report.run_page import page_lines

        facts = facts_of(folder, naming(output_dir)(read_entry(folder)))
        if as_json:
            write_json(facts_json(facts))
        else:
            write_fitted(lambda width: page_lines(facts, width))


def _transcript(run: RunDir, name: str, rollout: int | None, *, as_json: bool) -> None:
    from harness.report.run_digest import example_outcomes
    from harness.report.transcript import example_json, transcript

    found = example_outcomes(run, name, rollout)
    if as_json:
        write_json({"run": run.id, "examples": [example_json(example, rollouts) for example, rollouts in found]})
        return
    for number, (example, rollouts) in enumerate(found):
        write(["", ""] if number else [])
        write_fitted(partial(transcript, example, rollouts))
