"""Which generation of the classic API the running code was written for. Owns one context variable: set while a package
is loaded, and while its rollouts and their scoring go on."""

from __future__ import annotations

import contextvars

from harness.plugins.classic.generation import DEFAULT, Generation

current: contextvars.ContextVar[Generation | None] = contextvars.ContextVar("classic_generation", default=None)
"""The generation; None outside classic packages."""


def generation() -> Generation:
    """The generation of whoever is running, the default outside classic packages."""
    return current.get() or DEFAULT
