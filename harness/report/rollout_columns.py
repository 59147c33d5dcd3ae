"""Columns of rollouts that queries, sorting and grouping can name (`bench runs show --where`, viewers)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, cast

from harness.core.records import Failed, Generated
from harness.core.types import JsonDict
from harness.report.transcript import judgements, last_text
from harness.rubrics.extract import extract_boxed_answer
from harness.stats.passk import THRESHOLD_SLACK
from harness.stats.summary import tokens_known
from harness.store.manifest import Manifest
from harness.store.notes import Note
from harness.store.outcomes import Outcome
from harness.store.query_match import QueryColumn, QueryColumns
from harness.store.rows import as_messages, completion_messages, content_text
from harness.store.values import number

_DEEPEST_PATH = 12
"""Maximum number of dots at which a path of names is split."""


@dataclass(slots=True)
class RunRollout:
    """A rollout with the run that it belongs to."""

    run_id: str
    manifest: Manifest
    outcome: Outcome
    notes: tuple[Note, ...] = ()
    """Notes of people about the rollout, the newest last."""
    _reply: str | None = field(default=None, compare=False, repr=False)
    _by_assistant: list[JsonDict] | None = field(default=None, compare=False, repr=False)

    @property
    def reply(self) -> str:
        """Text of the last assistant message, or its tool calls; "" if there is none."""
        if self._reply is None:
            self._reply = reply_of(self.outcome.base)
        return self._reply

    @property
    def by_assistant(self) -> list[JsonDict]:
        """The messages of the model."""
        if self._by_assistant is None:
            known = cast(
                "list[JsonDict]", [each for each in completion_messages(self.outcome.base) if isinstance(each, dict)]
            )
            self._by_assistant = [each for each in known if each.get("role") == "assistant"]
        return self._by_assistant


def passed(rollout: RunRollout) -> bool:
    """Return whether the reward reaches the run's `pass_threshold`, as in pass@k; false if there is no reward."""
    reward, threshold = rollout.outcome.reward, number(rollout.manifest.settings.get("env.pass_threshold"))
    return reward is not None and reward >= (1.0 if threshold is None else threshold) - THRESHOLD_SLACK


def waiting(rollout: RunRollout) -> bool:
    """Return whether the rollout is generated and not scored yet."""
    return isinstance(rollout.outcome.base, Generated) and rollout.outcome.score is None


def failed(rollout: RunRollout) -> bool:
    """Return whether the rollout has a reward below the run's `pass_threshold`, or ended without a reward."""
    return not passed(rollout) and not waiting(rollout)


def parsed_answer(reply: str) -> str:
    r"""Guess the answer in a reply: the last `\boxed{…}`; else the text after the last `####`; else the content of the
    last XML tag; else the last line. Runs do not record the parser of their environment."""
    if "\\boxed" in reply and (boxed := extract_boxed_answer(reply, strict=True)):
        return boxed
    if "####" in reply:
        return reply.rpartition("####")[2].strip()
    if (end := reply.rfind("</")) >= 0 and (tag := re.match(r"</([\w.-]+)\s*>", reply[end:])):
        start = reply.rfind(f"<{tag[1]}>", 0, end)
        if start >= 0:
            return reply[start + len(tag[1]) + 2 : end].strip()
    return reply.rstrip().rpartition("\n")[2].strip()


def metric_pattern(rollout: RunRollout) -> str:
    """Values of all metrics as text, such as `correct=0 format=1`, by which rollouts can be grouped. Values other
    than 0 and 1 are written as `name<0`, `name=0..1` or `name>1`, missing values as `name=none`."""
    score = rollout.outcome.score
    return "" if score is None else " ".join([name + _level(value) for name, value in score.metrics.items()])


def _level(value: object) -> str:
    found = number(value)
    if found is None:
        return "=none"
    return f"={found:.0f}" if found in (0.0, 1.0) else "<0" if found < 0 else ">1" if found > 1 else "=0..1"


def message_texts(messages: Iterable[object]) -> Iterator[str]:
    """All text in messages: content, reasoning, names and arguments of tool calls."""
    for message in messages:
        known = cast(JsonDict, message) if isinstance(message, dict) else {"content": message}
        for text in (content_text(known.get("content")), known.get("reasoning_content"), known.get("reasoning")):
            if isinstance(text, str):
                yield text
        for name, arguments in tool_calls(known):
            yield f"{name}({arguments})"


def tool_calls(message: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Name and arguments of each tool call of a message."""
    calls = message.get("tool_calls")
    for call in cast("list[object]", calls) if isinstance(calls, list) else []:
        function = cast(JsonDict, call).get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            held = cast(JsonDict, function)
            yield str(held.get("name", "")), str(held.get("arguments") or "")


def _prompt(rollout: RunRollout) -> str:
    return "\n".join(message_texts(as_messages(rollout.outcome.example.prompt, "user")))


def _completion(rollout: RunRollout) -> str:
    return "\n".join(message_texts(completion_messages(rollout.outcome.base)))


def reply_of(base: Generated | Failed) -> str:
    """Text of the last assistant message, or its tool calls; "" if there is none."""
    return last_text(base.completion or "", "assistant", 0)


def _reasoning(rollout: RunRollout) -> str | None:
    texts = [
        text
        for message in rollout.by_assistant
        for text in (message.get("reasoning_content"), message.get("reasoning"))
        if isinstance(text, str)
    ]
    return "\n".join(texts) or None


def _tools(rollout: RunRollout) -> tuple[str, ...]:
    if not any(message.get("tool_calls") for message in rollout.by_assistant):
        return ()
    return tuple(sorted({name for message in rollout.by_assistant for name, _ in tool_calls(message)}))


def _usage(*names: str) -> Callable[[RunRollout], object]:
    """Make a function that adds up token counts of a rollout; its result is None if no reply reported usage."""
    counts = [attrgetter(name) for name in names]

    def read(rollout: RunRollout) -> object:
        usage = rollout.outcome.base.usage
        if not tokens_known(usage):
            return None
        total = 0
        for count in counts:
            total += count(usage)
        return total

    return read


def _timing(name: str) -> Callable[[RunRollout], object]:
    """Return a function that reads a duration of a rollout; None if its times are unknown."""
    duration = attrgetter(f"outcome.base.timing.{name}")

    def read(rollout: RunRollout) -> object:
        value = duration(rollout)
        return value if value or rollout.outcome.base.timing.is_known else None

    return read


def _note_tags(rollout: RunRollout) -> tuple[str, ...]:
    return tuple(dict.fromkeys(tag for note in rollout.notes for tag in note.tags))


def _note_texts(rollout: RunRollout) -> tuple[str, ...]:
    return *_note_tags(rollout), *(note.remark for note in rollout.notes if note.remark)


def _note_score(rollout: RunRollout) -> float | None:
    return next((note.score for note in reversed(rollout.notes) if note.score is not None), None)


def _made(name: str) -> Callable[[RunRollout], object]:
    """Make a function that reads an attribute of a generated rollout; its result is None for a failed rollout."""
    return lambda rollout: getattr(rollout.outcome.base, name) if isinstance(rollout.outcome.base, Generated) else None


def _is(name: str) -> Callable[[RunRollout], bool]:
    """Make a function that tests an attribute of a generated rollout; its result is False for a failed rollout."""

    def test(rollout: RunRollout) -> bool:
        base = rollout.outcome.base
        return isinstance(base, Generated) and bool(getattr(base, name))

    return test


COLUMNS: tuple[QueryColumn[RunRollout], ...] = (
    QueryColumn("reward", "number", lambda r: r.outcome.reward, "the reward"),
    QueryColumn(
        "outcome", "choice", lambda r: r.outcome.column, "`scored`, or `unscored`: without a reward",
        choices=("scored", "unscored"),
    ),
    QueryColumn("reason", "text", lambda r: r.outcome.reason, "short reason for a missing reward, as in tables"),
    QueryColumn("error", "text", lambda r: r.outcome.error, "full message about a missing reward or metric"),
    QueryColumn("stop", "text", _made("stop_condition"), "stop condition of a generated rollout"),
    QueryColumn("metrics", "text", metric_pattern, "pattern of all metrics: `correct=0 format=1`"),
    QueryColumn("text", "text", lambda r: f"{_prompt(r)}\n{_completion(r)}", "prompt and completion"),
    QueryColumn("prompt", "text", _prompt, "the messages of the prompt"),
    QueryColumn("completion", "text", _completion, "the messages after it, with reasoning and tool calls"),
    QueryColumn("reply", "text", lambda r: r.reply, "the last message of the model"),
    QueryColumn("reasoning", "text", _reasoning, "reasoning of the model, if recorded"),
    QueryColumn("parsed", "text", lambda r: parsed_answer(r.reply), "the answer in the reply, see below"),
    QueryColumn("answer", "text", lambda r: r.outcome.example.answer, "the expected answer"),
    QueryColumn("tool", "text", _tools, "names of the tools that the model called; any of them may match"),
    QueryColumn("judge", "text", lambda r: [text for _, text in judgements(r.outcome)], "the judges' replies"),
    QueryColumn("note", "text", _note_texts, "tags and remarks of people's notes; grouped by tags"),
    QueryColumn("note.tag", "text", _note_tags, "tags of the notes; any of them may match"),
    QueryColumn("note.score", "number", _note_score, "the newest score in the notes"),
    QueryColumn("note.author", "text", lambda r: tuple(note.author for note in r.notes), "who wrote the notes"),
    QueryColumn("example", "name", lambda r: r.outcome.example.example_id, "id of the example"),
    QueryColumn("rollout", "number", lambda r: r.outcome.base.rollout_index, "index of the rollout, from 0"),
    QueryColumn("task", "text", lambda r: r.outcome.example.task, "task of the example"),
    QueryColumn("tokens", "number", _usage("input_tokens", "output_tokens"), "input and output tokens"),
    QueryColumn("input_tokens", "number", _usage("input_tokens"), "input tokens"),
    QueryColumn("output_tokens", "number", _usage("output_tokens"), "output tokens"),
    QueryColumn("reasoning_tokens", "number", _usage("reasoning_tokens"), "output tokens spent on reasoning"),
    QueryColumn("requests", "number", lambda r: r.outcome.base.usage.requests, "requests to the model"),
    QueryColumn("cost", "number", lambda r: r.outcome.base.usage.cost, "dollars"),
    QueryColumn("turns", "number", lambda r: len(r.by_assistant), "messages of the model"),
    QueryColumn("seconds", "number", _timing("generation"), "time from the start to the last message"),
    QueryColumn("model_seconds", "number", _timing("model"), "part of `seconds` spent in requests"),
    QueryColumn("waiting_seconds", "number", _timing("waiting"), "part of `seconds` spent waiting for a slot"),
    QueryColumn("attempts", "number", lambda r: r.outcome.base.attempts, "attempts at the rollout"),
    QueryColumn("env", "text", lambda r: r.manifest.env_id, "environment of the run"),
    QueryColumn("model", "text", lambda r: r.manifest.model, "model of the run"),
    QueryColumn("name", "text", lambda r: r.manifest.name, "label of the run in its suite"),
    QueryColumn("run", "text", lambda r: r.run_id, "id of the run"),
)  # fmt: skip

FLAGS: dict[str, tuple[Callable[[RunRollout], bool], str]] = {
    "failed": (failed, "a reward below `pass_threshold` (1 by default), or none; not those that wait for their score"),
    "passed": (passed, "a reward of `pass_threshold` or more"),
    "waiting": (waiting, "generated and not scored yet"),
    "truncated": (_is("is_truncated"), "cut short by a limit"),
    "empty": (_is("is_empty"), "the last message has neither text nor a tool call"),
    "refused": (_is("is_refusal"), "the last message is a refusal"),
    "retryable": (
        lambda r: isinstance(r.outcome.base, Failed) and r.outcome.base.retryable,
        "failed, and a retry may succeed",
    ),
    "noted": (lambda r: bool(r.notes), "somebody wrote a note about it"),
}
"""Properties for `is:NAME`, each with its explanation."""

SYNONYMS = {
    "score": "reward", "stop_condition": "stop", "finish_reason": "stop", "duration": "seconds", "time": "seconds",
    "latency": "seconds", "example_id": "example", "id": "example", "rollout_index": "rollout", "environment": "env",
    "target": "answer", "expected": "answer", "output": "reply", "response": "reply", "tools": "tool",
    "message": "text", "messages": "text", "transcript": "text", "price": "cost", "status": "outcome",
    "tag": "note.tag", "tags": "note.tag", "label": "note.tag", "notes": "note", "remark": "note",
}  # fmt: skip


def rollout_columns(manifests: Iterable[Manifest]) -> QueryColumns[RunRollout]:
    """The columns that a query over the rollouts of some runs may name.

    Args:
        manifests: Manifests of the runs. Their metrics and state values become columns `metric.NAME`, `state.NAME`.
    """
    found = list(manifests)
    metrics = list(dict.fromkeys(name for manifest in found for name in manifest.metric_names))
    state = list(dict.fromkeys(name for manifest in found for name in manifest.state_columns))

    def metric(name: str) -> QueryColumn[RunRollout] | None:
        known = name in metrics
        return QueryColumn(f"metric.{name}", "number", lambda r: _metric(r, name)) if known else None

    families: dict[str, Callable[[str], QueryColumn[RunRollout] | None]] = {
        "metric": metric,
        "info": lambda name: QueryColumn(f"info.{name}", "any", lambda r: member(r.outcome.example.info, name)),
        "state": lambda name: QueryColumn(f"state.{name}", "any", lambda r: member(r.outcome.state, name)),
    }
    known = [*(f"metric.{name}" for name in metrics), *(f"state.{name}" for name in state)]
    flags = {name: test for name, (test, _) in FLAGS.items()}
    return QueryColumns({each.name: each for each in COLUMNS}, families, known, flags, SYNONYMS, {"note": "note.tag"})


def _metric(rollout: RunRollout, name: str) -> float | None:
    score = rollout.outcome.score
    return None if score is None else number(score.metrics.get(name))


def member(value: object, path: str) -> object:
    """The value at a path of names joined by dots; None if it is missing. A name may itself contain dots."""
    if not path:
        return value
    if not isinstance(value, dict):
        return None
    held = cast("dict[str, Any]", value)
    if path in held:
        return held[path]
    parts = path.split(".", _DEEPEST_PATH)
    for count in range(len(parts) - 1, 0, -1):
        head = ".".join(parts[:count])
        if head in held and (found := member(held[head], ".".join(parts[count:]))) is not None:
            return found
    return None
