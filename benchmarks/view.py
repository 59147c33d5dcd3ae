"""`bench view` at size: a run of many rollouts, written by a script, and how long a real server takes over HTTP."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from pathlib import Path

from harness.core.records import Example, Generated, Record, Scored, Timing
from harness.core.types import Usage
from harness.store.codec import document_of, to_line
from harness.store.manifest import Manifest
from harness.store.rundir import RunDir

ROLLOUTS_PER_EXAMPLE = 4
RARE = "quernstone"
"""A word of one message in 10,000."""
_WORDS = 4_000
_EXAMPLE_WORDS, _REASONING_WORDS, _REPLY_WORDS = 30, 60, 40


def write_run(output_dir: Path, rollouts: int) -> RunDir:
    """Write a finished run as `bench run` would: four rollouts an example, each of one turn with reasoning.

    Args:
        output_dir: The folder of all runs.
        rollouts: Number of rollouts.
    """
    run = RunDir.create(output_dir, "sums", "lab/m-1")
    planned = {"num_examples": -(-rollouts // ROLLOUTS_PER_EXAMPLE), "rollouts_per_example": ROLLOUTS_PER_EXAMPLE}
    run.write_manifest(
        Manifest(run.id, "sums", "lab/m-1", name="sums", status="done", planned=planned,
                 metric_names=("correct", "length"), state_columns=("turn",),
                 settings={"env.env_id": "sums", "model.model": "lab/m-1", "env.pass_threshold": 1.0})
    )  # fmt: skip
    run.write_config('[[eval]]\nenv_id = "sums"\n')
    with run.journal_path.open("wb") as file:
        file.writelines(to_line(document_of(record)) for record in _records(rollouts))
    return run


def _records(rollouts: int) -> Iterator[Record]:
    draw = random.Random(1)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 10))) for _ in range(_WORDS)]

    def text(count: int) -> str:
        return " ".join(draw.choices(words, k=count))

    example = ""
    for number in range(rollouts):
        index, rollout = divmod(number, ROLLOUTS_PER_EXAMPLE)
        if rollout == 0:
            example = _key("example", index)
            prompt = [{"role": "user", "content": f"What is {index} + 1? {text(_EXAMPLE_WORDS)}"}]
            yield Example(example, index, prompt, str(index + 1), "sums", {"level": index % 5}, index)
        key, is_right = _key("rollout", number), draw.random() < 0.6
        rare = f" {RARE}" if draw.random() < 1e-4 else ""
        answer = index + 1 if is_right else draw.randrange(1000)
        message = {
            "role": "assistant", "content": f"{text(_REPLY_WORDS)}{rare}\n#### {answer}",
            "reasoning_content": text(_REASONING_WORDS),
        }  # fmt: skip
        usage = Usage(60 + index % 7, draw.randint(80, 200), requests=1)
        timing = Timing(1_790_000_000.0 + number / 100, draw.random(), draw.random() / 2)
        yield Generated(key, example, rollout, [message], "stop", usage=usage, timing=timing, state={"turn": 1})
        metrics: dict[str, float | None] = {"correct": float(is_right), "length": draw.randint(0, 100) / 100}
        yield Scored(key, "scored", float(is_right), metrics, {}, 0.01)


def _key(kind: str, number: int) -> str:
    return hashlib.sha256(f"{kind} {number}".encode()).hexdigest()
