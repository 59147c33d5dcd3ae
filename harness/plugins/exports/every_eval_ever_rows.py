"""Conversion of a rollout to a line of Every Eval Ever's samples file: single-turn, multi-turn or agentic. The sample
hash is computed as in that project, where it identifies the same sample in the results of different models."""

from __future__ import annotations

import hashlib
import json
from typing import cast

from harness.core.records import Generated
from harness.core.types import JsonDict, Message, Messages
from harness.plugins.exports.every_eval_ever_aggregate import REWARD, SCHEMA_VERSION, Identity
from harness.plugins.exports.foreign import (
    as_list,
    as_text,
    calls_of,
    judgements_of,
    messages_of,
    token_counts,
    worded,
)
from harness.stats.summary import THRESHOLD_SLACK
from harness.store.codec import to_text
from harness.store.export_plain import last_reply, unbroken
from harness.store.outcomes import Outcome
from harness.store.values import table


def row_of(outcome: Outcome, identity: Identity, pass_threshold: float) -> JsonDict:
    """Convert a rollout to a line of the samples file. The line refers to the aggregate result of the reward. A rollout
    without a score gets an `error` and the score 0."""
    example, base, reward = outcome.example, outcome.base, outcome.reward
    asked, said = messages_of(example.prompt, "user"), messages_of(base.completion, "assistant")
    raw, reference = _raw(asked), [unbroken(worded(example.answer))] if example.answer != "" else []
    passed = reward is not None and reward >= pass_threshold - THRESHOLD_SLACK
    replies = sum(message.get("role") == "assistant" for message in said)
    calls = sum(len(calls_of(message)) for message in said)
    is_agentic = bool(calls) or any(message.get("role") in ("tool", "function") for message in said)
    row: JsonDict = {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": identity.evaluation_id,
        "model_id": identity.model_id,
        "evaluation_name": identity.task,
        "evaluation_result_id": identity.result_id(REWARD),
        "sample_id": worded(example.example_id),
        "sample_hash": sample_hash(raw, reference),
        "interaction_type": "agentic" if is_agentic else "multi_turn" if replies > 1 else "single_turn",
        "input": {"raw": raw, "reference": reference},
        "answer_attribution": [],
        "evaluation": {"score": 0.0 if reward is None else reward, "is_correct": passed},
        "metadata": _metadata(outcome),
    }
    if len(asked) > 1 or any(not isinstance(message.get("content"), str) for message in asked):
        row["input"]["formatted"] = to_text(asked)
    if row["interaction_type"] == "single_turn":
        row["output"] = _output(said)
        row["evaluation"] |= {"num_turns": 1, "tool_calls_count": 0}
    else:
        row["messages"] = [_message(number, message) for number, message in enumerate([*asked, *said])]
        row["evaluation"] |= {"num_turns": max(1, replies), "tool_calls_count": calls}
    if (counts := token_counts(base.usage)) is not None:
        row["token_usage"] = counts
    row["performance"] = _performance(outcome)
    if reward is None:
        row["error"] = outcome.error or outcome.reason
    return row


def sample_hash(raw: str, reference: list[str]) -> str:
    """Return the hash of a sample, computed as in the adapters of Every Eval Ever: sha256 of question and reference
    answer as canonical JSON."""
    text = json.dumps({"raw": raw, "reference": reference}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _raw(asked: Messages) -> str:
    """Return the text of the user messages (without few-shot answers), or of all messages if none is from a user."""
    texts = [_marked(message.get("content")) for message in asked if message.get("role") == "user"]
    return unbroken("\n".join(texts or [_marked(message.get("content")) for message in asked]))


def _marked(content: object) -> str:
    """Return the text of a message's content. Parts such as images are replaced by their hash, so that samples with
    different images differ."""
    if not isinstance(content, list):
        return "" if content is None else worded(content)
    lines: list[str] = []
    for part in as_list(cast(object, content)):
        text = part if isinstance(part, str) else table(part).get("text")
        if isinstance(text, str):
            lines.append(text)
        else:
            kind = worded(table(part).get("type", "part"))
            lines.append(f"[{kind} sha256:{hashlib.sha256(to_text(part).encode('utf-8', 'replace')).hexdigest()}]")
    return "\n".join(lines)


def _output(said: Messages) -> JsonDict:
    reply = last_reply(said)
    if reply is None:
        return {"raw": []}
    output: JsonDict = {"raw": [_said(reply) or ""]}
    if reasoning := as_text(reply.get("reasoning_content")):
        output["reasoning_trace"] = [reasoning]
    return output


def _message(number: int, message: Message) -> JsonDict:
    turned: JsonDict = {"turn_idx": number, "role": worded(message.get("role") or "user"), "content": _said(message)}
    if reasoning := as_text(message.get("reasoning_content")):
        turned["reasoning_trace"] = reasoning
    if calls := calls_of(message):
        turned["tool_calls"] = [
            {"id": call.id, "name": call.name, "arguments": _texts(call.arguments)} for call in calls
        ]
    if message.get("tool_call_id") is not None:
        turned["tool_call_id"] = [worded(message["tool_call_id"])]
    return turned


def _said(message: Message) -> str | None:
    content = cast(object, message.get("content"))
    return as_text(message.get("refusal")) if content is None else _marked(content)


def _performance(outcome: Outcome) -> JsonDict:
    timing = outcome.base.timing
    details = {"waiting_ms": repr(timing.waiting * 1000)}
    if outcome.score is not None:
        details["scoring_ms"] = repr(outcome.score.seconds * 1000)
    return {
        "latency_ms": timing.generation * 1000,
        "generation_time_ms": timing.model * 1000,
        "additional_details": details,
    }


def _metadata(outcome: Outcome) -> dict[str, str]:
    """Return the data of a rollout for which the format has no field, as a mapping of names to strings."""
    example, base, score = outcome.example, outcome.base, outcome.score
    values: JsonDict = {
        "rollout_index": base.rollout_index,
        "outcome": outcome.column,
        "reason": outcome.reason,
        "task": example.task,
        "attempts": base.attempts,
        "example_key": example.key,
        "rollout_key": base.key,
    }
    if isinstance(base, Generated):
        values |= {"stop_condition": base.stop_condition, "is_truncated": base.is_truncated}
    else:
        values["stage"] = base.stage
    if base.usage.cost is not None:
        values["cost_usd"] = base.usage.cost
    if example.info:
        values["info"] = example.info
    if score is not None:
        values |= {f"metric.{name}": value for name, value in score.metrics.items()}
        if outcome.is_scored and outcome.error:
            values["scoring_error"] = outcome.error
    if told := judgements_of(outcome):
        values["judgements"] = told
    return _texts({name: value for name, value in values.items() if value not in (None, "")})


def _texts(values: JsonDict) -> dict[str, str]:
    return {unbroken(name): worded(value) for name, value in values.items()}
