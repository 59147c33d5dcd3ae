"""Run folders of strangers: links, FIFOs, sockets and folders in place of files. Also very many runs."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from run_samples import finished
from view_server import Client, until, viewing

from harness.store.rundir import RunDir

SECRET = "the-secret-of-the-user"

NAMES = (
    "run.json", "summary.json", "journal.jsonl", "status.json", ".lock", "config.toml", "data", ".status.json.tmp",
)  # fmt: skip
"""Names in a run folder that this or a later version may open."""


def _link(path: Path, secret: Path) -> None:
    path.symlink_to(secret)


def _loop(path: Path, secret: Path) -> None:
    path.symlink_to(path)


def _nowhere(path: Path, secret: Path) -> None:
    path.symlink_to(secret.with_name("nothing"))


def _device(path: Path, secret: Path) -> None:
    path.symlink_to("/dev/zero")


def _fifo(path: Path, secret: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path, secret: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        with socket.socket(socket.AF_UNIX) as made:  # paths of sockets are short
            made.bind(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)


def _folder(path: Path, secret: Path) -> None:
    path.mkdir()
    (path / "inside").symlink_to(secret)


Attack = Callable[[Path, Path], None]
ATTACKS: tuple[Attack, ...] = (_link, _loop, _nowhere, _device, _fifo, _socket, _folder)


def attacked(run: RunDir, name: str, attack: Attack, secret: Path) -> RunDir:
    path = run.path / name
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif os.path.lexists(path):
        path.unlink()
    attack(path, secret)
    return run


def answers(client: Client, run_id: str) -> Iterator[tuple[int, bytes]]:
    """Every answer about a run. None may wait for a file that never ends, or has no other end."""
    for rest in (
        "", "/examples", "/examples?q=text:a", "/rollouts?sort=reward", "/rollouts/0/0?whole=1", "/groups?by=outcome",
        "/step?index=0&r=0&dir=1",
    ):  # fmt: skip
        answer = client.send(f"/api/runs/{run_id}{rest}")
        yield answer.status, answer.body
    answer = client.send(f"/api/columns/{run_id}/values?name=stop")
    yield answer.status, answer.body


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__.strip("_"))
def test_special_files_are_never_followed_nor_waited_for(tmp_path: Path, attack: Attack) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text(f'{{"{SECRET}": "{SECRET}"}}\n')
    out = tmp_path / "outputs"
    good = finished(out)
    runs = {
        name: attacked(finished(out, minute=minute, letters="evil"), name, attack, secret)
        for minute, name in enumerate(NAMES, 1)
    }
    with viewing(out) as client:
        listed = client.send("/api/runs")
        assert (listed.status, SECRET.encode() in listed.body) == (200, False)
        ids = {each["id"] for each in listed.json["runs"]}
        assert good.id in ids
        for name, run in runs.items():
            for status, body in answers(client, run.id):
                assert status in (200, 404, 410, 500), (name, body)
                assert SECRET.encode() not in body, name
                assert b"the server failed" not in body.lower(), (name, body)
            if name not in ("run.json", "journal.jsonl"):
                assert client.get(f"/api/runs/{run.id}")["run"]["id"] == run.id, name
        until(lambda: client.get(f"/api/runs/{good.id}")["index"]["done"])
        assert client.get(f"/api/runs/{good.id}")["rollouts"] == 4
    assert secret.read_text() == f'{{"{SECRET}": "{SECRET}"}}\n'


@pytest.mark.parametrize("level", range(3))
def test_linked_folders_are_not_followed(tmp_path: Path, level: int) -> None:
    """A run, all runs of a model, and all runs, that are links to those of another output folder."""
    other = finished(tmp_path / "other")
    out = tmp_path / "outputs"
    good = finished(out, letters="good", model="lab/other")
    place, target = [
        (good.path.with_name(other.id), other.path), (good.parent.with_name("linked"), other.parent),
        (tmp_path / "third" / "evals", tmp_path / "other" / "evals"),
    ][level]  # fmt: skip
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(target)
    shown = tmp_path / "third" if level == 2 else out
    with viewing(shown) as client:
        listed = client.get("/api/runs")
        assert [each["id"] for each in listed["runs"]] == ([] if level == 2 else [good.id])
        assert client.error(f"/api/runs/{other.id}")[0] == (500 if level == 2 else 404)


_OPENED: Counter[str] = Counter()
_counted_in = ""
"""Folder whose files are counted: a viewer that an earlier test has closed may still read those of others."""


def _count(event: str, arguments: tuple[Any, ...]) -> None:
    if _counted_in and event == "open" and str(arguments[0]).startswith(_counted_in):
        _OPENED[os.path.basename(arguments[0])] += 1


sys.addaudithook(_count)


@contextmanager
def opened(folder: Path) -> Iterator[Counter[str]]:
    """Count the files in a folder that this process opens, by name."""
    global _counted_in
    _OPENED.clear()
    _counted_in = f"{folder}{os.sep}"
    try:
        yield _OPENED
    finally:
        _counted_in = ""


def test_a_thousand_runs_are_read_once(tmp_path: Path) -> None:
    first = finished(tmp_path / "outputs")
    for number in range(1, 1000):
        copy = first.path.with_name(f"20250101T{number // 3600:02}{number // 60 % 60:02}{number % 60:02}Z-copy")
        copy.mkdir()
        for name in ("run.json", "summary.json"):
            (copy / name).hardlink_to(first.path / name)
    with viewing(tmp_path / "outputs") as client:
        with opened(tmp_path) as counts:
            assert len(client.get("/api/runs")["runs"]) == 1000
        assert counts["run.json"] == counts["summary.json"] == 1000
        assert counts["journal.jsonl"] == counts["status.json"] == 0
        with opened(tmp_path) as counts:
            assert len(client.get("/api/runs")["runs"]) == 1000
            assert client.get(f"/api/runs/{first.id}")["run"]["id"] == first.id
        assert counts["run.json"] + counts["summary.json"] + counts["status.json"] == 0, "nothing has changed"
        first.write_manifest(first.read_manifest())
        with opened(tmp_path) as counts:
            client.get("/api/runs")
        assert (counts["run.json"], counts["summary.json"]) == (1, 1), "only the changed run is read again"
