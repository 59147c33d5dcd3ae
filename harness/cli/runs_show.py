"""Implement `bench runs show RUN`: print a run, its settings, or one transcript. `report.run_facts` collects the data,
`report.run_page` and `report.transcript` format it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from harness.cli.grouped import RUN_HELP, flag, positional
from harness.cli.output import write, write_fitted, write_json
from harness.cli.runs_list import OUTPUT_DIR_HELP, OUTPUTS, naming
from harness.core.errors import UsageError
from harness.store.catalogue import read_entry
from harness.store.find_runs import find_run
from harness.store.rundir import RunDir

SHOWN = 20
"""Default number of listed rollouts or groups, about one screen. JSON lists all."""


@dataclass(frozen=True, slots=True)
class Request:
    """The options that select rollouts, as the user gave them."""

    where: str | None
    failed: bool
    worst: int | None
    group_by: str | None
    limit: int | None
    as_json: bool

    @property
    def selects(self) -> bool:
        """Whether rollouts are selected, instead of showing the page of a run."""
        return self.where is not None or self.failed or self.worst is not None or self.group_by is not None

    @property
    def most(self) -> int:
        """Maximum number of rollouts or groups; -1 for all."""
        return self.limit if self.limit is not None else -1 if self.as_json else SHOWN


def show(  # noqa: PLR0913 - a command's options are its parameters
    run: str = positional(
        "RUN|SUITE", f"{RUN_HELP} With the options that select rollouts, also a suite. [latest]", "latest"
    ),
    example: str | None = flag("--example ID", "Print this example's transcripts in full."),
    rollout: int | None = flag("--rollout K", "Only rollout K of that example, from 0."),
    where: str | None = flag("--where QUERY", "List the rollouts that match, such as 'reward<1 stop:length'."),
    failed: bool = flag("--failed", "List those with a reward below pass_threshold, or none.", False),
    worst: int | None = flag("--worst N", "List the N with the lowest rewards.", min=1),
    group_by: str | None = flag("--group-by COLUMN", "Count them by reason, stop, metrics, parsed, info.NAME, …"),
    limit: int | None = flag("--limit -n N", "Rollouts or groups to list; -1 is all. [20; all with --json]", min=-1),
    settings: bool = flag("--settings", "Print only the settings, with their origins.", False),
    as_json: bool = flag("--json", "Print the same as JSON on stdout.", False),
    output_dir: Path = flag("--output-dir -o DIR", OUTPUT_DIR_HELP, OUTPUTS),
) -> None:
    """Show a run: scores, failures with their reasons, worst and best examples, settings, next steps.

    All figures are computed from the journal, also while the run is in progress.

    A query consists of conditions, joined by spaces or `or`, with `-` for not, and with parentheses: reward<1,
    metric.format=0, tokens>4000, stop:length, outcome:unscored, is:truncated, info.level:5, text:"let me think". For an
    unknown name, the error lists the valid names.
    """
    request = Request(where, failed, worst, group_by, limit, as_json)
    _check(request, example, rollout, settings=settings)
    if request.selects:
        from harness.cli.runs_search import show_search

        show_search(run, request, output_dir)
        return
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


def _check(request: Request, example: str | None, rollout: int | None, *, settings: bool) -> None:
    """Reject options that contradict each other.

    Raises:
        UsageError: two of the options cannot be combined.
    """
    if rollout is not None and example is None:
        raise UsageError("--rollout K requires --example ID, which selects the example of this rollout")
    if settings and example is not None:
        raise UsageError("--settings and --example are mutually exclusive")
    if request.selects and (settings or example is not None):
        other = "--settings" if settings else "--example"
        raise UsageError(f"{other} cannot be combined with --where, --failed, --worst or --group-by")
    if request.limit is not None and not request.selects:
        raise UsageError("--limit N has no effect without a list of rollouts: add --where, --failed or --group-by")
    if request.worst is not None and (request.limit is not None or request.group_by is not None):
        raise UsageError(f"--worst N cannot be combined with {'--limit' if request.group_by is None else '--group-by'}")


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
