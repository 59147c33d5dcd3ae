"""Files of indexes in the cache folder: old ones are removed, and answers do not depend on them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from run_samples import finished, run_at, summarized
from store_samples import example, generated, scored, write
from view_server import Client, until, viewing

from harness.plugins.view.index_file import IndexFile, index_lock, index_path
from harness.plugins.view.index_sweep import UNUSED, sweep
from harness.store.rundir import RunDir


def indexed(client: Client, run: RunDir, rollouts: int = 4) -> None:
    """Wait until all rollouts are indexed."""
    until(lambda: client.get(f"/api/runs/{run.id}")["index"] == {"rollouts": rollouts, "done": True, "error": ""})


def names(cache: Path) -> set[str]:
    return {name for name in os.listdir(cache) if name.endswith((".sqlite", ".lock"))}


def of(*runs: RunDir) -> set[str]:
    return {f"{index_path(run.path).stem}.{end}" for run in runs for end in ("sqlite", "lock")}


def test_indexes_of_removed_runs_and_old_ones_are_removed(tmp_path: Path, cache: Path) -> None:
    out = tmp_path / "outputs"
    kept, gone, old = (finished(out, minute=n, letters=f"run{n}") for n in range(3))
    with viewing(out) as client:
        for run in (kept, gone, old):
            indexed(client, run)
    expected = of(kept, gone, old)
    assert names(cache) == expected
    broken = cache / "broken.sqlite"
    broken.write_bytes(b"no database")
    (cache / "other.txt").write_text("mine")
    (cache / "alone.lock").write_text("")
    shutil.rmtree(gone.path)
    used = index_path(old.path).stat().st_mtime
    os.utime(index_path(kept.path), (used + 1, used + 1))
    os.utime(broken, (used + 1, used + 1))
    assert {path.stem for path in sweep(cache, used)} == {index_path(gone.path).stem, "alone"}
    assert names(cache) == of(kept, old) | {"broken.sqlite", "broken.lock"}
    assert [path.stem for path in sweep(cache, used + UNUSED + 0.5)] == [index_path(old.path).stem]
    assert names(cache) == of(kept) | {"broken.sqlite", "broken.lock"}
    assert sweep(cache, used + UNUSED + 5) != []
    assert os.listdir(cache) == ["other.txt"]


def test_an_index_that_is_opened_counts_as_used(tmp_path: Path, cache: Path) -> None:
    run = finished(tmp_path / "outputs")
    path = index_path(run.path)
    IndexFile(path).close()
    os.utime(path, (1, 1))
    IndexFile(path).close()
    assert sweep(cache) == []
    assert path.exists()


def test_an_index_in_use_is_not_removed(tmp_path: Path, cache: Path) -> None:
    out = tmp_path / "outputs"
    run = finished(out)
    with viewing(out) as client:
        indexed(client, run)
        os.utime(index_path(run.path), (1, 1))
        assert sweep(cache) == [], "the server holds its lock"
        with viewing(out) as second:  # sweeps at its start
            indexed(second, run)
        indexed(client, run)


def test_a_lock_that_was_removed_is_not_taken_for_one(tmp_path: Path, cache: Path) -> None:
    path = index_path(tmp_path / "run")
    with index_lock(path):
        opened = os.open(path.with_suffix(".lock"), os.O_RDWR)
        path.with_suffix(".lock").unlink()
    os.close(opened)
    with index_lock(path):
        assert path.with_suffix(".lock").exists()


def test_two_servers_on_one_run_give_the_same_answers_also_while_it_grows(tmp_path: Path) -> None:
    out = tmp_path / "outputs"
    run = finished(out)
    with viewing(out) as first, viewing(out) as second:
        indexed(first, run)
        indexed(second, run)
        places = [f"/api/runs/{run.id}{rest}" for rest in ("", "/examples", "/rollouts", "/rollouts/2/0")]
        assert [first.get(place) for place in places] == [second.get(place) for place in places]
        write(run.journal_path, [example(4), generated(4, 0), scored(4, 0, 0.5)])
        summarized(run)
        indexed(second, run, 5)
        indexed(first, run, 5)
        assert second.get(f"/api/runs/{run.id}/rollouts/4/0") == first.get(f"/api/runs/{run.id}/rollouts/4/0")
    with viewing(out) as third:
        indexed(third, run, 5)


def test_a_journal_that_was_replaced_or_shortened_and_continued_is_indexed_anew(tmp_path: Path) -> None:
    out = tmp_path / "outputs"

    def journal(path: Path, rewards: list[float]) -> list[int]:
        return write(
            path, [r for n, reward in enumerate(rewards) for r in (example(n), generated(n), scored(n, 0, reward))]
        )

    run = run_at(out)
    ends = journal(run.journal_path, [1.0] * 20)
    other = run.path / "other"

    def shorten(data: bytes) -> None:
        os.truncate(run.journal_path, ends[30])
        with run.journal_path.open("ab") as file:
            file.write(data[ends[30] :])

    changes = [lambda data: os.replace(other, run.journal_path), run.journal_path.write_bytes, shorten]
    with viewing(out) as client:
        for number, change in enumerate(changes):
            reward = number / 5  # lines keep their length
            indexed(client, run, 20)
            journal(other, [reward] * 20)
            change(other.read_bytes())
            other.unlink(missing_ok=True)

            def is_new(reward: float = reward, count: int = 20 if change is not shorten else 10) -> bool:
                rows = client.get(f"/api/runs/{run.id}/rollouts", q=f"reward:{reward}")["rows"]
                return len(rows) == count

            until(is_new)


def test_the_second_server_takes_over_when_the_first_one_ends(tmp_path: Path) -> None:
    out = tmp_path / "outputs"
    run = finished(out)
    with viewing(out) as second:
        with viewing(out) as first:
            indexed(first, run)
            indexed(second, run)
        write(run.journal_path, [example(4), generated(4, 0), scored(4, 0, 0.5)])
        indexed(second, run, 5)


def test_answers_survive_the_removal_of_the_cache_folder(tmp_path: Path, cache: Path) -> None:
    out = tmp_path / "outputs"
    run = finished(out)
    with viewing(out) as client:
        indexed(client, run)
        before = client.get(f"/api/runs/{run.id}/rollouts/2/0")
        for _ in range(2):
            shutil.rmtree(cache.parent)
            info = client.get(f"/api/runs/{run.id}")
            assert info["index"]["done"] is (info["rollouts"] == 4), "an incomplete answer says so"
            assert client.get(f"/api/runs/{run.id}/rollouts/2/0") == before
            indexed(client, run)
            assert cache.stat().st_mode & 0o777 == 0o700
