"""Agent evaluation in Python: runners, results, and the types and helpers for agents, tools and eval functions.
The names are defined in `harness.agents` and imported at their first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness import agents as _home

if TYPE_CHECKING:
    from harness.agents import *  # noqa: F403

__all__: list[str] = []
__all__ += _home.__all__


def __getattr__(name: str) -> object:
    try:
        return getattr(_home, name)
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
