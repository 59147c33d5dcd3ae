"""Executor of an isolated environment: rollouts run in worker processes, and the parent calls models and judges. If a
process dies, its rollouts are retried, except that a rollout running alone in it is recorded as failed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import cast

from harness.core.errors import NODE_LOST, EnvironmentFault, WorkerDied
from harness.core.records import Example, Failed, Generated, Item, Scored, Timing
from harness.core.redact import redactor
from harness.core.replies import ReplyRecorder, to_record
from harness.core.state import State
from harness.core.types import Chat, JsonDict
from harness.engine.executors import Finished
from harness.engine.isolation.process import Worker
from harness.engine.isolation.proxy import IsolatedEnvironment
from harness.engine.isolation.wire import IsolatedRunConfig, error_from_json, error_to_json, response_to_json
from harness.engine.model_source import ModelSource
from harness.engine.rollout import MeteredChat
from harness.engine.rollout_limits import CallGate
from harness.rubrics.judge_port import panel
from harness.store.codec import document_of, record_of
from harness.store.outcome_kinds import unscored
from harness.usercode.deadline import Relay

MAX_LOST = 10
"""Number of times that work is repeated because the computer was lost on which it ran."""

MAX_SHARED = 3
"""Number of times that the worker process of a rollout may die while the rollout waits for its model. After that, the
rollout is retried alone in a process."""


@dataclass(slots=True)
class _Work:
    """The generation or scoring of a rollout, with the state that is needed if worker processes die."""

    examples: dict[str, Example]
    patience: float | None
    """Time limit in seconds, by the clock of the worker process; None for no limit."""
    model: MeteredChat | None = None
    """Model for the generation of a rollout; None for scoring."""
    gate: CallGate | None = None
    """Enforces the rollout's limits in the parent too, since environment code could remove them in the worker."""
    is_beyond_limits: bool = False
    """Whether the worker was ended because the rollout exceeded its limits, so that a retry is pointless."""
    waiting: dict[int, asyncio.Task[None]] = field(default_factory=dict[int, asyncio.Task[None]])
    """The pending model and judge requests by number."""
    deaths: int = 0
    """Number of worker processes that died while executing this work."""
    lost: int = 0
    """Number of those that were lost with their computer."""
    node: str = ""
    """Name of the computer of the last attempt; "" for this one."""


class IsolatedExecutor:
    """Executor that runs an isolated environment in worker processes.

    Args:
        environment: Proxy of the environment.
        source: Source of the model replies: a model or a recording.
        terms: Settings for executing rollouts.
        recorded: Function that returns the recorded score of a rollout, if only one function is scored again.
    """

    def __init__(
        self,
        environment: IsolatedEnvironment,
        source: ModelSource,
        terms: IsolatedRunConfig,
        recorded: Callable[[State], Scored | None] | None = None,
    ) -> None:
        self._environment = environment
        self._is_group = environment.rubric.is_group
        self._pool = environment.pool
        self._source = source
        self._terms = terms
        self._recorded = recorded
        self._holders: dict[str, Worker] = {}
        """The worker process that has the live state of each rollout, by the rollout's key."""
        self._run = self._pool.open_run(
            {"model": source.model, "sampling_args": source.sampling_args, "config": asdict(terms)}
        )

    async def generate(self, item: Item) -> Generated | Failed:
        """Generate one rollout. If its process dies, retry, alone in a process unless it was waiting for its model."""
        order: JsonDict = {
            "type": "generate", "run": self._run, "key": item.key, "rollout_index": item.rollout_index,
            "example": document_of(item.example),
        }  # fmt: skip
        meter = MeteredChat(self._source.chat(item))
        work = _Work({item.example.key: item.example}, self._terms.timeout, meter)
        started_at, started = time.time(), time.monotonic()

        def begin(worker: Worker) -> JsonDict:
            work.gate = self._gate(work, worker)
            if work.deaths:  # restart from the first message, also in a recording
                self._source.close(item)
                meter.inner, meter.dictation = self._source.chat(item), ReplyRecorder()
            return order

        try:
            number = item.example.index if self._is_group else None
            report, worker = await self._carry_out(work, begin, number=number)
        except WorkerDied as death:
            error = redactor.text(f"{death}; this happened in each of {work.deaths} attempts at this rollout")
            return Failed(
                item.key, item.example.key, item.rollout_index, "generation", death.reason, error, retryable=False,
                attempts=work.deaths, usage=meter.usage,
                timing=Timing(started_at, time.monotonic() - started, meter.seconds),
                replies=to_record(meter.dictation.taken, "", is_truncated=False, error=error),
                node=work.node or None,
            )  # fmt: skip
        finally:
            self._source.close(item)
        record = cast("Generated | Failed", record_of(report))
        if isinstance(record, Generated):
            self._holders[item.key] = worker
            worker.held += 1
        # Include the usage of attempts whose process died.
        attempts = record.attempts + work.deaths
        return replace(record, usage=meter.usage, attempts=attempts, node=worker.node or None)

    def _gate(self, work: _Work, worker: Worker) -> CallGate | None:
        # Every attempt has the whole limit, and the parent does not count attempts.
        limits = replace(self._terms.limits.times(1 + self._terms.max_retries), is_refusable=False)
        if not limits.may_refuse:
            return None
        death = WorkerDied(f"{worker.recipe.name} kept calling its model after the rollout's limits were reached")

        def stop() -> None:
            work.is_beyond_limits = True
            worker.die(death)

        return CallGate(limits, self._source.sampling_args, stop)

    async def score(self, rollouts: Sequence[Finished]) -> list[Scored]:
        """Score rollouts in the process that has their live states or, if no process has them, from the journal."""
        holders = [self._holders.get(finished.record.key) for finished in rollouts]
        holder = holders[0] if all(each is holders[0] for each in holders) else None
        for finished in rollouts:
            if holder is None:
                self.forget(finished.record.key)
            else:
                self._released(finished.record.key)
        work = _Work({each.example.key: each.example for each in rollouts}, self._terms.scoring_timeout)
        try:
            report, _ = await self._carry_out(
                work, lambda worker: self._scoring(rollouts, is_live=worker is holder), wanted=holder
            )
        except WorkerDied as death:
            reason = f"{death.reason}: {redactor.text(str(death))}"
            return [unscored(each.record.key, reason) for each in rollouts]
        return [cast(Scored, record_of(score)) for score in report["scores"]]

    def forget(self, key: str) -> None:
        """Delete the live state of a rollout."""
        holder = self._released(key)
        if holder is not None:
            holder.send({"type": "forget", "run": self._run, "key": key})

    def holder_of(self, key: str) -> Worker | None:
        """Return the process that has the live state of a rollout. The rollouts of different processes take turns at
        being scored."""
        return self._holders.get(key)

    def _released(self, key: str) -> Worker | None:
        holder = self._holders.pop(key, None)
        if holder is not None:
            holder.held -= 1
        return holder

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
        """Execute an order in a worker process, and retry the order in another process if the process dies.

        Returns:
            The report, and the process that has the remaining live state.

        Raises:
            WorkerDied: the process died too often during this order.
            HarnessError: as in `Executor`.
        """
        alone = fresh = is_sure = False
        while True:
            place = self._pool.alone(fresh=fresh) if alone else self._pool.place(wanted, number)
            try:
                async with place as worker:
                    # Earlier work in a reused process may be the cause of its death.
                    is_sure = alone and worker.is_fresh
                    work.node = worker.node
                    report = await self._reported(worker, order_for(worker), work)
            except WorkerDied as death:
                work.deaths += 1
                if death.reason == NODE_LOST and work.lost < MAX_LOST:  # not the fault of what ran there
                    work.lost += 1
                    work.waiting.clear()
                    continue
                if is_sure or work.is_beyond_limits:
                    self._pool.has_failed()
                    raise
                # A rollout that waits for a model runs no code, so it did not kill the process.
                alone, fresh = alone or not work.waiting or work.deaths - work.lost >= MAX_SHARED, alone
                work.waiting.clear()
                continue
            self._pool.has_finished()
            return report, worker

    async def _reported(self, worker: Worker, order: JsonDict, work: _Work) -> JsonDict:
        """Send an order to a worker, answer the worker's requests to model and judges, and return its report."""
        with worker.order(order, work.patience) as call:
            async with asyncio.TaskGroup() as answering:
                while True:
                    frame = await call.inbox.get()
                    if isinstance(frame, WorkerDied):
                        break
                    if frame["type"] == "ask":
                        work.waiting[frame["ask"]] = answering.create_task(self._answer(worker, frame, work))
                    elif frame["type"] == "drop":
                        if (task := work.waiting.pop(frame["ask"], None)) is not None:
                            task.cancel()
                    else:
                        worker.done(call)
                        break
                for task in work.waiting.values():
                    task.cancel()
        if isinstance(frame, WorkerDied):
            raise frame.anew()
        if frame["type"] == "raised":
            raise error_from_json(frame)
        return frame

    async def _answer(self, worker: Worker, frame: JsonDict, work: _Work) -> None:
        """Call the model or the judge, and send the response or error to the worker."""
        number = frame["ask"]
        try:
            with (
                self._environment.playing(frame["played"]),
                Relay(lambda waits: worker.send({"type": "waits", "ask": number, "waits": waits})),
            ):
                chat, sampling_args = self._whom(frame, work), frame["sampling_args"]
                if work.gate is None or frame["judge"] is not None:
                    response = await chat(frame["prompt"], tools=frame["tools"], sampling_args=sampling_args)
                else:
                    ticket = await work.gate.enter(sampling_args)
                    response = await ticket.relay(chat, frame["prompt"], frame["tools"])
            answer = {"type": "answer", "ask": number, "response": response_to_json(response)}
        except Exception as error:  # every error must reach the requesting code
            answer = {"type": "refused", "ask": number, **error_to_json(error)}
        # A request whose process died meanwhile counts as still waiting.
        if worker.death is None:
            work.waiting.pop(number, None)
        worker.send(answer)

    def _whom(self, frame: JsonDict, work: _Work) -> Chat:
        place = cast("int | None", frame["judge"])
        if place is None:
            assert work.model is not None, "scoring asks judges only"
            return work.model
        spec, seated = self._environment.judges[place], panel()
        if seated is None:
            raise EnvironmentFault(f"the judge {spec.model!r} is not connected to this run")
        example = work.examples.get(frame["example_key"])
        return seated.chat(spec, None if example is None else _named(example, frame["rollout_index"]))


def _named(example: Example, rollout_index: int) -> State:
    """Return a state that contains only the example and the rollout index."""
    state = State(rollout_index=rollout_index)
    state.example = example
    return state
