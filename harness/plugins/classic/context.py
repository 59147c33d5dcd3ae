"""Context variable that holds the generation of the classic `verifiers` API that the running code was written for: `B`
(older, dict-based) or `C` (newer, typed). It is set while a package is loaded, and during its rollouts and scoring."""

from __future__ import annotations

import contextvars

from harness.plugins.classic.generation import DEFAULT, Generation

current: contextvars.ContextVar[Generation | None] = contextvars.ContextVar("classic_generation", default=None)
"""Generation (`B` or `C`) of the classic API that the running code was written for; None outside classic packages."""


def generation() -> Generation:
    """Return the generation of the classic `verifiers` API (`B` or `C`) that the running code was written for; outside
    classic packages, return the default generation."""
    return current.get() or DEFAULT
