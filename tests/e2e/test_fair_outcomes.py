"""Outcomes are the model's: not the queue's, not the scoring order's, not a lost file's."""

from __future__ import annotations

from bench_runs import Workshop, count, lines, rows, summary

UNKEPT = """
from harness import Rubric, SingleTurnEnv

def marked(state):
    return float(state["marks"][1] == "a")

class Env(SingleTurnEnv):
    async def setup_state(self, state):
        state["marks"] = {1: "a"}  # JSON would give the key back as text

    def reference_reply(self, example, messages):
        return "yes"

def load_environment():
    return Env(dataset=[{"question": f"q{n}", "answer": ""} for n in range(4)], rubric=Rubric([marked]))
"""


def test_waiting_for_another_runs_requests_is_no_timeout(shop: Workshop) -> None:
    """Two runs share an endpoint of one request at a time; each rollout is quick enough, its wait is not."""
    shop.write(
        "two.toml",
        "".join(f'[[eval]]\nid = "sums"\nname = "{name}"\n' for name in ("one", "other")),
    )
    with shop.bench_serve("--env", "sums", "--latency", "200") as server:
        asked = ["-n", "4", "-r", "1", "-c", "1", "--timeout", "0.6", "-m", "reference/oracle", "-b", server.url]
        done = shop.bench("run", "two.toml", *asked, "--json")
    assert [(run["summary"]["scored"], run["summary"]["unscored"]) for run in done.runs] == [(4, {}), (4, {})]
    waited = [
        line["timing"]["waiting"] for run in done.runs for line in lines(shop.cwd / run["path"]) if "timing" in line
    ]
    assert max(waited) > 0.1, "the wait is told apart"


def test_scoring_last_keeps_what_no_journal_can_hold(shop: Workshop) -> None:
    shop.environment("unkept", UNKEPT)
    done = shop.bench("run", "unkept", "-n", "4", "-r", "2", "-m", "reference/oracle", "-N", "-q")
    assert done.code == 0, done.err
    assert (summary(shop.run_dir())["scored"], summary(shop.run_dir())["reward"]["mean"]) == (8, 1.0)


def test_lost_state_is_made_again_on_request(shop: Workshop) -> None:
    """As after a crash between generation and scoring: the journal is cut before the first score."""
    shop.environment("unkept", UNKEPT)
    first = shop.bench("run", "unkept", "-n", "2", "-r", "1", "-m", "reference/oracle", "-q")
    assert first.code == 0, first.err
    journal = shop.run_dir() / "journal.jsonl"
    kept = [line for line in journal.read_bytes().splitlines(keepends=True) if b'"type":"scored"' not in line]
    journal.write_bytes(b"".join(kept))
    again = ["run", "unkept", "-n", "2", "-r", "1", "-m", "reference/oracle", "-q", "--resume"]
    assert shop.bench(*again).code == 1
    assert summary(shop.run_dir())["unscored"] == {"marked state lost": 2}
    assert shop.bench(*again, "--retry-failed").code == 0
    assert summary(shop.run_dir())["reward"]["mean"] == 1.0
    assert count(shop.run_dir(), "generated") == 4


def test_results_without_a_journal_are_not_replaced(shop: Workshop) -> None:
    ask = ["run", "sums", "-n", "3", "-r", "1", "-m", "reference/oracle", "-q"]
    assert shop.bench(*ask).code == 0
    (shop.run_dir() / "journal.jsonl").unlink()
    done = shop.bench(*ask, "--resume")
    assert done.code == 2
    assert "has results but no journal.jsonl" in done.err
    assert len(rows(shop.run_dir())) == 3


def test_resuming_a_finished_run_changes_none_of_its_numbers(shop: Workshop) -> None:
    ask = ["run", "sums", "-n", "3", "-r", "2", "-m", "reference/oracle", "-q"]
    assert shop.bench(*ask).code == 0
    before = summary(shop.run_dir())
    assert shop.bench(*ask, "--resume").code == 0
    assert summary(shop.run_dir()) == before


def test_an_empty_state_column_is_said_to_be(shop: Workshop) -> None:
    done = shop.bench("run", "sums", "-n", "2", "-r", "1", "-m", "reference/oracle", "-C", "nowhere", "-q")
    assert done.code == 0
    assert "state column nowhere: empty" in done.said
