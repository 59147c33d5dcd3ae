"""The page of `bench report` in a real browser: it looks right at every width, its script works, nothing of others acts
in it, and it opens at once however large the suite is.

`BENCH_SCREENSHOTS=FOLDER` keeps the pictures that the tests take."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from chromium import Browser, Tab, browser
from report_suites import SKILLS, Shape, suite
from run_samples import finished, paid
from store_samples import example, failed, generated, scored

from harness.cli.main import main
from harness.core.records import JUDGEMENTS
from harness.report.page.content import content_of
from harness.report.page.document import document
from harness.report.page.gather import Page, page_of
from harness.report.page.plots import Plots

pytestmark = pytest.mark.slow

A4 = 718
"""Pixels of 210 mm without the margins of a printer."""

TALL = 6000 if os.environ.get("BENCH_SCREENSHOTS") else 1200
"""Pixels of a picture at most; who keeps none needs no whole page."""

LOOKS = [(width, scheme) for width in (400, 900, 1400) for scheme in ("light", "dark")]


def report(folder: Path, *arguments: str) -> str:
    """The address of the page of the newest invocation in a folder."""
    path = folder / "report.html"
    assert main(["report", "--output-dir", str(folder), "-o", str(path), "--force", *arguments]) == 0
    return path.resolve().as_uri()


def keep(name: str, picture: bytes) -> None:
    if folder := os.environ.get("BENCH_SCREENSHOTS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / name).write_bytes(picture)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("suite")
    suite(folder)
    return report(folder)


@pytest.fixture(scope="module")
def in_browser() -> Iterator[Browser]:
    with browser() as started:
        yield started


def enormous(path: Path) -> str:
    """The address of a page of 50,016 rollouts, an example each, and 1,440 transcripts. One run is read and stands
    there six times: to the browser that is the same, and it costs a sixth."""
    shape = Shape(("sums",), ("lab/large-2",), examples=8336, rollouts=1, words=120, is_summarized=False)
    [run] = suite(path.parent, shape)
    [environment] = page_of([run.path]).environments
    [part] = environment.runs
    parts = [replace(part, model=model, label=model, colour=colour) for colour, model in enumerate(SKILLS)]
    whole = Page("many", [replace(environment, name=name, runs=parts) for name in ("sums", "others")])
    path.write_text(document(whole, content_of(whole, 240), plots=Plots()))
    return path.resolve().as_uri()


async def rows(tab: Tab) -> list[list[str]]:
    """The cells of the table of examples."""
    source = "[...document.querySelectorAll('.examples tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
    return await tab.js(source)


async def counted(tab: Tab) -> str:
    return await tab.js("document.querySelector('.pager span').textContent")


async def choose(tab: Tab, label: str, value: str) -> None:
    await tab.js(
        f"""(() => {{
          const labels = [...document.querySelectorAll('.filters label')];
          const select = labels.find(l => l.firstChild.textContent === '{label}').querySelector('select');
          select.value = '{value}';
          select.dispatchEvent(new Event('change'));
        }})()"""
    )


def test_it_fits_every_width_in_light_and_dark(page: str, in_browser: Browser) -> None:
    async def visit(tab: Tab) -> None:
        for width, scheme in LOOKS:
            await tab.look(width, scheme=scheme)
            await tab.open(page)
            height = await tab.js("document.documentElement.scrollHeight")
            assert await tab.js("document.documentElement.scrollWidth") == width, (width, scheme)
            cut = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth).length"
            assert width < 1400 or await tab.js(cut) == 0
            assert await tab.js(cut.replace(".scroll", ".scroll.many")) == 0, "a row is a block where it is too wide"
            # Every figure is as wide as it is readable: its texts are at least 8 pixels high.
            sizes = await tab.js(
                "[...document.querySelectorAll('.plot text')].map(t => t.getBoundingClientRect().height)"
            )
            assert len(sizes) > 100
            assert min(sizes) >= 8, (width, min(sizes))
            paper = await tab.js("getComputedStyle(document.body).backgroundColor")
            assert paper == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 23, 27)")
            await tab.look(width, height=min(height, TALL), scheme=scheme)
            picture = await tab.screenshot()
            assert struct.unpack(">II", picture[16:24]) == (width, min(height, TALL))
            keep(f"report-{width}-{scheme}.png", picture)
        assert tab.complaints == []
        assert set(tab.requests) == {page}

    in_browser(visit)


def test_words_can_be_told_from_the_paper(page: str, in_browser: Browser) -> None:
    """Contrast of every text of the page, by the formula of WCAG 2.2, is at least 4.5 : 1; of figures 3 : 1."""
    source = """(() => {
      const light = (c) => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number).map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
      const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
      const paper = getComputedStyle(document.body).backgroundColor;
      const words = [...document.querySelectorAll('main *, header *')].filter(e => !e.closest('svg') && [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()));
      const found = {};
      for (const e of words) { const c = getComputedStyle(e).color; found[c] = ratio(c, paper); }
      const marks = {};
      for (const e of document.querySelectorAll('.strip circle, .plot path[class^=f-c]')) { const c = getComputedStyle(e).fill; marks[c] = ratio(c, paper); }
      return [Math.min(...Object.values(found)), Math.min(...Object.values(marks)), Object.keys(marks).length];
    })()"""  # noqa: E501

    async def visit(tab: Tab) -> None:
        for scheme in ("light", "dark"):
            await tab.look(1400, scheme=scheme)
            await tab.open(page)
            words, marks, colours = await tab.js(source)
            assert words >= 4.3, scheme  # the signs of models stand beside their names
            assert marks >= 3, scheme
            assert colours == 3

    in_browser(visit)


def test_the_table_of_examples_is_filtered_sorted_and_turned(page: str, in_browser: Browser) -> None:
    async def visit(tab: Tab) -> None:
        await tab.look(1400)
        await tab.open(page)
        assert await counted(tab) == "1–50 of 360"
        first = await rows(tab)
        assert len(first) == 50
        assert first[0][:3] == ["0", "sums", "●lab/large-2"]
        await tab.js("document.querySelectorAll('.pager button')[1].click()")
        assert await counted(tab) == "51–100 of 360"
        assert (await rows(tab))[0] != first[0]

        await choose(tab, "Environment", "browse")
        await choose(tab, "Model", "other/tiny")
        assert await counted(tab) == "1–40 of 40"
        await choose(tab, "Outcome", "failed")
        failed_ones = await rows(tab)
        assert failed_ones
        assert {row[4] for row in failed_ones} == {"0.000"}
        await choose(tab, "Outcome", "all")

        await tab.js(
            "[...document.querySelectorAll('.examples th button')].find(b => b.textContent === 'mean').click()"
        )
        means = [float(row[4]) for row in await rows(tab) if row[4] != "–"]
        assert means == sorted(means)
        assert means[0] < means[-1]
        await tab.js(
            "[...document.querySelectorAll('.examples th button')].find(b => b.textContent === 'mean').click()"
        )
        assert [float(row[4]) for row in await rows(tab) if row[4] != "–"] == sorted(means, reverse=True)

        await tab.js(
            "(() => { const i = document.querySelector('input'); i.value = 'QUESTION 17'; "
            "i.dispatchEvent(new Event('input')); })(), new Promise(done => setTimeout(done, 300))"
        )
        assert await counted(tab) == "1–1 of 1"
        assert [row[0] for row in await rows(tab)] == ["17"]
        assert tab.complaints == []

    in_browser(visit)


def test_a_transcript_opens_and_leads_to_others(page: str, in_browser: Browser) -> None:
    async def visit(tab: Tab) -> None:
        await tab.look(900)
        await tab.open(page)
        await choose(tab, "Environment", "browse")
        await tab.js("document.querySelectorAll('.examples td button')[3].click()")
        assert await tab.js("document.querySelector('dialog').open")
        said = await tab.js("document.querySelector('dialog').textContent")
        assert said.startswith("Example 3")
        assert "browse question 3: what is 3 + 6?" in said
        assert "expected9" in said
        assert said.count("Rollout ") == 4
        assert '→ search({"page": 0})' in said
        keep("transcript-900.png", await tab.screenshot())
        others = "[...document.querySelectorAll('dialog .others button')]"
        assert [text.split(":")[0] for text in await tab.js(f"{others}.map(b => b.textContent)")] == [
            "lab/small-2",
            "other/tiny",
        ]
        # Who goes on by keyboard stays on the button, which is a new one each time, and can press it again.
        for number in (4, 5):
            await tab.js("document.querySelectorAll('dialog .bar button')[1].focus(); document.activeElement.click()")
            assert await tab.js("document.querySelector('dialog h3').textContent") == f"Example {number}"
            assert await tab.js("document.activeElement.textContent") == "Next ›"
        await tab.js("document.querySelectorAll('dialog .bar button')[0].click()")
        await tab.js(f"{others}[1].click()")
        assert await tab.js("document.activeElement.textContent") == "Close"
        assert "browse · other/tiny" in await tab.js("document.querySelector('dialog .inside').textContent")
        await tab.js("document.querySelectorAll('dialog .bar button')[2].click()")
        assert not await tab.js("document.querySelector('dialog').open")
        await tab.until("location.hash === ''")  # what a closed dialog does comes a little later

        await tab.open("about:blank")
        await tab.open(f"{page}#example=4.5")
        assert "Example 5" in await tab.js("document.querySelector('dialog h3').textContent")
        assert tab.complaints == []

    in_browser(visit)


def test_it_prints_with_everything_unfolded(page: str, in_browser: Browser) -> None:
    async def visit(tab: Tab) -> None:
        await tab.look(1400, scheme="dark")
        await tab.open(page)
        folded = await tab.js("document.querySelectorAll('main details:not([open])').length")
        assert folded > 9
        await tab.js(
            "window.addEventListener('beforeprint', () => { window.left = "
            "document.querySelectorAll('main details:not([open])').length; })"
        )
        printed = await tab.pdf()
        keep("report.pdf", printed)
        assert printed.startswith(b"%PDF")
        assert await tab.js("window.left") == 0
        assert await tab.js("document.querySelectorAll('main details:not([open])').length") == folded
        await tab.look(A4, scheme="dark", media="print")
        wide = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth).length"
        assert await tab.js(wide) == 0
        assert await tab.js("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert await tab.js("getComputedStyle(document.querySelector('.filters')).display") == "none"

    in_browser(visit)


def test_the_same_example_is_told_by_its_content(tmp_path: Path, in_browser: Browser) -> None:
    """And not by its id and how its question begins: a game of another seed has both."""
    ours, same, other = "a" * 64, "a" * 64, "b" * 64
    for number, key in enumerate((ours, same, other)):
        records = [example(0, key=key), replace(generated(0), example_key=key), scored(0)]
        finished(tmp_path, records, model=f"lab/{number}", suite="s", letters=f"aaa{number}")
    address = report(tmp_path, *(run.name for run in sorted(tmp_path.glob("evals/*/*Z-*"))))

    async def visit(tab: Tab) -> None:
        await tab.open(f"{address}#example=0.0")
        others = "[...document.querySelectorAll('dialog .others button')].map(b => b.textContent)"
        assert await tab.js(others) == ["lab/1: 1.000"]

    in_browser(visit)


HOSTILE = (
    '</script><script>window.hacked=1</script><img src="http://127.0.0.1:9/x" onerror="window.hacked=2">'
    "<style>*{display:none}</style><a href='javascript:window.hacked=3'>x</a>${window.hacked=4}"
)


def test_nothing_of_others_acts_in_it(tmp_path: Path, in_browser: Browser) -> None:
    call = {"id": "1", "type": "function", "function": {"name": HOSTILE, "arguments": HOSTILE}}
    said = [{"role": "assistant", "content": HOSTILE, "tool_calls": [call], "reasoning_content": HOSTILE, "x": HOSTILE}]
    judge = {JUDGEMENTS: [{"model": HOSTILE, "label": HOSTILE, "text": HOSTILE}]}
    records = [
        example(0, example_id=HOSTILE, task=HOSTILE, answer=HOSTILE, prompt=[{"role": "user", "content": HOSTILE}]),
        *paid(0, 1.0, completion=said, state=judge),
        example(1),
        failed(1, reason=HOSTILE, error=HOSTILE),
        example(2),
        generated(2),
        scored(2, reward=None, reasons={HOSTILE: HOSTILE}, metrics={HOSTILE: 1.0}),
    ]
    finished(
        tmp_path, records, model=HOSTILE, env_id=HOSTILE, name=HOSTILE, command=HOSTILE, versions={HOSTILE: HOSTILE},
        settings={HOSTILE: HOSTILE}, origins={HOSTILE: {"origin": "cli", "source": HOSTILE}}, git={"commit": HOSTILE},
    )  # fmt: skip
    address = report(tmp_path, "--title", HOSTILE)

    async def visit(tab: Tab) -> None:
        await tab.look(900)
        await tab.open(address)
        assert await tab.js("document.title") == HOSTILE
        for number in range(3):
            await tab.js(f"document.querySelectorAll('.examples td button')[{number}].click()")
            assert await tab.js("document.querySelector('dialog').open")
            shown = await tab.js("document.querySelector('dialog').textContent")
            assert HOSTILE in shown or number == 2
            await tab.js("document.querySelector('dialog').close()")
        assert await tab.js("typeof window.hacked") == "undefined"
        assert await tab.js("document.images.length") == 0
        assert await tab.js("document.querySelectorAll('a[href^=javascript]').length") == 0
        assert set(tab.requests) == {address}
        # Were there a hole, the policy would still hold.
        await tab.js("document.body.append(Object.assign(document.createElement('img'), {src: 'data:,x'}))")
        await tab.js("new Promise(done => setTimeout(done, 100))")
        assert [text for text in tab.complaints if "Content Security Policy" in text]

    in_browser(visit)


def test_long_names_fit_and_those_from_right_to_left_reorder_nothing_else(tmp_path: Path, in_browser: Browser) -> None:
    records = [example(0), *paid(0, 1.0), example(1), failed(1)]
    for number, model in enumerate(("lab/" + "very-" * 15 + "long", "اختبار النماذج")):
        finished(tmp_path, records, model=model, name=f"{model} run", suite="s", letters=f"aaa{number}")
    address = report(tmp_path, *(run.name for run in sorted(tmp_path.glob("evals/*/*Z-*"))))

    async def visit(tab: Tab) -> None:
        await tab.look(400)
        await tab.open(address)
        assert await tab.js("document.querySelectorAll('.filters select').length") == 2
        assert await tab.js("document.documentElement.scrollWidth") == 400
        kinds = (
            "[...document.querySelectorAll('.name, .remarks b, summary bdi')].map(e => getComputedStyle(e).unicodeBidi)"
        )
        assert set(await tab.js(kinds)) == {"isolate"}
        assert len(await tab.js("[...document.querySelectorAll('summary bdi')].map(e => e.textContent)")) == 2

    in_browser(visit)


def test_without_script_all_but_the_examples_is_there(page: str, in_browser: Browser) -> None:
    async def visit(tab: Tab) -> None:
        await tab.look(1400)
        await tab.call("Emulation.setScriptExecutionDisabled", value=True)
        await tab.load(page)
        document = await tab.call("DOM.getDocument", depth=0)
        found = await tab.call("DOM.querySelector", nodeId=document["root"]["nodeId"], selector="#no-script")
        markup = await tab.call("DOM.getOuterHTML", nodeId=found["nodeId"])
        assert "needs JavaScript" in markup["outerHTML"]
        assert "hidden" not in markup["outerHTML"]

    in_browser(visit)


async def cpu(tab: Tab) -> float:
    """Seconds that the page's thread has computed since it was opened: script, layout and all else."""
    metrics = (await tab.call("Performance.getMetrics"))["metrics"]
    return {each["name"]: each["value"] for each in metrics}["TaskDuration"]


def test_fifty_thousand_rollouts_open_at_once(tmp_path: Path, in_browser: Browser) -> None:
    address = enormous(tmp_path / "report.html")

    async def visit(tab: Tab) -> None:
        await tab.look(1400)
        await tab.call("Performance.enable", timeDomain="threadTicks")  # CPU, however busy the machine is
        await tab.open(address)
        assert await counted(tab) == "1–50 of 50,016"
        opened = await cpu(tab)
        await tab.js("document.querySelectorAll('.examples th button')[4].click()")
        sorted_ = await cpu(tab)
        assert 0 < opened < 2 and 0 < sorted_ - opened < 1.5, (opened, sorted_)
        assert tab.complaints == []

    assert 6_000_000 < (tmp_path / "report.html").stat().st_size < 20_000_000
    in_browser(visit)
