"""Logging helpers of the classic API. They set only the level of the logger `verifiers`, and add no handlers."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Generator, Sequence
from typing import Any

from harness.core.types import Prompt, text_of

_LOGGER = "verifiers"


def setup_logging(level: str | int | None = "INFO", *args: Any, **kwargs: Any) -> None:
    """Set the level of the logger `verifiers`, which classic packages use."""
    logging.getLogger(_LOGGER).setLevel(level.upper() if isinstance(level, str) else level or logging.INFO)


@contextlib.contextmanager
def log_level(level: str | int) -> Generator[None]:
    """Context manager that temporarily changes the level of the logger `verifiers`."""
    logger = logging.getLogger(_LOGGER)
    before = logger.level
    setup_logging(level)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextlib.contextmanager
def quiet_verifiers() -> Generator[None]:
    """Context manager in which classic packages log only warnings and errors."""
    with log_level(logging.WARNING):
        yield


def print_prompt_completions_sample(
    prompts: Sequence[Prompt],
    completions: Sequence[Prompt],
    errors: Sequence[object] | None = None,
    rewards: Sequence[float] | None = None,
    step: int = 0,
    num_samples: int = 1,
) -> None:
    """Print prompt, completion and reward of the first few rollouts."""
    shown = [f"Step {step}"]
    for number in range(min(num_samples, len(prompts))):
        shown.append(f"--- prompt\n{_shown(prompts[number])}\n--- completion\n{_shown(completions[number])}")
        if errors is not None and number < len(errors) and errors[number] is not None:
            shown.append(f"--- error: {errors[number]!r}")
        if rewards is not None and number < len(rewards):
            shown.append(f"--- reward: {rewards[number]:.3f}")
    sys.stdout.write("\n".join(shown) + "\n")


def _shown(messages: Prompt) -> str:
    if isinstance(messages, str):
        return messages
    return "\n".join(f"{message.get('role')}: {text_of(message)}" for message in messages)
