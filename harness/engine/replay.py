"""Replay recorded replies and failures instead of calling a model. The environment runs as in any other run."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import cast

from harness.core.calls import read_calls, usage_of
from harness.core.errors import LimitReached, ModelError
from harness.core.records import Failed, Generated, Item
from harness.core.replies import UNANSWERED, ReplyPlayer, read_off
from harness.core.types import Chat, JsonDict, ModelResponse, Prompt, Sampling, Tools
from harness.engine.executors import Executor
from harness.envs.environment import Environment
from harness.models.delays import Delay
from harness.models.wire import merge_sampling_args
from harness.settings.resolver import ResolvedRun
from harness.settings.schema import ROLLOUT_LIMITS
from harness.store.journal import JournalReader
from harness.store.journal_index import Recorded


class ReplaySource:
    """Model source of a run that calls no model.

    Args:
        recorded: The journal with the replies.
        resolved: The run's settings.
        environment: The environment; its default sampling arguments are overridden by the run's.
    """

    def __init__(self, recorded: Recorded, resolved: ResolvedRun, environment: Environment) -> None:
        self._recorded = recorded
        self.model = resolved.endpoints[0].model
        self.sampling_args: JsonDict = merge_sampling_args(
            environment.sampling_args, resolved.settings.model.sampling_args
        )

    def delays(self) -> list[Delay]:
        """Return no delays, since a replay does not wait for requests."""
        return []

    def recorded(self, item: Item) -> Generated | Failed:
        """Return the record of a rollout in the journal."""
        generated = self._recorded.generated_at(item.key)
        offset = self._recorded.failed_at(item.key) if generated is None else generated
        assert offset is not None, "the plan holds recorded rollouts only"
        with JournalReader(self._recorded.path) as reader:
            return cast("Generated | Failed", reader.record(offset))

    def chat(self, item: Item) -> Chat:
        """Return a chat that replays the recorded replies of one rollout."""
        return ReplayChat(self.model, self.recorded(item))

    def close(self, item: Item) -> None:
        """Do nothing: a replay holds no resources."""


class ReplayChat:
    """Chat that returns the recorded replies of a rollout in order, regardless of the prompt.

    Args:
        model: Name of the recorded model.
        record: The recorded rollout.
    """

    def __init__(self, model: str, record: Generated | Failed) -> None:
        self.model = model
        self._record = record
        replies = record.replies
        if replies is None:
            is_cut = (
                isinstance(record, Generated) and record.is_truncated and record.stop_condition not in ROLLOUT_LIMITS
            )
            replies = read_off(record.completion, is_truncated=is_cut, usage=record.usage)
        if calls := read_calls(record.calls):
            is_derived = record.replies is None
            used = [
                {**reply, "seconds": call["seconds"], **({"usage": usage_of(call)} if is_derived else {})}
                for reply, call in zip(replies, calls, strict=False)
            ]
            replies = [*used, *replies[len(used) :]]
        self._count = len(replies)
        self._recital = ReplyPlayer(replies)

    async def __call__(self, prompt: Prompt, *, tools: Tools = None, sampling_args: Sampling = None) -> ModelResponse:
        """Return the next recorded reply.

        Raises:
            LimitReached: at this point, a limit ended the recorded rollout.
            ModelError: at this point, the recorded request or rollout failed as well; or no recorded reply is left,
                because the environment now makes other calls.
        """
        reply = self._recital.next(prompt)
        if isinstance(reply, ModelResponse):
            return reply
        record = self._record
        is_unanswered = reply is None or reply.reason == UNANSWERED
        if is_unanswered and isinstance(record, Failed):
            raise ModelError(record.error, retryable=record.retryable, reason=record.reason)
        limit = record.stop_condition if isinstance(record, Generated) else None
        if reply is None and limit in ROLLOUT_LIMITS:
            raise LimitReached(f"{limit} ended the recorded rollout at this point", reason=str(limit))
        if reply is not None and is_unanswered:
            await asyncio.Event().wait()  # the environment cancelled this call, and will again
        if reply is not None:
            raise reply
        raise ModelError(
            f"the environment makes more requests than the recorded rollout, which has {self._count} replies, so its "
            "behavior has changed; replay the run with a model",
            reason="replay_ended",
        )


class Replaying:
    """Executor that replays rollouts. Usage, timing and number of attempts are copied from the recording.

    Args:
        inner: Executes the rollouts, with the recording in place of a model.
        recording: The recorded rollouts.
    """

    def __init__(self, inner: Executor, recording: ReplaySource) -> None:
        self._recording = recording
        self._inner = inner
        self.score = inner.score
        self.forget = inner.forget

    async def generate(self, item: Item) -> Generated | Failed:
        """Replay one rollout."""
        made = await self._inner.generate(item)
        original = self._recording.recorded(item)
        calls = original.calls and (made.calls or original.calls)
        return replace(made, usage=original.usage, timing=original.timing, attempts=original.attempts, calls=calls)
