"""One rollout as JSON: messages, scores, judgements, state, and the other rollouts of its example."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import cast

from harness.core.errors import StoreError
from harness.core.records import JUDGEMENTS, Example, Generated
from harness.core.types import JsonDict, Message
from harness.plugins.view.index_columns import UNUSUAL
from harness.plugins.view.run_index import RunIndex
from harness.plugins.view.run_list import RunNotFound, run_json
from harness.plugins.view.tables import RowWriter
from harness.plugins.view.turn_figures import turn_figures
from harness.report.rollout_columns import RunRollout, passed
from harness.report.text import clean
from harness.report.transcript import message_parts, shown_error
from harness.stats.summary import tokens_known
from harness.store.codec import to_text
from harness.store.outcomes import Outcome
from harness.store.rows import as_messages, completion_messages
from harness.store.values import number

LONGEST_TEXT = 200_000
"""Maximum number of characters of one text, unless the whole rollout is requested."""

LARGEST_ANSWER = 20_000_000
"""Maximum size of an answer in characters."""

_SHORTER = (LONGEST_TEXT, 50_000, 10_000, 1_000, 200)
"""Maximum lengths of texts to try, one after the other, until the answer is small enough."""

_DEEPEST = 60
"""Maximum number of nested tables and lists in a value of the answer."""

_KEPT = 2_000
"""Number of messages to keep, half of them from the end, if the answer is too large even with short texts."""


def rollout_page(index: RunIndex, place: int, rollout: int, *, whole: bool = False) -> str:
    """A rollout as JSON text; the keys are documented in docs/reference/view.md.

    Args:
        index: The index of the run.
        place: Position of the example in tables.
        rollout: Index of the rollout among those of the example.
        whole: Whether to keep long texts uncut, as far as the size of the answer allows.

    Raises:
        RunNotFound: there is no such rollout.
        StoreError: its lines cannot be read, or have a field of the wrong type.
    """
    chosen = index.find(place, rollout)
    if chosen is None:
        more = "" if index.status()["done"] else " yet"
        raise RunNotFound(f"The run {index.entry.id} has no rollout {rollout} of example {place}{more}.")
    with index.reader() as reader:
        outcome = index.outcome(reader, chosen)
    rows = RowWriter(index)
    try:
        page = rollout_json(index, place, outcome, [rows.strip(number) for number in index.siblings(place)])
    except UNUSUAL as error:
        problem = f"Rollout {rollout} of example {place} has a field of the wrong type in the journal"
        raise StoreError(f"{problem} ({type(error).__name__}: {error}).") from error
    return fitted(page, whole=whole)


def rollout_json(index: RunIndex, place: int, outcome: Outcome, siblings: list[JsonDict]) -> JsonDict:
    """A rollout as JSON, with whole texts."""
    entry, manifest = index.entry, index.manifest
    example, base, score = outcome.example, outcome.base, outcome.score
    made, timing = base if isinstance(base, Generated) else None, base.timing
    state = {**outcome.state}
    if isinstance(state.get(JUDGEMENTS), list):
        del state[JUDGEMENTS]
    messages, calls = messages_json(example, outcome)
    return {
        "run": run_json(entry),
        "example": {
            "id": example.example_id, "index": place, "task": example.task, "answer": example.answer,
            "info": example.info,
        },
        "r": base.rollout_index,
        "outcome": outcome.column,
        "reason": outcome.reason,
        "error": shown_error(outcome),
        "reward": outcome.reward,
        "passed": passed(RunRollout(entry.id, manifest, outcome)),
        "metrics": [
            {"name": name, "value": number(value), "reason": score.reasons.get(name, ""), "weight": None}
            for name, value in score.metrics.items()
        ] if score is not None else [],
        "stop": made.stop_condition if made else None,
        "truncated": made.is_truncated if made else False,
        "attempts": base.attempts,
        "started": started(timing.started_at),
        "seconds": number(timing.generation) if timing.is_known else None,
        "model_seconds": number(timing.model) if timing.is_known else None,
        "waiting_seconds": number(timing.waiting) if timing.is_known else None,
        "scoring_seconds": number(score.seconds) if score is not None and timing.is_known else None,
        "usage": {**asdict(base.usage), "known": tokens_known(base.usage)},
        "calls": calls,
        "messages": messages,
        "judgements": list(judgements_json(outcome)),
        "state": state,
        "lost": list(made.lost) if made else [],
        "siblings": siblings,
        "raw": None,
    }  # fmt: skip


def started(seconds: object) -> str | None:
    """A Unix time in ISO 8601; None if it is unknown."""
    found = number(seconds)
    try:
        return datetime.fromtimestamp(found, UTC).isoformat(timespec="milliseconds") if found else None
    except (ValueError, OverflowError, OSError):
        return None


def messages_json(example: Example, outcome: Outcome) -> tuple[list[JsonDict], JsonDict | None]:
    """The messages of a rollout, those of the prompt first; and calls of the model that made none of them (see
    `turn_figures`)."""
    found, said = list[JsonDict](), list[tuple[JsonDict, object]]()
    for message in as_messages(example.prompt, "user"):
        found.append({**message_json(message, "user"), "prompt": True, "turn": None})
    for message in completion_messages(outcome.base):
        shown = message_json(message, "assistant")
        shown |= {"prompt": False, "turn": None}
        found.append(shown)
        if shown["role"] == "assistant":
            said.append((shown, message))
    figures, calls = turn_figures(outcome.base, [message for _, message in said])
    for turn, (shown, _) in enumerate(said):
        shown |= figures[turn] | {"turn": turn + 1}
    return found, calls


def message_json(message: object, role: str) -> JsonDict:
    """A message as JSON. Fields of the wrong type become JSON text.

    Args:
        message: The message; a value that is not a message is taken as the content of one.
        role: Role of a value that is not a message.
    """
    known = cast(Message, message) if isinstance(message, dict) else {"role": role, "content": message}
    parts = message_parts(known, role)
    content = known.get("content")
    return {
        "role": _text(known.get("role")) or "",
        "content": content if isinstance(content, list) else _text(content) or "",
        "reasoning": "\n\n".join(parts.thoughts) or None,
        "name": _text(known.get("name")),
        "tool_call_id": _text(known.get("tool_call_id")),
        "tool_calls": list(calls_json(known.get("tool_calls"))),
        "tokens": None,
        "seconds": None,
        "cost": None,
        "other": parts.others,
    }


def calls_json(calls: object) -> Iterable[JsonDict]:
    """The tool calls of a message. For a call of unknown form, the arguments are its JSON."""
    if not calls:
        return
    for call in cast("list[object]", calls) if isinstance(calls, list) else [calls]:
        known = cast(JsonDict, call) if isinstance(call, dict) else {}
        function = known.get("function")
        if not isinstance(function, dict):
            yield {"id": None, "name": None, "arguments": to_text(cast(object, call))}
            continue
        inner = cast(JsonDict, function)
        names = {"id": _text(known.get("id")), "name": _text(inner.get("name"))}
        yield {**names, "arguments": _text(inner.get("arguments")) or ""}


def judgements_json(outcome: Outcome) -> Iterable[JsonDict]:
    """The judgements that scoring recorded: the judge's model, reply, verdict and prompt."""
    held = outcome.state.get(JUDGEMENTS)
    for entry in cast("list[object]", held) if isinstance(held, list) else []:
        known: Mapping[str, object] = cast(JsonDict, entry) if isinstance(entry, dict) else {"text": entry}
        label, text = known.get("label"), known.get("text")
        yield {
            "title": clean(known.get("model") or "no model", 200),
            "text": _text(text) or "",
            "label": _text(label),
            "of": known.get("prompt"),
        }


def _text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else to_text(value)


def fitted(page: JsonDict, *, whole: bool) -> str:
    """Convert a rollout to JSON text of at most `LARGEST_ANSWER` characters: long texts are cut, and then messages in
    the middle are left out. Shortened parts have `cut: true`.

    Args:
        page: The rollout.
        whole: Whether to keep texts uncut if the answer is small enough.
    """
    for longest in (None, *_SHORTER) if whole else _SHORTER:
        text = to_text(_shortened(page, longest))
        if len(text) <= LARGEST_ANSWER:
            return text
    messages = cast("Sequence[JsonDict]", page["messages"])
    half = _KEPT // 2
    omitted = max(0, len(messages) - _KEPT)
    kept = [*messages[:half], *messages[half + omitted :]]
    text = to_text({**_shortened({**page, "messages": kept}, _SHORTER[-1]), "cut": True, "omitted": omitted})
    if len(text) <= LARGEST_ANSWER:
        return text
    bare: JsonDict = {
        "messages": [],
        "calls": None,
        "judgements": [],
        "state": {},
        "metrics": [],
        "siblings": [],
        "lost": [],
    }
    example: JsonDict = {**cast(JsonDict, page["example"]), "info": {}}
    page = {**page, **bare, "example": example, "cut": True, "omitted": len(messages)}
    return to_text(_shortened(page, _SHORTER[-1]))


def _shortened(page: JsonDict, longest: int | None) -> JsonDict:
    """Cut long texts of a rollout, and mark the message, judgement or page that contains them."""
    shown: JsonDict = {}
    is_cut = False
    for name, value in page.items():
        if name in ("messages", "judgements"):
            parts = [_marked(each, longest) for each in cast("list[JsonDict]", value)]
            is_cut |= any("cut" in each for each in parts)
            shown[name] = parts
        else:
            shown[name], changed = cut_texts(value, longest)
            is_cut |= changed
    return {**shown, "cut": True} if is_cut else shown


def _marked(value: JsonDict, longest: int | None) -> JsonDict:
    found, is_cut = cut_texts(value, longest)
    known = cast(JsonDict, found)
    return {**known, "cut": True} if is_cut else known


def cut_texts(value: object, longest: int | None, depth: int = 0) -> tuple[object, bool]:
    """Cut all texts in a JSON value; values nested too deeply for JSON readers become text.

    Args:
        value: The value.
        longest: Maximum number of characters of a text; None for no limit.
        depth: Number of tables and lists that contain the value.

    Returns:
        The value, and whether a text was longer.
    """
    if depth > _DEEPEST:
        value = to_text(value)
    if isinstance(value, str):
        return (value[:longest], True) if longest is not None and len(value) > longest else (value, False)
    if isinstance(value, dict):
        pairs = {key: cut_texts(item, longest, depth + 1) for key, item in cast(JsonDict, value).items()}
        return {key: item for key, (item, _) in pairs.items()}, any(is_cut for _, is_cut in pairs.values())
    if isinstance(value, list):
        items = [cut_texts(item, longest, depth + 1) for item in cast("list[object]", value)]
        return [item for item, _ in items], any(is_cut for _, is_cut in items)
    return value, False
