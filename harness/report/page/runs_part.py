"""Page sections about single runs: settings, how to repeat the run, how to load its rows."""

from __future__ import annotations

import shlex

from harness.report import numerals
from harness.report.page.gather import Page, RunPart
from harness.report.page.markup import Child, Html, join, table, tag
from harness.report.page.sections import name_of
from harness.report.run_facts import BUILT_IN, settings_of
from harness.report.runs import has_rows, origin_words
from harness.stats.methods import describe
from harness.store.card_text import shown_config

CONFIG = 256 << 10
"""Maximum bytes of a `config.toml` to show. One with whole tables of rows can be larger."""

SETTING = 2000
"""Maximum characters of a setting's value."""


def runs_section(page: Page) -> Html:
    """Section with every run: settings with origins, and how to reproduce it."""
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
        parts.append(_run(run, number, is_open=len(page.folders) == 1))
    return tag("section", *parts)


def _run(run: RunPart, number: int, *, is_open: bool) -> Html:
    which = tag("span", tag("bdi", run.entry.title), f" · {run.entry.id}", class_="note")
    head = tag("summary", name_of(run), " ", which)
    return tag(
        "details", head, _facts(run), _settings(run), _reproduce(run), id=f"run-{number}", class_="run", open=is_open
    )


def _facts(run: RunPart) -> Html:
    manifest, summary = run.manifest, run.summary
    rows: list[tuple[str, Child]] = [("run", run.entry.id), ("state", run.entry.state)]
    if run.entry.note:
        rows.append(("ended because", run.entry.note))
    if manifest.derived:
        rows.append(("made", origin_words(manifest.derived, manifest.parent)))
    if run.entry.created is not None:
        rows.append(("began", f"{run.entry.created:%Y-%m-%d %H:%M:%S UTC}"))
    rows.append(("versions", ", ".join(f"{name} {version}" for name, version in manifest.versions.items())))
    if commit := manifest.git.get("commit"):
        rows.append(("commit", f"{commit}{', with local changes' if manifest.git.get('dirty') else ''}"))
    if (seconds := summary.rollout_seconds) is not None:
        words = f"median {numerals.latency(seconds.p50)}, 95 % below {numerals.latency(seconds.p95)}"
        rows.append(("a rollout took", words))
    rows.append(("interval", describe(run.estimate.method)))
    return tag("dl", *([tag("dt", name), tag("dd", value)] for name, value in rows if value))


def _settings(run: RunPart) -> list[Html]:
    rows = settings_of(run.manifest)
    chosen = [row for row in rows if row[2] != BUILT_IN]
    rest = [row for row in rows if row[2] == BUILT_IN]
    parts = [
        tag("h4", "Settings that somebody chose"),
        _settings_table(chosen) if chosen else tag("p", "None: all are built in.", class_="note"),
    ]
    if rest:
        parts.append(tag("details", tag("summary", f"{len(rest)} more as built in"), _settings_table(rest)))
    return parts


def _settings_table(rows: list[tuple[str, str, str, str]]) -> Html:
    cells = [
        [
            tag("code", path),
            tag("code", value if len(value) <= SETTING else f"{value[:SETTING]}…", class_="said"),
            source,
        ]
        for path, value, _, source in rows
    ]
    return table(["setting", "value", "where it came from"], cells, words=range(3), label="settings")


def _reproduce(run: RunPart) -> Html:
    parts: list[Child] = [tag("h4", "How to reproduce")]
    if run.manifest.command:
        parts += [tag("p", "It was made by"), tag("pre", run.manifest.command)]
    config = shown_config(run.entry.run.config_path, CONFIG)
    if not has_rows(run.manifest):
        parts.append(tag("p", "Its rows are in the program that made it, which alone can repeat it.", class_="note"))
    elif config:
        how = "Its settings, with which bench run makes a run of its own" if run.manifest.derived else "To repeat it"
        parts += [
            tag("p", f"{how}: save this as run.toml and say ", tag("code", "bench run run.toml"), "."),
            tag("details", tag("summary", "run.toml"), tag("pre", config)),
        ]
    folder = run.entry.run.path
    if run.entry.run.has_data():
        load = f"load_dataset({str(folder.parent)!r}, {folder.name!r}, split='train')"
        parts += [tag("p", "Its rollouts, whole, as a dataset:"), tag("pre", load)]
    steps = f"bench runs show {shlex.quote(run.entry.id)}"
    parts.append(tag("p", "All of it in a terminal: ", tag("code", steps)))
    return join(parts)
