"""Context variable with the generation of the classic API that the running code was written for. It is set while a
package is loaded, and during its rollouts and scoring."""

from __future__ import annotations

import contextvars

from harness.plugins.classic.generation import DEFAULT, Generation

current: contextvars.ContextVar[Generation | None] = contextvars.ContextVar("classic_generation", default=None)
"""The generation; None outside classic packages."""


def generation() -> Generation:
    """The generation of the running code; the default outside classic packages."""
    return current.get() or DEFAULT
