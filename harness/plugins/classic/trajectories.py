"""Storage of classic trajectories in the journal: the data that the transcript does not contain, namely additions by
authors (`extras`, step rewards, separate conversations) and details from the endpoint (tokens, finish reason)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

from harness.core.types import JsonDict, Prompt
from harness.plugins.classic.messages import messages_of
from harness.plugins.classic.records import plain
from harness.plugins.classic.responses import as_response, is_response, response_for

_FIELDS = ("extras", "reward", "advantage", "is_truncated")

_REPLY = "reply"
"""Key in a stored step for the details of the model's reply."""


def kept(trajectory: Sequence[JsonDict], prompt: Prompt, completion: Prompt) -> list[JsonDict]:
    """Return the data of trajectory steps that the journal must contain besides the transcript; empty if the transcript
    is sufficient.

    Args:
        trajectory: The steps.
        prompt: The rollout's prompt.
        completion: The rollout's completion, as recorded.
    """
    notes = [{name: plain(step[name]) for name in _FIELDS if step.get(name)} for step in trajectory]
    for note, step in zip(notes, trajectory, strict=True):
        parts = _reply_details(step.get("response"))
        if parts:
            note[_REPLY] = parts
    if not (_is_one_conversation(trajectory) and _is_in_transcript(trajectory, prompt, completion)):
        for note, step in zip(notes, trajectory, strict=True):
            note.update(prompt=plain(step.get("prompt")), completion=plain(step.get("completion")))
    return notes if any(notes) else []


def put_back(trajectory: list[JsonDict], steps: object, model: str) -> None:
    """Add data from the journal to trajectory steps that were rebuilt from the transcript, and restore the replies.

    Args:
        trajectory: The steps; changed in place.
        steps: The data from the journal, as `kept` returned it; may be missing.
        model: Default model name of the responses.
    """
    notes = cast("list[JsonDict]", steps) if isinstance(steps, list) else []
    if notes and len(notes) != len(trajectory):
        shape: dict[str, Any] = dict.fromkeys(("response", "tokens", "reward", "advantage"))
        trajectory[:] = [{**shape, "is_truncated": False, "extras": {}} for note in notes if "prompt" in note]
    for number, step in enumerate(trajectory):
        note = dict(notes[number]) if number < len(notes) else {}
        parts: JsonDict = note.pop(_REPLY, None) or {}
        step.update(note)
        step["prompt"], step["completion"] = messages_of(step["prompt"]), messages_of(step["completion"])
        if step["response"] is None:
            step["response"] = response_for(step["completion"], {"model": model, **parts})


def _reply_details(response: object) -> JsonDict:
    """Return the details of a model's reply besides its message, such as tokens and finish reason."""
    if not is_response(response):
        return {}
    reply = as_response(response)
    parts = {name: reply.get(name) for name in ("id", "model", "created", "usage")}
    parts["finish_reason"] = reply["choices"][0]["finish_reason"]
    return {name: plain(value) for name, value in parts.items() if value is not None}


def _is_in_transcript(trajectory: Sequence[JsonDict], prompt: Prompt, completion: Prompt) -> bool:
    """Return whether the transcript contains everything in the trajectory: it has one step per assistant message, or a
    single step if the completion is text."""
    if isinstance(completion, str):
        said = [(len(prompt), completion)] if completion else []
    else:
        said = [
            (len(prompt) + index, [message])
            for index, message in enumerate(completion)
            if message.get("role") == "assistant"
        ]
    asked = [(len(step.get("prompt") or ()), plain(step.get("completion"))) for step in trajectory]
    return asked == [(length, plain(reply)) for length, reply in said]


def _is_one_conversation(trajectory: Sequence[JsonDict]) -> bool:
    """Return whether each step continues where the previous one ended."""
    for before, step in pairwise(trajectory):
        said, asked = before.get("completion"), step.get("prompt")
        if isinstance(said, str) or isinstance(asked, str):
            if not str(asked).startswith(f"{before.get('prompt')}{said}"):
                return False
            continue
        if not said or not isinstance(asked, list):
            return False
        end = len(before["prompt"]) + len(said)
        if len(cast("list[object]", asked)) < end or asked[end - 1] is not said[-1]:
            return False
    return True
