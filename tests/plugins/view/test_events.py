"""Changes of runs as server-sent events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

from run_samples import finished, run_at
from store_samples import example, failed, generated, scored, write
from view_server import Client, viewing


@contextmanager
def events(client: Client, query: str = "") -> Iterator[Iterator[tuple[str, Any]]]:
    connection = HTTPConnection("127.0.0.1", client.port, timeout=60)
    connection.request("GET", f"/api/events{query}", headers={"Cookie": client.cookie})
    response = connection.getresponse()
    assert response.status == 200
    assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    try:
        yield parsed(response)
    finally:
        connection.close()


def parsed(response: HTTPResponse) -> Iterator[tuple[str, Any]]:
    name = ""
    for line in response:
        if line.startswith(b"event: "):
            name = line.decode().strip().removeprefix("event: ")
        elif line.startswith(b"data: "):
            yield name, json.loads(line.removeprefix(b"data: "))


def test_a_run_in_progress_is_reported_until_it_ends(tmp_path: Path) -> None:
    run = run_at(tmp_path / "outputs", status="running")
    write(run.journal_path, [example(0), generated(0, 0), scored(0, 0, 1.0)])
    lock = run.lock()
    delays = [{"reason": "held up", "until": 1_790_000_000}, {"reason": 7, "until": "later"}, "x"]
    status = {"generating": 3, "planned": -1, "left": 1e300, "done": "two", "delays": delays, "other": 1}
    (run.path / "status.json").write_text(json.dumps(status))
    with viewing(tmp_path / "outputs") as client, events(client, f"?runs={run.id},nothing") as found:
        state = next(data for name, data in found if name == "run" and data.get("scored") == 1)
        assert (state["id"], state["state"], state["mean"], state["planned"]) == (run.id, "running", 1.0, 4)
        assert state["failed"] == 0
        assert {name: value for name, value in state["status"].items() if value is not None} == {
            "generating": 3,
            "delays": [{"reason": "held up", "until": 1_790_000_000}, *[{"reason": "", "until": None}] * 2],
        }  # fmt: skip
        write(run.journal_path, [example(1), failed(1, 0)])
        state = next(data for name, data in found if name == "run" and data.get("failed") == 1)
        assert state["scored"] == 1
        lock.release()
        run.write_manifest(run.read_manifest().ended("done"))
        state = next(data for name, data in found if name == "run" and data.get("state") == "done")
        assert state["status"] is None


def test_the_list_gets_the_states_of_runs_in_progress(tmp_path: Path) -> None:
    run = run_at(tmp_path / "outputs", status="running")
    with run.lock(), viewing(tmp_path / "outputs") as client, events(client) as found:
        (run.path / "status.json").write_text('{"done": 3}')
        name, data = next(found)
        assert (name, list(data), data[run.id]["done"]) == ("statuses", [run.id], 3)
        (run.path / "status.json").unlink()
        assert next(found) == ("statuses", {})


def test_changes_of_the_list_are_reported(tmp_path: Path) -> None:
    finished(tmp_path / "outputs")
    with viewing(tmp_path / "outputs") as client, events(client) as found:
        finished(tmp_path / "outputs", minute=3, letters="bbbb")
        assert next(found) == ("runs", {})


def test_a_removed_run_and_an_unknown_run_are_reported_as_such(tmp_path: Path) -> None:
    finished(tmp_path / "outputs")
    with viewing(tmp_path / "outputs") as client, events(client, "?runs=nothing") as found:
        assert next(found) == ("run", {"id": "nothing", "state": "removed"})
