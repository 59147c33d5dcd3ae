"""Judge calls by synchronous reward functions, which run in a different thread from the run's event loop."""

from __future__ import annotations

import asyncio
from typing import cast

from harness.core.errors import ModelError
from harness.core.state import State
from harness.core.types import ModelResponse, Prompt
from harness.rubrics.judge import Judge
from harness.rubrics.judge_port import current_rollout, note_failure, run_loop, running_loop


def is_connected() -> bool:
    """Whether the calling code belongs to a run that has connected its judges."""
    return run_loop() is not None


def reply_in_thread(judge: Judge, messages: Prompt, seconds: float | None = None) -> ModelResponse:
    """Ask a judge about the rollout that is being scored, and block the calling thread until it replies.

    Args:
        judge: The judge.
        messages: The question.
        seconds: Timeout in seconds, including all retries; None for only the run's own timeout.

    Raises:
        ModelError: the call failed after all retries, or took too long.
        RuntimeError: the caller runs on the event loop of the run, which must not be blocked.
    """
    loop = run_loop()
    assert loop is not None, "reply_in_thread() needs a run"
    if running_loop() is loop:
        raise RuntimeError(
            "a blocking judge was called in an async function; call it with `await asyncio.to_thread(function, …)`, "
            "or make the function sync"
        )
    state = cast("State | None", current_rollout())

    async def reply() -> ModelResponse:
        async with asyncio.timeout(seconds):
            return (await judge.reply(messages, state)).response

    try:
        return asyncio.run_coroutine_threadsafe(reply(), loop).result()
    except TimeoutError as error:
        failed = ModelError(f"the judge {judge.spec.model} did not reply within {seconds:g} s", reason="timeout")
        note_failure(failed)
        raise failed from error
