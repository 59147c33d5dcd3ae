"""Context variable with the generation of the classic API (`B` or `C`, see `generation`) that the running code was
written for. It is set while a package is loaded, and during its rollouts and scoring."""

from __future__ import annotations

import contextvars

from harness.plugins.classic.generation import DEFAULT, Generation

current: contextvars.ContextVar[Generation | None] = contextvars.ContextVar("classic_generation", default=None)
"""Generation of the classic API that the running code was written for; None outside classic packages."""


def generation() -> Generation:
    """Return the generation of the classic API that the running code was written for; outside classic packages the
    default."""
    return current.get() or DEFAULT
