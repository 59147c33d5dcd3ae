"""A run that is killed goes on where its disk says it was: nothing twice, nothing lost, and the same numbers."""

from __future__ import annotations

import json
import random
import signal
from collections import Counter
from pathlib import Path

import pytest
from bench_runs import Running, Server, Workshop, count, lines, rows, summary

pytestmark = pytest.mark.slow

SPREAD = """
from harness import Rubric, SingleTurnEnv

def correct(completion, answer):
    return float(completion[-1]["content"] == answer)

def share(completions, answers):
    right = sum(c[-1]["content"] == a for c, a in zip(completions, answers))
    return [right / len(answers) for _ in answers]

class Spread(SingleTurnEnv):
    def reference_reply(self, example, messages):
        return example.answer

    def null_reply(self, example, messages):
        return "?"

def load_environment(size):
    rows = [{"question": f"{n} + {n}", "answer": str(2 * n)} for n in range(size)]
    return Spread(dataset=rows, rubric=Rubric([correct, share], [0.5, 0.5]))
"""


def command(server: Server, env_id: str, examples: int, rollouts: int, *more: str) -> list[str]:
    return [
        "run", env_id, "-n", str(examples), "-r", str(rollouts), "-m", "reference/noisy?accuracy=0.6&seed=3",
        "-a", '{"size": 60}', "-b", server.url, "-c", "8", "-f", "10", "-q", *more,
    ]  # fmt: skip


def killed(shop: Workshop, args: list[str], generations: int, output_dir: str) -> Path:
    """Run until so many generations are on disk, and kill. Returns the run folder."""
    running = shop.start(*args)
    running.until(lambda: any(count(path.parent, "generated") >= generations for path in shop.run_dirs(output_dir)),
                  f"{generations} generations are on disk")  # fmt: skip
    kill(running)
    return shop.run_dir(output_dir)


def kill(running: Running) -> None:
    running.send(signal.SIGKILL)
    assert running.wait().code == -signal.SIGKILL


def recorded(run: Path) -> set[str]:
    """Keys whose generation is on disk."""
    return {line["key"] for line in lines(run) if line["type"] == "generated"}


def check_once(run: Path, total: int) -> None:
    """Every rollout once: in the journal, and in the dataset."""
    for kind in ("generated", "scored"):
        seen = Counter(line["key"] for line in lines(run) if line["type"] == kind)
        assert len(seen) == total
        assert set(seen.values()) == {1}, kind
    table = rows(run)
    assert len({(row["example_id"], row["rollout_index"]) for row in table}) == len(table) == total


@pytest.mark.parametrize("seed", [1])
def test_killed_at_three_random_moments_and_resumed(shop: Workshop, seed: int) -> None:
    rng = random.Random(seed)
    total = 120
    with shop.serving(args={"size": 60}, latency=0.03, sigma=0.6) as server:
        args = command(server, "sums", 60, 2)
        assert shop.bench(*args, "-o", "calm").code == 0
        calm = shop.run_dir("calm")
        before = Counter(server.stats()["rollouts"])
        assert set(before.values()) == {1}

        args += ["-o", "stormy"]
        acknowledged: dict[str, int] = {}
        points = sorted(rng.sample(range(3, total - 15), 3))
        for number, point in enumerate(points):
            run = killed(shop, args if number == 0 else [*args, "--resume"], point, "stormy")
            asked = Counter(server.stats()["rollouts"]) - before
            assert acknowledged.keys() <= recorded(run), "a line that was there is there"
            assert acknowledged == {key: asked[key] for key in acknowledged}, "what is on disk is not asked for again"
            acknowledged = {key: asked[key] for key in recorded(run)}
            assert json.loads((run / "run.json").read_text())["status"] == "running"
        done = shop.bench(*args, "--resume", "--json")
        assert done.code == 0, done.err
        asked = Counter(server.stats()["rollouts"]) - before
    run = shop.run_dir("stormy")
    assert done.run["path"] == str(run.relative_to(shop.cwd))
    assert acknowledged == {key: asked[key] for key in acknowledged}
    assert len(asked) == total
    # A kill loses what was in flight, and what had come back but was not on disk: a gate's worth of each.
    assert asked.total() <= total + len(points) * 2 * 8
    check_once(run, total)
    assert summary(run) == summary(calm)
    assert [row["completion"] for row in rows(run)] == [row["completion"] for row in rows(calm)]


def test_torn_tails_and_group_rewards(shop: Workshop) -> None:
    shop.environment("spread", SPREAD)
    total = 90
    with shop.serving("spread", args={"size": 60}, latency=0.03, sigma=0.6) as server:
        args = command(server, "spread", 30, 3)
        assert shop.bench(*args, "-o", "calm").code == 0
        calm = shop.run_dir("calm")
        before = Counter(server.stats()["rollouts"])

        args += ["-o", "stormy"]
        run = killed(shop, args, 20, "stormy")
        first = tear(run)
        killed(shop, [*args, "--resume"], 45, "stormy")
        assert (run / "journal.jsonl").read_bytes().startswith(first), "what was whole stays as it was"
        asked = Counter(server.stats()["rollouts"]) - before
        acknowledged = {key: asked[key] for key in recorded(run)}
        second = tear(run)
        done = shop.bench(*args, "--resume", "--json")
        assert done.code == 0, done.err
        asked = Counter(server.stats()["rollouts"]) - before
    assert (run / "journal.jsonl").read_bytes().startswith(second)
    assert len(acknowledged) >= 45
    assert acknowledged == {key: asked[key] for key in acknowledged}
    generated = Counter(line["key"] for line in lines(run) if line["type"] == "generated")
    assert (len(generated), set(generated.values())) == (total, {1})
    assert len(rows(run)) == total
    assert summary(run) == summary(calm)
    means = {row["example_id"]: row["share"] for row in rows(run)}
    assert means == {row["example_id"]: row["share"] for row in rows(calm)}


def tear(run: Path) -> bytes:
    """Add half a line, as a crash in the middle of a write leaves it; returns the whole lines before it."""
    journal = run / "journal.jsonl"
    whole = journal.read_bytes().rpartition(b"\n")[0] + b"\n"
    last = whole.splitlines(keepends=True)[-1]
    journal.write_bytes(whole + last[: len(last) // 2])
    return whole


def test_the_dataset_of_a_killed_run_lags_no_more_than_was_asked_for(shop: Workshop) -> None:
    with shop.serving(args={"size": 60}, latency=0.1) as server:
        args = [*command(server, "sums", 60, 2), "-c", "2", "-f", "5"]
        running = shop.start(*args)
        running.until(lambda: any(count(path.parent, "scored") >= 40 for path in shop.run_dirs()), "40 are scored")
        kill(running)
    run = shop.run_dir()
    table, scored = rows(run), count(run, "scored")
    # Five that wait, five that are being written, and what comes to its outcome meanwhile.
    assert scored - len(table) <= 15
    on_disk = {line["key"]: line for line in lines(run) if line["type"] == "generated"}
    assert len({(row["example_id"], row["rollout_index"]) for row in table}) == len(table) <= len(on_disk)
    loaded = shop.python(LOADED, str(run.parent), run.name)
    assert loaded == len(table), "what is there can be used"


LOADED = "import sys; from datasets import load_dataset; print(load_dataset(*sys.argv[1:], split='train').num_rows)"
