"""Notes in `bench view`: what the server takes and refuses, and the panel in a real browser."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from chromium import Browser, Tab
from run_samples import finished
from store_samples import rollouts
from view_pages import click, go, hostile, keep, mixed_run, opened, press, shows, texts, type_text
from view_server import until, viewing

from harness.plugins.view.events import RunChanges
from harness.plugins.view.open_indexes import Indexes
from harness.plugins.view.run_list import RunList
from harness.store.notes import FILE, LARGEST_FILE, add_note, read_notes
from harness.store.outcomes import outcomes, read_journal
from harness.store.rundir import RunDir

AXE = Path(__file__).resolve().parents[2] / "data" / "axe" / "axe.min.js"


def notes_at(run: RunDir, index: int = 0, rollout: int = 0) -> str:
    return f"/api/runs/{run.id}/notes/{index}/{rollout}"


def keys(run: RunDir) -> list[str]:
    """The key of each rollout, in table order."""
    return [each.base.key for each in outcomes(read_journal(run))]


def test_a_note_is_written_shown_searched_and_grouped(out: Path) -> None:
    run = mixed_run(out)
    with viewing(out) as client:
        assert client.get(notes_at(run)) == {"notes": [], "author": "ann", "tags": [], "problem": ""}
        answer = client.post(notes_at(run, 1, 2), {"tags": ["wrong-label", "odd"], "remark": "It is 2.", "score": 0.25})
        assert answer.status == 200
        (note,) = answer.json["notes"]
        assert note.pop("time").endswith("Z")
        assert note == {
            "author": "ann", "tags": ["wrong-label", "odd"], "remark": "It is 2.", "score": 0.25, "own": True,
        }  # fmt: skip
        assert read_notes(run).of(keys(run)[5])[0].remark == "It is 2."
        client.post(notes_at(run, 0, 0), {"tags": ["odd"]})
        add_note(run, {"key": keys(run)[5], "author": "bob", "score": 1})
        found = client.get(notes_at(run, 1, 2))
        assert [(each["author"], each["own"]) for each in found["notes"]] == [("bob", False), ("ann", True)]
        assert found["tags"] == ["odd", "wrong-label"]
        root = f"/api/runs/{run.id}"
        chosen = {
            query: [(row["index"], row["r"]) for row in client.get(f"{root}/rollouts", q=query)["rows"]]
            for query in (
                "note:wrong",
                "note:2.",
                "note.tag=odd",
                "is:noted -note.score=1",
                "has:note.score",
                "note:no",
            )
        }
        assert chosen == {
            "note:wrong": [(1, 2)], "note:2.": [(1, 2)], "note.tag=odd": [(0, 0), (1, 2)],
            "is:noted -note.score=1": [(0, 0)], "has:note.score": [(1, 2)], "note:no": [],
        }  # fmt: skip
        groups = client.get(f"{root}/groups", by="note", q="is:noted")["groups"]
        assert [(each["value"], each["count"]) for each in groups] == [("odd", 1), ("wrong-label, odd", 1)]
        for each in groups:
            assert client.get(f"{root}/rollouts", q=each["query"])["total"] == 1, each["query"]
        assert client.get(f"/api/columns/{run.id}/values", name="note", q="w")["values"] == [
            {"value": "wrong-label", "count": 1},
        ]  # fmt: skip
        rows = client.get(f"{root}/examples")["rows"]
        assert [rollout.get("note") for rollout in rows[1]["rollouts"]] == [None, None, ["wrong-label", "odd"]]
        assert client.get(root)["noted"] == 2
        assert client.post(notes_at(run, 0, 0), {}).json["notes"] == []
        assert client.get(root)["noted"] == 1
        status, said = client.error(f"{root}/rollouts", q="is:failed note.score<x")
        assert (status, said) == (400, 'note.score< takes a finite number, not "x"')


def test_only_the_page_itself_writes(out: Path) -> None:
    run = finished(out)
    refused: list[dict[str, Any]] = [
        {"Cookie": ""}, {"Cookie": "bench_view_1=x"}, {"Origin": ""}, {"Origin": "null"},
        {"Origin": "http://attacker.example"}, {"Host": "attacker.example", "Origin": "http://attacker.example"},
        {"Content_Type": ""}, {"Content_Type": "text/plain"}, {"Content_Type": "application/x-www-form-urlencoded"},
    ]  # fmt: skip
    with viewing(out) as client:
        for headers in refused:
            assert client.post(notes_at(run), {"remark": "x"}, **headers).status == 403, headers
        assert not (run.path / FILE).exists()
        headers = {"Content_Type": "application/json; charset=utf-8"}
        assert client.post(notes_at(run), {"remark": "x"}, **headers).status == 200
        assert (run.path / FILE).exists()


def test_what_is_no_note_is_refused(out: Path) -> None:
    run = finished(out)

    def refused(value: object, place: str = "") -> tuple[int, str]:
        answer = client.post(place or notes_at(run), value)
        return answer.status, answer.json["error"]

    with viewing(out) as client:
        assert refused([]) == (400, "a note is a JSON object with tags, remark and score")
        assert refused({"author": "eve", "remark": "x"})[0] == 400
        assert refused({"tags": ["two words"]})[1].startswith("a tag is one word")
        assert refused({"remark": "x" * 10_001})[0] == 400
        assert refused({"remark": "x" * 70_000}) == (413, "A note has at most 65,536 bytes.")
        assert refused({"remark": "x"}, notes_at(run, 9, 9))[0] == 404
        assert refused({"remark": "x"}, f"/api/runs/{run.id}")[0] == 405
        own = {"Content_Type": "application/json", "Origin": f"http://127.0.0.1:{client.port}"}
        for body in (b"{", b"\xff", b"[" * 50_000, b'{"score": NaN}', b'{"score": 1e999}'):
            assert client.send(notes_at(run), "POST", body, **own).status == 400, body
        assert not (run.path / FILE).exists()


@pytest.mark.parametrize("kind", ["link", "fifo", "large", "folder is a link"])
def test_nothing_is_written_through_what_is_no_file(out: Path, tmp_path: Path, kind: str) -> None:
    run, target = finished(out), tmp_path / "precious"
    target.write_text("precious")
    with viewing(out) as client:
        assert client.get(notes_at(run))["problem"] == ""
        if kind == "link":
            (run.path / FILE).symlink_to(target)
        elif kind == "fifo":
            os.mkfifo(run.path / FILE)
        elif kind == "large":
            with (run.path / FILE).open("wb") as file:
                file.truncate(LARGEST_FILE + 1)
        else:
            run.path.rename(tmp_path / "elsewhere")
            run.path.symlink_to(tmp_path / "elsewhere")
        answer = client.post(notes_at(run), {"remark": "x"})
        assert answer.status == 500 and "cannot write" in answer.json["error"]
        if kind != "folder is a link":
            assert "cannot read" in client.get(notes_at(run))["problem"]
            assert client.get(f"/api/runs/{run.id}/examples")["total"] == 4, "the run is readable all the same"
    assert target.read_text() == "precious"
    assert not (tmp_path / "elsewhere" / FILE).exists()


def test_each_change_of_the_notes_is_an_event(out: Path) -> None:
    run = finished(out)
    runs, indexes = RunList(out), Indexes()
    changes, seen = RunChanges(runs, indexes, run.id), list[str]()

    def is_new() -> bool:
        found = changes.next()
        if found is None or found["notes"] in seen:
            return False
        seen.append(found["notes"])
        return True

    try:
        until(is_new)
        for author in ("ann", "bob"):
            add_note(run, {"key": keys(run)[0], "author": author, "remark": "x"})
            until(is_new)
    finally:
        indexes.close()


FORM = "document.querySelector('.noteform')"

VERDICTS = ".noteform [aria-label='the reply is'] button"
"""The buttons that label a reply, which `bench judge check` reads."""


def test_a_person_labels_a_reply(out: Path, in_browser: Browser) -> None:
    run = mixed_run(out)

    async def visit(tab: Tab) -> None:
        await opened(tab, client, f"#/run/{run.id}/ex/1/2")
        await shows(tab, "Add a note")
        await press(tab, "a")
        await tab.gives("document.activeElement.id", "note-tags")
        await type_text(tab, "odd")
        for which, tags in ((1, "odd right"), (2, "odd wrong"), (2, "odd"), (2, "odd wrong")):
            await click(tab, f"{VERDICTS}:nth-child({which})")
            await tab.gives("document.getElementById('note-tags').value", tags)
        await tab.gives(f"document.querySelectorAll(\"{VERDICTS}[aria-pressed='true']\").length", 1)
        keep("view-label-1440.png", await tab.screenshot())
        await click(tab, ".noteform button[type=submit]")
        await tab.gives(texts(".noted .tag"), ["odd", "wrong"])

    with viewing(out) as client:
        in_browser(visit)
    assert read_notes(run).of(keys(run)[5])[0].tags == ("odd", "wrong")


def test_a_person_tags_a_rollout_and_finds_it_again(out: Path, in_browser: Browser) -> None:
    run = mixed_run(out)
    add_note(run, {"key": keys(run)[0], "author": "bob", "tags": ["judge-error"], "remark": "The judge is wrong."})

    async def visit(tab: Tab) -> None:
        await opened(tab, client, f"#/run/{run.id}/ex/1/2")
        await shows(tab, "Add a note")
        await press(tab, "a")
        await tab.gives("document.activeElement.id", "note-tags")
        await type_text(tab, "wrong-label, odd")
        await click(tab, ".noteform button.tag")
        await tab.gives("document.getElementById('note-tags').value", "wrong-label odd judge-error")
        await tab.js("void document.getElementById('note-remark').focus()")
        await type_text(tab, "The label says 3,\nbut 2 is right.")
        await tab.js("void document.getElementById('note-score').focus()")
        await type_text(tab, "0.5")
        keep("view-note-form-1440.png", await tab.screenshot())
        event = {"key": "Enter", "windowsVirtualKeyCode": 13, "modifiers": 2}
        await tab.call("Input.dispatchKeyEvent", type="keyDown", **event)
        await shows(tab, "but 2 is right.", ".noted")
        await tab.gives(texts(".noted .tag"), ["wrong-label", "odd", "judge-error"])
        await tab.load(client.link)
        await go(tab, f"#/run/{run.id}/ex/1/2")
        await shows(tab, "but 2 is right.", ".noted")
        await shows(tab, "ann", ".noted")
        await shows(tab, "0.500", ".noted")
        keep("view-note-1440.png", await tab.screenshot())
        await press(tab, "a")
        await tab.gives("document.getElementById('note-score')?.value", "0.5")
        await press(tab, "Escape")
        await tab.until(f"{FORM} === null")
        await go(tab, f"#/run/{run.id}?by=note")
        await shows(tab, "wrong-label, odd, judge-error", ".groups")
        await tab.gives(texts("table.examples td .tag"), ["judge-error", "wrong-label", "odd", "judge-error"])
        await tab.gives("document.querySelectorAll('.dot-noted').length", 2)
        keep("view-noted-run-1440.png", await tab.screenshot())
        await press(tab, "/")
        await type_text(tab, "note:wr")
        await tab.gives(texts("#offered code"), ["note:wrong-label"])
        await press(tab, "Tab", "Enter")
        await shows(tab, "1 example, 1 rollout")
        await go(tab, f"#/run/{run.id}/ex/1/2")
        await click(tab, ".noted .tag")
        await shows(tab, "1 example, 1 rollout")
        await go(tab, f"#/run/{run.id}/ex/1/2")
        await tab.until("document.querySelector('main.rollout .noted') !== null")
        await press(tab, "a")
        await click(tab, ".noteform .remove")
        await shows(tab, "Add a note")
        assert await tab.js("document.querySelector('.noted') === null")
        assert tab.complaints == []

    with viewing(out) as client:
        in_browser(visit)
    assert [note.author for held in read_notes(run).by_rollout.values() for note in held] == ["bob"]


def test_notes_of_another_tab_appear_and_do_not_disturb_a_draft(out: Path, in_browser: Browser) -> None:
    run = finished(out, rollouts(2))

    async def visit(tab: Tab) -> None:
        await opened(tab, client, f"#/run/{run.id}/ex/0/0")
        await shows(tab, "Add a note")
        await press(tab, "a")
        await tab.gives("document.activeElement.id", "note-tags")
        await type_text(tab, "draft")
        assert client.post(notes_at(run), {"remark": "from the other tab"}).status == 200
        add_note(run, {"key": keys(run)[0], "author": "bob", "remark": "by bob"})
        await shows(tab, "by bob", ".noted")
        await tab.gives("document.getElementById('note-tags').value", "draft")
        await press(tab, "Escape")
        await tab.until("[...document.querySelectorAll('.noted')].some(e => e.textContent.includes('other tab'))")
        assert tab.complaints == []

    with viewing(out) as client:
        in_browser(visit)


def test_hostile_notes_stay_text(out: Path, in_browser: Browser) -> None:
    run = finished(out, rollouts(2))
    tag = hostile("tag").replace(" ", "\u3000").translate({0x3000: "/", ord(","): ";"})[:60]
    note: dict[str, Any] = {"key": keys(run)[0], "author": hostile("author"), "tags": [tag]}
    note |= {"remark": hostile("remark"), "score": 1e99, "time": hostile("time")[:200]}
    (run.path / FILE).write_text(json.dumps(note) + "\nno note\n")

    async def visit(tab: Tab) -> None:
        await opened(tab, client, f"#/run/{run.id}/ex/0/0")
        for text in (hostile("author"), hostile("remark"), tag, "1 line of notes.jsonl is no note"):
            await shows(tab, text)
        await press(tab, "a")
        await shows(tab, f"+ {tag}", ".noteform")
        await go(tab, f"#/run/{run.id}?by=note.author")
        await shows(tab, tag, "table.examples")
        await shows(tab, "author <img src=x", ".groups")
        await click(tab, "table.examples td .tag")
        await shows(tab, "1 example, 1 rollout")
        assert await tab.js("window.hacked === undefined")
        assert await tab.js("document.querySelectorAll('main img, main script, main [onerror]').length") == 0
        assert tab.complaints == []

    with viewing(out) as client:
        in_browser(visit)


def test_the_panel_fits_a_narrow_window(out: Path, in_browser: Browser) -> None:
    run = mixed_run(out)
    text = {"tags": ["wrong-label", "x" * 60], "remark": "A remark " + "y" * 300, "score": -2.5}
    add_note(run, {"key": keys(run)[0], "author": "ann", **text})

    async def visit(tab: Tab) -> None:
        for scheme in ("light", "dark"):
            await opened(tab, client, f"#/run/{run.id}/ex/0/0", width=390, scheme=scheme)
            await shows(tab, "wrong-label", ".noted")
            await click(tab, ".rolloutbar [title='add or edit your note (a)']")
            await tab.gives("document.activeElement?.id", "note-tags")
            assert await tab.js("document.documentElement.scrollWidth <= innerWidth")
            keep(f"view-note-form-390-{scheme}.png", await tab.screenshot())
            await press(tab, "Escape")
            await tab.until(f"{FORM} === null")
            keep(f"view-note-390-{scheme}.png", await tab.screenshot())
        await go(tab, f"#/run/{run.id}")
        await shows(tab, "wrong-label", "table.examples")
        assert await tab.js("document.documentElement.scrollWidth <= innerWidth")
        assert tab.complaints == []

    with viewing(out) as client:
        in_browser(visit)


def test_the_form_is_accessible(out: Path, in_browser: Browser) -> None:
    run = mixed_run(out)
    add_note(run, {"key": keys(run)[0], "author": "bob", "tags": ["odd"], "remark": "Why?", "score": 1})

    async def visit(tab: Tab) -> None:
        await opened(tab, client, f"#/run/{run.id}/ex/0/0")
        await shows(tab, "Why?")
        await press(tab, "a")
        await tab.until(f"{FORM} !== null")
        await tab.js(AXE.read_text() + "; 0")
        found = await tab.js(
            "axe.run(document, {resultTypes: ['violations']}).then(r => r.violations"
            ".filter(v => ['serious', 'critical'].includes(v.impact)).map(v => [v.id, v.nodes.map(n => n.html)]))"
        )
        assert found == []

    with viewing(out) as client:
        in_browser(visit)
