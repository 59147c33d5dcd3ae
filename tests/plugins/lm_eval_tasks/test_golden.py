"""The same tasks on the same server through lm-eval itself: the same values of every document, and the same figures."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from lm_eval_folder import GROUPS, TASKS

from harness import evaluate
from harness.plugins.lm_eval_tasks.metrics import column

pytestmark = [pytest.mark.slow, pytest.mark.plugins]

GROUPED = ("choice", "shots", "mutual_info", "inputs", "cloze")
"""Tasks that lm-eval runs only as members of a group, since it takes no task twice."""

SINGLE = [name for name in TASKS if name not in GROUPED]

CLOSE = 1e-9


@pytest.fixture(scope="module")
def theirs(tasks: Path, url: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Results and samples of lm-eval."""
    pytest.importorskip("tenacity", reason="tenacity is not installed: pip install 'lm_eval[api]'")
    file = tmp_path_factory.mktemp("theirs") / "results.json"
    script = Path(__file__).with_name("golden.py")
    names = ",".join([*SINGLE, *GROUPS])
    command = [sys.executable, str(script), url, str(tasks), str(file), names, "8"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(file.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def ours(tasks: Path, url: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Our runs by the name of their task or group."""
    names = [*SINGLE, *GROUPS]
    found = evaluate(
        [f"lm-eval/{name}" for name in names], "my-model", api_base_url=url, num_examples=-1, rollouts_per_example=1,
        output_dir=str(tmp_path_factory.mktemp("ours")), progress=False,
        env_args={"include_path": str(tasks), "tokenizer": url},
    )  # fmt: skip
    return dict(zip(names, found, strict=True))


def values(run: Any) -> dict[tuple[str, int], dict[str, Any]]:
    """The library's values in our journal, by task and document."""
    lines = [orjson.loads(line) for line in (run.path / "journal.jsonl").read_bytes().splitlines()]
    examples = {line["example_key"]: line["info"]["doc_id"] for line in lines if line["type"] == "example"}
    document = {line["key"]: examples[line["example_key"]] for line in lines if line["type"] == "generated"}
    scores = [line for line in lines if line["type"] == "scored"]
    return {
        (line["extra"]["lm_eval"]["task"], document[line["key"]]): line["extra"]["lm_eval"]
        | {"metrics": line["metrics"]}
        for line in scores
    }


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal, numbers to 1e-9."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, bool | str) or one is None or isinstance(other, bool | str):
        return one == other
    return math.isclose(float(str(one)), float(str(other)), rel_tol=CLOSE, abs_tol=CLOSE)


def test_every_document_has_the_same_values(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    found = {key: each for run in ours.values() for key, each in values(run).items()}
    compared = 0
    for task, samples in theirs["samples"].items():
        for sample in samples:
            mine = found[task, sample["doc_id"]]
            assert same(mine["filtered"][sample["filter"]], sample["filtered_resps"]), (task, sample["doc_id"])
            for metric in sample["metrics"]:
                key = f"{metric},{sample['filter']}"
                assert same(mine["values"][key], sample[metric]), (task, sample["doc_id"], key)
                compared += 1
    assert set(theirs["samples"]) == set(TASKS)
    assert compared > 250


def test_figures_and_standard_errors_are_the_same(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    grouped: dict[str, float] = {}
    for name in GROUPS:
        grouped |= ours[name].summary.figures
    kinds = set[str]()
    for name, result in theirs["results"].items():
        for key, value in result.items():
            metric, comma, filter_name = key.partition(",")
            if not comma or value == "N/A":
                continue
            short = key.removesuffix(",none")
            if name not in SINGLE:
                if not metric.startswith("perplexity_stderr"):  # a bootstrap
                    assert same(grouped[f"{name}: {short}"], value), (name, key)
                continue
            summary = ours[name].summary
            spread = summary.metrics.get(column(metric.removesuffix("_stderr"), filter_name))
            mean = None if short in summary.figures or spread is None else spread.estimate.mean
            if metric.endswith("_stderr"):
                plain = column(metric.removesuffix("_stderr"), filter_name)
                if plain not in summary.figures:  # others are bootstraps
                    assert same(summary.metrics[plain].estimate.stderr or 0.0, value), (name, key)
                    kinds.add("stderr")
                continue
            kinds.add(metric)
            assert same(summary.figures[short] if mean is None else mean, value), (name, key)
    assert kinds >= {"acc", "exact_match", "f1", "word_perplexity", "bits_per_byte", "bleu", "mcc", "stderr"}


def test_the_figures_are_in_the_summary_on_disk(ours: dict[str, Any]) -> None:
    for name in ("pages", "by_task"):
        written = json.loads((ours[name].path / "summary.json").read_text(encoding="utf-8"))
        assert written["figures"] == pytest.approx(ours[name].summary.figures)
