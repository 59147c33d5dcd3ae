"""The pages of `bench view` in a real browser: what people see, click and press."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from chromium import Browser, Tab
from run_samples import finished, summarized
from store_samples import example, generated, rollouts, scored, write
from view_pages import (
    LOOKS,
    click,
    compared_run,
    go,
    hostile,
    hostile_run,
    keep,
    mixed_run,
    opened,
    place_of,
    press,
    shows,
    texts,
    type_text,
)
from view_server import viewing

from harness.core.records import Record
from harness.core.types import JsonDict
from harness.store.rundir import RunDir

AXE = Path(__file__).resolve().parents[2] / "data" / "axe" / "axe.min.js"


def test_runs_are_listed_searched_and_sorted(out: Path, in_browser: Browser) -> None:
    one, two = mixed_run(out, minute=0, letters="aaaa"), finished(out, minute=5, letters="bbbb", model="lab/other")

    async def visit(tab: Tab) -> None:
        await opened(tab, client)
        await shows(tab, "2 runs")
        assert "token" not in await tab.js("location.href"), "the token is not left in the address"
        links = "tbody a.main"
        hashes = f"[...document.querySelectorAll('{links}')].map(e => e.hash)"
        await tab.gives(hashes, [f"#/run/{two.id}", f"#/run/{one.id}"])
        await press(tab, "/")
        await type_text(tab, "lab/other")
        await shows(tab, "1 of 2 runs")
        assert "text=lab%2Fother" in await place_of(tab), "what is shown has an address"
        await go(tab, "#/?sort=mean&desc=1")
        await shows(tab, "2 runs")
        await tab.until(
            f"document.querySelector('{links}').hash.includes('{two.id}') === {str(_mean(two) > _mean(one)).lower()}"
        )
        await press(tab, "Escape", "j", "Enter")
        await tab.until("location.hash.startsWith('#/run/')")
        await shows(tab, "mean reward")
        await press(tab, "u")
        await shows(tab, "2 runs")
        assert tab.complaints == []

    with viewing(out) as client:
        in_browser(visit)


def _mean(run: RunDir) -> float:
    summary = run.read_summary()
    assert summary is not None
    return float(summary["reward"]["mean"])  # type: ignore[index]


def test_a_run_is_searched_by_kinds_of_failures(out: Path, in_browser: Browser) -> None:
    run = mixed_run(out)

    async def visit(tab: Tab) -> None:
        await opened(tab, client, f"#/run/{run.id}?by=metrics")
        await shows(tab, "6 examples, 18 rollouts")
        await tab.gives("document.querySelectorAll('.examples .dot').length", 18)
        await tab.gives("document.querySelectorAll('.examples .dot-pass').length", 9)
        await tab.gives("document.querySelectorAll('.examples .dot-none').length", 1)
        names = "[...document.querySelectorAll('.groups tbody th')].map(e => e.textContent.trim()).sort()"
        await tab.gives(names, ["(none)", "correct=0 format=1", "correct=1 format=1"])
        await tab.js(
            "void [...document.querySelectorAll('.groups button')]"
            ".find(e => e.textContent.startsWith('correct=0')).click()"
        )
        await shows(tab, "6 examples, 8 rollouts of 6 and 18")
        await tab.until("document.getElementById('query').value !== ''")
        query = await tab.js("document.getElementById('query').value")
        assert f"q={quote(query, safe='')}".replace("%20", "+") in await place_of(tab)
        await tab.js("history.back()")
        await shows(tab, "6 examples, 18 rollouts")
        await tab.gives("document.getElementById('query').value", "")
        await click(tab, ".histogram .column:first-child")
        await shows(tab, "8 rollouts of")
        assert tab.complaints == []

    with viewing(out) as client:
        in_browser(visit)


def test_a_mistake_in_a_query_is_marked_at_its_place(out: Path, in_browser: Browser) -> None:
    run = mixed_run(out)

    async def visit(tab: Tab) -> None:
        await opened(tab, client, f"#/run/{run.id}")
        await shows(tab, "6 examples")
        await press(tab, "/")
        await type_text(tab, "reward<1 stopp:done")
        await press(tab, "Enter")
        await shows(tab, 'did you mean "stop"?', "#query-error")
        await tab.gives(texts("#query-error mark"), ["stopp"])
        await click(tab, ".clear")
        await shows(tab, "6 examples, 18 rollouts")
        await type_text(tab, "sto")
        await tab.until("document.querySelectorAll('#offered li').length > 0")
        await press(tab, "Tab")
        await tab.gives("document.getElementById('query').value", "stop:")
        assert [each for each in tab.complaints if "400" not in each] == []

    with viewing(out) as client:
        in_browser(visit)


def test_a_rollout_is_a_transcript_with_its_score(out: Path, in_browser: Browser) -> None:
    run = mixed_run(out)

    async def visit(tab: Tab) -> None:
        await opened(tab, client, f"#/run/{run.id}/ex/2/1")
        await shows(tab, "What is 2 + 1?", ".transcript")
        # Results are at their calls.
        await tab.gives(texts(".message .role"), ["system", "user", "assistant", "assistant"])
        await tab.gives("document.querySelector('.reasoning').open", False)
        await shows(tab, "Let me think about 2.", ".reasoning")
        await shows(tab, "degrees", ".call .result")
        await tab.gives("document.querySelector('img.picture').naturalWidth", 24)
        await tab.gives(texts(".markdown strong"), ["3"])
        await tab.gives("document.querySelectorAll('.markdown .tok-keyword').length", 2)
        for text in ("I judge rollout 1.", "level"):
            await shows(tab, text, ".side")
        side = await tab.js("document.querySelector('.side').textContent")
        assert re.search(r"reward\s*0.*correct\s*0.*format\s*1", side)
        await click(tab, ".rolloutbar button[title^='Markdown']")
        await tab.until("document.querySelectorAll('.markdown strong').length === 0")
        await shows(tab, "**3**", ".transcript")
        assert tab.complaints == []

    with viewing(out) as client:
        in_browser(visit)


def test_keys_go_through_a_run(out: Path, in_browser: Browser) -> None:
    run = mixed_run(out)

    async def at(tab: Tab, place: str) -> None:
        await tab.until(f"location.hash.startsWith('#/run/{run.id}/ex/{place}')")
        await shows(tab, "Example {} rollout {}".format(*place.split("/")), ".rolloutbar h1")

    async def visit(tab: Tab) -> None:
        await opened(tab, client, f"#/run/{run.id}/ex/0/0")
        await shows(tab, "What is 0 + 1?", ".transcript")
        for key, place in [
            ("j", "1/0"),
            ("]", "1/1"),
            ("]", "1/2"),
            ("[", "1/1"),
            ("n", "1/2"),
            ("n", "2/1"),
            ("N", "1/2"),
            ("k", "0/0"),
        ]:
            await press(tab, key)
            await at(tab, place)
        await press(tab, "J", "J")
        await tab.until("location.hash.endsWith('turn=2')")
        await tab.until("document.querySelector('.message.here')?.textContent.includes('The answer is')")
        await press(tab, "k")
        await shows(tab, "This is the first one.", ".note")
        await press(tab, "?")
        await shows(tab, "next, previous failure", "[role=dialog]")
        await press(tab, "j", "Escape")
        await tab.until("document.querySelector('[role=dialog]') === null")
        assert f"/run/{run.id}/ex/0/0" in await place_of(tab), "keys of the page are off behind a dialog"
        await press(tab, "u")
        await shows(tab, "mean reward")
        assert tab.complaints == []

    with viewing(out) as client:
        in_browser(visit)


def test_a_list_that_was_filtered_is_gone_through(out: Path, in_browser: Browser) -> None:
    run = mixed_run(out)

    async def visit(tab: Tab) -> None:
        await opened(tab, client, f"#/run/{run.id}?q=info.level%3Ahard+is%3Afailed&sort=example&desc=1")
        await shows(tab, "3 examples")
        await tab.js("void document.querySelector('.examples tbody a.main').click()")
        await tab.until(f"location.hash.startsWith('#/run/{run.id}/ex/5/')")
        await shows(tab, "What is 5 + 1?", ".transcript")
        await press(tab, "j")
        await tab.until(f"location.hash.startsWith('#/run/{run.id}/ex/3/0?')")
        await press(tab, "u")
        await shows(tab, "3 examples")
        assert tab.complaints == []

    with viewing(out) as client:
        in_browser(visit)


def test_hostile_text_stays_text(out: Path, in_browser: Browser) -> None:
    run = hostile_run(out)

    async def visit(tab: Tab) -> None:
        await opened(tab, client)
        await shows(tab, hostile("environment"))
        await shows(tab, hostile("model"))
        await go(tab, f"#/run/{run.id}?by=stop")
        for field in (
            "environment",
            "model",
            "reason",
            "stop",
            "setting",
            "value",
            "command",
            "version",
            "id",
            "answer",
            "task",
        ):
            await shows(tab, hostile(field))
        await press(tab, "/")
        await type_text(tab, "stop:s")
        await tab.until("document.querySelectorAll('#offered li').length > 0")
        for place in ("0/0", "0/1"):
            await go(tab, f"#/run/{run.id}/ex/{place}")
            opened_all = "document.querySelectorAll('details').forEach(e => { e.open = true })"
            names = {
                "0/0": "metric name content code function arguments reply reasoning result judge judgement value inner",
                "0/1": "reason error",
            }
            for field in names[place].split():
                seen = json.dumps(f"{field} <img src=x")
                await tab.until(f"({opened_all}, document.querySelector('main').textContent.includes({seen}))")
        assert await tab.js("window.hacked === undefined"), await tab.js("window.hacked")
        assert (
            await tab.js("document.querySelectorAll('main img, main script, main [onerror], main [onclick]').length")
            == 0
        )
        assert {urlsplit(each).netloc for each in tab.requests if not each.startswith("data:")} <= {
            f"127.0.0.1:{client.port}",
            "",
        }
        assert tab.complaints == []

    with viewing(out) as client:
        in_browser(visit)


def test_a_run_is_followed_while_it_runs(out: Path, in_browser: Browser) -> None:
    planned = {"num_examples": 8, "rollouts_per_example": 1}
    run = finished(out, rollouts(2), status="running", planned=planned)
    run.summary_path.unlink()
    lock = run.lock()

    async def visit(tab: Tab) -> None:
        await opened(tab, client, f"#/run/{run.id}")
        await shows(tab, "2 examples, 2 rollouts")
        more: list[Record] = []
        for index in range(2, 8):
            more += [example(index), generated(index), scored(index, 0, 1.0)]
        # In a thread: the page is being read meanwhile.
        write_in_thread(run, more)
        await shows(tab, "8 examples, 8 rollouts")
        summarized(run)
        finish(run)
        lock.release()
        await tab.until("document.querySelector('.state').textContent === 'done'")
        assert tab.complaints == []

    with viewing(out) as client:
        in_browser(visit)


def write_in_thread(run: RunDir, records: list[Record]) -> None:
    """Append to the journal from a thread, since the test's own thread has a running event loop."""
    from threading import Thread

    thread = Thread(target=write, args=(run.journal_path, records))
    thread.start()
    thread.join()


def finish(run: RunDir) -> None:
    manifest = json.loads(run.manifest_path.read_text())
    run.manifest_path.write_text(json.dumps({**manifest, "status": "done"}))


def test_pages_fit_every_width_and_are_accessible(out: Path, in_browser: Browser) -> None:
    run = mixed_run(out, minute=0)
    pair = ",".join(compared_run(out, right, 4 * letter, minute=right).id for right, letter in ((6, "b"), (3, "c")))
    places = {
        "runs": f"#/?chosen={pair}", "run": f"#/run/{run.id}", "rollout": f"#/run/{run.id}/ex/2/1",
        "compare": f"#/compare/{pair}", "pair": f"#/compare/{pair}/ex/4",
    }  # fmt: skip
    words = {
        "runs": "2 runs chosen", "run": "6 examples, 18", "rollout": "The answer is",
        "compare": "lab/cccc and lab/bbbb are tied", "pair": "First difference: turn 2",
    }  # fmt: skip

    async def visit(tab: Tab) -> None:
        await opened(tab, client)
        await shows(tab, "3 runs")
        await tab.js(AXE.read_text() + "; 0")
        for width, scheme in LOOKS:
            await tab.look(width, scheme=scheme)
            for name, place in places.items():
                await go(tab, place)
                await tab.until(f"document.querySelector('main.{name}') && !document.querySelector('.wait, .old')")
                await shows(tab, words[name])
                assert await tab.js("document.documentElement.scrollWidth <= innerWidth"), (name, width)
                keep(f"view-{name}-{width}-{scheme}.png", await tab.screenshot())
                found = await tab.js(
                    "axe.run(document, {resultTypes: ['violations']}).then(r => r.violations"
                    ".filter(v => ['serious', 'critical'].includes(v.impact))"
                    ".map(v => [v.id, v.nodes.map(n => n.html).slice(0, 3)]))"
                )
                assert found == [], (name, width, scheme)
        assert tab.complaints == []

    with viewing(out) as client:
        in_browser(visit)


@pytest.mark.slow
def test_a_transcript_of_5000_turns_scrolls(out: Path, in_browser: Browser) -> None:
    completion: list[JsonDict] = []
    for number in range(1, 5001):
        completion.append({"role": "assistant", "content": f"guess {number}"})
        completion.append({"role": "user", "content": f"no, not {number}"})
    records: list[Record] = [example(0), generated(0, 0, completion=completion), scored(0, 0, 1.0)]
    run = finished(out, records, planned={"num_examples": 1, "rollouts_per_example": 1})

    async def visit(tab: Tab) -> None:
        await opened(tab, client, f"#/run/{run.id}/ex/0/0?turn=4321")
        await tab.until("document.querySelector('.message.here')?.textContent.includes('guess 4321')")
        assert await tab.js("document.querySelectorAll('.message').length") < 600, "what is far away is not drawn"
        await tab.until("Math.abs(document.querySelector('.message.here').getBoundingClientRect().top) < innerHeight")
        await tab.js("void scrollTo(0, document.body.scrollHeight)")
        await shows(tab, "guess 5000", ".transcript")
        assert tab.complaints == []

    with viewing(out) as client:
        in_browser(visit)
