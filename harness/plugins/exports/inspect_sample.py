"""Conversion of a rollout to a sample of an Inspect log, and the sample's summary: scores, errors, limits, usage and
times. A rollout without a score gets NaN, never 0, because Inspect leaves NaN out of every mean."""

from __future__ import annotations

import hashlib
import re
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, cast

from harness.core.records import JUDGEMENTS, Example, Failed, Generated
from harness.core.types import JsonDict, Messages, Usage
from harness.plugins.exports.foreign import (
    NOT_A_NUMBER,
    Source,
    as_list,
    as_text,
    json_bytes,
    judgements_of,
    messages_of,
    text_of,
    token_counts,
)
from harness.plugins.exports.inspect_messages import Conversation, transcript
from harness.store.export_plain import last_reply, unbroken
from harness.store.outcomes import Outcome
from harness.store.rows import content_text
from harness.store.values import table

REWARD = "reward"
"""Name of the scorer in an Inspect log that holds the reward. No metric can have this name, since it is a fixed column
of results."""

GRADER = "grader"
"""The role under which Inspect counts the usage of judges."""

_SAFE_INTEGER = 2**53 - 1
"""Largest integer that is used as a sample id. Inspect's viewer is written in JavaScript, which rounds larger
integers."""

_PATH_ESCAPES = re.compile(r"^/|(?<![^/])\.{1,2}(?=/|$)")
"""Pattern of the parts of a sample id, such as `../`, that could lead out of the folder in which a log is unpacked: ids
are names in a zip file, and not every unzip program checks them."""

_ID_LIMIT = 200
"""Maximum number of characters of a sample's id, which is part of a file name in the log."""

_TEXT_LIMIT, _FIELD_LIMIT = 5120, 1024
"""Maximum number of characters of a summary's input, and of its other fields; the same limits as Inspect's own."""

_LIMITS = {
    "max_turns_reached": "turn",
    "max_turns": "turn",
    "prompt_too_long": "context",
    "timeout_reached": "time",
    "timeout": "time",
}
"""Type of the limit in an Inspect log, by the stop condition that ended the rollout."""


class SampleIds:
    """Assigns ids to the samples of an Inspect log. They are unique as strings, because readers and file names use the
    string form."""

    def __init__(self) -> None:
        self._taken: dict[str, int | str] = {}
        self._newest: tuple[str, int | str] | None = None

    def of(self, example: Example) -> int | str:
        """Return the sample id of an example. The rollouts of one example must be passed one after the other."""
        if self._newest is None or self._newest[0] != example.key:
            own = _sample_id(example.example_id)
            chosen, number = own, 1
            while str(chosen) in self._taken:
                number += 1
                chosen = f"{own}#{number}"
            self._taken[str(chosen)] = chosen
            self._newest = (example.key, chosen)
        return self._newest[1]

    @property
    def all(self) -> list[int | str]:
        """Return all sample ids that were assigned, in order."""
        return list(self._taken.values())


def sample_of(outcome: Outcome, sample_id: int | str, source: Source) -> JsonDict:
    """Convert a rollout to a sample of an Inspect log."""
    example, base, model = outcome.example, outcome.base, source.manifest.model
    mark = hashlib.sha256(f"{source.manifest.id} {base.key}".encode()).hexdigest()[:22]
    talk = Conversation(mark, model)
    asked = messages_of(example.prompt, "user")
    said = messages_of(base.completion, "assistant")
    before, after = talk.add(asked, "input"), talk.add(said, "generate")
    sample: JsonDict = {
        "id": sample_id,
        "epoch": base.rollout_index + 1,
        "input": _input(asked, before),
        "target": text_of(example.answer),
        "messages": [*before, *after],
        "output": _output(outcome, said, last_reply(after), model),
    }
    if (scores := _scores(outcome, said)) is not None:
        sample["scores"] = scores
    sample["metadata"] = _metadata(outcome, sample_id)
    if isinstance(base, Generated):
        sample["store"] = {name: value for name, value in base.state.items() if name != JUDGEMENTS}
    times = _times(outcome)
    started = times.get("started_at", source.manifest.created)
    sample |= transcript(sample["messages"], len(before), model=model, started=started, output=sample["output"])
    sample |= used(model, base.usage, judge_usage(outcome))
    sample |= times
    sample["uuid"] = mark
    if isinstance(base, Failed):
        sample["error"] = {"message": f"{base.reason}: {base.error}", "traceback": "", "traceback_ansi": ""}
    elif (limit := _limit(base, said, source)) is not None:
        sample["limit"] = limit
    sample["turn_count"] = sum(message["role"] == "assistant" for message in after)
    return sample


def summary_of(sample: JsonDict) -> JsonDict:
    """Return the summary of a sample, which Inspect lists without opening the sample."""
    kept = {
        "id", "epoch", "model_usage", "role_usage", "started_at", "completed_at", "total_time", "working_time", "uuid",
    }  # fmt: skip
    summary: JsonDict = {name: value for name, value in sample.items() if name in kept}
    given = sample["input"]
    summary["input"] = _cut(given, _TEXT_LIMIT) if isinstance(given, str) else [_short(each) for each in given]
    summary["target"] = _cut(sample["target"], _TEXT_LIMIT)
    summary["metadata"] = _thin(sample["metadata"])
    if "scores" in sample:
        summary["scores"] = {
            name: {**_thin(score), **({"metadata": _thin(score["metadata"])} if "metadata" in score else {})}
            for name, score in sample["scores"].items()
        }
    if "error" in sample:
        summary["error"] = sample["error"]["message"]
    if "limit" in sample:
        summary |= {"limit": sample["limit"]["type"], "limit_reason": sample["limit"]["reason"]}
    summary |= {"completed": True, "message_count": len(sample["messages"]), "turn_count": sample["turn_count"]}
    return summary


def model_usage(usage: Usage) -> JsonDict | None:
    """Convert token counts to Inspect's format, where input tokens do not include cached ones. None if the endpoint
    reported none."""
    counts = token_counts(usage)
    if counts is not None:
        counts["input_tokens"] -= counts.get("input_tokens_cache_read", 0)
        if usage.cost is not None:
            counts["total_cost"] = usage.cost
    return counts


def used(model: str, own: Usage, judges: dict[str, Usage]) -> JsonDict:
    """Return the fields `model_usage` and `role_usage` of a sample or of a whole log: the tokens of the model and of
    judges."""
    by_model: dict[str, Usage] = {model: own}
    for name, usage in judges.items():
        by_model[name] = by_model.get(name, Usage()) + usage
    stated = {name: counts for name, usage in by_model.items() if (counts := model_usage(usage)) is not None}
    graded = model_usage(sum(judges.values(), start=Usage()))
    return {"model_usage": stated} | ({} if graded is None else {"role_usage": {GRADER: graded}})


def judge_usage(outcome: Outcome) -> dict[str, Usage]:
    """Return the token usage of the judges of a rollout, by model."""
    usages: dict[str, Usage] = {}
    for entry in judgements_of(outcome):
        name = text_of(entry.get("model") or "judge")
        usage = table(entry.get("usage"))
        known = {each.name: usage[each.name] for each in fields(Usage) if isinstance(usage.get(each.name), int | float)}
        usages[name] = usages.get(name, Usage()) + Usage(**known)
    return usages


def moment(seconds: float) -> str | None:
    """Convert a Unix time to ISO 8601; None if the time is unknown or out of range."""
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat() if seconds > 0 else None
    except (ValueError, OverflowError, OSError):
        return None


def _sample_id(own: object) -> int | str:
    if isinstance(own, int) and not isinstance(own, bool) and abs(own) <= _SAFE_INTEGER:
        return own
    text = unbroken(text_of(own))
    # Zip readers end a name at the first NUL; other control characters are not valid there either.
    text = "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
    text = _PATH_ESCAPES.sub("_", text.replace("\\", "_"))
    if len(text) > _ID_LIMIT:
        text = f"{text[: _ID_LIMIT - 9]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    return text or "-"


def _input(asked: Messages, turned: list[JsonDict]) -> str | list[JsonDict]:
    """Return the input of a sample: a single user message as text, everything else as messages."""
    if len(asked) == 1 and turned[0]["role"] == "user" and isinstance(turned[0]["content"], str):
        return turned[0]["content"]
    return turned or ""


def _output(outcome: Outcome, said: Messages, reply: JsonDict | None, model: str) -> JsonDict:
    output: JsonDict = {"model": model, "choices": [], "completion": ""}
    own = last_reply(said)
    if reply is not None and own is not None:
        output["choices"] = [{"message": reply, "stop_reason": _stop_reason(outcome, reply)}]
        output["completion"] = content_text(own.get("content")) or ""
    if (counts := model_usage(outcome.base.usage)) is not None:
        output["usage"] = counts
    if outcome.base.timing.model > 0:
        output["time"] = outcome.base.timing.model
    return output


def _stop_reason(outcome: Outcome, reply: JsonDict) -> str:
    base = outcome.base
    if isinstance(base, Failed):
        return "unknown"
    if base.is_refusal:
        return "content_filter"
    if base.stop_condition == "prompt_too_long":
        return "model_length"
    if base.is_truncated:
        return "max_tokens"
    return "tool_calls" if reply.get("tool_calls") else "stop"


def _scores(outcome: Outcome, said: Messages) -> JsonDict | None:
    """Return the reward and all metrics as scores of a sample; None for a failed rollout, which was not scored."""
    if isinstance(outcome.base, Failed):
        return None
    score = outcome.score
    own = last_reply(said)
    reward = _score(outcome.reward, outcome.reason, outcome.error)
    if own is not None:
        reward["answer"] = content_text(own.get("content")) or ""
    explained = [reward["explanation"]] if "explanation" in reward else []
    stated = judgements_of(outcome)
    explained += [text_of(entry["text"]) for entry in stated if entry.get("text")]
    if score is not None:
        explained += [text_of(each) for each in as_list(score.extra.get("errors"))]
    if explained:
        reward["explanation"] = "\n\n".join(explained)
    metadata: JsonDict = {} if score is None else {k: v for k, v in score.extra.items() if k != JUDGEMENTS}
    if stated:
        metadata[JUDGEMENTS] = stated
    if metadata:
        reward["metadata"] = metadata
    scores: JsonDict = {REWARD: reward}
    for name, value in ({} if score is None else score.metrics).items():
        words = None if score is None else score.reasons.get(name)
        scores[name] = _score(value, "scoring_failed" if words is None else words.split(":", 1)[0], words)
    return scores


def _score(value: float | None, reason: str, words: str | None) -> JsonDict:
    score: JsonDict = {"value": NOT_A_NUMBER if value is None else value}
    if value is None:
        score["reason"] = reason
    if words:
        score["explanation"] = words
    return score


def _metadata(outcome: Outcome, sample_id: int | str) -> JsonDict:
    """Return the metadata of a sample: the dataset's `info`, and under `bench` the data for which the log has no
    field."""
    base, example = outcome.base, outcome.example
    own: JsonDict = {"key": base.key, "example_key": example.key, "attempts": base.attempts}
    if example.task:
        own["task"] = example.task
    if isinstance(base, Generated):
        own |= {"stop_condition": base.stop_condition, "is_truncated": base.is_truncated}
        if base.lost:
            own["lost"] = list(base.lost)
    else:
        own |= {"stage": base.stage, "retryable": base.retryable}
    if sample_id != example.example_id:
        own["example_id"] = example.example_id
    if texts := [
        name for name, value in (("prompt", example.prompt), ("completion", base.completion)) if isinstance(value, str)
    ]:
        own["texts"] = texts
    if outcome.score is not None and outcome.score.seconds:
        own["scoring"] = outcome.score.seconds
    if base.usage.requests:
        own["requests"] = base.usage.requests
    if base.usage.unreported:
        own["replies_without_usage"] = base.usage.unreported
    info = table(example.info)
    name = "bench"
    while name in info:
        name += "_"
    return {**info, name: own}


def _times(outcome: Outcome) -> JsonDict:
    timing, scoring = outcome.base.timing, 0.0 if outcome.score is None else outcome.score.seconds
    started = moment(timing.started_at)
    if started is None:
        return {}
    total = timing.generation + scoring
    return {
        "started_at": started,
        "completed_at": moment(timing.started_at + total) or started,
        "total_time": total,
        "working_time": max(0.0, total - timing.waiting),
    }


def _limit(base: Generated, said: Messages, source: Source) -> JsonDict | None:
    kind = _LIMITS.get(base.stop_condition or "")
    if kind is None:
        return None
    if kind == "turn":
        bound: float = sum(message.get("role") == "assistant" for message in said)
        if bound <= 1:  # single-turn environments always end after one turn
            return None
    elif kind == "time":
        bound = float(source.manifest.settings.get("env.timeout") or base.timing.generation)
    else:
        bound = float(base.usage.input_tokens)
    return {"type": kind, "limit": bound, "reason": base.stop_condition}


def _short(message: JsonDict) -> JsonDict:
    content = cast(object, message["content"])
    if isinstance(content, str):
        return {**message, "content": _cut(content, _TEXT_LIMIT)}
    parts = [table(part) for part in as_list(content)]
    short: list[JsonDict] = [
        {**part, "text": _cut(part["text"], _TEXT_LIMIT)}
        if part["type"] == "text"
        else {"type": "text", "text": f"({str(part['type']).capitalize()})"}
        for part in parts
    ]
    return {**message, "content": short}


def _thin(table: JsonDict) -> JsonDict:
    thin: JsonDict = {}
    for name, value in table.items():
        text = as_text(value)
        if text is not None:
            thin[name] = _cut(text, _FIELD_LIMIT)
        elif isinstance(value, int | float) or len(json_bytes(value)) <= _FIELD_LIMIT:
            thin[name] = value
        else:
            thin[name] = "(too long for a summary)"
    return thin


def _cut(text: Any, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
