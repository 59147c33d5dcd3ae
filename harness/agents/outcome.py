"""Conversion of an agent's result or exception to the outcome of a rollout. An exception in the agent fails its
rollout, but does not end the evaluation."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from typing import cast

import orjson
from pydantic import ValidationError

from harness.agents.llm import AgentLLM, message_of
from harness.agents.loop import RolloutContext, RolloutResult
from harness.agents.schemas import RolloutStatus
from harness.agents.scoring import AGENT_REWARD, WHOLE
from harness.core.errors import (
    AgentFailed,
    EnvironmentFault,
    LimitReached,
    ModelError,
    ProviderError,
    SandboxError,
    SystemicError,
    SystemicProviderError,
    ToolValidationError,
)
from harness.core.openai_client import original
from harness.core.state import State
from harness.core.types import Messages
from harness.rubrics.functions import read
from harness.usercode.deadline import was_cancelled

logger = logging.getLogger(__name__)

_PLAIN_JSON = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
"""Options with which orjson accepts only plain JSON values and tuples."""


def result_of(returned: object) -> RolloutResult:
    """Check that an agent's `run` returned a `RolloutResult`, and return this result.

    Raises:
        AgentFailed: the returned value is not a `RolloutResult`.
    """
    if not all(hasattr(returned, name) for name in ("status", "final_messages", "finish_reason")):
        raise AgentFailed(
            f"the agent's run() returned {type(returned).__name__}, not a RolloutResult; end it with "
            "`return ctx.complete(messages)` or `return ctx.error(text)`"
        )
    return cast(RolloutResult, returned)


def finish(state: State, result: RolloutResult, context: RolloutContext, llm: AgentLLM) -> None:
    """Store the result of an agent's run in the rollout's state.

    Raises:
        AgentFailed: the agent reported an error, or its result is malformed.
    """
    messages = _final(result.final_messages)
    keep(state, messages if messages or result.status == RolloutStatus.COMPLETED else conversation_so_far(state, llm))
    state["stop_condition"] = str(result.finish_reason)
    note(state, context, llm)
    if result.status != RolloutStatus.COMPLETED:
        message = getattr(result, "error_message", None) or f"the agent ended its run with status {result.status!r}"
        raise AgentFailed(str(message), retryable=llm.error is not None and llm.error.retryable)
    state["is_completed"], state["is_truncated"] = True, llm.is_truncated
    if llm.error is not None and not isinstance(llm.error, LimitReached):
        logger.warning(
            "%s: the agent completed the run although its latest model call failed; this may affect the score: %s",
            context.request.rollout_id,
            llm.error,
        )
    reward, _ = read(getattr(result, "reward", None))
    if reward is not None:
        state[AGENT_REWARD] = reward


def note(state: State, context: RolloutContext, llm: AgentLLM) -> None:
    """Store the number of model calls and the number and duration of tool calls in the rollout's state."""
    state["num_llm_calls"] = llm.get_metrics().num_llm_calls
    if llm.failed_calls:
        state["num_failed_llm_calls"] = llm.failed_calls
    state["num_tool_calls"] = context._num_tool_calls  # pyright: ignore[reportPrivateUsage]  # the contract's own names
    state["tool_latency_ms"] = context._tool_latency_ms  # pyright: ignore[reportPrivateUsage]


def conversation_so_far(state: State, llm: AgentLLM) -> Messages:
    """Return the conversation of a run that ended without a result, or only the prompt if there was no model call."""
    for with_tail in (True, False):
        try:
            return _final(llm.so_far(with_tail=with_tail)) or list(state["prompt"])
        except AgentFailed:  # the agent appended a value that is not a message
            continue
    return list(state["prompt"])


def keep(state: State, messages: Messages) -> None:
    """Store `messages` as the rollout's conversation. The completion is the part after the prompt, or all messages if
    they do not begin with the prompt."""
    prompt: Messages = state["prompt"]
    begins = messages[: len(prompt)] == prompt
    if not begins:
        state[WHOLE] = True
    state.transcript, state.start = messages, len(prompt) if begins else 0


def failure_of(error: BaseException, llm: AgentLLM | None) -> BaseException:
    """Convert an exception of an agent to the exception that the engine handles.

    Args:
        error: The exception.
        llm: The run's model; None if the run failed before its model was set.

    Returns:
        The error of the model call, if that is the cause; the exception itself, if it is a cancellation or an error of
        the environment; a `SystemicError`, if the agent raised a `SystemicProviderError`; else an `AgentFailed` with
        the traceback to the failing line.
    """
    if isinstance(error, asyncio.CancelledError) and was_cancelled():
        return error
    if llm is not None and llm.fatal is not None:
        return llm.fatal
    if isinstance(error, KeyboardInterrupt | GeneratorExit):
        return error
    leaves = list(_leaves(error))
    for leaf in leaves:
        cause = leaf.__cause__ if isinstance(leaf, ProviderError) else original(leaf, contexts=False)
        if isinstance(cause, ModelError):
            return cause
    for leaf in leaves:
        if isinstance(leaf, SystemicProviderError):
            return SystemicError(str(leaf), reason="provider_error")
        if isinstance(leaf, ToolValidationError):
            return AgentFailed(f"Tool validation error: {leaf}").with_traceback(leaf.__traceback__)
        leaf = original(leaf, contexts=False) or leaf
        if isinstance(leaf, EnvironmentFault | SandboxError):
            return leaf  # not the agent's fault, or already fit for a report
    retryable = llm is not None and llm.error is not None and llm.error.retryable
    failed = AgentFailed(_text_of(leaves), retryable=retryable)
    failed.__cause__ = error
    return failed.with_traceback(leaves[0].__traceback__)


def _text_of(leaves: Sequence[BaseException]) -> str:
    first = leaves[0]
    if isinstance(first, ValidationError):
        faults = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in first.errors()]
        text = f"{type(first).__name__} of {first.title}: {'; '.join(faults)}"
    else:
        text = f"{type(first).__name__}: {first}" if str(first) else type(first).__name__
    return text if len(leaves) == 1 else f"{text}, and {len(leaves) - 1} more in other tasks of the agent"


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """Iterate over the exceptions in a nested exception group. For any other exception, yield only that exception."""
    if isinstance(error, BaseExceptionGroup):
        for inner in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _final(given: object) -> Messages:
    """Convert the agent's final messages to plain JSON; messages that are already plain dicts are not copied.

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
