"""No text of others becomes a tag, an attribute or a script of the page; what matplotlib draws fits its policy."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from report_suites import Shape, suite
from run_samples import finished, paid
from store_samples import example, failed
from tables import for_each_row

from harness.core.redact import redactor
from harness.report.page.content import MESSAGES, TEXT, content_of, shown_text, transcript_data
from harness.report.page.document import document
from harness.report.page.gather import page_of
from harness.report.page.markup import Html, join, script_json, table, tag, text
from harness.report.page.plots import Plots, bars_of, fitted
from harness.store.outcomes import outcomes, read_journal

NASTY = '</script><img src=x onerror="hacked()">&amp;\x1b[31m\u202e\x00\ud800'


class Reader(HTMLParser):
    """The tags and attributes of a page."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_what_is_no_markup_is_shown_as_text() -> None:
    made = tag("p", NASTY, tag("b", 3), None, ["<", Html("<br>")], title=NASTY, hidden=True, lang=None, id=False)

    shown = "&lt;/script&gt;&lt;img src=x onerror=&quot;hacked()&quot;&gt;&amp;amp;\ufffd"
    assert made == f'<p title="{shown}" hidden>{shown}<b>3</b>&lt;<br></p>'
    assert html.unescape(text(NASTY)) == '</script><img src=x onerror="hacked()">&amp;\ufffd'


@for_each_row("attributes", [{"onclick": "x"}, {"style": "x"}, {"a b": "x"}, {"on_load": "x"}])
def test_attributes_that_could_act_are_refused(attributes: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        tag("p", **attributes)


def test_a_known_secret_is_in_no_text() -> None:
    redactor.add("correct-horse-battery")

    assert join(["say correct-horse-battery"]) == "say [redacted]"
    assert shown_text("correct-\u200bhorse-battery") == "[redacted]"
    cut = shown_text("x" * (TEXT // 2 - 8) + "correct-horse-battery" + "y" * TEXT)
    assert "correct" not in cut


def test_json_cannot_end_its_element() -> None:
    value = {NASTY: [NASTY, "\u2028\u2029", "é", 1.5, None]}

    written = script_json(value)

    assert not re.search("[<>&\u2028\u2029\ud800]", written)
    assert json.loads(written) == json.loads(json.dumps(value).replace("\\ud800", "?"))
    with pytest.raises(ValueError, match="not JSON compliant"):
        script_json([float("nan")])


def test_a_table_says_which_cells_are_heads_and_which_are_figures() -> None:
    assert table(["a", "b"], [["<", 1]], label="x") == (
        '<div class="scroll" tabindex="0" role="region" aria-label="x"><table>'
        '<thead><tr><th scope="col">a</th><th class="n" scope="col">b</th></tr></thead>'
        '<tbody><tr><th scope="row">&lt;</th><td class="n">1</td></tr></tbody></table></div>'
    )


def test_drawings_have_no_style_no_shared_names_and_colours_of_the_page() -> None:
    drawn = """<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"
      viewBox="0 0 10.12345 20" onload="hacked()"><metadata><a>me</a></metadata><style>*{}</style>
      <script>hacked()</script>
      <defs><path id="m1" d="M 0.123456 1"/><clipPath id="c1"><rect x="1" y="2" width="3" height="4"/></clipPath></defs>
      <g id="figure_1" style="fill: #0f0f10; stroke:#0f0f03; font: 10.5px 'DejaVu Sans'; evil: url(x)"/>
      <g clip-path="url(#c1)"><use xlink:href="#m1" style="fill:#123456"/><use xlink:href="http://evil/x"/></g>
      <text style="font-size: 9.5px; text-anchor: middle">&lt;b&gt;</text></svg>"""

    made = fitted(drawn, "<title>", "p7-")

    assert made == (
        '<svg viewBox="0 0 10.12 20" role="img" aria-label="&lt;title&gt;" class="plot" stroke-linejoin="round">'
        '<defs><path id="p7-m1" d="M 0.12 1"></path><clipPath id="p7-c1">'
        '<rect x="1" y="2" width="3" height="4"></rect></clipPath></defs>'
        '<g clip-path="url(#p7-c1)"><use href="#p7-m1" fill="#123456"></use><use></use></g>'
        '<text font-size="9.5" text-anchor="middle">&lt;b&gt;</text></svg>'
    )


def test_bars_are_counted_about_the_steps_of_the_axis() -> None:
    counts = bars_of([0.0, 0.0, 0.25, 0.26, 0.5, 1.0], (0.0, 1.0))

    assert {n: count for n, count in enumerate(counts) if count} == {0: 2, 5: 2, 10: 1, 20: 1}
    assert sum(bars_of([-5.0, 7.0], (0.0, 1.0))) == 2


def test_a_figure_shows_what_it_is_given() -> None:
    plots = Plots()

    bars = Reader(plots.distribution([3] + [0] * 19 + [1], 3, (0.0, 1.0), 1, "two bars"))

    assert len([1 for name, its in bars.tags if name == "path" and its.get("class") == "f-c1"]) == 21
    assert "mean reward of an example" in bars.words
    assert bars.tags[0][1]["aria-label"] == "two bars"


def test_a_matplotlibrc_changes_nothing(tmp_path: Path) -> None:
    import matplotlib

    plain = Plots().distribution([1] * 21, 1, (0.0, 1.0), 0, "x")
    with matplotlib.rc_context({"font.size": 30.0, "axes.facecolor": "red", "svg.fonttype": "path"}):
        assert Plots().distribution([1] * 21, 1, (0.0, 1.0), 0, "x") == plain
        assert matplotlib.rcParams["font.size"] == 30.0


def nasty_page(folder: Path) -> str:
    """A page in which everything that others can name is an attack."""
    records = [
        example(0, example_id=NASTY, task=NASTY, answer=NASTY, prompt=[{"role": NASTY, "content": NASTY}]),
        *paid(0, 1.0, completion=[{"role": "assistant", "content": NASTY, NASTY: NASTY, "tool_calls": [NASTY]}]),
        example(1),
        failed(1, reason=NASTY, error=NASTY),
    ]
    clean = NASTY.replace("\ud800", "")
    run = finished(
        folder, records, note=clean, status="stopped", command=clean, versions={clean: clean}, git={"commit": clean},
        settings={clean: clean}, origins={clean: {"origin": "cli", "source": clean}}, name=clean,
    )  # fmt: skip
    run.config_path.write_text(clean)
    page = page_of([run.path], title=NASTY, missing=[NASTY])
    return document(page, content_of(page, 60), plots=Plots())


def test_the_page_has_only_our_own_tags_and_loads_nothing(tmp_path: Path) -> None:
    page = nasty_page(tmp_path)

    read = Reader(page)
    names = {name for name, _ in read.tags}
    assert not names & {"img", "link", "iframe", "object", "embed", "base", "form", "image", "foreignobject"}
    assert not [its for _, its in read.tags for key in its if key.startswith("on") or key in ("style", "src")]
    targets = [its["href"] for _, its in read.tags if its.get("href") is not None]
    assert targets
    assert all(target is not None and target.startswith("#") for target in targets)
    assert [its.get("type") for name, its in read.tags if name == "script"] == ["application/json"] * 2 + [None]
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e\ud800]", page)


def test_the_policy_lets_only_this_script_and_style_act(tmp_path: Path) -> None:
    page = nasty_page(tmp_path)

    def hashed(kind: str) -> str:
        [source] = re.findall(rf"<{kind}>(.*?)</{kind}>", page, re.DOTALL)
        return "'sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode() + "'"

    [policy] = [its["content"] for _, its in Reader(page).tags if its.get("http-equiv") == "Content-Security-Policy"]
    assert policy == (
        f"default-src 'none'; script-src {hashed('script')}; style-src {hashed('style')}; base-uri 'none'; "
        "form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    assert page.index("Content-Security-Policy") < page.index("<title>")


@pytest.mark.slow
def test_names_of_elements_are_unique(tmp_path: Path) -> None:
    runs = suite(tmp_path, Shape(environments=("sums", "browse"), examples=12))
    page = page_of([run.path for run in runs])

    read = Reader(document(page, content_of(page, 1), plots=Plots()))

    ids = [its["id"] for _, its in read.tags if "id" in its]
    assert len(ids) == len(set(ids))
    inner = {its["href"] for name, its in read.tags if name in ("a", "use") and its.get("href")}
    assert {f"#{name}" for name in ids} >= inner


def test_an_endless_rollout_is_cut_and_says_so(tmp_path: Path) -> None:
    said = [{"role": "assistant", "content": "y" * (TEXT + 10)} for _ in range(MESSAGES + 5)]
    run = finished(
        tmp_path, [example(0), *(each for n in range(10) for each in paid(0, 1.0, rollout=n, completion=said))]
    )
    found = list(outcomes(read_journal(run)))

    data = transcript_data(found[0].example, found)

    assert (len(data["rollouts"]), data["more"]) == (8, 2)
    messages = data["rollouts"][0]["messages"]
    assert len(messages) == MESSAGES + 1
    assert messages[MESSAGES // 2] == {"role": "", "note": "5 messages left out"}
    assert "[… 10 characters left out …]" in messages[0]["texts"][0]
    assert json.dumps(data)
