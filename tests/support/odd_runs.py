"""A run so small that a test can compare its whole table, with scores and none, failures, tools and formulas in it.
`strange_runs` has one that is full of surprises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from store_samples import example, failed, generated, make_run, scored, write

from harness.core.records import Record
from harness.core.types import JsonDict, Usage
from harness.store.rundir import RunDir

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}

TOOLS = [
    {"role": "assistant", "content": None, "reasoning_content": "One needs a sum.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "name": "add", "content": "2"},
    {"role": "assistant", "content": '=HYPERLINK("http://evil.example","2")'},
]
PICTURE = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": "data:,x"}}]

SETTINGS: JsonDict = {
    "env.env_args": {"size": 3},
    "env.pass_threshold": 0.5,
    "model.sampling_args": {"temperature": 0.5},
    "model.api_base_url": "http://localhost:8000/v1",
}


def odd_lines() -> list[Record]:
    """Three examples, two rollouts each, in the order in which they came to an end."""
    return [
        example(1, example_id="b", prompt=[{"role": "user", "content": PICTURE}], answer="-2"),
        example(0, example_id="a"),
        generated(1, 1, state={"turn": -1, "board": {"x": "=1"}}),
        scored(1, 1, None, metrics={"correct": None, "style": 0.5}, reasons={"correct": "judge refused: no"}),
        generated(0, 0, completion=TOOLS, state={"turn": 3}),
        scored(0, 0, 1.0, metrics={"correct": 1.0, "style": -0.25}, extra={"board": [1, "ü"]}),
        generated(0, 1, usage=Usage(requests=2, unreported=2), is_truncated=True, stop_condition="max_turns"),
        scored(0, 1, -1.5, metrics={"correct": 0.0}, reasons={"style": "ValueError: boom"}),
        failed(1, 0),
        example(2, example_id="c", prompt="Once upon", answer="", task="", info={}),
        generated(2, 0, completion=" a time"),
        scored(2, 0, 0.0, metrics={"correct": 0.0, "style": 0.0}),
        generated(2, 1, completion=" upon"),
    ]  # fmt: skip


def odd_run(folder: Path, lines: list[Record] | None = None, **changes: Any) -> RunDir:
    """A run folder with that journal, made anew under `folder`."""
    manifest: JsonDict = {
        "metric_names": ("correct", "style"), "state_columns": ("turn", "board"), "status": "done",
        "planned": {"num_examples": 3, "rollouts_per_example": 2}, "settings": SETTINGS, "reward_range": (-2.0, 1.0),
        "created": "2026-11-21T09:15:03.000000Z",
    }  # fmt: skip
    run = make_run(folder, **{**manifest, **changes})
    write(run.journal_path, odd_lines() if lines is None else lines)
    return run
