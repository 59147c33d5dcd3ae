"""Service loop of an isolated environment's process. It executes each order of the parent process as a task, and stores
the states of rollouts between generation and scoring. `child` starts the process."""

from __future__ import annotations

import asyncio
import copy
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, cast

from harness.core.errors import EnvironmentFault
from harness.core.keys import digest
from harness.core.records import Example, Failed, Generated, Item, Scored
from harness.core.redact import redactor
from harness.core.state import State
from harness.core.types import Chat, JsonDict, Messages, ModelResponse, Prompt, Sampling, Tools
from harness.engine.executors import Finished, unwritable
from harness.engine.executors.local import LocalExecutor
from harness.engine.isolation.wire import (
    FrameReader,
    IsolatedRunConfig,
    ParentChannel,
    error_from_json,
    error_to_json,
    pack,
    response_from_json,
)
from harness.engine.watchdog import Watchdog
from harness.envs.environment import Environment
from harness.models.delays import Delay
from harness.rubrics.judge_port import JudgeSpec, judged_by
from harness.rubrics.single_function import OneFunction
from harness.store.codec import document_of, record_of
from harness.store.outcome_kinds import unscored
from harness.usercode import event_loop
from harness.usercode.deadline import Deadline
from harness.usercode.exceptions import describe
from harness.usercode.scope import enter_run, scope

# Requests to models and judges from an isolated process: the chat that forwards each request to the parent process,
# and the table of pending requests. The parent sends the requests and counts their cost.


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


_CANCELS = "the environment's code cancelled the task that runs it; change it to cancel only tasks that it has started"

BEAT = 1.0
"""Seconds between two heartbeats of the event loop."""


class _Run:
    """One run in an isolated process: its live rollouts, and chats that forward model calls to the parent process.

    Args:
        environment: The loaded environment.
        opened: The message with the run's settings.
        pending: Requests that the parent process has not answered yet.
    """

    def __init__(self, environment: Environment, opened: JsonDict, pending: PendingRequests) -> None:
        config = IsolatedRunConfig.from_json(opened["config"])
        self.known: dict[tuple[str, int], Scored | None] = {}
        """Recorded scores by example and rollout index, for a run that scores with only one function."""
        self.live: dict[str, Finished] = {}
        """Rollouts that this process has generated and not scored yet, by key."""
        self.orders: dict[str, int] = {}
        """The number of the order that generates each rollout, by key."""
        self.model: str = opened["model"]
        self.sampling_args: JsonDict = opened["sampling_args"]
        self._pending = pending
        self._specs = environment.rubric.judges
        self._plays, self._judges = config.plays, config.judges
        if config.function is not None:
            environment = copy.copy(environment)
            environment.rubric = OneFunction(environment.rubric, config.function, self._recorded)
        self._environment = environment
        self.executor = LocalExecutor(
            environment, self, timeout=config.timeout, max_retries=config.max_retries,
            scoring_timeout=config.scoring_timeout,
            limits=config.limits,
        )  # fmt: skip

    def delays(self) -> list[Delay]:
        """Return no delays, because the parent process reports them."""
        return []

    def chat(self, item: Item) -> Chat:
        """Return the chat that sends one rollout's model calls to the parent."""
        order, example = self.orders[item.key], item.example
        return ChildChat(self._pending, self._environment, order, self.model, self._plays, example, item.rollout_index)

    def close(self, item: Item) -> None:
        """Remove a rollout that makes no more calls from the table of orders."""
        del self.orders[item.key]

    def judge(self, order: int, spec: JudgeSpec, state: Mapping[str, Any] | None) -> Chat:
        """Return the function that asks judge `spec` about the rollout of `state`; valid while `order` is executed."""
        place = next((number for number, each in enumerate(self._specs) if each is spec), None)
        judge = None if place is None else self._judges[place]
        if judge is None and spec.is_undeclared:
            raise EnvironmentFault(
                f"the judge {spec.model!r} was first named while a rollout was scored, and an isolated environment can "
                "only ask the judges that its rubric had before; run it without isolation, or give the rubric a Judge"
            )
        if judge is None:
            raise EnvironmentFault(f"the judge {spec.model!r} was not among the rubric's judges when the run began")
        example = state.example if isinstance(state, State) else None
        index = None if state is None or example is None else state["rollout_index"]
        return ChildChat(self._pending, self._environment, order, judge.model, judge.plays, example, index, place)

    def _recorded(self, state: State) -> Scored | None:
        return self.known.get((cast(Example, state.example).key, state["rollout_index"]))


@dataclass(frozen=True, slots=True)
class _Panel:
    """The judges of a run while one order is executed; implements `rubrics.judge_port.Panel`."""

    run: _Run
    order: int

    def chat(self, spec: JudgeSpec, state: Mapping[str, Any] | None) -> Chat:
        """Return the chat of judge `spec` for the rollout of `state`."""
        return self.run.judge(self.order, spec, state)


class Service:
    """Executes the orders of the parent process, such as to generate or score a rollout.

    Args:
        environment: The loaded environment.
        orders: The pipe to read orders from.
        out: The channel to the parent process.
    """

    def __init__(self, environment: Environment, orders: int, out: ParentChannel) -> None:
        self._environment = environment
        self._orders = orders
        self._out = out
        self._pending = PendingRequests(out.send)
        self._runs: dict[int, _Run] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._cancelled: set[int] = set()
        """Numbers of the orders that the parent has cancelled."""

    async def run(self) -> None:
        """Execute orders until the parent process sends `end`; then tear the environment down."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(event_loop.tell_lost_error)
        reader = asyncio.StreamReader()
        pipe = os.fdopen(self._orders, "rb", buffering=0)  # the transport closes it
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        self._beat(loop)
        lines = FrameReader()
        sources = dict.fromkeys(map(Path, self._environment.source_files), self._environment.env_id or "")
        with Watchdog(sources, on_stubborn=lambda where: self._out.send({"type": "stubborn", "where": where})):
            async with asyncio.TaskGroup() as tasks:
                going = True
                while going and (data := await reader.read(1 << 16)):
                    for frame in lines.feed(data):
                        going = going and self._take(frame, tasks)
                for order in self._tasks:
                    self._cancel(order)
            await self._environment.teardown()
        self._out.send({"type": "ended"})
        transport.close()

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self._out.send({"type": "beat"})
        loop.call_later(BEAT, self._beat, loop)

    def _take(self, frame: JsonDict, tasks: asyncio.TaskGroup) -> bool:
        """Start to execute an order of the parent process. Returns False if it was the last order."""
        kind = frame["type"]
        if kind in ("answer", "refused", "waits"):
            self._pending.receive(frame)
        elif kind in ("generate", "score"):
            order = cast(int, frame["order"])
            task = self._tasks[order] = tasks.create_task(self._carry_out(frame))
            task.add_done_callback(lambda _: self._tasks.pop(order, None))
        elif kind == "cancel":
            self._cancel(frame["order"])
        elif kind == "forget":
            run = self._runs[frame["run"]]
            run.executor.forget(frame["key"])
            run.live.pop(frame["key"], None)
        elif kind == "open":
            self._runs[frame["run"]] = _Run(self._environment, frame, self._pending)
        return kind != "end"

    def _cancel(self, order: int) -> None:
        task = self._tasks.get(order)
        if task is not None:
            self._cancelled.add(order)
            task.cancel()

    async def _carry_out(self, frame: JsonDict) -> None:
        order, run = frame["order"], self._runs[frame["run"]]
        enter_run(str(frame["run"]))
        try:
            with judged_by(_Panel(run, order)):
                carry_out = self._generate if frame["type"] == "generate" else self._score
                self._out.send_packed(await carry_out(run, frame))
        except asyncio.CancelledError:
            if order not in self._cancelled:
                self._out.send_packed(_given_up(frame, _CANCELS))
                return
            raise
        except MemoryError as error:
            self._out.send_packed(_given_up(frame, describe(error)))
        except BaseException as error:  # the boundary of the process: the parent handles the error
            self._out.send({"type": "raised", "to": order, **error_to_json(error)})
        finally:
            self._cancelled.discard(order)

    async def _generate(self, run: _Run, frame: JsonDict) -> bytes:
        example = cast(Example, record_of(frame["example"]))
        item = Item(frame["key"], example, frame["rollout_index"])
        run.orders[item.key] = frame["order"]
        record = await run.executor.generate(item)
        try:
            line = pack({**document_of(record), "to": frame["order"]})
        except EnvironmentFault as error:  # the record holds a value that is no JSON
            run.executor.forget(item.key)
            return pack({**document_of(unwritable(record, error)), "to": frame["order"]})
        if isinstance(record, Generated):
            run.live[item.key] = Finished(example, record)
        return line

    async def _score(self, run: _Run, frame: JsonDict) -> bytes:
        rollouts: list[Finished] = []
        for member in frame["rollouts"]:
            finished = run.live.pop(member["key"], None)
            if finished is None:
                example, record = record_of(member["example"]), record_of(member["record"])
                finished = Finished(cast(Example, example), cast(Generated, record))
            place = (finished.example.key, finished.record.rollout_index)
            if member["known"] is not None:
                run.known[place] = cast(Scored, record_of(member["known"]))
            rollouts.append(finished)
        try:
            scores: Sequence[Scored] = await run.executor.score(rollouts)
        finally:
            for finished in rollouts:
                run.known.pop((finished.example.key, finished.record.rollout_index), None)
        return pack({"type": "scores", "to": frame["order"], "scores": [document_of(score) for score in scores]})


def _given_up(frame: JsonDict, words: str) -> bytes:
    """Return the encoded report of an order that failed because its task was cancelled or ran out of memory."""
    words = redactor.text(words)
    if frame["type"] == "generate":
        example_key, index = frame["example"]["example_key"], frame["rollout_index"]
        failed = Failed(frame["key"], example_key, index, "generation", "environment_error", words, retryable=False)
        return pack({**document_of(failed), "to": frame["order"]})
    scores = [unscored(member["key"], words) for member in frame["rollouts"]]
    return pack({"type": "scores", "to": frame["order"], "scores": [document_of(score) for score in scores]})
