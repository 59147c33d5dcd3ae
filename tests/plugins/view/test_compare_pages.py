"""The pages of `bench view` that compare runs, in a real browser."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Thread

from chromium import Browser, Tab
from compared_runs import scored_run
from run_samples import finished
from store_samples import example, generated, scored, write
from view_pages import click, compared_run, go, hostile, hostile_run, opened, place_of, press, shows, texts, type_text
from view_server import viewing

from harness.core.records import Record
from harness.core.types import JsonDict
from harness.store.rundir import RunDir

ROWS = "[...document.querySelectorAll('.examples tbody a.main')].map(e => e.textContent.trim())"


def two_runs(out: Path) -> tuple[RunDir, RunDir, str]:
    """Two runs of which the second is wrong on the last three examples, and the address of their comparison."""
    first, second = compared_run(out, 6, "aaaa"), compared_run(out, 3, "bbbb", "I believe", minute=1)
    return first, second, f"#/compare/{first.id},{second.id}"


def test_runs_are_chosen_and_compared_with_keys(out: Path, in_browser: Browser) -> None:
    _, second, place = two_runs(out)

    async def visit(tab: Tab) -> None:
        await opened(tab, client)
        await shows(tab, "2 runs")
        await press(tab, "c")
        await shows(tab, "Choose two runs or more")
        await press(tab, "j", "j", "x")  # the older run is below
        await tab.until("location.hash.includes('chosen=')")
        await press(tab, "k", "x")
        await shows(tab, "2 runs chosen")
        await press(tab, "c")
        await tab.gives("location.hash", place)
        await shows(tab, "lab/bbbb and lab/aaaa are tied")
        await tab.js("history.back()")
        await shows(tab, "2 runs chosen")
        await go(tab, f"#/run/{second.id}")
        await shows(tab, "mean reward")
        await press(tab, "c")
        await shows(tab, "Compare with a baseline")
        await type_text(tab, "aaaa")
        await tab.gives("document.querySelectorAll('.chooser li').length", 1)
        await press(tab, "Enter")
        await tab.gives("location.hash", place)
        await shows(tab, "lab/bbbb and lab/aaaa are tied")
        await press(tab, "u")
        await shows(tab, "2 runs in")
        assert tab.complaints == []

    with viewing(out) as client:
        in_browser(visit)


def test_the_largest_differences_are_first(out: Path, in_browser: Browser) -> None:
    *_, place = two_runs(out)

    async def visit(tab: Tab) -> None:
        await opened(tab, client, place)
        await tab.gives(ROWS, ["4", "5", "3", "0", "1", "2"])
        row = "[...document.querySelectorAll('.compared tbody tr:last-child td')].map(e => e.textContent.trim())"
        found = await tab.js(row)
        assert (found[2], found[5], found[6:]) == ("tied", "0.214", ["0", "3", "3"]), found
        assert found[4] == "−0.877 … +0.252"
        differences = "[...document.querySelectorAll('.examples tbody .delta')].map(e => e.textContent)"
        await tab.gives(differences, ["−1.000", "−1.000", "−0.500", "0", "0", "0"])
        focused = "document.activeElement.textContent"
        for key, where in [("n", "4"), ("n", "5"), ("j", "3"), ("j", "0"), ("N", "3"), ("k", "5")]:
            await press(tab, key)
            await tab.gives(focused, where)
        await tab.js(
            "void [...document.querySelectorAll('.quick button')].find(e => e.textContent.startsWith('Worse')).click()"
        )
        await tab.gives(ROWS, ["4", "5", "3"])
        assert "show=worse" in await place_of(tab)
        await tab.js("history.back()")
        await tab.gives(ROWS, ["4", "5", "3", "0", "1", "2"])
        await press(tab, "/")
        await type_text(tab, 'text:"sells 31"')
        await press(tab, "Enter")
        await tab.gives(ROWS, ["3"])
        await type_text(tab, " stopp:x")
        await press(tab, "Enter")
        await shows(tab, "did you mean", "#query-error")
        await go(tab, f"{place}?sort=example&desc=1")
        await tab.gives(ROWS, ["5", "4", "3", "2", "1", "0"])
        assert [each for each in tab.complaints if "400" not in each] == []

    with viewing(out) as client:
        in_browser(visit)


def test_two_transcripts_are_aligned_and_the_first_difference_is_marked(out: Path, in_browser: Browser) -> None:
    *_, place = two_runs(out)

    async def visit(tab: Tab) -> None:
        await opened(tab, client, f"{place}/ex/3")
        await shows(tab, "First difference: turn 2, reply.", ".note")
        # The rollout that is wrong is beside one that is right.
        await tab.gives(texts(".pairhead .verdict"), ["reward 1", "reward 0"])
        await tab.gives(texts(".turnrow .turnhead"), [
            "turn 1the same in both", "turn 2first difference: replyMark words", "turn 3differs: replyMark words",
        ])  # fmt: skip
        await tab.gives(texts(".first-difference del"), ["think", "30"])
        await tab.gives(texts(".first-difference ins"), ["believe", "31"])
        await tab.gives("document.querySelectorAll('.turnrow:first-of-type .message').length", 1)
        beside = "(a => a[0].top === a[1].top && a[0].right <= a[1].left)([...document.querySelectorAll('.first-difference .cell')].map(e => e.getBoundingClientRect()))"  # noqa: E501
        await tab.gives(beside, True)
        await press(tab, "d")
        await tab.until("location.hash.endsWith('turn=2')")
        await tab.until("document.querySelector('.turnrow.here .diverges') !== null")
        await tab.js("void document.querySelectorAll('.turnrow')[2].querySelector('.turnhead button').click()")
        await tab.gives(texts("#t3 ins"), ["31"])
        await press(tab, "]")
        await tab.gives(texts(".pairhead .verdict"), ["reward 1", "reward 1"])
        await tab.until("location.hash.includes('r=0%2C1')")
        await tab.js("void history.back()")
        await tab.gives(texts(".pairhead .verdict"), ["reward 1", "reward 0"])
        await tab.look(390)
        await tab.gives(beside, False)
        below = beside.replace("a[0].top === a[1].top && a[0].right <= a[1].left", "a[0].bottom <= a[1].top")
        await tab.gives(below, True)
        assert tab.complaints == []

    with viewing(out) as client:
        in_browser(visit)


def test_a_turn_of_long_transcripts_has_an_address(out: Path, in_browser: Browser) -> None:
    runs: list[str] = []
    for number in range(2):
        completion: list[JsonDict] = []
        for turn in range(1, 401):
            completion.append(
                {"role": "assistant", "content": f"guess {turn}{' again' * number if turn > 300 else ''}"}
            )
            completion.append({"role": "user", "content": f"no, not {turn}"})
        lines: list[Record] = [example(0), generated(0, 0, completion=completion), scored(0, 0, float(number))]
        planned = {"num_examples": 1, "rollouts_per_example": 1}
        runs.append(finished(out, lines, minute=number, planned=planned).id)
    in_view = "(e => e && e.top > 0 && e.top < innerHeight)(document.getElementById('t{}')?.getBoundingClientRect())"

    async def visit(tab: Tab) -> None:
        place = f"#/compare/{','.join(runs)}/ex/0"
        await opened(tab, client, place)
        await shows(tab, "Show turns 1 to 299, the same in both")
        await shows(tab, "first difference: reply", "#t301")
        await go(tab, f"{place}?turn=390")
        await tab.gives(in_view.format(390), True)
        await go(tab, f"{place}?turn=150")
        await tab.gives(in_view.format(150), True)
        await shows(tab, "guess 150", "#t150")
        assert await tab.js("document.querySelectorAll('.message').length") < 800, "what is far away is not drawn"
        assert tab.complaints == []

    with viewing(out) as client:
        in_browser(visit)


def test_keys_go_through_the_examples_of_a_comparison(out: Path, in_browser: Browser) -> None:
    *_, place = two_runs(out)

    async def visit(tab: Tab) -> None:
        await opened(tab, client, f"{place}/ex/4?sort=example")
        for key, where in [("n", "5"), ("k", "4"), ("N", "3"), ("k", "2"), ("k", "1"), ("n", "3"), ("j", "4")]:
            await press(tab, key)
            await tab.until(f"location.hash.startsWith({json.dumps(f'{place}/ex/{where}?')})")
            await shows(tab, f"Example {where}", ".rolloutbar h1")
        await press(tab, "j")
        await shows(tab, "Example 5", ".rolloutbar h1")
        await tab.until("document.querySelectorAll('.turnrow').length > 1")
        await press(tab, "j")
        await shows(tab, "This is the last one.", ".note")
        await press(tab, "J", "J")
        await tab.until("location.hash.endsWith('turn=2')")
        await press(tab, "u")
        await tab.gives("location.hash", f"{place}?sort=example")
        await shows(tab, "6 examples")
        await go(tab, f"{place}/ex/77")
        await shows(tab, "do not share the example at position 77")
        assert [each for each in tab.complaints if "404" not in each] == []

    with viewing(out) as client:
        in_browser(visit)


def test_three_runs_are_compared_with_the_first(out: Path, in_browser: Browser) -> None:
    first, second, place = two_runs(out)
    third = compared_run(out, 5, "cccc", "We think", minute=2)

    async def visit(tab: Tab) -> None:
        await opened(tab, client, f"{place},{third.id}")
        await tab.gives(ROWS, ["4", "5", "3", "0", "1", "2"])
        await tab.gives("document.querySelectorAll('.compared tbody tr').length", 3)
        await tab.gives("document.querySelectorAll('.examples tbody tr:first-child .strip').length", 3)
        widest = "[...document.querySelectorAll('.examples tbody .letter')].map(e => e.textContent)"
        await tab.gives(widest, ["B", "B", "B"])
        await click(tab, ".examples tbody tr:nth-child(2) td.dots:nth-of-type(6) a")
        await tab.until("location.hash.includes('with=2')")
        await shows(tab, "lab/cccc", ".pairhead")
        await tab.gives(texts(".first-difference ins"), ["We", "57"])
        await tab.js("void history.back()")
        await shows(tab, "3 runs compared")
        await click(tab, ".compared tbody tr:last-child a.tag")
        await tab.gives("location.hash", f"#/compare/{third.id},{first.id},{second.id}")
        await tab.gives(texts(".compared tbody tr:first-child a.main"), ["lab/cccc"])
        assert tab.complaints == []

    with viewing(out) as client:
        in_browser(visit)


def test_runs_that_do_not_match_are_explained(out: Path, in_browser: Browser) -> None:
    first = scored_run(out, {0: [1.0]}, letters="aaaa")
    other = scored_run(out, {7: [1.0]}, minute=1, letters="bbbb", env_id="words")

    async def visit(tab: Tab) -> None:
        await opened(tab, client, f"#/compare/{first.id},{other.id}")
        await shows(tab, "The runs have no example in common, and are of different environments (words, sums).")
        assert tab.complaints == []
        await go(tab, f"#/compare/{first.id}")
        await shows(tab, "A comparison needs two different runs")
        await go(tab, f"#/compare/{first.id},gone")
        await shows(tab, "There is no run gone.")

    with viewing(out) as client:
        in_browser(visit)


def test_a_comparison_follows_a_run_in_progress(out: Path, in_browser: Browser) -> None:
    first = scored_run(out, {number: [1.0] for number in range(8)}, letters="aaaa")
    planned = {"num_examples": 8, "rollouts_per_example": 1}
    lines: list[Record] = [example(0), generated(0), scored(0, 0, 0.0)]
    second = finished(out, lines, minute=1, letters="bbbb", status="running", planned=planned)

    async def visit(tab: Tab) -> None:
        await opened(tab, client, f"#/compare/{first.id},{second.id}")
        await tab.gives(ROWS, ["0"])
        more: list[Record] = [example(3), generated(3), scored(3, 0, 0.0)]
        thread = Thread(target=write, args=(second.journal_path, more))  # this thread has a running event loop
        thread.start()
        thread.join()
        await tab.gives(ROWS, ["0", "3"])
        assert tab.complaints == []

    with viewing(out) as client:
        in_browser(visit)


def test_hostile_text_stays_text(out: Path, in_browser: Browser) -> None:
    first, second = hostile_run(out), hostile_run(out, minute=1, reply="other reply")

    async def visit(tab: Tab) -> None:
        await opened(tab, client, f"#/compare/{first.id},{second.id}")
        for field in ("environment", "id", "reply", "other reply"):
            await shows(tab, hostile(field))
        await go(tab, f"#/compare/{first.id},{second.id}/ex/0?r=0,0")
        await shows(tab, "First difference: turn 1, reply.", ".note")
        opened_all = "document.querySelectorAll('details').forEach(e => { e.open = true })"
        for field in ("role", "content", "code", "reasoning", "function", "arguments", "result", "judge", "answer"):
            seen = json.dumps(f"{field} <img src=x")
            await tab.until(f"({opened_all}, document.querySelector('main').textContent.includes({seen}))")
        await shows(tab, "other", ".first-difference ins")
        await go(tab, f"#/run/{first.id}")
        await shows(tab, "mean reward")
        await press(tab, "c")
        await shows(tab, hostile("model"), ".chooser")
        assert await tab.js("window.hacked === undefined"), await tab.js("window.hacked")
        dangerous = "main img, main script, main [onerror], main [onclick], main [onmouseover]"
        assert await tab.js(f"document.querySelectorAll('{dangerous}').length") == 0
        assert tab.complaints == []

    with viewing(out) as client:
        in_browser(visit)
