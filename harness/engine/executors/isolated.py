"""The executor of an isolated environment: rollouts are carried out in processes of its own, and every model and judge
is asked from here. Owns what becomes of a rollout whose process dies: what can be innocent is made again, what dies
alone has failed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import cast

from harness.core.errors import EnvironmentFault, WorkerDied
from harness.core.records import Example, Failed, Generated, Item, Scored, Timing
from harness.core.redact import redactor
from harness.core.replies import ReplyRecorder, to_record
from harness.core.state import State
from harness.core.types import Chat, JsonDict
from harness.engine.executors import Finished
from harness.engine.isolation.asking import SeatedJudge
from harness.engine.isolation.process import Worker
from harness.engine.isolation.proxy import IsolatedEnvironment
from harness.engine.isolation.wire import error_from_json, error_to_json, response_to_json
from harness.engine.lanes import ModelSource
from harness.engine.rollout import MeteredChat
from harness.engine.rollout_limits import CallGate, RolloutLimits
from harness.rubrics.judge_port import panel
from harness.store.codec import document_of, record_of
from harness.usercode.deadline import relayed

MAX_SHARED = 3
"""Processes that may die around a rollout which was waiting for its model each time, before it gets one for itself."""


@dataclass(frozen=True, slots=True)
class IsolatedRunConfig:
    """What a run's rollouts are carried out under; see `executors.local`."""

    timeout: float | None = None
    max_retries: int = 0
    scoring_timeout: float | None = None
    message_limit: int | None = None
    token_limit: int | None = None
    is_refusable: bool = False
    """As in `RolloutLimits`."""
    function: str | None = None
    """The one reward function that scores; None is the whole rubric."""
    plays: tuple[str, ...] = ()
    """What of the environment the embedded server plays as the run's model: methods of it."""
    judges: Mapping[int, SeatedJudge] = field(default_factory=dict[int, SeatedJudge])
    """Who is asked as a judge, by its place among those of the rubric."""


@dataclass(slots=True)
class _Work:
    """Something that is to be carried out, whatever its processes do meanwhile."""

    examples: dict[str, Example]
    patience: float | None
    """Seconds that it may take, by the process's own clock."""
    model: MeteredChat | None = None
    """Of a rollout; scoring has none."""
    gate: CallGate | None = None
    """Holds the rollout's limits here too: code of the environment's could lift those in its process."""
    is_beyond_limits: bool = False
    """Whether its process was ended because it asked on and on: another one would do the same."""
    waiting: set[int] = field(default_factory=set[int])
    """Questions that are not answered yet."""
    deaths: int = 0
    """Processes that have died with it."""


class IsolatedExecutor:
    """Runs one environment in its own processes.

    Args:
        environment: Stands for it.
        lane: The run's way to its model, or to a recording.
        terms: How rollouts are carried out.
        recorded: Of a run that scores with one function: the score on record of a rollout.
    """

    def __init__(
        self,
        environment: IsolatedEnvironment,
        lane: ModelSource,
        terms: IsolatedRunConfig,
        recorded: Callable[[State], Scored | None] | None = None,
    ) -> None:
        self._environment = environment
        self._is_group = environment.rubric.is_group
        self._pool = environment.pool
        self._lane = lane
        self._terms = terms
        self._recorded = recorded
        self._holders: dict[str, Worker] = {}
        """The process that has a rollout's live state, by key."""
        self._run = self._pool.open_run(
            {
                "model": lane.model, "sampling_args": lane.sampling_args, "timeout": terms.timeout,
                "max_retries": terms.max_retries, "scoring_timeout": terms.scoring_timeout, "function": terms.function,
                "plays": terms.plays, "message_limit": terms.message_limit, "token_limit": terms.token_limit,
                "is_refusable": terms.is_refusable,
                "judges": {str(place): asdict(judge) for place, judge in terms.judges.items()},
            }
        )  # fmt: skip

    async def generate(self, item: Item) -> Generated | Failed:
        """Make one rollout. If its process dies it is made again: alone, unless it was waiting for its model."""
        order: JsonDict = {
            "type": "generate", "run": self._run, "key": item.key, "rollout_index": item.rollout_index,
            "example": document_of(item.example),
        }  # fmt: skip
        meter = MeteredChat(self._lane.chat(item))
        work = _Work({item.example.key: item.example}, self._terms.timeout, meter)
        started_at, started = time.time(), time.monotonic()

        def begin(worker: Worker) -> JsonDict:
            work.gate = self._gate(work, worker)
            if work.deaths:  # from the first word on, also for a recording
                self._lane.close(item)
                meter.inner, meter.dictation = self._lane.chat(item), ReplyRecorder()
            return order

        try:
            number = item.example.index if self._is_group else None
            report, worker = await self._carry_out(work, begin, number=number)
        except WorkerDied as death:
            timing = Timing(started_at, time.monotonic() - started, meter.seconds)
            return _failed(item, death, work.deaths, meter, timing)
        finally:
            self._lane.close(item)
        record = cast("Generated | Failed", record_of(report))
        if isinstance(record, Generated):
            self._holders[item.key] = worker
        # With what was paid for in processes that have died.
        return replace(record, usage=meter.usage, attempts=record.attempts + work.deaths)

    def _gate(self, work: _Work, worker: Worker) -> CallGate | None:
        terms = self._terms
        attempts = 1 + terms.max_retries  # each has the whole limit, and only the process knows which one this is
        calls, tokens = (None if each is None else each * attempts for each in (terms.message_limit, terms.token_limit))
        if calls is None and tokens is None:
            return None
        death = WorkerDied(f"{worker.recipe.name} asked its model again and again beyond the rollout's limits")

        def stop() -> None:
            work.is_beyond_limits = True
            worker.die(death)

        return CallGate(RolloutLimits(calls, tokens), self._lane.sampling_args, stop)

    async def score(self, rollouts: Sequence[Finished]) -> list[Scored]:
        """Score where the live states are, or from what the journal holds."""
        holders = [self._holders.get(finished.record.key) for finished in rollouts]
        holder = holders[0] if all(each is holders[0] for each in holders) else None
        if holder is None:
            for finished in rollouts:
                self.forget(finished.record.key)
        work = _Work({each.example.key: each.example for each in rollouts}, self._terms.scoring_timeout)
        try:
            report, _ = await self._carry_out(
                work, lambda worker: self._scoring(rollouts, is_live=worker is holder), wanted=holder
            )
        except WorkerDied as death:
            reasons = {"*": f"{death.reason}: {redactor.text(str(death))}"}
            return [Scored(each.record.key, "unscored", None, {}, reasons) for each in rollouts]
        finally:
            for finished in rollouts:
                self._holders.pop(finished.record.key, None)
        return [cast(Scored, record_of(score)) for score in report["scores"]]

    def forget(self, key: str) -> None:
        """Drop a live state."""
        holder = self._holders.pop(key, None)
        if holder is not None:
            holder.send({"type": "forget", "run": self._run, "key": key})

    def _scoring(self, rollouts: Sequence[Finished], *, is_live: bool) -> JsonDict:
        members: list[JsonDict] = []
        for finished in rollouts:
            member: JsonDict = {"key": finished.record.key, "known": None}
            if not is_live:
                member |= {"example": document_of(finished.example), "record": document_of(finished.record)}
            if self._recorded is not None:
                known = self._recorded(_named(finished.example, finished.record.rollout_index))
                member["known"] = None if known is None else document_of(known)
            members.append(member)
        return {"type": "score", "run": self._run, "rollouts": members}

    async def _carry_out(
        self,
        work: _Work,
        order_for: Callable[[Worker], JsonDict],
        *,
        wanted: Worker | None = None,
        number: int | None = None,
    ) -> tuple[JsonDict, Worker]:
        """Have something done, by another process if one dies with it.

        Returns:
            What came of it, and the process that has what is left of it.

        Raises:
            WorkerDied: it died once too often with this.
            HarnessError: as in `Executor`.
        """
        alone = fresh = is_sure = False
        while True:
            place = self._pool.alone(fresh=fresh) if alone else self._pool.place(wanted, number)
            try:
                async with place as worker:
                    # Of one that did other things before, these may be what it dies of.
                    is_sure = alone and worker.is_fresh
                    report = await self._reported(worker, order_for(worker), work)
            except WorkerDied:
                work.deaths += 1
                if is_sure or work.is_beyond_limits:
                    self._pool.has_failed()
                    raise
                # What waits for a model runs no code: it is not what killed the process.
                alone, fresh = alone or not work.waiting or work.deaths >= MAX_SHARED, alone
                work.waiting.clear()
                continue
            self._pool.has_finished()
            return report, worker

    async def _reported(self, worker: Worker, order: JsonDict, work: _Work) -> JsonDict:
        """Give an order, and answer questions until it is carried out."""
        with worker.order(order, work.patience) as call:
            async with asyncio.TaskGroup() as answering:
                asked: dict[int, asyncio.Task[None]] = {}
                while True:
                    frame = await call.inbox.get()
                    if isinstance(frame, WorkerDied):
                        break
                    if frame["type"] == "ask":
                        work.waiting.add(frame["ask"])
                        task = asked[frame["ask"]] = answering.create_task(self._answer(worker, frame, work))
                        task.add_done_callback(lambda _, number=frame["ask"]: asked.pop(number, None))
                    elif frame["type"] == "drop":
                        work.waiting.discard(frame["ask"])
                        if (task := asked.get(frame["ask"])) is not None:
                            task.cancel()
                    else:
                        worker.done(call)
                        break
                for task in asked.values():
                    task.cancel()
        if isinstance(frame, WorkerDied):
            raise frame.anew()
        if frame["type"] == "raised":
            raise error_from_json(frame)
        return frame

    async def _answer(self, worker: Worker, frame: JsonDict, work: _Work) -> None:
        """Ask the model or the judge, and say what it says."""
        number = frame["ask"]
        try:
            with (
                self._environment.playing(frame["played"]),
                relayed(lambda waits: worker.send({"type": "waits", "ask": number, "waits": waits})),
            ):
                chat, sampling_args = self._whom(frame, work), frame["sampling_args"]
                if work.gate is None or frame["judge"] is not None:
                    response = await chat(frame["prompt"], tools=frame["tools"], sampling_args=sampling_args)
                else:
                    ticket = await work.gate.enter(sampling_args)
                    response = await ticket.relay(chat, frame["prompt"], frame["tools"])
            answer = {"type": "answer", "ask": number, "response": response_to_json(response)}
        except Exception as error:  # whatever it is, the code that asks must hear of it
            answer = {"type": "refused", "ask": number, **error_to_json(error)}
        # One whose process dies meanwhile has not been answered: it was waiting when that happened.
        if worker.death is None:
            work.waiting.discard(number)
        worker.send(answer)

    def _whom(self, frame: JsonDict, work: _Work) -> Chat:
        place = cast("int | None", frame["judge"])
        if place is None:
            assert work.model is not None, "scoring asks judges only"
            return work.model
        spec, seated = self._environment.judges[place], panel()
        if seated is None:
            raise EnvironmentFault(f"nobody has connected the judge {spec.model!r}")
        example = work.examples.get(frame["example_key"])
        return seated.chat(spec, None if example is None else _named(example, frame["rollout_index"]))


def _named(example: Example, rollout_index: int) -> State:
    """A state that says no more than which rollout it is of."""
    state = State(rollout_index=rollout_index)
    state.example = example
    return state


def _failed(item: Item, death: WorkerDied, deaths: int, meter: MeteredChat, timing: Timing) -> Failed:
    error = redactor.text(f"{death}, each of the {deaths} times that this rollout was made")
    replies = to_record(meter.dictation.taken, "", is_truncated=False, error=error)
    return Failed(
        item.key, item.example.key, item.rollout_index, "generation", death.reason, error, retryable=False,
        attempts=deaths, usage=meter.usage, timing=timing, replies=replies,
    )  # fmt: skip
