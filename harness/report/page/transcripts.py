"""A rollout as data for the page: messages, figures and judgements, with long text cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from harness.core.records import JUDGEMENTS, Example, Failed, Generated
from harness.core.redact import redactor
from harness.core.types import JsonDict, Message, Prompt
from harness.report import numerals
from harness.report.text import clean, clean_block
from harness.report.transcript import call_lines, content_parts, figures, verdict
from harness.store.codec import to_text
from harness.store.outcomes import Outcome

TEXT = 16_000
"""Maximum characters of one text; of a longer one, the beginning and the end are shown."""

ROLLOUTS = 8
"""Maximum rollouts of an example."""

MESSAGES = 60
"""Maximum messages of a rollout: the first and the last ones."""

_PLACED = frozenset({"role", "content", "name", "tool_call_id", "tool_calls", "reasoning_content", "reasoning"})


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
    base, score = outcome.base, outcome.score
    waits = isinstance(base, Generated) and score is None
    error = base.error or base.reason if isinstance(base, Failed) else outcome.error
    return {
        "index": base.rollout_index,
        "verdict": shown_text(verdict(outcome)),
        "scored": outcome.is_scored,
        "reward": outcome.reward,
        "figures": [[shown_text(clean(name, 60)), shown_text(clean(value, 400))] for name, value in _more(outcome)],
        "messages": _messages(base.completion, "assistant"),
        "error": "" if waits or not error else redactor.text(shown_text(error)),
        "judges": [_judgement(each) for each in _judgements(outcome)],
    }


def _more(outcome: Outcome) -> Iterator[tuple[str, str]]:
    """Figures other than the reward."""
    return ((name, value) for name, value in figures(outcome) if name != "reward")


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
    message = cast(Message, said) if isinstance(said, dict) else {"role": role, "content": said}
    names = [message.get("role") or "no role", message.get("name"), message.get("tool_call_id")]
    thoughts = [message.get(name) for name in ("reasoning_content", "reasoning")]
    others = {name: value for name, value in message.items() if name not in _PLACED and value not in (None, "", [], {})}
    data: JsonDict = {
        "role": shown_text(" · ".join(clean(name, 100) for name in names if name)),
        "texts": [shown_text(text) for text in content_parts(message.get("content")) if text.strip()],
        "calls": [shown_text(call) for call in call_lines(message.get("tool_calls"))],
        "thoughts": [shown_text(thought) for thought in _distinct(thoughts)],
        "others": [[shown_text(clean(name, 60)), shown_text(value)] for name, value in others.items()],
    }
    return {name: value for name, value in data.items() if value or name in ("role", "texts")}


def _distinct(thoughts: Sequence[object]) -> list[object]:
    """Remove duplicates: some providers send the same reasoning under two names."""
    return [each for number, each in enumerate(thoughts) if each and each not in thoughts[:number]]


def _judgements(outcome: Outcome) -> list[object]:
    base, score = outcome.base, outcome.score
    held = {**(base.state if isinstance(base, Generated) else {}), **(score.extra if score else {})}.get(JUDGEMENTS)
    return cast("list[object]", held) if isinstance(held, list) else []


def _judgement(entry: object) -> JsonDict:
    known = cast(JsonDict, entry) if isinstance(entry, dict) else {"text": entry}
    names = [known.get("model") or "no model", known.get("label")]
    return {
        "name": shown_text(" · ".join(clean(name, 200) for name in names if name)),
        "text": shown_text(known.get("text") or ""),
    }


def _cut(text: str) -> str:
    if len(text) <= TEXT:
        return text
    half = TEXT // 2
    return f"{text[:half]}\n\n[… {numerals.count(len(text) - 2 * half)} characters left out …]\n\n{text[-half:]}"
