"""The chaos suite's own reader sees each kind of damage: a report of zeros is worth what its reader is."""

from __future__ import annotations

import json
import shutil
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow.parquet as pq
import pytest
from chaos_catalogue import drawn, named
from chaos_others import others
from chaos_reader import Findings, check_dead, check_done, journal
from chaos_rounds import Seen, Verdict, asked_again, report
from chaos_scene import Scene


def line(**fields: Any) -> bytes:
    return json.dumps(fields).encode() + b"\n"


@pytest.fixture
def calm(tmp_path: Path) -> Path:
    """A run of two rollouts, as it looks on disk."""
    import pyarrow as pa

    run = tmp_path / "calm"
    (run / "data").mkdir(parents=True)
    content = line(type="example", example_key="e", prompt="?")
    for number, reward in enumerate((1.0, 0.0)):
        content += line(type="generated", key=f"k{number}", example_key="e", rollout_index=number)
        content += line(type="scored", key=f"k{number}", outcome="scored", reward=reward)
    (run / "journal.jsonl").write_bytes(content)
    numbers = {"scored": 2, "num_rollouts": 2, "not_run": 0, "reward": {"mean": 0.5}, "wall_s": 1.0}
    (run / "summary.json").write_text(json.dumps(numbers))
    (run / "run.json").write_text('{"status": "done"}')
    common = {"prompt": "?", "completion": "!", "answer": "!", "task": "t", "info": "{}", "outcome": "scored"}
    more = {"error": None, "stop_condition": "done", "is_truncated": False, "example_id": "0"}
    rows = [{**common, **more, "rollout_index": n, "reward": reward} for n, reward in enumerate((1.0, 0.0))]
    pq.write_table(pa.Table.from_pylist(rows), run / "data" / "train.parquet")
    return run


def copy(calm: Path) -> Path:
    return Path(shutil.copytree(calm, calm.parent / "run"))


def test_a_copy_is_as_good_as_the_run(calm: Path) -> None:
    assert not check_done(copy(calm), calm)
    assert not check_dead(copy_of_dead(calm))


def copy_of_dead(calm: Path) -> Path:
    run = Path(shutil.copytree(calm, calm.parent / "dead"))
    (run / "summary.json").unlink()
    return run


def edit_journal(change: Callable[[list[bytes]], list[bytes]]) -> Callable[[Path], None]:
    def edit(run: Path) -> None:
        path = run / "journal.jsonl"
        path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))

    return edit


def edit_rows(change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> Callable[[Path], None]:
    def edit(run: Path) -> None:
        import pyarrow as pa

        path = run / "data" / "train.parquet"
        table = pq.read_table(path)
        pq.write_table(pa.Table.from_pylist(change(table.to_pylist()), schema=table.schema), path)

    return edit


def edit_summary(**fields: object) -> Callable[[Path], None]:
    def edit(run: Path) -> None:
        path = run / "summary.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))

    return edit


def leave(run: Path) -> None:
    (run / ".run.json.1-ab.tmp").touch()
    (run / ".data.12345678").mkdir()


@pytest.mark.parametrize(
    ("damage", "kind", "words"),
    [
        (edit_journal(lambda lines: lines[:3]), "lost", "k1 is in no line"),
        (edit_journal(lambda lines: [*lines, lines[1], lines[2]]), "duplicated", "k0 was generated 2 times"),
        (edit_journal(lambda lines: [*lines, lines[1][:9]]), "wrong", "the journal ends in"),
        (edit_journal(lambda lines: [*lines, line(type="scored", key="k2", reward=None)]), "wrong", "k2 is nobody's"),
        (edit_journal(lambda lines: [*lines, line(type="scored", key="k1", reward=1.0)]), "wrong", "the mean is 0.5"),
        (edit_rows(lambda rows: rows[:1]), "lost", "no row of ('0', 1)"),
        (edit_rows(lambda rows: [*rows, rows[0]]), "duplicated", "2 rows of ('0', 0)"),
        (edit_rows(lambda rows: [*rows, {**rows[0], "rollout_index": 7}]), "wrong", "which nobody asked for"),
        (edit_rows(lambda rows: [{**row, "reward": 1.0} for row in rows]), "wrong", "reward of ('0', 1) differ"),
        (edit_rows(lambda rows: [{**row, "completion": "?"} for row in rows]), "wrong", "completion of ('0', 0)"),
        (edit_summary(reward={"mean": 0.51}), "wrong", "undisturbed {'mean': 0.5}"),
        (edit_summary(scored=3), "wrong", "scored is 3, counted 2"),
        (lambda run: (run / "run.json").write_text('{"status": "running"}'), "wrong", "run is running"),
        (leave, "left", ".data.12345678"),
    ],
)  # fmt: skip
def test_each_kind_of_damage_is_seen(calm: Path, damage: Callable[[Path], object], kind: str, words: str) -> None:
    run = copy(calm)
    damage(run)
    found = check_done(run, calm)
    assert any(words in text for text in getattr(found, kind)), found


def test_what_depends_on_the_clock_is_no_difference(calm: Path) -> None:
    run = copy(calm)
    edit_summary(wall_s=99.0, resumed=1)(run)
    assert not check_done(run, calm)


@pytest.mark.parametrize(
    ("damage", "kind", "words"),
    [
        (lambda run: (run / "run.json").write_text('{"status":'), "wrong", "run.json is torn"),
        (lambda run: (run / "data" / "train.parquet").write_bytes(b"PAR1"), "wrong", "data cannot be read"),
        (edit_rows(lambda rows: [*rows, rows[1]]), "duplicated", "2 rows of ('0', 1)"),
        (edit_journal(lambda lines: lines[:2]), "wrong", "2 rows, more than the journal holds"),
    ],
)  # fmt: skip
def test_what_a_dead_process_left_is_looked_at(
    calm: Path, damage: Callable[[Path], object], kind: str, words: str
) -> None:
    run = copy_of_dead(calm)
    damage(run)
    found = check_dead(run)
    assert any(words in text for text in getattr(found, kind)), found


def test_a_torn_tail_is_no_line_and_a_torn_middle_is_an_error(calm: Path) -> None:
    run = copy(calm)
    path = run / "journal.jsonl"
    whole = path.read_bytes()
    for tail in (b"\0" * 9, b'{"type":', b'{"type":\n'):
        path.write_bytes(whole + tail)
        told = journal(run)
        assert (list(told.generated), list(told.scored), told.tail) == (["k0", "k1"], ["k0", "k1"], tail)
    path.write_bytes(whole + b'{"type":\n' + whole)
    with pytest.raises(ValueError, match="Expecting value"):
        journal(run)


def test_what_was_on_disk_and_is_asked_for_again_is_seen() -> None:
    log = deque([("old", False), ("made", False), ("new", False), ("made", True), ("judged", True)])
    scene = cast(Scene, SimpleNamespace(asked_since=lambda mark: list(log)[mark:]))
    seen = [Seen(1, {"old", "made", "judged"}, {"judged"})]
    assert asked_again(scene, seen) == [
        "made was on disk, and asked for again",
        "judged was on disk, and judged again",
    ]
    assert asked_again(scene, [Seen(5, {"made"}, set())]) == []


def test_the_report_counts_and_tells_every_finding() -> None:
    one, two = named()[0], drawn(3, 1)[0]
    verdicts = [
        Verdict(one, faults=2, requests=80, found=Findings(lost=["a"], left=["b", "c"])),
        Verdict(two, faults=3, requests=70),
    ]
    lines = report(verdicts, seed=3, seconds=4.2).split("\n")
    assert lines[0] == "chaos, seed 3: 106 rollouts in 4 environments, 150 requests, 4 s"
    assert [text.split() for text in lines[2:8]] == [
        ["faults", "rounds", "tried", "lost", "duplicated", "wrong", "left", "behind"],
        [lines[3]],
        [*one.group.split(), "1", "2", "1", "0", "0", "2"],
        ["random", "points", "1", "3", "0", "0", "0", "0"],
        [lines[3]],
        ["all", "2", "5", "1", "0", "0", "2"],
    ]
    assert lines[9:] == [f"lost: {one.title}: a", f"left behind: {one.title}: b", f"left behind: {one.title}: c"]


def test_the_same_seed_draws_the_same_rounds_and_no_two_have_one_name() -> None:
    assert drawn(7, 9) == drawn(7, 9) != drawn(8, 9)
    titles = [each.title for each in (*named(), *others(), *drawn(7, 9))]
    assert len(set(titles)) == len(titles)
