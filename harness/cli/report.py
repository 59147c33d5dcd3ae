"""Implement `bench report`: write runs as a page to publish. `report.page` creates the page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, cast, get_args

import typer

from harness.cli.attempts import CLUSTER_HELP, K_HELP, attempts_option, check_attempts
from harness.cli.grouped import flag, output_dir_flag, positional
from harness.cli.output import check_target, write_text
from harness.core.errors import UsageError
from harness.settings.wording import suggestion

if TYPE_CHECKING:
    from harness.report.page.gather import Page

Form: TypeAlias = Literal["html", "md", "json", "latex", "csv"]

FORMS: tuple[str, ...] = get_args(Form)

ENDINGS: dict[str, Form] = {
    ".html": "html", ".htm": "html", ".md": "md", ".json": "json", ".tex": "latex", ".csv": "csv",
}  # fmt: skip

SUFFIXES = {"latex": "tex"}
"""File name endings that differ from the name of the format."""

STDOUT = Path("-")

RUNS_HELP = (
    "Runs: each an id, the beginning of exactly one id, a path, or latest; or a suite, by its id or file. "
    "[all runs of the newest invocation]"
)

TRANSCRIPTS = 60
"""Default number of transcripts, equal to the one in `report.page.sample`, which is slow to import."""


def report(  # noqa: PLR0913 - a command's options are its parameters
    runs: list[str] | None = positional("RUN|SUITE", RUNS_HELP),
    target: Path | None = flag("-o --output PATH", "The file to write. `-` is stdout. [report.html]"),
    form: str | None = flag(
        "--format -f FORMAT",
        "html, md, json; latex or csv: the table models × environments. [by the ending of -o, else html]",
        choices=FORMS,
    ),
    title: str = flag("--title TEXT", "The heading. [from environments and models]", ""),
    k: str | None = flag("--k K,K…", K_HELP),
    cluster: str | None = flag("--cluster KEY", CLUSTER_HELP),
    transcripts: int = flag("--transcripts N", "Examples of each run to show in full.", TRANSCRIPTS, min=0),
    plots: bool = flag("--plots/--no-plots", "Draw figures; needs matplotlib.", True),
    force: bool = flag("--force", "Replace an existing file.", False),
    output_dir: Path = output_dir_flag("--output-dir DIR"),
) -> None:
    """Write a page of runs: leaderboard, differences, distributions, failures, examples with transcripts, settings.

    The HTML page is one self-contained file that can be mailed, published or opened from a disk. Runs are only read;
    an unfinished run is shown with the rollouts that it has.
    """
    from harness.report.page.gather import page_of
    from harness.store.clusters import chosen_key
    from harness.store.find_runs import choose

    ks = attempts_option(k)
    chosen_form = _form(form, target)
    path = target or Path(f"report.{SUFFIXES.get(chosen_form, chosen_form)}")
    if path != STDOUT:
        check_target(path, force=force)
    chosen = choose(output_dir, runs or [])
    gone = [f"{each}: this run of the suite no longer exists" for each in chosen.gone]
    heading = " ".join(title.split())
    page = page_of(chosen.runs, title=heading, missing=gone, pass_k=ks, cluster=chosen_key(cluster))
    check_attempts(ks, (run.manifest for run in page.runs))
    is_private = any(run.manifest.is_private for run in page.runs)
    _write(_rendered(page, chosen_form, transcripts, plots=plots), path, is_private=is_private)
    _tell(page, path)


def _form(named: str | None, target: Path | None) -> Form:
    if named is not None:
        if named not in FORMS:
            raise UsageError(f"--format {named}: unknown format; {suggestion(named, FORMS)}")
        return cast(Form, named)
    if target is None or target == STDOUT:
        return "html"
    form = ENDINGS.get(target.suffix.lower())
    if form is None:
        raise UsageError(
            f"-o {target}: unknown file ending (known are .html, .md, .json, .tex and .csv); "
            "give the format with --format"
        )
    return form


def _rendered(page: Page, form: Form, transcripts: int, *, plots: bool) -> str:
    if form == "md":
        from harness.report.page.markdown import markdown

        return markdown(page)
    if form in ("latex", "csv"):
        from harness.report.paper_tables.cells import table_of_page
        from harness.report.paper_tables.latex import latex_table
        from harness.report.paper_tables.plain import csv_table

        return (latex_table if form == "latex" else csv_table)(table_of_page(page))
    from harness.report.page.content import content_of, page_json

    if form == "json":
        import json

        return json.dumps(page_json(page, content_of(page, transcripts)), indent=1, allow_nan=False) + "\n"
    from harness.report.page.document import document
    from harness.report.page.plots import Plots

    drawn = Plots() if plots else None  # before the slow part: a missing package is reported at once
    return document(page, content_of(page, transcripts), plots=drawn)


def _write(text: str, path: Path, *, is_private: bool) -> None:
    if path == STDOUT:
        write_text(text)
        return
    from harness.store.atomic import atomic_write

    atomic_write(path, text, private=is_private)


def _tell(page: Page, path: Path) -> None:
    from harness.report.run_facts import size_text
    from harness.report.text import clean

    for each in page.missing:
        typer.echo(f"note: not in the report: {clean(each, 1000)}", err=True)
    if path == STDOUT:
        return
    count = len(page.runs)
    typer.echo(str(path))
    typer.echo(f"{count} {'run' if count == 1 else 'runs'}, {size_text(path.stat().st_size)}", err=True)
    if any(run.manifest.is_private for run in page.runs):
        typer.echo("note: the report includes a private run, so only you can read the file", err=True)
