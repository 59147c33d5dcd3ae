"""Records of the format Every Eval Ever: the aggregate (evaluation, settings of the model, results with uncertainty),
and a line of the samples file for each rollout: single-turn, multi-turn or agentic. The sample hash is computed as in
that project, where it identifies the same sample in the results of different models."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from harness.core.records import Generated
from harness.core.types import JsonDict, Message, Messages
from harness.plugins.exports.foreign import (
    Source,
    as_list,
    as_text,
    calls_of,
    judgements_of,
    messages_of,
    text_of,
    token_counts,
)
from harness.stats.summary import METHODS, THRESHOLD_SLACK, Spread
from harness.store.codec import to_text
from harness.store.export_plain import last_reply, unbroken
from harness.store.outcomes import Outcome
from harness.store.values import table

SCHEMA_VERSION = "0.3.0"

REWARD = "reward"
"""Name of the result that the lines of the samples file refer to."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Identifiers of an evaluation in the format Every Eval Ever."""

    evaluation_id: str
    model_id: str
    """`developer/model`, in characters that are valid in folder names."""
    developer: str
    task: str
    """The environment's id, in characters that are valid in folder names."""
    created: str
    """Start time of the run, as a Unix time in a string."""

    stem: str
    """Path of the two files from the root of the datastore, without file suffixes."""

    def result_id(self, name: str) -> str:
        """Return the id of a result, by which the lines of the samples file refer to it."""
        return f"{self.task}.{name}"


def aggregate(source: Source, identity: Identity) -> JsonDict:
    """Create the aggregate record of a run, without the description of the samples file."""
    manifest = source.manifest
    return {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": identity.evaluation_id,
        "evaluation_timestamp": identity.created,
        "retrieved_timestamp": repr(time.time()),
        "source_metadata": {
            "source_name": "bench",
            "source_type": "evaluation_run",
            "source_organization_name": "unknown",
            "evaluator_relationship": "other",
            "additional_details": _texts({
                "run_id": manifest.id, "kind": manifest.kind, "suite": manifest.suite, "parent": manifest.parent,
                "status": manifest.status,
            }),
        },
        "model_info": _model(source, identity),
        "eval_library": {
            "name": "bench-harness",
            "version": str(manifest.versions.get("bench-harness") or "unknown"),
            "additional_details": _texts(manifest.versions),
        },
        "evaluation_results": list(_results(source, identity)),
    }  # fmt: skip


def _model(source: Source, identity: Identity) -> JsonDict:
    deployment = "self_deployed" if source.is_local else "externally_managed" if source.provider else "unknown"
    model: JsonDict = {
        "name": source.manifest.model,
        "id": identity.model_id,
        "developer": identity.developer,
        "additional_details": {"deployment_type": deployment, "model_availability": "unknown"},
    }
    if source.provider and not source.is_local:
        model["inference_platform"] = source.provider
    return model


def _results(source: Source, identity: Identity) -> list[JsonDict]:
    """Return the results: reward, metrics and pass rates, except those without a value."""
    summary, (low, high) = source.summary, source.manifest.reward_range
    manifest = source.manifest
    environment = manifest.identity.get("env")
    details = {"environment": manifest.env_id, "examples": source.summary.num_examples, "identity": environment}
    shared: JsonDict = {
        "source_data": {"dataset_name": manifest.env_id, "source_type": "other", "additional_details": _texts(details)},
        "evaluation_timestamp": identity.created,
        "generation_config": _generation(source),
    }
    results: list[JsonDict] = []
    reward = summary.reward
    if (score := _score(reward)) is not None:
        bounds = min(low, reward.min or 0.0), max(high, reward.max or 0.0)
        score["details"] = _coverage(source)
        results.append(_result(identity, REWARD, {"metric_kind": "reward", **_bounds(*bounds)}, score))
    for name, spread in summary.metrics.items():
        if (score := _score(spread)) is not None:
            results.append(_result(identity, name, {"metric_kind": "metric", **_bounds(-math.inf, math.inf)}, score))
    for title, kind, rates in (
        ("pass@", "pass_at_k", summary.pass_at_k),
        ("pass^", "pass_hat_k", summary.pass_hat_k),
    ):
        for k, rate in rates.items():
            if rate.value is None or (k == 1 and title == "pass^"):
                continue
            config: JsonDict = {
                "metric_kind": "pass_rate", "metric_unit": "proportion", "metric_parameters": {"k": k},
                "evaluation_description": METHODS[kind], **_bounds(0.0, 1.0),
                "additional_details": _texts({"pass_threshold": summary.pass_threshold, "excluded": rate.excluded}),
            }  # fmt: skip
            if title == "pass@":
                config["metric_id"] = kind
            results.append(_result(identity, f"{title}{k}", config, _score(Spread(rate.estimate)) or {}))
    return [{**result, **shared} for result in results]


def _result(identity: Identity, name: str, config: JsonDict, score: JsonDict) -> JsonDict:
    metric: JsonDict = {
        "metric_id": identity.result_id(name),
        "metric_name": name,
        "lower_is_better": False,
        "score_type": "continuous",
    }
    return {
        "evaluation_result_id": identity.result_id(name),
        "evaluation_name": identity.task,
        "metric_config": metric | config,
        "score_details": score,
    }


def _score(spread: Spread) -> JsonDict | None:
    """Return a mean with its uncertainty; None if there is no mean."""
    estimate = spread.estimate
    if estimate.mean is None:
        return None
    uncertainty: JsonDict = {"num_samples": estimate.examples}
    if estimate.stderr is not None:
        uncertainty["standard_error"] = {"value": estimate.stderr, "method": METHODS["stderr"]}
    if estimate.low is not None and estimate.high is not None:
        method = METHODS.get(estimate.method or "", "unknown")
        uncertainty["confidence_interval"] = {
            "lower": estimate.low, "upper": estimate.high, "confidence_level": 0.95, "method": method,
        }  # fmt: skip
    if spread.std is not None:
        uncertainty["standard_deviation"] = spread.std
    return {"score": estimate.mean, "uncertainty": uncertainty}


def _coverage(source: Source) -> dict[str, str]:
    """Return how many rollouts were planned, scored and unscored, and related counts, as text."""
    summary = source.summary
    return _texts({
        "planned": summary.planned, "scored": summary.scored, "unscored": dict(summary.unscored),
        "not_run": summary.not_run, "bounds": None if summary.bounds is None else list(summary.bounds),
        "truncated": summary.truncated, "empty": summary.empty, "refused": summary.refused,
        "rollouts_per_example": source.epochs, "pass_threshold": summary.pass_threshold,
        "cost_usd": summary.usage.cost,
    })  # fmt: skip


_NUMBERS = ("temperature", "top_p", "top_k")


def _generation(source: Source) -> JsonDict:
    settings = source.manifest.settings
    arguments: JsonDict = {}
    rest: JsonDict = {}
    for name, value in source.sampling_args.items():
        own = "max_tokens" if name == "max_completion_tokens" else name
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if number and (own in _NUMBERS or (own == "max_tokens" and isinstance(value, int) and value >= 1)):
            arguments[own] = value
        else:
            rest[name] = value
    if source.manifest.command:
        arguments["execution_command"] = source.manifest.command
    timeout = settings.get("env.timeout")
    if isinstance(timeout, int | float) and timeout > 0:
        arguments["eval_limits"] = {"time_limit": math.ceil(timeout)}
    rest["env_args"] = settings.get("env.env_args") or None
    config: JsonDict = {"generation_args": arguments}
    if details := _texts(rest):
        config["additional_details"] = details
    return config


def _bounds(low: float, high: float) -> JsonDict:
    """Return the lowest and the highest possible score; infinities as strings, since JSON has no infinite numbers."""
    return {
        "min_score": low if math.isfinite(low) else "-Infinity",
        "max_score": high if math.isfinite(high) else "Infinity",
    }


def _texts(values: Mapping[str, object]) -> dict[str, str]:
    """Convert the values of a mapping to strings, as the schema requires; omit None and empty objects."""
    return {name: text_of(value) for name, value in values.items() if value is not None and value != {}}


def row_of(outcome: Outcome, identity: Identity, pass_threshold: float) -> JsonDict:
    """Convert a rollout to a line of the samples file. The line refers to the aggregate result of the reward. A rollout
    without a score gets an `error` and the score 0."""
    example, base, reward = outcome.example, outcome.base, outcome.reward
    asked, said = messages_of(example.prompt, "user"), messages_of(base.completion, "assistant")
    raw, reference = _raw(asked), [unbroken(text_of(example.answer))] if example.answer != "" else []
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
        "sample_id": text_of(example.example_id),
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
    if (performance := _performance(outcome)) is not None:
        row["performance"] = performance
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
        return "" if content is None else text_of(content)
    lines: list[str] = []
    for part in as_list(cast(object, content)):
        text = part if isinstance(part, str) else table(part).get("text")
        if isinstance(text, str):
            lines.append(text)
        else:
            kind = text_of(table(part).get("type", "part"))
            lines.append(f"[{kind} sha256:{hashlib.sha256(to_text(part).encode('utf-8', 'replace')).hexdigest()}]")
    return "\n".join(lines)


def _output(said: Messages) -> JsonDict:
    reply = last_reply(said)
    if reply is None:
        return {"raw": []}
    output: JsonDict = {"raw": [_text(reply) or ""]}
    if reasoning := as_text(reply.get("reasoning_content")):
        output["reasoning_trace"] = [reasoning]
    return output


def _message(number: int, message: Message) -> JsonDict:
    turned: JsonDict = {"turn_idx": number, "role": text_of(message.get("role") or "user"), "content": _text(message)}
    if reasoning := as_text(message.get("reasoning_content")):
        turned["reasoning_trace"] = reasoning
    if calls := calls_of(message):
        turned["tool_calls"] = [
            {"id": call.id, "name": call.name, "arguments": _plain_texts(call.arguments)} for call in calls
        ]
    if message.get("tool_call_id") is not None:
        turned["tool_call_id"] = [text_of(message["tool_call_id"])]
    return turned


def _text(message: Message) -> str | None:
    content = cast(object, message.get("content"))
    return as_text(message.get("refusal")) if content is None else _marked(content)


def _performance(outcome: Outcome) -> JsonDict | None:
    timing = outcome.base.timing
    if not timing.is_known:
        return None
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
    if judged := judgements_of(outcome):
        values["judgements"] = judged
    return _plain_texts({name: value for name, value in values.items() if value not in (None, "")})


def _plain_texts(values: JsonDict) -> dict[str, str]:
    return {unbroken(name): text_of(value) for name, value in values.items()}
