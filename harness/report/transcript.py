"""Transcript of a rollout: messages, score, judgements. Nothing is cut, and control sequences are removed. All text is
indented by two cells, so that it cannot look like a heading."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import cast

from harness.core.records import JUDGEMENTS, Example, Failed, Generated
from harness.core.types import JsonDict, Message, Prompt
from harness.report import numerals
from harness.report.numerals import token_text
from harness.report.text import clean, clean_block
from harness.store.codec import to_text
from harness.store.notes import Note, Notes
from harness.store.outcomes import Outcome

INDENT = "  "

NO_NOTES = Notes()

_SHOWN = frozenset({"role", "content", "name", "tool_call_id", "tool_calls", "reasoning_content", "reasoning"})
"""Message fields that have a special layout; other fields are printed as `name: value`."""

_WIDEST = 80


def transcript(example: Example, rollouts: Sequence[Outcome], width: int, notes: Notes = NO_NOTES) -> Iterator[str]:
    """Format an example with some of its rollouts as lines.

    Args:
        example: The example.
        rollouts: Rollouts of this example.
        width: Width of the rule between rollouts; text is not wrapped, so that it can be copied.
        notes: The notes of the run.
    """
    rule = "─" * min(width, _WIDEST)
    yield f"Example {clean(example.example_id, 200)}" + (f" · task {clean(example.task, 200)}" if example.task else "")
    yield rule
    yield from _message_lines(example.prompt, "user", "prompt")
    for outcome in rollouts:
        yield ""
        yield f"Rollout {outcome.base.rollout_index} · {verdict(outcome)}"
        yield rule
        if outcome.base.completion or isinstance(outcome.base, Generated):
            yield from _message_lines(outcome.base.completion or outcome.no_text, "assistant", "completion")
        yield from _result(example, outcome)
        yield from _notes(notes.of(outcome.base.key))
    if example.info:
        yield ""
        yield "info of the example"
        yield from _table(example.info)


def verdict(outcome: Outcome) -> str:
    """Result of a rollout in a few words: its reward, or why it has none."""
    if outcome.reward is not None:
        return f"reward {numerals.score(outcome.reward)}"
    return f"no score: {clean(outcome.reason, 200)}"


def example_json(example: Example, rollouts: Sequence[Outcome], notes: Notes) -> JsonDict:
    """JSON of an example with some of its rollouts; the keys are documented in docs/reference/runs.md."""
    found = [rollout_json(outcome, notes.of(outcome.base.key)) for outcome in rollouts]
    return {**example_fields(example), "rollouts": found}


def example_fields(example: Example) -> JsonDict:
    """An example without its rollouts as JSON."""
    return {name: getattr(example, name) for name in ("example_id", "index", "prompt", "answer", "task", "info")}


def rollout_json(outcome: Outcome, notes: Sequence[Note]) -> JsonDict:
    """A complete rollout as JSON, with the notes about it."""
    base, score = outcome.base, outcome.score
    made = isinstance(base, Generated)
    return {
        "rollout_index": base.rollout_index,
        "outcome": outcome.column,
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
        "node": base.node,
        "calls": base.calls,
        "state": base.state if made else {},
        "scoring_state": {} if score is None else score.extra,
        "notes": [note.to_json() for note in notes],
    }


def _message_lines(messages: Prompt | object, role: str, label: str) -> Iterator[str]:
    """Format a prompt or completion as lines: each of its messages, or its text if it is a plain string."""
    if isinstance(messages, str):
        yield label
        yield from _block(messages or "(empty)")
        return
    known = cast("list[object]", messages) if isinstance(messages, list) else [messages]
    for number, message in enumerate(known):
        if number:
            yield ""
        yield from _message(message, role)


@dataclass(frozen=True, slots=True)
class MessageParts:
    """A message split into title, reasoning, text, tool calls and other fields."""

    title: str
    """Role, name and tool call id, cleaned."""
    thoughts: list[str]
    """Reasoning of the model, without duplicates: some providers send the same text in two fields."""
    texts: list[str]
    calls: list[str]
    others: dict[str, object]
    """Other fields of the message that are not empty."""


def message_parts(message: object, role: str) -> MessageParts:
    """Split a message into title, reasoning, text, tool calls and other fields.

    Args:
        message: The message; a value that is not a message is taken as the content of one.
        role: Role of a value that is not a message.
    """
    known = cast(Message, message) if isinstance(message, dict) else {"role": role, "content": message}
    names = [known.get("role") or "no role", known.get("name"), known.get("tool_call_id")]
    thoughts = [known.get(name) for name in ("reasoning_content", "reasoning")]
    others = {name: value for name, value in known.items() if name not in _SHOWN and value not in (None, "", [], {})}
    others.update(("reasoning", thought) for thought in thoughts if thought and not isinstance(thought, str))
    return MessageParts(
        " · ".join(clean(name, 200) for name in names if name),
        list(dict.fromkeys(text for text in thoughts if isinstance(text, str) and text)),
        list(content_parts(known.get("content"))),
        list(call_lines(known.get("tool_calls"))),
        others,
    )


def message_text(message: object) -> str:
    """Text of a message, or its tool calls if it has no text."""
    known = cast(Message, message) if isinstance(message, dict) else {"content": message}
    if isinstance(text := known.get("content"), str) and text.strip():
        return text
    texts = [text for text in content_parts(known.get("content")) if text.strip()]
    return "\n".join(texts or call_lines(known.get("tool_calls")))


def last_text(messages: Prompt, role: str, tail: int) -> str:
    """Text of the last message that has this role.

    Args:
        messages: The messages, or the text of a completion model.
        role: The role.
        tail: Number of characters to keep of a completion model's prompt. The question is at its end.
    """
    if isinstance(messages, str):
        return f"…{messages[-tail:]}" if role == "user" and len(messages) > tail else messages
    for message in reversed(cast("list[object]", messages)):
        if role_of(message) in (role, None):
            return message_text(message)
    return ""


def role_of(message: object) -> object:
    """Return the role of a message; None if it has no role."""
    return cast(JsonDict, message).get("role") if isinstance(message, dict) else None


def _message(message: object, role: str) -> Iterator[str]:
    parts = message_parts(message, role)
    yield parts.title
    for thought in parts.thoughts:
        yield f"{INDENT}reasoning"
        yield from _block(thought, INDENT * 2)
    for text in (*parts.texts, *parts.calls):
        yield from _block(text)
    if not any(text.strip() for text in parts.texts) and not parts.calls:
        yield f"{INDENT}(empty)"
    yield from _table(parts.others)


def content_parts(content: object) -> Iterator[str]:
    """Text of each part of a message's content; a placeholder or JSON for parts that are not text."""
    if content is None or content == "":
        return
    if isinstance(content, str):
        yield content
        return
    for part in cast("list[object]", content) if isinstance(content, list) else [content]:
        text = part if isinstance(part, str) else to_text(part)
        yield _part(cast(JsonDict, part)) if isinstance(part, dict) else text


def _part(part: JsonDict) -> str:
    if isinstance(text := part.get("text"), str):
        return text
    kind = part.get("type")
    held = part.get(kind) if isinstance(kind, str) else None
    inner = cast(JsonDict, held) if isinstance(held, dict) else {"url": held}
    if kind == "image_url":
        url = inner.get("url")
        if not isinstance(url, str) or not url.startswith("data:"):
            return f"[image: {url}]"
        media, _, data = url.removeprefix("data:").partition(",")
        return f"[image, {media.partition(';')[0] or 'unknown type'}: {numerals.count(len(data))} characters of base64]"
    if kind == "input_audio" and isinstance(data := inner.get("data"), str):
        return f"[audio, {inner.get('format', 'unknown format')}: {numerals.count(len(data))} characters of base64]"
    return to_text(part)


def call_lines(calls: object) -> Iterator[str]:
    """Format tool calls as lines, with the arguments as the model wrote them."""
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
        mark = ""
        try:
            json.loads(text or "{}")
        except (ValueError, RecursionError):
            mark = "  (its arguments are not JSON)"
        name = f"  [{known['id']}]" if known.get("id") else ""
        yield f"→ {inner['name']}({text}){name}{mark}"


def _result(example: Example, outcome: Outcome) -> Iterator[str]:
    """Lines of a rollout's result: figures, errors, judgements, state."""
    yield ""
    yield "result"
    rows = [(clean(name, 60), clean(value, 1000)) for name, value in figures(outcome)]
    width = max(len(name) for name, _ in rows)
    yield from (f"{INDENT}{name:<{width}}  {value}" for name, value in rows)
    if example.answer not in (None, ""):
        yield from _labelled("expected", example.answer)
    if error := shown_error(outcome):
        yield from _labelled("error", error)
    for title, text in judgements(outcome):
        yield ""
        yield f"judge · {title}"
        yield from _block(text)
    held = {**outcome.state}
    if isinstance(held.get(JUDGEMENTS), list):
        del held[JUDGEMENTS]
    if isinstance(outcome.base, Generated) and outcome.base.lost:
        held["lost"] = list(outcome.base.lost)
    if held:
        yield ""
        yield "state"
        yield from _table(held)


def _notes(notes: Sequence[Note]) -> Iterator[str]:
    """Lines of the notes of people about a rollout."""
    for note in notes:
        yield ""
        score = "" if note.score is None else f"score {numerals.score(note.score)}"
        names = (note.author, note.time[:10], *note.tags, score)
        yield " · ".join(("note", *(clean(name, 200) for name in names if name)))
        if note.remark:
            yield from _block(note.remark)


def shown_error(outcome: Outcome) -> str:
    """Error text to show for a rollout; "" if it has no error or is not scored yet."""
    base = outcome.base
    if isinstance(base, Failed):
        return base.error or base.reason
    return (outcome.error or "") if outcome.score is not None else ""


def judgements(outcome: Outcome) -> Iterator[tuple[str, str]]:
    """Title (model and label) and text of each judgement that scoring recorded."""
    held = outcome.state.get(JUDGEMENTS)
    for entry in cast("list[object]", held) if isinstance(held, list) else []:
        known: Mapping[str, object] = cast(JsonDict, entry) if isinstance(entry, dict) else {"text": entry}
        names, text = [known.get("model") or "no model", known.get("label")], known.get("text")
        yield " · ".join(clean(name, 200) for name in names if name), text if isinstance(text, str) else to_text(text)


def figures(outcome: Outcome) -> Iterator[tuple[str, str]]:
    """Facts about a rollout as (name, text): reward, metrics, how it ended, token usage, times."""
    base, score = outcome.base, outcome.score
    yield "reward", numerals.score(outcome.reward) if outcome.is_scored else verdict(outcome)
    for name, value in (score.metrics if score is not None else {}).items():
        yield name, numerals.score(value)
    if isinstance(base, Failed):
        yield "failed in", f"{base.stage}" + (", and a retry may succeed" if base.retryable else "")
    elif base.stop_condition or base.is_truncated:
        yield "ended by", f"{base.stop_condition or ''}{', cut short by a limit' if base.is_truncated else ''}"
    usage, timing = base.usage, base.timing
    requests = f"{usage.requests} request{'' if usage.requests == 1 else 's'}"
    cost = "" if usage.cost is None else f", {numerals.dollars(usage.cost)}"
    yield "used", f"{token_text(usage)} in {requests}{cost}"
    seconds = [f"{numerals.duration(timing.generation)}, {numerals.duration(timing.model)} of it in the model"]
    if timing.waiting:
        seconds.append(f"{numerals.duration(timing.waiting)} waiting for a slot")
    if score is not None:
        seconds.append(f"scored in {numerals.duration(score.seconds)}")
    if timing.is_known:
        yield "took", ", ".join(seconds)
    if base.attempts > 1:
        yield "attempts", str(base.attempts)
    if base.node is not None:
        yield "node", clean(base.node, 100)


def _labelled(label: str, text: object) -> Iterator[str]:
    yield f"{INDENT}{label}"
    yield from _block(text if isinstance(text, str) else to_text(text), INDENT * 2)


def _table(values: Mapping[str, object]) -> Iterator[str]:
    """Values by name as lines, one per name; a value that is not text as JSON."""
    for name, value in values.items():
        text = value if isinstance(value, str) else to_text(value)
        if "\n" in text:
            yield from _labelled(clean(name, 100), text)
        else:
            yield f"{INDENT}{clean(name, 100)}: {clean_block(text)}"


def _block(text: str, indent: str = INDENT) -> Iterator[str]:
    # Not splitlines(), which also splits at characters that are not line breaks in a terminal.
    yield from (f"{indent}{line}" if line else "" for line in clean_block(text).split("\n"))
