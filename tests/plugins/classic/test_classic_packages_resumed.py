"""Classic packages whose run is killed after the model has said all and before anything is scored: the scores that the
journal gives are the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench_runs import Workshop, count
from classic_runs import Played, differences, environ, examples, results, run_command
from classic_server import MODEL, Play, ScriptedModel, plays

pytestmark = pytest.mark.slow


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


@pytest.mark.parametrize("name", plays())
def test_scores_come_out_of_the_journal(shop: Workshop, name: str) -> None:
    script, log = Play(name), shop.cwd / "log"
    expected = script.expected
    with ScriptedModel(name) as server:
        args = ("-r", str(script.rollouts), "-a", json.dumps(script.args(server.url, log)))
        command = run_command(script.package, server.url, *args, "--no-interleave-scoring")
        env = environ(script, server.url, log)
        assert shop.bench(*command, env=env).code in (0, 1, 3)
        run = shop.run_dir()
        forget_scores(run)
        server.requests.clear()
        done = shop.bench(*command, "--resume", env=env)
        assert done.code in (0, 1, 3), done.err
        asked_again = [body for body in server.requests if body["model"] == MODEL]
    failed = sum(len(examples(change)) for change in expected["bench"] if change.get("outcome") == "failed")
    assert len(asked_again) <= failed * script.rollouts, "only what failed is asked again"
    assert differences(expected, Played(done, run, results(run), [], {}, [])) == []


def forget_scores(run: Path) -> None:
    """Leave the journal as a crash between the last reply and the first score does, with half a line at its end."""
    journal = run / "journal.jsonl"
    kept: list[bytes] = []
    torn = b""
    for line in journal.read_bytes().splitlines(keepends=True):
        if json.loads(line)["type"] == "scored":
            torn = torn or line[: len(line) // 2]
        else:
            kept.append(line)
    assert torn
    journal.write_bytes(b"".join(kept) + torn)
    for made in ("summary.json", "data"):
        path = run / made
        if path.is_file():
            path.unlink()
    whole = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**whole, "status": "running"}))
    assert count(run, "scored") == 0
    assert count(run, "generated") > 0
