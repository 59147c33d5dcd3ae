"""Reference judges without a server, for tests that score without the engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from harness.core.records import Example
from harness.core.types import Chat, Messages, ModelResponse, Prompt, Sampling, Tools, Usage
from harness.reference.player import Playable
from harness.reference.policies import message_text, said


@dataclass(frozen=True, slots=True)
class ReferencePanel:
    """Answers all judge calls of a rubric: `with judged_by(ReferencePanel(environment)): await rubric.score(…)`.

    Args:
        environment: The environment whose `reference_verdict` is the answer.
    """

    environment: Playable

    def chat(self, spec: object, state: Mapping[str, Any] | None) -> Chat:
        """Return a judge model for the rollout of `state`."""
        example = getattr(state, "example", None)
        if not isinstance(example, Example):
            raise ValueError("a reference judge needs the rollout that it judges: pass state to judge(…)")
        return _Verdicts(self.environment, example)


@dataclass(frozen=True, slots=True)
class _Verdicts:
    environment: Playable
    example: Example
    model: str = "reference/judge"

    async def __call__(self, prompt: Prompt, *, tools: Tools = None, sampling_args: Sampling = None) -> ModelResponse:
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        message = said("reference_verdict", self.environment.reference_verdict(self.example, messages))
        characters = sum(len(message_text(message)) for message in cast("Messages", messages))
        usage = Usage(characters // 4, len(message_text(message)) // 4, requests=1)
        return ModelResponse({"role": "assistant", **message}, "stop", usage, self.model)
