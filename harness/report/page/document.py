"""The HTML file of a report page: policy, style, script, data and sections. Self-contained; only its own script
runs."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import importlib.resources
from datetime import UTC, datetime

from harness.report import numerals
from harness.report.page import sections
from harness.report.page.content import PageData
from harness.report.page.gather import Page
from harness.report.page.markup import Html, script_json, table, tag
from harness.report.page.methods import methods_of, passing
from harness.report.page.plots import Plots
from harness.report.page.runs_part import runs_section


def document(page: Page, content: PageData, *, plots: Plots | None, now: datetime | None = None) -> str:
    """Render the HTML file.

    Args:
        page: Content of the page.
        content: Its examples and transcripts.
        plots: Renderer of the figures; None for no figures.
        now: Current time.
    """
    style, script = _asset("page.css"), _asset("page.js")
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", **{"http-equiv": "Content-Security-Policy"}, content=policy(style, script)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("meta", name="generator", content=_generator()),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", page.title),
        tag("style", Html(style)),
    ]
    body = [
        tag("a", "Skip to the results", href="#leaderboard", class_="skip"),
        _header(page, now or datetime.now(UTC)),
        tag(
            "main",
            sections.leaderboards(page),
            sections.differences(page),
            *(sections.environment_section(each, n, plots) for n, each in enumerate(page.environments)),
            _examples(content),
            runs_section(page),
            _methods(page),
        ),
        tag("footer", f"Made by {_generator()}. Nothing on this page loads anything from anywhere."),
        tag("script", script_json(content.rows), type="application/json", id="data-rows"),
        tag("script", script_json(content.transcripts), type="application/json", id="data-transcripts"),
        tag("script", Html(script)),
    ]
    return f"<!doctype html>\n{tag('html', tag('head', *head), tag('body', *body), lang='en')}\n"


def policy(style: str, script: str) -> str:
    """Content security policy: nothing is loaded, and only the script with this hash runs."""
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


def _generator() -> str:
    return f"bench {importlib.metadata.version('bench-harness')}"


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
    return tag(
        "header",
        tag("h1", page.title),
        tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in tiles), class_="tiles"),
        tag("p", f"Report made on {now:%Y-%m-%d}.", class_="note"),
        tag("div", tag("strong", "Not on this page:"), tag("ul", *missing), class_="missing", role="note")
        if missing
        else None,
        _contents(page),
    )


def _contents(page: Page) -> Html:
    links = [("#leaderboard", "Leaderboard")]
    links += [("#differences", "Differences")] if any(each.differences for each in page.environments) else []
    links += [(f"#environment-{number}", each.name) for number, each in enumerate(page.environments)]
    links += [("#examples", "Examples"), ("#runs", "Runs"), ("#methods", "Methods")]
    return tag("nav", *(tag("a", words, href=target) for target, words in links), aria_label="Contents")


def _examples(content: PageData) -> Html:
    """Section with an empty element that the script fills with the table of examples."""
    return tag(
        "section",
        tag("h2", "Examples", id="examples"),
        *(tag("p", line, class_="note") for line in content.notes),
        tag("p", "The table of examples needs JavaScript, which is off here.", class_="note", id="no-script"),
        tag("div", id="explorer", hidden=True),
    )


def _methods(page: Page) -> Html:
    rows = [[tag("code", name), what] for name, what in methods_of(page)]
    body = table(["figure", "how it is made"], rows, words=(0, 1), label="methods")
    return tag("section", tag("h2", "Methods", id="methods"), tag("p", passing(page)), body)
