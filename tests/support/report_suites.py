"""Recorded suites of any size for tests of `bench report`: written straight into journals, with the variety of real
runs: several turns, tools, costs, failures, scores between 0 and 1."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from run_samples import ORIGINS, SETTINGS, START, named
from store_samples import example, failed, generated, key, make_run, scored

from harness.core.records import Record, Timing
from harness.core.types import Messages, Usage
from harness.store.codec import encode
from harness.store.outcomes import read_journal
from harness.store.rundir import RunDir, write_suite
from harness.store.score_table import summary_of

SKILLS = {"lab/large-2": 1.3, "lab/small-2": 0.4, "other/tiny": -0.9}
"""Models, and how good each is."""


_THOUGHT = random.Random(7).choices(("carry", "the", "one", "then", "add", "both", "halves"), k=2000)


@dataclass(frozen=True)
class Shape:
    """How much a suite holds."""

    environments: tuple[str, ...] = ("sums", "browse", "essays")
    models: tuple[str, ...] = tuple(SKILLS)
    examples: int = 40
    rollouts: int = 4
    words: int = 40
    """Of an answer."""
    is_summarized: bool = True
    """Whether each run has its `summary.json`; without, nothing says how long it took."""


def suite(output_dir: Path, shape: Shape | None = None, *, suite_id: str = "20261121T091503Z-suit") -> list[RunDir]:
    """Write a suite; the same shape gives the same runs."""
    shape = shape or Shape()
    runs: list[RunDir] = []
    for environment in shape.environments:
        for model in shape.models:
            runs.append(_run(output_dir, environment, model, shape, len(runs), suite_id))
    manifests = [run.read_manifest() for run in runs]
    pairs = list(zip(runs, manifests, strict=True))
    write_suite(output_dir, suite_id, file="suite.toml", command="bench run suite.toml", runs=pairs)
    return runs


def _run(output_dir: Path, environment: str, model: str, shape: Shape, number: int, suite_id: str) -> RunDir:
    moment = START + timedelta(seconds=number)
    settings: dict[str, Any] = {**SETTINGS, "env.env_id": environment, "model.model": model}
    run = make_run(
        output_dir, env_id=environment, model=model, suite=suite_id, status="done", name=environment,
        created=moment.isoformat(timespec="microseconds").replace("+00:00", "Z"), command="bench run suite.toml",
        planned={"num_examples": shape.examples, "rollouts_per_example": shape.rollouts}, settings=settings,
        origins=ORIGINS, versions={"python": "3.13.1", "bench-harness": "0.1.0"},
    )  # fmt: skip
    run = named(run, f"{moment:%Y%m%dT%H%M%SZ}-{number:04d}")
    with run.journal_path.open("wb") as journal:
        for record in _records(environment, model, shape):
            journal.write(encode(record))
    if shape.is_summarized:
        summary = summary_of(run.read_manifest(), read_journal(run))
        run.write_summary({**summary.to_json(), "wall_s": 61.0})
    return run


def _records(environment: str, model: str, shape: Shape) -> Iterator[Record]:
    dice = random.Random(f"{environment}/{model}")
    hardness = random.Random(environment)
    skill = SKILLS.get(model, 0.0)
    for index in range(shape.examples):
        hard = hardness.gauss(0.3, 1.4)
        yield _example(environment, index, hard)
        for rollout in range(shape.rollouts):
            yield from _rollout(environment, index, rollout, skill - hard, dice, shape)


def _example(environment: str, index: int, hard: float) -> Record:
    question = f"{environment} question {index}: what is {index} + {index + 3}? Difficulty {hard:.1f}, in words please."
    prompt: Messages = [{"role": "system", "content": "Think it over."}, {"role": "user", "content": question}]
    return example(index, key=key(environment, index), prompt=prompt, answer=str(2 * index + 3), task=environment)


def _rollout(
    environment: str, index: int, rollout: int, ease: float, dice: random.Random, shape: Shape
) -> Iterator[Record]:
    names: dict[str, Any] = {"key": key(environment, index, rollout), "example_key": key(environment, index)}
    trouble = dice.random()
    turns = 1 + (min(11, int(dice.expovariate(0.5) + max(0.0, 1.5 - ease))) if environment == "browse" else 0)
    tokens = int(60 * turns * dice.lognormvariate(0.8 - 0.25 * ease, 0.5)) + 5
    usage = Usage(400 * turns, tokens, requests=turns, cost=1e-6 * (400 * turns + 4 * tokens))
    timing = Timing(1_790_000_000.0, 0.2 + tokens / 70 * dice.uniform(0.8, 1.3), tokens / 75)
    if trouble < 0.02:
        reason, error = ("timeout", "no reply in 600 s") if trouble < 0.013 else ("rate_limit", "HTTP 429: slow down")
        yield failed(index, rollout, **names, reason=reason, error=error, usage=usage, timing=timing)
        return
    yield generated(
        index, rollout, **names, completion=_said(index, turns, dice, shape.words), usage=usage, timing=timing
    )
    if trouble < 0.03:
        reasons = {"correct": "JudgeError: the judge gave no verdict"}
        yield scored(index, rollout, None, key=names["key"], reasons=reasons)
        return
    chance = 1 / (1 + 2.718281828 ** -(ease + dice.gauss(0, 0.4)))
    reward = float(dice.random() < chance) if environment != "essays" else round(dice.betavariate(1 + 4 * chance, 2), 2)
    yield scored(index, rollout, reward, key=names["key"], metrics={"correct": reward, "length": float(tokens)})


def _said(index: int, turns: int, dice: random.Random, words: int) -> Messages:
    said: Messages = []
    for turn in range(turns - 1):
        call = {
            "id": f"c{turn}",
            "type": "function",
            "function": {"name": "search", "arguments": f'{{"page": {turn}}}'},
        }
        said.append({"role": "assistant", "content": "", "tool_calls": [call]})
        said.append({"role": "tool", "tool_call_id": f"c{turn}", "content": f"Page {turn}: nothing about {index}."})
    begin = dice.randrange(len(_THOUGHT) - words)
    thought = " ".join(_THOUGHT[begin : begin + words])
    return [*said, {"role": "assistant", "content": f"{thought}.\n\n#### {2 * index + 3}"}]
