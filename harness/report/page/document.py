"""The HTML file of a report page: security policy, style, script, data and sections. The file is self-contained, and
only its own script runs."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import importlib.resources
import shlex
from datetime import UTC, datetime

from harness.report import numerals
from harness.report.page import sections
from harness.report.page.content import PageData
from harness.report.page.gather import Page, RunPart, methods_of, passing
from harness.report.page.markup import Child, Html, join, script_json, table, tag
from harness.report.page.plots import Plots
from harness.report.page.sections import name_of, note
from harness.report.paper_tables.cells import table_of_page
from harness.report.paper_tables.footnotes import cell_notes, footnotes
from harness.report.paper_tables.layout import Shown, layout_of
from harness.report.run_facts import commit_of, settings_of
from harness.report.runs import has_rows, origin_text
from harness.stats.methods import describe
from harness.store.card_text import shown_config


def result_section(page: Page) -> Html | None:
    """Page section with the table of models × environments and its footnotes; None if there is only one environment."""
    if len(page.environments) < 2:
        return None
    result = table_of_page(page)
    result.missing = []  # the head of the page names them
    layout = layout_of(result)
    rows: list[list[Child]] = [[tag("span", name, class_="name"), *map(_cell, cells)] for name, cells in layout.rows]
    label = "models and environments"
    body = table([layout.corner, *layout.columns], rows, label=label)
    notes = [tag("li", tag("sup", letter), f" {words}") for letter, words in cell_notes(result).values()]
    notes += [tag("li", words) for words in footnotes(result)]
    heading = tag("h3", "Models and environments", id="models-environments")
    return join([heading, body, tag("ul", *notes, class_="remarks")])


def _cell(shown: Shown) -> Html:
    mean = tag("strong" if shown.is_best else "span", shown.mean)
    raised = tag("sup", shown.sign + shown.letter) if shown.sign or shown.letter else None
    return join([mean, raised, tag("br"), tag("span", shown.interval, class_="note")])


CONFIG = 256 << 10
"""Maximum bytes of a `config.toml` that the page shows. A file that contains many rows of data may be larger."""

SETTING = 2000
"""Maximum characters of a setting's value on the page."""


def document(page: Page, content: PageData, *, plots: Plots | None, now: datetime | None = None) -> str:
    """Render the HTML file of a report page.

    Args:
        page: Data of the page.
        content: Its examples and transcripts.
        plots: Renderer of the figures; None for no figures.
        now: Current time.
    """
    style, script = _asset("page.css"), _asset("page.js")
    cells = [[tag("code", name), words] for name, words in methods_of(page)]
    methods = table(["figure", "how it is computed"], cells, words=(0, 1), label="methods")
    maker = f"bench {importlib.metadata.version('bench-harness')}"
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", **{"http-equiv": "Content-Security-Policy"}, content=policy(style, script)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("meta", name="generator", content=maker),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", page.title),
        tag("style", Html(style)),
    ]
    body = [
        tag("a", "Skip to the results", href="#leaderboard", class_="skip"),
        _header(page, now or datetime.now(UTC)),
        tag(
            "main",
            sections.leaderboards(page, result_section(page)),
            sections.differences(page),
            *(sections.environment_section(each, n, plots) for n, each in enumerate(page.environments)),
            _examples(content),
            runs_section(page),
            tag("section", tag("h2", "Methods", id="methods"), tag("p", passing(page)), methods),
        ),
        tag("footer", f"Made by {maker}. Nothing on this page loads anything from anywhere."),
        tag("script", script_json(content.rows), type="application/json", id="data-rows"),
        tag("script", script_json(content.transcripts), type="application/json", id="data-transcripts"),
        tag("script", Html(script)),
    ]
    return f"<!doctype html>\n{tag('html', tag('head', *head), tag('body', *body), lang='en')}\n"


def policy(style: str, script: str) -> str:
    """Content security policy of the page: nothing is loaded, and only the page's own script, given by hash, runs."""
    return (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; base-uri 'none'; "
        "form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )


def _hash(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


def _asset(name: str) -> str:
    # With LF line ends, as the HTML parser converts CR LF before the browser computes the hash.
    source = importlib.resources.files("harness.report.page").joinpath("assets", name).read_text(encoding="utf-8")
    return source.replace("\r\n", "\n")


def _header(page: Page, now: datetime) -> Html:
    runs = page.folders
    days = sorted(f"{run.entry.created:%Y-%m-%d}" for run in runs if run.entry.created is not None)
    costs = [run.summary.usage.cost for run in runs if run.summary.usage.cost is not None]
    tiles = [
        ("environments", numerals.count(len({run.entry.env_id for run in runs}))),
        ("models", numerals.count(len({run.model for run in runs}))),
        ("runs", numerals.count(len(runs))),
        ("rollouts scored", numerals.coverage(*(run.summary for run in runs))),
        *([("cost", f"{'≥ ' if len(costs) < len(runs) else ''}{numerals.dollars(sum(costs))}")] if costs else []),
        *([("measured", " to ".join(dict.fromkeys((days[0], days[-1]))))] if days else []),
    ]
    missing = [tag("li", each) for each in page.missing]
    absent = tag("div", tag("strong", "Not on this page:"), tag("ul", *missing), class_="missing", role="note")
    links = [("#leaderboard", "Leaderboard")]
    links += [("#differences", "Differences")] if page.differences else []
    links += [(f"#environment-{number}", each.name) for number, each in enumerate(page.environments)]
    links += [("#examples", "Examples"), ("#runs", "Runs"), ("#methods", "Methods")]
    return tag(
        "header",
        tag("h1", page.title),
        tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in tiles), class_="tiles"),
        note(f"Report made on {now:%Y-%m-%d}."),
        absent if missing else None,
        tag("nav", *(tag("a", words, href=target) for target, words in links), aria_label="Contents"),
    )


def _examples(content: PageData) -> Html:
    """Page section with an empty element that the script fills with the table of examples."""
    return tag(
        "section",
        tag("h2", "Examples", id="examples"),
        *map(note, content.notes),
        tag("p", "The table of examples needs JavaScript, which is off here.", class_="note", id="no-script"),
        tag("div", id="explorer", hidden=True),
    )


def runs_section(page: Page) -> Html:
    """Page section about every run: its settings with their origins, and how to reproduce the run."""
    parts: list[Child] = [tag("h2", "Runs", id="runs")]
    if len(page.folders) > 1:
        rows: list[list[Child]] = [
            [
                run.entry.id, run.entry.title, name_of(run), run.entry.state,
                "" if run.entry.created is None else f"{run.entry.created:%Y-%m-%d %H:%M UTC}",
            ]
            for run in page.folders
        ]  # fmt: skip
        head = ["run", "environment", "model", "state", "began"]
        parts.append(table(head, rows, words=range(5), label="runs"))
    for number, run in enumerate(page.folders):
        which = tag("span", tag("bdi", run.entry.title), f" · {run.entry.id}", class_="note")
        inner = (tag("summary", name_of(run), " ", which), _facts(run), _settings(run), _reproduce(run))
        parts.append(tag("details", *inner, id=f"run-{number}", class_="run", open=len(page.folders) == 1))
    return tag("section", *parts)


def _facts(run: RunPart) -> Html:
    manifest, summary = run.manifest, run.summary
    rows: list[tuple[str, Child]] = [("run", run.entry.id), ("state", run.entry.state)]
    if run.entry.note:
        rows.append(("ended because", run.entry.note))
    if manifest.derived:
        rows.append(("made", origin_text(manifest.derived, manifest.parent)))
    if run.entry.created is not None:
        rows.append(("began", f"{run.entry.created:%Y-%m-%d %H:%M:%S UTC}"))
    rows.append(("versions", ", ".join(f"{name} {version}" for name, version in manifest.versions.items())))
    rows.append(("commit", commit_of(manifest)))
    if (seconds := summary.rollout_seconds) is not None:
        words = f"median {numerals.latency(seconds.p50)}, 95 % below {numerals.latency(seconds.p95)}"
        rows.append(("a rollout took", words))
    rows.append(("interval", describe(run.estimate.method)))
    return tag("dl", *([tag("dt", name), tag("dd", value)] for name, value in rows if value))


def _settings(run: RunPart) -> list[Html]:
    def listed(rows: list[tuple[str, str, str]]) -> Html:
        short = [(path, value if len(value) <= SETTING else f"{value[:SETTING]}…", by) for path, value, by in rows]
        cells = [[tag("code", path), tag("code", value, class_="said"), by] for path, value, by in short]
        return table(["setting", "value", "where it came from"], cells, words=range(3), label="settings")

    chosen, rest = settings_of(run.manifest)
    parts = [
        tag("h4", "Settings that differ from the default"),
        listed(chosen) if chosen else note("None: all settings have their default."),
    ]
    if rest:
        parts.append(tag("details", tag("summary", f"{len(rest)} more with their default"), listed(rest)))
    return parts


def _reproduce(run: RunPart) -> Html:
    parts: list[Child] = [tag("h4", "How to reproduce")]
    if run.manifest.command:
        parts += [tag("p", "Command of the run"), tag("pre", run.manifest.command)]
    config = shown_config(run.entry.run.config_path, CONFIG)
    if run.manifest.is_imported:
        parts.append(note("It was imported and has no settings, so only the tool that made it can repeat it."))
    elif not has_rows(run.manifest):
        parts.append(note("Its rows are defined in the program that started it, so only that program can repeat it."))
    elif config:
        how = "To start a new run with its settings" if run.manifest.derived else "To repeat it"
        parts += [
            tag("p", f"{how}, save this as run.toml and run ", tag("code", "bench run run.toml"), "."),
            tag("details", tag("summary", "run.toml"), tag("pre", config)),
        ]
    folder = run.entry.run.path
    if run.entry.run.has_data():
        load = f"load_dataset({str(folder.parent)!r}, {folder.name!r}, split='train')"
        parts += [tag("p", "Load its complete rollouts as a dataset:"), tag("pre", load)]
    steps = f"bench runs show {shlex.quote(run.entry.id)}"
    parts.append(tag("p", "Show the run in a terminal: ", tag("code", steps)))
    return join(parts)
