"""Child side of model and judge requests: chats that forward each request to the parent, and the table of pending
requests. The parent answers and counts the cost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, cast

from harness.core.errors import EnvironmentFault
from harness.core.keys import digest
from harness.core.records import Example
from harness.core.state import State
from harness.core.types import Chat, JsonDict, Messages, ModelResponse, Prompt
from harness.engine.isolation.wire import error_from_json, error_to_json, response_from_json
from harness.envs.environment import Environment
from harness.rubrics.judge_port import JudgeSpec
from harness.usercode.deadline import Deadline
from harness.usercode.scope import scope


@dataclass(slots=True)
class _Question:
    answer: asyncio.Future[ModelResponse]
    clock: Deadline | None
    is_waiting: bool = False


@dataclass(slots=True)
class PendingRequests:
    """Requests that wait for the parent's answer."""

    send: Callable[[JsonDict], None]
    _numbers: count[int] = field(default_factory=count)
    _open: dict[int, _Question] = field(default_factory=dict[int, _Question])

    async def ask(self, question: JsonDict) -> ModelResponse:
        """Send a request and wait for its answer.

        Raises:
            ModelError: the call failed after all retries.
        """
        number = next(self._numbers)
        entry = _Question(asyncio.get_running_loop().create_future(), scope().deadline)
        self._open[number] = entry
        try:
            self.send({"type": "ask", "ask": number, **question})
            return await entry.answer
        except asyncio.CancelledError:
            self.send({"type": "drop", "ask": number, "to": question["to"]})
            raise
        finally:
            self._wait(entry, waits=False)
            del self._open[number]

    def hear(self, frame: JsonDict) -> None:
        """Process the parent's message about a request; ignored if the request is no longer pending."""
        entry = self._open.get(frame["ask"])
        if entry is None or entry.answer.done():
            return
        kind = frame["type"]
        if kind == "waits":
            self._wait(entry, waits=frame["waits"])
        elif kind == "answer":
            entry.answer.set_result(response_from_json(frame["response"]))
        else:
            entry.answer.set_exception(error_from_json(frame))

    def _wait(self, entry: _Question, *, waits: bool) -> None:
        if entry.clock is None or waits == entry.is_waiting:
            return
        entry.is_waiting = waits
        if waits:
            entry.clock.stop()
        else:
            entry.clock.go_on()


@dataclass(frozen=True, slots=True)
class SeatedJudge:
    """The model that answers for a judge."""

    model: str
    """Name of the model at its endpoint."""
    plays: Sequence[str] = ()
    """Environment methods whose replies the embedded server sends if it plays this judge."""


@dataclass(frozen=True, slots=True)
class ReferencePlayers:
    """Environment methods whose replies the embedded server sends as the model and the judges of one run."""

    environment: Environment
    model: tuple[str, ...] = ()
    judges: Mapping[int, SeatedJudge] = field(default_factory=dict[int, SeatedJudge])
    """Judges by their index among the judges of the rubric."""

    def played(self, methods: Sequence[str], example: Example, prompt: Prompt) -> JsonDict | None:
        """Replies of the environment's reference methods, for the embedded server, which cannot call them; None without
        methods."""
        if not methods:
            return None
        messages: Messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        said: JsonDict = {}
        for method in methods:
            try:
                said[method] = {"said": getattr(self.environment, method)(example, messages)}
            except Exception as error:  # error of the author's code: forwarded to the server's client
                said[method] = {"raised": error_to_json(error), "is_missing": isinstance(error, NotImplementedError)}
        return {"example_key": example.key, "messages": digest(messages), "replies": said}


@dataclass(frozen=True, slots=True)
class ChildChat:
    """The model of one rollout; implements `harness.core.types.Chat`."""

    desk: PendingRequests
    order: int
    model: str
    example: Example
    part: ReferencePlayers

    async def __call__(
        self,
        prompt: Prompt,
        *,
        tools: Sequence[JsonDict] | None = None,
        sampling_args: Mapping[str, Any] | None = None,
    ) -> ModelResponse:
        """Call the model through the parent."""
        return await self.desk.ask(
            {
                "to": self.order, "judge": None, "example_key": self.example.key, "prompt": prompt, "tools": tools,
                "sampling_args": sampling_args, "played": self.part.played(self.part.model, self.example, prompt),
            }
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ChildPanel:
    """The judges of one run's rubric in the child; implements `rubrics.judge_port.Panel`."""

    desk: PendingRequests
    order: int
    """Number of the current order: a generation that calls judges, or a scoring."""
    specs: tuple[JudgeSpec, ...]
    part: ReferencePlayers

    def chat(self, spec: JudgeSpec, state: Mapping[str, Any] | None) -> Chat:
        """Return the chat of judge `spec` for the rollout of `state`."""
        place = next((number for number, each in enumerate(self.specs) if each is spec), None)
        if place is None or place not in self.part.judges:
            raise EnvironmentFault(
                f"the judge {spec.model!r} was not among the rubric's judges when the run began, so nobody has "
                "connected it"
            )
        example = state.example if isinstance(state, State) else None
        index = cast("State", state)["rollout_index"] if example is not None else None
        return _ChildJudge(self, place, self.part.judges[place], example, index)


@dataclass(frozen=True, slots=True)
class _ChildJudge:
    panel: ChildPanel
    place: int
    seat: SeatedJudge
    example: Example | None
    rollout_index: int | None

    @property
    def model(self) -> str:
        """The judge's name at its endpoint."""
        return self.seat.model

    async def __call__(
        self,
        prompt: Prompt,
        *,
        tools: Sequence[JsonDict] | None = None,
        sampling_args: Mapping[str, Any] | None = None,
    ) -> ModelResponse:
        panel, example = self.panel, self.example
        return await panel.desk.ask(
            {
                "to": panel.order, "judge": self.place, "example_key": None if example is None else example.key,
                "rollout_index": self.rollout_index, "prompt": prompt, "tools": tools, "sampling_args": sampling_args,
                "played": None if example is None else panel.part.played(self.seat.plays, example, prompt),
            }
        )  # fmt: skip
