"""A recorded run full of surprises, to be looked at one by one, for tests of what other tools read of a run: text that
no UTF-8 holds, numbers beyond every machine's, images, tool calls of every shape, judges, and rollouts that failed,
were not scored or said nothing."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import store_samples as samples

from harness.core.records import JUDGEMENTS, Record, Timing
from harness.core.types import JsonDict, Messages, Usage
from harness.store.rundir import RunDir

HUGE = 2**80
SURROGATE = "a\ud800b"
BREAKS = "one\x85two\u2028three\u2029four\x1dfive"
"""Everything but a newline at which `str.splitlines` cuts."""

PIXEL = "data:image/png;base64,iVBORw0KGgo="

ROLLOUTS = 16
SCORED = 11

DEEP = '{"in": ' * 150 + "1e999" + "}" * 150

TALK: Messages = [
    {
        "role": "assistant",
        "content": None,
        "reasoning_content": "I need two tools.",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2, "b": [1, 2]}'}},
            {"id": "c2", "type": "function", "function": {"name": "add", "arguments": '{"a": '}},
            {"id": "c3", "type": "function", "function": {"name": "add", "arguments": "[1]"}},
            {"id": "c4", "type": "custom", "custom": {"name": "grep", "input": "x.*"}},
            {"id": "c5", "type": "function", "function": {"name": "add", "arguments": "[" * 400 + "]" * 400}},
            {"id": "c6", "type": "function", "function": {"name": "add", "arguments": f'{{"a": NaN, "b": {DEEP}}}'}},
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "3"},
    {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "bad JSON"}]},
    {"role": "tool", "tool_call_id": "c3", "name": "add", "content": "not an object"},
    {"role": "tool", "tool_call_id": "c4", "content": "nothing"},
    {"role": "assistant", "content": "It is 3.", "annotations": [{"url": "x"}]},
]
"""Two turns with tools: arguments that are JSON, that break off, that are no object, that are free text, and that nest
deeper than anyone reads."""


def judgement(**changes: Any) -> JsonDict:
    """A judge's reply as runs keep it."""
    usage = {"input_tokens": 50, "output_tokens": 3, "requests": 1, "cost": 0.25}
    kept: JsonDict = {
        "model": "lab/judge",
        "prompt": "77d1",
        "text": "CORRECT",
        "finish_reason": "stop",
        "usage": usage,
    }
    return {**kept, **changes}


def nested(levels: int) -> JsonDict:
    """An object in an object in an object."""
    value: JsonDict = {"end": True}
    for _ in range(levels):
        value = {"in": value}
    return value


CALLS: JsonDict = {"input_tokens": [3, HUGE], "output_tokens": [2, None, 1], "seconds": [0.25, -1.0], "cost": "free"}
"""Figures of calls, some of them impossible."""


def records() -> Iterable[Record]:
    """The journal. Each example is one surprise."""
    yield from _ordinary()
    yield from _text()
    yield from _parts()
    yield from _tools()
    yield from _unscored()
    yield from _shapes()


def _ordinary() -> Iterable[Record]:
    yield samples.example(0, example_id="same")
    for rollout in range(2):
        yield samples.generated(0, rollout, usage=Usage(10, 5, 2, 4, requests=1, cost=0.5))
        yield samples.scored(0, rollout, 1.0 - rollout)


def _text() -> Iterable[Record]:
    info = {SURROGATE: [SURROGATE], "huge": HUGE, "deep": nested(150), "bench": "taken", "fraction": 0.1}
    prompt: Messages = [{"role": "user", "content": SURROGATE + BREAKS + "🙂"}]
    yield samples.example(1, example_id="naïve/🙂\x00\n" + "x" * 300, prompt=prompt, answer=SURROGATE, info=info)
    yield samples.generated(1, completion=[{"role": "assistant", "content": ""}], state={"big": HUGE, "text": BREAKS})
    yield samples.scored(1, reward=0.0)
    yield samples.example(2, example_id=2**60, prompt=[{"role": "developer", "content": "Be kind."}, *prompt])
    yield samples.generated(2, completion=[{"role": "assistant", "content": BREAKS + SURROGATE}])
    yield samples.scored(2, reward=-0.5, extra={"note": SURROGATE})


def _parts() -> Iterable[Record]:
    said: Messages = [{"role": "assistant", "content": [{"type": "text", "text": "A pixel."}], "audio": {"id": "au"}}]
    for index, detail in ((3, "low"), (4, "ultra")):
        shown = [
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": PIXEL + str(index), "detail": detail}},
            {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
            {"type": "file", "file": {"file_id": "f-1"}},
        ]
        yield samples.example(index, prompt=[{"role": "user", "content": shown}], answer="A pixel.")
        yield samples.generated(index, completion=said)
        yield samples.scored(index)


def _tools() -> Iterable[Record]:
    yield samples.example(5)
    yield samples.generated(5, completion=TALK, stop_condition="max_turns_reached", calls=CALLS)
    yield samples.scored(5, reward=0.25, extra={"errors": ["too slow", {"expertId": "m", "errors": ["$.a: missing"]}]})
    yield samples.example(6)
    refusal: Messages = [{"role": "assistant", "content": None, "refusal": "I will not."}]
    yield samples.generated(6, completion=refusal)
    yield samples.scored(6, reward=0.0, metrics={"correct": None}, reasons={"correct": "ValueError: no number"})


def _unscored() -> Iterable[Record]:
    yield samples.example(7)
    half: Messages = [{"role": "assistant", "content": "Let me th"}]
    yield samples.failed(7, 0, completion=half, usage=Usage(7, 3, requests=1))
    yield samples.failed(7, 1, reason="rate_limit", error=f"HTTP 429 {SURROGATE}", attempts=3)
    yield samples.generated(7, 2, lost=("board",))
    reasons = {"correct": "JudgeError: the judge did not answer"}
    yield samples.scored(7, 2, None, reasons=reasons, extra={JUDGEMENTS: [judgement(text="hm")]})
    yield samples.generated(7, 3)
    yield samples.example(8)
    told = [judgement(), judgement(text="yes", usage={"requests": 1, "unreported": 1})]
    yield samples.generated(8, state={JUDGEMENTS: told, "turn": 2})
    yield samples.scored(8, extra={"verdict": "CORRECT"})


def _shapes() -> Iterable[Record]:
    yield samples.example(9, example_id="same", prompt="Once upon a", answer="", task="story")
    yield samples.generated(9, completion=" time", is_truncated=True, usage=Usage(requests=2, unreported=2))
    yield samples.scored(9, reward=0.5)
    talk: Messages = [
        {"role": "assistant", "content": "Which one?", "name": "asker"},
        {"role": "user", "content": "The first."},
        {"role": "assistant", "content": "7"},
    ]
    yield samples.example(10, example_id=10, info={}, answer='["7", 7]')
    yield samples.generated(10, completion=talk, timing=Timing(1_790_000_000.0, 4.0, 1.5, 2.0))
    yield samples.scored(10, reward=1.0 - 1e-12, seconds=0.5)
    yield samples.example(11, prompt=[{"role": "narrator", "content": 5}])
    yield samples.failed(11, stage="setup", reason="environment_error", error="no board", timing=Timing())


def strange_run(output_dir: Path, **changes: Any) -> RunDir:
    """A run folder with that journal. It ended well, says the manifest, with fewer rollouts than were planned."""
    values: JsonDict = {
        "status": "done",
        "created": "2026-11-21T09:15:03.250000Z",
        "command": "bench run odd -m lab/m-1",
        "planned": {"num_examples": 12, "rollouts_per_example": 4},
        "versions": {"python": "3.11.7", "bench-harness": "0.1.0", "odd": "1.2"},
        "settings": {
            "env.env_args": {"size": HUGE}, "env.timeout": 90.5, "env.pass_threshold": 1.0, "env.max_retries": 0,
            "model.api_base_url": "https://api.openai.com/v1", "model.max_concurrent_generation": 8,
            "model.sampling_args": {
                "temperature": 0.5, "max_completion_tokens": 64, "stop": "END", "seed": 3, "top_k": "many",
                "vendor": [1],
            },
        },
        "git": {"commit": "0123abc", "dirty": True},
    }  # fmt: skip
    run = samples.make_run(output_dir, env_id="odd", **{**values, **changes})
    samples.write(run.journal_path, records())
    return run
