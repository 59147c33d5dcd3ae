"""Conversion of an agent's result or exception to the outcome of the rollout. Every exception of the agent becomes a
record; none ends the evaluation."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from typing import cast

import orjson
from pydantic import ValidationError

from harness.agents.llm import AgentLLM, message_of
from harness.agents.loop import RolloutContext, RolloutResult
from harness.agents.scoring import AGENT_REWARD, WHOLE
from harness.core.errors import (
    AgentFailed,
    EnvironmentFault,
    LimitReached,
    ModelError,
    ProviderError,
    SandboxError,
    ToolValidationError,
)
from harness.core.state import State
from harness.core.types import Messages
from harness.rubrics.functions import read
from harness.usercode.deadline import was_cancelled

logger = logging.getLogger(__name__)

COMPLETED = "COMPLETED"

_PLAIN_JSON = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
"""Options under which orjson writes only plain JSON values, which are read back unchanged, except that tuples become
lists."""


def result_of(returned: object) -> RolloutResult:
    """The return value of `run`, checked to be a result.

    Raises:
        AgentFailed: the value is not a result.
    """
    if not all(hasattr(returned, name) for name in ("status", "final_messages", "finish_reason")):
        raise AgentFailed(
            f"the agent's run() returned {type(returned).__name__}, not a RolloutResult; end it with "
            "`return ctx.complete(messages)` or `return ctx.error(text)`"
        )
    return cast(RolloutResult, returned)


def finish(state: State, result: RolloutResult, context: RolloutContext, llm: AgentLLM) -> None:
    """Store the result of a run in the rollout's state.

    Raises:
        AgentFailed: the agent reported an error, or its result is malformed.
    """
    messages = _final(result.final_messages)
    keep(state, messages if messages or result.status == COMPLETED else conversation_so_far(state, llm))
    state["stop_condition"] = str(result.finish_reason)
    note(state, context, llm)
    if result.status != COMPLETED:
        words = getattr(result, "error_message", None) or f"the agent ended its run with status {result.status!r}"
        raise AgentFailed(str(words), retryable=llm.error is not None and llm.error.retryable)
    state["is_completed"], state["is_truncated"] = True, llm.is_truncated
    if llm.error is not None and not isinstance(llm.error, LimitReached):
        logger.warning(
            "%s: its newest model call failed, and the agent completed the run all the same, so its score may be the "
            "endpoint's doing: %s",
            context.request.rollout_id,
            llm.error,
        )
    reward, _ = read(getattr(result, "reward", None))
    if reward is not None:
        state[AGENT_REWARD] = reward


def note(state: State, context: RolloutContext, llm: AgentLLM) -> None:
    """Store the numbers of model calls and tool calls in the state."""
    state["num_llm_calls"] = llm.get_metrics().num_llm_calls
    if llm.failed_calls:
        state["num_failed_llm_calls"] = llm.failed_calls
    state["num_tool_calls"] = context._num_tool_calls  # pyright: ignore[reportPrivateUsage]  # the contract's own names
    state["tool_latency_ms"] = context._tool_latency_ms  # pyright: ignore[reportPrivateUsage]


def conversation_so_far(state: State, llm: AgentLLM) -> Messages:
    """Conversation of a run that ended without a result; only the prompt if no model call was made."""
    for with_tail in (True, False):
        try:
            return _final(llm.so_far(with_tail=with_tail)) or list(state["prompt"])
        except AgentFailed:  # the agent appended something that is not a message
            continue
    return list(state["prompt"])


def keep(state: State, messages: Messages) -> None:
    """Make `messages` the rollout's conversation; all of it is the completion unless it begins with the prompt."""
    prompt: Messages = state["prompt"]
    begins = messages[: len(prompt)] == prompt
    if not begins:
        state[WHOLE] = True
    state.transcript, state.start = messages, len(prompt) if begins else 0


def failure_of(error: BaseException, llm: AgentLLM | None) -> BaseException:
    """Convert an exception of an agent to the one that the engine handles.

    Args:
        error: The exception.
        llm: The run's model; None if the run failed before it had one.

    Returns:
        The model's own error if the agent did not handle it; a cancellation or one of our own errors unchanged; else an
        `AgentFailed` with the traceback to the failing line.
    """
    if isinstance(error, asyncio.CancelledError) and was_cancelled():
        return error
    if llm is not None and llm.fatal is not None:
        return llm.fatal
    if isinstance(error, KeyboardInterrupt | GeneratorExit):
        return error
    leaves = list(_leaves(error))
    model_error = next((cause for leaf in leaves if (cause := _model_error(leaf)) is not None), None)
    if model_error is not None:
        return model_error
    for leaf in leaves:
        if isinstance(leaf, ToolValidationError):
            return AgentFailed(f"Tool validation error: {leaf}").with_traceback(leaf.__traceback__)
        if isinstance(leaf, EnvironmentFault | SandboxError):
            return leaf  # not the agent's fault, or already worded for the report
    retryable = llm is not None and llm.error is not None and llm.error.retryable
    failed = AgentFailed(_told(leaves), retryable=retryable)
    failed.__cause__ = error
    return failed.with_traceback(leaves[0].__traceback__)


def _told(leaves: Sequence[BaseException]) -> str:
    first = leaves[0]
    if isinstance(first, ValidationError):
        faults = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in first.errors()]
        text = f"{type(first).__name__} of {first.title}: {'; '.join(faults)}"
    else:
        text = f"{type(first).__name__}: {first}" if str(first) else type(first).__name__
    return text if len(leaves) == 1 else f"{text}, and {len(leaves) - 1} more in other tasks of the agent"


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The leaf exceptions of a nested exception group; any other exception is returned itself."""
    if isinstance(error, BaseExceptionGroup):
        for inner in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _model_error(error: BaseException) -> ModelError | None:
    if isinstance(error, ModelError):
        return error
    cause = error.__cause__
    return cause if isinstance(error, ProviderError) and isinstance(cause, ModelError) else None


def _final(given: object) -> Messages:
    """The final messages as plain JSON; messages that are plain dicts already are not copied.

    Raises:
        AgentFailed: the value is not a list of messages.
    """
    if given is None:
        return []
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise AgentFailed(f"final_messages must be a list of messages, not {type(given).__name__}")
    messages = list(cast("Sequence[object]", given))
    try:
        orjson.dumps(messages, option=_PLAIN_JSON)
        is_plain = all(isinstance(message, dict) for message in messages)
    except TypeError:
        is_plain = False
    if is_plain:
        return cast(Messages, messages)
    try:
        return [message_of(message, number) for number, message in enumerate(messages)]
    except TypeError as error:
        raise AgentFailed(f"final_messages: {error}") from error
