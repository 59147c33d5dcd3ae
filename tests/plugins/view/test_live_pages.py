"""Pages of runs in progress in a real browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import Browser, Tab, browser
from run_samples import run_at
from store_samples import example, generated, scored, write
from view_pages import go, hostile, shows
from view_server import viewing


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
