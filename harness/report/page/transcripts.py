"""A rollout as data for the page: messages, figures and judgements, with long text cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from harness.core.records import Example
from harness.core.redact import redactor
from harness.core.types import JsonDict, Prompt
from harness.report import numerals
from harness.report.text import clean, clean_block
from harness.report.transcript import figures, judgements, message_parts, shown_error, verdict
from harness.store.codec import to_text
from harness.store.outcomes import Outcome

TEXT = 16_000
"""Maximum characters of one text; of a longer one, the beginning and the end are shown."""

ROLLOUTS = 8
"""Maximum rollouts of an example."""

MESSAGES = 60
"""Maximum messages of a rollout: the first and the last ones."""


def shown_text(value: object) -> str:
    """Clean foreign text for the page; other values become JSON."""
    whole = value if isinstance(value, str) else to_text(value)
    # Redact before cutting, which could leave half a secret, and after cleaning, which could join two halves.
    return redactor.text(clean_block(_cut(redactor.text(whole, patterns=False))), patterns=False)


def transcript_data(example: Example, rollouts: Sequence[Outcome]) -> JsonDict:
    """An example with its rollouts, as JSON."""
    shown = rollouts[:ROLLOUTS]
    return {
        "key": example.key,
        "name": shown_text(clean(example.example_id, 200)),
        "task": shown_text(clean(example.task, 200)),
        "prompt": _messages(example.prompt, "user"),
        "expected": shown_text(example.answer) if example.answer not in (None, "") else "",
        "rollouts": [_rollout(outcome) for outcome in shown],
        "more": len(rollouts) - len(shown),
    }


def _rollout(outcome: Outcome) -> JsonDict:
    error = shown_error(outcome)
    more = [(name, value) for name, value in figures(outcome) if name != "reward"]
    return {
        "index": outcome.base.rollout_index,
        "verdict": shown_text(verdict(outcome)),
        "scored": outcome.is_scored,
        "reward": outcome.reward,
        "figures": [[shown_text(clean(name, 60)), shown_text(clean(value, 400))] for name, value in more],
        "messages": _messages(outcome.base.completion, "assistant"),
        "error": redactor.text(shown_text(error)) if error else "",
        "judges": [{"name": shown_text(title), "text": shown_text(text)} for title, text in judgements(outcome)],
    }


def _messages(said: Prompt | object, role: str) -> list[JsonDict]:
    if isinstance(said, str):
        return [{"role": role, "texts": [shown_text(said)]}] if said else []
    every = cast("list[object]", said) if isinstance(said, list) else [said]
    left = len(every) - MESSAGES
    if left <= 0:
        return [_message(each, role) for each in every]
    head, tail = every[: MESSAGES // 2], every[-(MESSAGES // 2) :]
    note: JsonDict = {"role": "", "note": f"{numerals.count(len(every) - len(head) - len(tail))} messages left out"}
    return [*(_message(m, role) for m in head), note, *(_message(m, role) for m in tail)]


def _message(said: object, role: str) -> JsonDict:
    parts = message_parts(said, role)
    data: JsonDict = {
        "role": shown_text(parts.title),
        "texts": [shown_text(text) for text in parts.texts if text.strip()],
        "calls": [shown_text(call) for call in parts.calls],
        "thoughts": [shown_text(thought) for thought in parts.thoughts],
        "others": [[shown_text(clean(name, 60)), shown_text(value)] for name, value in parts.others.items()],
    }
    return {name: value for name, value in data.items() if value or name in ("role", "texts")}


def _cut(text: str) -> str:
    if len(text) <= TEXT:
        return text
    half = TEXT // 2
    return f"{text[:half]}\n\n[… {numerals.count(len(text) - 2 * half)} characters left out …]\n\n{text[-half:]}"
