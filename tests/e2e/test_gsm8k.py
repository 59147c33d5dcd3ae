"""The benchmark that everybody knows, whole: what the oracle and the null player get, and what is left on disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bench_runs import ROOT, Workshop

QUESTIONS = ROOT.parent / "shared" / "data" / "gsm8k" / "test.jsonl"

COLUMNS = [
    "example_id", "rollout_index", "prompt", "completion", "answer", "task", "info", "reward",
    "correct_answer", "has_answer",
    "outcome", "error", "stop_condition", "is_truncated", "usage", "timing", "model", "env_id",
]  # fmt: skip
"""The issue's order; between `reward` and `outcome` one column a metric."""

LOAD = """
import json, sys
from datasets import load_dataset
loaded = []
for config in sys.argv[2:]:
    data = load_dataset(sys.argv[1], config or None)
    assert list(data) == ["train"], list(data)
    train = data["train"]
    loaded.append({"columns": train.column_names, "rows": train.num_rows, "first": train[0], "last": train[-1],
                   "ids": train["example_id"][:], "rewards": train["reward"][:]})
print(json.dumps(loaded))
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not QUESTIONS.exists(), reason="the 1,319 questions are not part of the repository"),
]


def evaluate(shop: Workshop, model: str, *more: str) -> dict[str, Any]:
    args = json.dumps({"dataset": str(QUESTIONS)})
    done = shop.bench("run", "gsm8k", "-n", "-1", "-r", "1", "-a", args, "-m", model, "--json", *more)
    assert done.code == 0, done.err
    return done.run


def test_the_oracle_gets_everything_right_and_the_dataset_loads(shop: Workshop) -> None:
    run = evaluate(shop, "reference/oracle", "-c", "64")
    numbers = run["summary"]
    assert numbers["reward"]["mean"] == numbers["reward"]["min"] == numbers["pass_at_k"]["1"] == 1.0
    assert (numbers["num_examples"], numbers["num_rollouts"], numbers["scored"]) == (1319, 1319, 1319)
    assert (numbers["unscored"], numbers["not_run"], numbers["coverage"]) == ({}, 0, 1.0)
    folder = Path(run["path"])
    by_default, by_id = shop.python(LOAD, str(folder.parent), "", folder.name)
    assert by_default == by_id
    assert by_id["columns"] == COLUMNS
    assert by_id["rows"] == 1319
    assert by_id["ids"] == [str(number) for number in range(1319)], "sorted by example"
    assert set(by_id["rewards"]) == {1.0}
    question = json.loads(QUESTIONS.read_text().splitlines()[-1])["question"]
    last = by_id["last"]
    assert question in last["prompt"][-1]["content"]
    assert (last["completion"][0]["role"], last["outcome"], last["error"]) == ("assistant", "scored", None)
    assert (last["model"], last["env_id"], last["rollout_index"]) == ("reference/oracle", "gsm8k", 0)


def test_the_null_player_gets_nothing_right(shop: Workshop) -> None:
    numbers = evaluate(shop, "reference/null", "-q")["summary"]
    assert numbers["reward"]["mean"] == numbers["reward"]["max"] == numbers["pass_at_k"]["1"] == 0.0
    assert (numbers["scored"], numbers["unscored"], numbers["empty"]) == (1319, {}, 0)
