"""Notes of people on the command line: queries, transcripts, JSON, exports, and what a rescore takes over."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import nursery
import pytest
from hub_runs import TOKEN, hub_env
from hub_server import HubServer
from recorded_runs import Bench as Recorded
from recorded_runs import Write, make_run
from run_samples import Bench, finished
from store_samples import generated, rollouts

from harness.store.notes import FILE, add_note, read_notes
from harness.store.outcomes import outcomes, read_journal
from harness.store.rundir import RunDir

OUTPUTS = Path("outputs")


@pytest.fixture
def run(here: Path) -> RunDir:
    run = finished(OUTPUTS, rollouts(4), planned={"num_examples": 4, "rollouts_per_example": 1})
    texts = {"tags": ["wrong-label", "odd"], "remark": "=1+1 says\nthe \x1b[2Jlabel", "score": 0.25}
    add_note(run, {"key": generated(1).key, "author": "ann", **texts})
    add_note(run, {"key": generated(1).key, "author": "bob", "remark": "No."})
    add_note(run, {"key": generated(3).key, "author": "bob", "tags": ["odd"]})
    add_note(run, {"key": "of no rollout", "author": "bob", "tags": ["odd"]})
    return run


def found(bench: Bench, query: str) -> list[object]:
    done = bench("runs", "show", "latest", "--where", query, "--json")
    assert done.code == 0, done.err
    return [each["example_id"] for each in json.loads(done.out)["rollouts"]]


@pytest.mark.parametrize(
    ("query", "examples"),
    [
        ("note:wrong-label", [1]),
        ('note:"says the"', [1]),
        ("note.tag=odd", [1, 3]),
        ("note=odd -note.author:ann", [3]),
        ("note.score<0.5", [1]),
        ("is:noted", [1, 3]),
        ("-is:noted", [0, 2]),
        ("has:note.score", [1]),
    ],
)
def test_rollouts_are_selected_by_their_notes(bench: Bench, run: RunDir, query: str, examples: list[object]) -> None:
    assert found(bench, query) == examples


def test_notes_are_grouped_listed_and_in_json(bench: Bench, run: RunDir) -> None:
    done = bench("runs", "show", "latest", "--group-by", "note", "--json")
    groups = {each["value"]: each["count"] for each in json.loads(done.out)["groups"]}
    assert groups == {None: 2, "wrong-label, odd": 1, "odd": 1}
    listed = bench("runs", "show", "latest", "--where", "note:says note.score<1").out
    assert "note.score" in listed and "0.25" in listed and "=1+1 says the" in listed
    whole = json.loads(bench("runs", "show", "latest", "--where", "note:wrong", "--json").out)["rollouts"][0]["notes"]
    assert [each["author"] for each in whole] == ["ann", "bob"]
    assert (whole[0]["tags"], whole[0]["score"]) == (["wrong-label", "odd"], 0.25)
    (rollout,) = json.loads(bench("runs", "show", "latest", "--example", "1", "--json").out)["examples"][0]["rollouts"]
    assert rollout["notes"] == whole
    text = bench("runs", "show", "latest", "--example", "1").out
    assert "wrong-label · odd · score 0.250\n  =1+1 says\n  the " in text and "\x1b[2J" not in text


def test_a_mistake_in_a_query_about_notes_is_pointed_at(bench: Bench, run: RunDir) -> None:
    done = bench("runs", "show", "latest", "--where", "note.scor<1")
    assert done.code == 2
    assert 'there is no column "note.scor"; did you mean "note.score"?' in done.err and "^^^^^^^^^" in done.err
    assert 'did you mean "note.tag"?' in bench("runs", "show", "latest", "--where", "tag:x").err


@pytest.mark.plugins
def test_notes_are_exported_with_id_and_reward(bench: Bench, run: RunDir) -> None:
    done = bench("export", "latest", "-f", "notes", "-o", "-")
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert [(each["example_id"], each["reward"], each["author"], each["tags"]) for each in lines] == [
        (1, 1.0, "ann", ["wrong-label", "odd"]), (1, 1.0, "bob", []), (3, 1.0, "bob", ["odd"]),
    ]  # fmt: skip
    assert lines[0]["remark"] == "=1+1 says\nthe \x1b[2Jlabel" and lines[0]["note_score"] == 0.25
    assert "4 rollouts\nnote: the export has 3 notes\nnote: notes about 1 rollouts" in done.err
    done = bench("export", "latest", "-f", "notes-csv")
    (path,) = Path().glob("*--notes.csv")
    assert done.out == f"{path}\n"
    rows = list(csv.DictReader(io.StringIO(path.read_text(), newline="")))
    assert [(row["tags"], row["note_score"]) for row in rows] == [("wrong-label odd", "0.25"), ("", ""), ("odd", "")]
    assert rows[0]["remark"].startswith("'=1+1")
    assert "note" not in json.loads(bench("export", "latest", "-f", "jsonl", "-o", "-").out.splitlines()[1])


def test_a_link_in_place_of_the_notes_is_an_error(bench: Bench, run: RunDir, here: Path) -> None:
    (here / "precious").write_text("precious")
    (run.path / FILE).unlink()
    (run.path / FILE).symlink_to(here / "precious")
    done = bench("runs", "show", "latest", "--where", "is:noted")
    assert done.code != 0 and "notes.jsonl" in done.err and "link" in done.err and "precious" not in done.err
    assert bench("runs", "show", "latest").code == 0


def test_a_rescore_takes_the_notes_over_and_leaves_them(bench: Recorded, write: Write) -> None:
    parent = RunDir(make_run(bench, write))
    first = next(outcomes(read_journal(parent)))
    add_note(parent, {"key": first.base.key, "author": "ann", "tags": ["odd"]})
    before = (parent.path / FILE).read_bytes()
    assert bench("rescore", str(parent.path), "-q").code == 0
    assert bench("runs", "show", "latest", "--where", "note:odd").out.count("read one:") == 1
    [made] = (each.parent for each in parent.parent.glob("*/run.json") if each.parent != parent.path)
    assert read_notes(RunDir(made)).of(first.base.key)[0].tags == ("odd",)
    assert (parent.path / FILE).read_bytes() == before
    summary = json.loads((made / "summary.json").read_text())
    assert "note" not in json.dumps(summary)


def test_a_push_does_not_send_notes(bench: Recorded, write: Write, tmp_path: Path) -> None:
    run = RunDir(make_run(bench, write))
    add_note(run, {"key": next(outcomes(read_journal(run))).base.key, "author": "ann", "remark": "precious"})
    with HubServer() as server:
        server.hub.account(TOKEN, "alice")
        done = nursery.run(["bench", "push", str(run.path)], cwd=Path.cwd(), environ=hub_env(server, tmp_path / "home"))
        sent = [
            (name, entry.data)
            for repo in server.hub.repos.values()
            for each in repo.commits
            for name, entry in each.files.items()
        ]
    assert sent, done.stderr
    assert not [name for name, data in sent if b"precious" in data or "notes" in name]
