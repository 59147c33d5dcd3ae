"""Requests to models and judges from an isolated process: the chat that forwards each request to the parent process,
and the table of pending requests. The parent sends the requests and counts their cost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

from harness.core.keys import digest
from harness.core.records import Example
from harness.core.types import JsonDict, Messages, ModelResponse, Prompt, Sampling, Tools
from harness.engine.isolation.wire import error_from_json, error_to_json, response_from_json
from harness.envs.environment import Environment
from harness.usercode.deadline import Deadline
from harness.usercode.scope import scope


@dataclass(slots=True)
class _Request:
    answer: asyncio.Future[ModelResponse]
    clock: Deadline | None
    is_waiting: bool = False

    def wait(self, *, waits: bool) -> None:
        """Pause the rollout's timeout while the request waits in a queue of the parent process."""
        if self.clock is None or waits == self.is_waiting:
            return
        self.is_waiting = waits
        if waits:
            self.clock.stop()
        else:
            self.clock.go_on()


@dataclass(slots=True)
class PendingRequests:
    """Requests to models and judges that the parent process has not answered yet."""

    send: Callable[[JsonDict], None]
    _numbers: count[int] = field(default_factory=count)
    _open: dict[int, _Request] = field(default_factory=dict[int, _Request])

    async def ask(self, question: JsonDict) -> ModelResponse:
        """Send a request to the parent process and wait for the answer.

        Raises:
            ModelError: the call failed after all retries.
        """
        number = next(self._numbers)
        request = self._open[number] = _Request(asyncio.get_running_loop().create_future(), scope().deadline)
        try:
            self.send({"type": "ask", "ask": number, **question})
            return await request.answer
        except asyncio.CancelledError:
            self.send({"type": "drop", "ask": number, "to": question["to"]})
            raise
        finally:
            request.wait(waits=False)
            del self._open[number]

    def receive(self, frame: JsonDict) -> None:
        """Process a message from the parent process about a request. Ignored if the request is no longer pending."""
        request = self._open.get(frame["ask"])
        if request is None or request.answer.done():
            return
        kind = frame["type"]
        if kind == "waits":
            request.wait(waits=frame["waits"])
        elif kind == "answer":
            request.answer.set_result(response_from_json(frame["response"]))
        else:
            request.answer.set_exception(error_from_json(frame))


@dataclass(frozen=True, slots=True)
class ChildChat:
    """Chat in an isolated process: forwards the calls of one rollout to its model or judge through the parent."""

    pending: PendingRequests
    environment: Environment
    order: int
    """Number of the order (to generate or score a rollout) that is being executed."""
    model: str
    """Name of the model at its endpoint."""
    plays: Sequence[str]
    """Names of the environment's methods that compute the replies if the embedded server is the model or judge."""
    example: Example | None
    rollout_index: int | None
    judge: int | None = None
    """Index of the judge among the judges of the rubric; None for the model."""

    async def __call__(self, prompt: Prompt, *, tools: Tools = None, sampling_args: Sampling = None) -> ModelResponse:
        """Call the model or judge through the parent process."""
        example = self.example
        return await self.pending.ask(
            {
                "to": self.order, "judge": self.judge, "example_key": None if example is None else example.key,
                "rollout_index": self.rollout_index, "prompt": prompt, "tools": tools, "sampling_args": sampling_args,
                "played": None if example is None or not self.plays else self._played(example, prompt),
            }
        )  # fmt: skip

    def _played(self, example: Example, prompt: Prompt) -> JsonDict:
        """Return the replies of the environment's reference methods, for the embedded server in the parent process."""
        messages: Messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        said: JsonDict = {}
        for method in self.plays:
            try:
                said[method] = {"said": getattr(self.environment, method)(example, messages)}
            except Exception as error:  # error of the author's code: forwarded to the server's client
                said[method] = {"raised": error_to_json(error), "is_missing": isinstance(error, NotImplementedError)}
        return {"example_key": example.key, "messages": digest(messages), "replies": said}
