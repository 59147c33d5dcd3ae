"""Pages of runs in progress in a real browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import Browser, Tab, browser
from report_suites import Shape, suite
from run_samples import finished, run_at
from store_samples import example, generated, scored, write
from view_pages import go, hostile, shows
from view_server import viewing

from harness.report.page.gather import page_of
from harness.report.paper_tables.cells import table_of_page
from harness.report.paper_tables.footnotes import footnotes
from harness.report.paper_tables.layout import layout_of


@pytest.fixture(scope="module")
def in_browser() -> Iterator[Browser]:
    with browser() as started:
        yield started


def test_pages_say_what_is_in_flight_and_what_delays_a_run(tmp_path: Path, in_browser: Browser) -> None:
    run = run_at(tmp_path / "outputs", status="running")
    write(run.journal_path, [example(0), generated(0, 0), scored(0, 0, 1.0)])
    moment = 1_790_000_000
    delays = [{"reason": hostile("delay"), "until": moment}, {"reason": "limited to 1 of 2 slots", "until": None}]
    status = {"planned": 4, "done": 1, "generating": 3, "scoring": 1, "per_minute": 61.2, "left": 150, "delays": delays}

    async def visit(tab: Tab) -> None:
        await tab.look(1440, scheme="light")
        await tab.open(f"{client.link}#/")
        clock = await tab.js(f"new Date({moment}000).toTimeString().slice(0, 8)")
        await shows(tab, "3 min to go", "tbody .live")
        await shows(tab, f"until {clock}", "tbody .live")
        await tab.gives("document.querySelector('tbody .live progress')?.value", 1)
        await go(tab, f"#/run/{run.id}")
        await shows(tab, "1 of 4 · 61 a minute · 3 min to go · 3 in flight · 1 in scoring", ".progress")
        await shows(tab, f"until {clock}", ".progress")
        await shows(tab, "limited to 1 of 2 slots", ".progress")
        (run.path / "status.json").write_text(json.dumps({**status, "generating": 7, "left": None, "delays": []}))
        await shows(tab, "1 of 4 · 61 a minute · 7 in flight · 1 in scoring", ".progress")
        await tab.gives("document.querySelectorAll('.progress .warn').length", 0)
        await go(tab, "#/")
        (run.path / "status.json").write_text(json.dumps({**status, "done": 2}))
        await tab.gives("document.querySelector('tbody .live progress')?.value", 2)
        assert await tab.js("window.hacked === undefined")
        assert tab.complaints == []

    with run.lock(), viewing(tmp_path / "outputs") as client:
        (run.path / "status.json").write_text(json.dumps(status))
        in_browser(visit)


def test_a_suite_has_the_table_of_the_report_and_runs_have_those_before(tmp_path: Path, in_browser: Browser) -> None:
    out = tmp_path / "outputs"
    runs = suite(out, Shape(("sums", "browse"), examples=8, rollouts=2))
    finished(out, minute=1, letters="aaaa", model="lab/m-1")
    later = finished(out, minute=2, letters="bbbb", model="lab/m-1")
    suite_id = runs[0].read_manifest().suite

    async def visit(tab: Tab) -> None:
        await tab.look(1440, scheme="light")
        await tab.open(f"{client.link}#/")
        lines = "[...document.querySelectorAll('.sparkline')].map(e => e.closest('tr').querySelector('a.main').hash)"
        await tab.gives(lines, [f"#/run/{later.id}"])
        await go(tab, f"#/?suite={suite_id}")
        await shows(tab, "lab/large-2", ".suite-table")
        cells = "[...document.querySelectorAll('.suite-table tbody a')].map(e => e.hash.slice(6)).sort()"
        await tab.gives(cells, sorted(run.id for run in runs))
        await tab.gives("document.querySelectorAll('.suite-table strong').length > 0", True)
        figures = (
            "[...document.querySelectorAll('.suite-table tbody a')].every(e => "
            "[...document.querySelectorAll('.list a.main')].find(m => m.hash === e.hash).closest('tr')"
            ".querySelector('.figure').textContent === e.textContent)"
        )
        await tab.gives(figures, True)
        assert tab.complaints == []

    with viewing(out) as client:
        found = client.get(f"/api/suites/{suite_id}/table")
        table = table_of_page(page_of([run.path for run in runs]))
        shown = layout_of(table)
        assert [[row["name"], [each["mean"] for each in row["cells"]]] for row in found["rows"]] == [
            [name, [each.mean for each in cells]] for name, cells in shown.rows
        ]
        assert found["footnotes"] == footnotes(table)
        assert client.error("/api/suites/nothing/table") == (404, "There is no suite nothing.")
        in_browser(visit)
