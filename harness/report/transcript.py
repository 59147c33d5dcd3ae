"""Transcript of a rollout: messages, score, judgements. Nothing is cut, and control sequences are removed. All text is
indented by two cells, so that it cannot look like a heading."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, cast

from harness.core.records import JUDGEMENTS, Example, Failed, Generated
from harness.core.types import JsonDict, Message, Prompt
from harness.report import numerals
from harness.report.lines import token_words
from harness.report.text import clean, clean_block
from harness.store.codec import to_text
from harness.store.outcomes import Outcome

INDENT = "  "

_SHOWN = frozenset({"role", "content", "name", "tool_call_id", "tool_calls", "reasoning_content", "reasoning"})
"""Message fields with their own layout; others are shown by name."""

_WIDEST = 80


def transcript(example: Example, rollouts: Sequence[Outcome], width: int) -> Iterator[str]:
    """Format an example with some of its rollouts as lines.

    Args:
        example: The example.
        rollouts: Rollouts of it.
        width: Width of the rule between rollouts; text is not wrapped, so that it can be copied.
    """
    rule = "─" * min(width, _WIDEST)
    yield f"Example {clean(example.example_id, 200)}" + (f" · task {clean(example.task, 200)}" if example.task else "")
    yield rule
    yield from _said(example.prompt, "user", "prompt")
    for outcome in rollouts:
        yield ""
        yield f"Rollout {outcome.base.rollout_index} · {verdict(outcome)}"
        yield rule
        if outcome.base.completion or isinstance(outcome.base, Generated):
            yield from _said(outcome.base.completion or "", "assistant", "completion")
        yield from _result(example, outcome)
    if example.info:
        yield ""
        yield "info of the example"
        yield from _table(example.info)


def verdict(outcome: Outcome) -> str:
    """Result of a rollout in a few words."""
    if outcome.reward is not None:
        return f"reward {numerals.score(outcome.reward)}"
    return f"no score: {clean(outcome.reason, 200) or 'no reason given'}"


def example_json(example: Example, rollouts: Sequence[Outcome]) -> JsonDict:
    """JSON of an example with some of its rollouts; the keys are documented in docs/reference/runs.md."""
    return {
        "example_id": example.example_id,
        "index": example.index,
        "prompt": example.prompt,
        "answer": example.answer,
        "task": example.task,
        "info": example.info,
        "rollouts": [_rollout_json(outcome) for outcome in rollouts],
    }


def _rollout_json(outcome: Outcome) -> JsonDict:
    """JSON of a complete rollout."""
    base, score = outcome.base, outcome.score
    made = isinstance(base, Generated)
    return {
        "rollout_index": base.rollout_index,
        "outcome": "scored" if outcome.is_scored else "unscored",
        "reward": outcome.reward,
        "metrics": {} if score is None else score.metrics,
        "reason": outcome.reason,
        "error": outcome.error,
        "completion": base.completion,
        "stop_condition": base.stop_condition if made else None,
        "is_truncated": base.is_truncated if made else False,
        "usage": asdict(base.usage),
        "timing": {**asdict(base.timing), "scoring": 0.0 if score is None else score.seconds},
        "attempts": base.attempts,
        "state": base.state if made else {},
        "scoring_state": {} if score is None else score.extra,
    }


def message_text(message: object) -> str:
    """Text of a message, or its tool calls if it has no text."""
    if not isinstance(message, dict):
        return message if isinstance(message, str) else to_text(message)
    known = cast(Message, message)
    texts = [text for text in content_parts(known.get("content")) if text.strip()]
    return "\n".join(texts) or "\n".join(call_lines(known.get("tool_calls")))


def _said(messages: Prompt | object, role: str, label: str) -> Iterator[str]:
    """Messages, or the text of a completion model."""
    if isinstance(messages, str):
        yield label
        yield from _block(messages or "(empty)")
        return
    known = cast("list[object]", messages) if isinstance(messages, list) else [messages]
    for number, message in enumerate(known):
        if number:
            yield ""
        yield from _message(cast(Message, message) if isinstance(message, dict) else {"role": role, "content": message})


def _message(message: Message) -> Iterator[str]:
    names = [message.get("role") or "no role", message.get("name"), message.get("tool_call_id")]
    yield " · ".join(clean(name, 200) for name in names if name)
    thoughts = [message.get(name) for name in ("reasoning_content", "reasoning")]
    for thought in dict.fromkeys(text for text in thoughts if isinstance(text, str) and text):
        yield f"{INDENT}reasoning"
        yield from _block(thought, INDENT * 2)
    texts, calls = list(content_parts(message.get("content"))), list(call_lines(message.get("tool_calls")))
    others = {name: value for name, value in message.items() if name not in _SHOWN and value not in (None, "", [], {})}
    for thought in thoughts:
        if thought and not isinstance(thought, str):
            others["reasoning"] = thought
    for text in (*texts, *calls):
        yield from _block(text)
    if not any(text.strip() for text in texts) and not calls:
        yield f"{INDENT}(empty)"
    yield from _table(others)


def content_parts(content: object) -> Iterator[str]:
    """Text of each part of a message's content; a placeholder or JSON for parts that are not text."""
    if content is None or content == "":
        return
    if isinstance(content, str):
        yield content
        return
    for part in cast("list[object]", content) if isinstance(content, list) else [content]:
        yield (
            _part(cast(JsonDict, part)) if isinstance(part, dict) else part if isinstance(part, str) else to_text(part)
        )


def _part(part: JsonDict) -> str:
    if isinstance(text := part.get("text"), str):
        return text
    kind = part.get("type")
    held = part.get(kind) if isinstance(kind, str) else None
    inner = cast(JsonDict, held) if isinstance(held, dict) else {"url": held}
    if kind == "image_url":
        return _picture(inner.get("url"))
    if kind == "input_audio" and isinstance(data := inner.get("data"), str):
        return f"[audio, {inner.get('format', 'of no format')}: {numerals.count(len(data))} characters of base64]"
    return to_text(part)


def _picture(url: object) -> str:
    if isinstance(url, str) and url.startswith("data:"):
        kind, _, data = url.removeprefix("data:").partition(",")
        return f"[image, {kind.partition(';')[0] or 'of no type'}: {numerals.count(len(data))} characters of base64]"
    return f"[image: {url}]"


def call_lines(calls: object) -> Iterator[str]:
    """Tool calls, with the arguments as the model wrote them."""
    if not calls:
        return
    for call in cast("list[object]", calls) if isinstance(calls, list) else [calls]:
        known = cast(JsonDict, call) if isinstance(call, dict) else {}
        function = known.get("function")
        if not isinstance(function, dict) or "name" not in function:
            yield f"→ {to_text(cast(object, call))}"
            continue
        inner = cast(JsonDict, function)
        arguments = inner.get("arguments")
        text = arguments if isinstance(arguments, str) else "" if arguments is None else to_text(arguments)
        mark = "" if _is_json(text) else "  (its arguments are no JSON)"
        name = f"  [{known['id']}]" if known.get("id") else ""
        yield f"→ {inner['name']}({text}){name}{mark}"


def _is_json(text: str) -> bool:
    try:
        json.loads(text or "{}")
    except (ValueError, RecursionError):
        return False
    return True


def _result(example: Example, outcome: Outcome) -> Iterator[str]:
    """Result section of a rollout: figures, errors, judgements, state."""
    base, score = outcome.base, outcome.score
    yield ""
    yield "result"
    yield from _rows(figures(outcome))
    if example.answer not in (None, ""):
        yield from _labelled("expected", example.answer)
    if outcome.error and not (isinstance(base, Generated) and score is None):
        yield from _labelled("error", base.error or base.reason if isinstance(base, Failed) else outcome.error)
    held: dict[str, Any] = {**(base.state if isinstance(base, Generated) else {}), **(score.extra if score else {})}
    judgements = held.pop(JUDGEMENTS, None)
    if isinstance(judgements, list):
        for entry in cast("list[object]", judgements):
            yield from _judgement(entry)
    elif judgements is not None:
        held[JUDGEMENTS] = judgements
    if isinstance(base, Generated) and base.lost:
        held["lost"] = list(base.lost)
    if held:
        yield ""
        yield "state"
        yield from _table(held)


def figures(outcome: Outcome) -> Iterator[tuple[str, str]]:
    base, score = outcome.base, outcome.score
    yield "reward", numerals.score(outcome.reward) if outcome.is_scored else verdict(outcome)
    for name, value in (score.metrics if score is not None else {}).items():
        yield name, numerals.score(value)
    if isinstance(base, Failed):
        yield "failed in", f"{base.stage}" + (", in a way that time may heal" if base.retryable else "")
    elif base.stop_condition or base.is_truncated:
        yield "ended by", (base.stop_condition or "") + (", cut short by a limit" if base.is_truncated else "")
    usage, timing = base.usage, base.timing
    requests = f"{usage.requests} {'request' if usage.requests == 1 else 'requests'}"
    cost = "" if usage.cost is None else f", {numerals.dollars(usage.cost)}"
    yield "used", f"{token_words(usage)} in {requests}{cost}"
    seconds = [f"{numerals.duration(timing.generation)}, {numerals.duration(timing.model)} of it in the model"]
    if timing.waiting:
        seconds.append(f"{numerals.duration(timing.waiting)} waiting for a slot")
    if score is not None:
        seconds.append(f"scored in {numerals.duration(score.seconds)}")
    yield "took", ", ".join(seconds)
    if base.attempts > 1:
        yield "attempts", str(base.attempts)


def _judgement(entry: object) -> Iterator[str]:
    known: Mapping[str, object] = cast(JsonDict, entry) if isinstance(entry, dict) else {"text": entry}
    label = known.get("label")
    yield ""
    yield f"judge · {clean(known.get('model') or 'no model', 200)}" + (f" · {clean(label, 200)}" if label else "")
    text = known.get("text")
    yield from _block(text if isinstance(text, str) else to_text(text))


def _rows(rows: Iterator[tuple[str, str]]) -> Iterator[str]:
    known = [(clean(name, 60), clean(value, 1000)) for name, value in rows]
    width = max(len(name) for name, _ in known)
    yield from (f"{INDENT}{name:<{width}}  {value}" for name, value in known)


def _labelled(label: str, text: object) -> Iterator[str]:
    yield f"{INDENT}{label}"
    yield from _block(text if isinstance(text, str) else to_text(text), INDENT * 2)


def _table(values: Mapping[str, object]) -> Iterator[str]:
    """Values by name, one per line; a value that is not text as JSON."""
    for name, value in values.items():
        text = value if isinstance(value, str) else to_text(value)
        if "\n" in text:
            yield from _labelled(clean(name, 100), text)
        else:
            yield f"{INDENT}{clean(name, 100)}: {clean_block(text)}"


def _block(text: str, indent: str = INDENT) -> Iterator[str]:
    # Not splitlines(), which also splits at characters that are no line breaks in a terminal.
    yield from (f"{indent}{line}" if line else "" for line in clean_block(text).split("\n"))
