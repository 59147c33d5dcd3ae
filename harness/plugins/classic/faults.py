"""Exceptions of the classic API, and the conversion of bench's errors to them. `vf.ModelError` is also a subclass of
ours, so that the cause is kept if an author's code lets it pass."""

from __future__ import annotations

from harness.core.errors import ContextLengthError, ResponseError, SystemicError
from harness.core.errors import ModelError as HarnessModelError


class Error(Exception):
    """Base of exceptions by which a classic package fails a rollout."""


class ModelError(Error, HarnessModelError):
    """A model call failed."""

    def __init__(self, *args: object) -> None:
        HarnessModelError.__init__(self, " ".join(str(part) for part in args) or "the model call failed")


class EmptyModelResponseError(ModelError):
    """The endpoint's reply is empty."""


class InvalidModelResponseError(ModelError):
    """The endpoint's reply is invalid."""


class OverlongPromptError(Error, ContextLengthError):
    """The prompt exceeds the model's context; the rollout ends, truncated."""

    def __init__(self, *args: object) -> None:
        words = " ".join(str(part) for part in args) or "the prompt is longer than the model's context"
        ContextLengthError.__init__(self, words, reason="context_length")


class ToolError(Error):
    """Base of tool errors."""


class ToolParseError(ToolError):
    """A tool call cannot be parsed."""


class ToolCallError(ToolError):
    """A tool raised an exception."""


class InfraError(Error):
    """Infrastructure of the environment failed."""


class SandboxError(InfraError):
    """A sandbox failed."""


class TunnelError(InfraError):
    """A tunnel failed."""


class BrowserSandboxError(SandboxError):
    """A browser's sandbox failed."""


def classic(error: HarnessModelError) -> HarnessModelError:
    """Convert a failed model call to a classic exception, with bench's as its cause. An unusable endpoint's error is
    returned unchanged: it ends the run, and author code must not handle it."""
    if isinstance(error, Error | SystemicError):
        return error
    if isinstance(error, ContextLengthError):
        made: HarnessModelError = OverlongPromptError(str(error))
    elif isinstance(error, ResponseError):
        made = EmptyModelResponseError(str(error))
    else:
        made = ModelError(str(error))
    made.status, made.retryable, made.reason = error.status, error.retryable, error.reason
    made.__cause__ = error
    return made
