"""Models for tests of environments: they say what they are told to, and keep what they were asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.core.records import Example
from harness.core.state import State
from harness.core.types import JsonDict, ModelResponse, Prompt


@dataclass
class Asked:
    """One request, as it was at the time."""

    prompt: Prompt
    tools: list[JsonDict] | None
    sampling_args: dict[str, Any]


@dataclass
class ScriptedChat:
    """Answers with the next reply; with the last one from then on. A reply may be a text, a message, a response, an
    exception to raise, or a function of the prompt that gives one of these."""

    replies: Sequence[object] = ("yes",)
    model: str = "scripted"
    asked: list[Asked] = field(default_factory=list[Asked])
    finish_reason: str = "stop"

    async def __call__(
        self,
        prompt: Prompt,
        *,
        tools: Sequence[JsonDict] | None = None,
        sampling_args: Mapping[str, Any] | None = None,
    ) -> ModelResponse:
        reply = self.replies[min(len(self.asked), len(self.replies) - 1)]
        copy = prompt if isinstance(prompt, str) else [dict(message) for message in prompt]
        self.asked.append(Asked(copy, None if tools is None else list(tools), dict(sampling_args or {})))
        if isinstance(reply, Callable):
            reply = reply(prompt)
        if isinstance(reply, BaseException):
            raise reply
        if isinstance(reply, ModelResponse):
            return reply
        message = reply if isinstance(reply, dict) else {"role": "assistant", "content": reply}
        return ModelResponse(message, self.finish_reason)


def example_of(prompt: Prompt | None = None, *, key: str = "k", **fields: Any) -> Example:
    """An example with a short prompt."""
    return Example(key, 0, [{"role": "user", "content": "question"}] if prompt is None else prompt, **fields)


def state_of(completion: Prompt | None = None, *, prompt: Prompt | None = None, **fields: Any) -> State:
    """A state that looks finished: with a completion, ready to be scored."""
    state = State.begin(example_of(prompt, **fields), 0, "scripted", {})
    state["completion"] = [{"role": "assistant", "content": "yes"}] if completion is None else completion
    return state
