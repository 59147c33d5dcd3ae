"""Exceptions of the classic API, and the conversion of bench's errors to them. `vf.ModelError` is also a subclass of
bench's `ModelError`, so that the engine recognizes it if an author's code does not catch it."""

from __future__ import annotations

from harness.core.errors import ContextLengthError, ResponseError, SystemicError
from harness.core.errors import ModelError as HarnessModelError


class Error(Exception):
    """Base class for exceptions of the classic API; authors raise them to make a rollout fail."""


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
    """Base class of errors of tool calls."""


class ToolParseError(ToolError):
    """A tool call cannot be parsed."""


class ToolCallError(ToolError):
    """A tool raised an exception."""


class InfraError(Error):
    """Infrastructure that an environment needs, such as a sandbox or a network tunnel, failed."""


class SandboxError(InfraError):
    """The sandbox of a rollout failed."""


class TunnelError(InfraError):
    """A network tunnel failed. bench opens no tunnels and never raises this; authors' `except` clauses may name it."""


class BrowserSandboxError(SandboxError):
    """A browser's sandbox failed. bench runs no browsers and never raises this; authors' `except` clauses may name
    it."""


def classic(error: HarnessModelError) -> HarnessModelError:
    """Convert the error of a failed model call to an exception of the classic API, with the original error as its
    cause. The error of an unusable endpoint is returned unchanged, because it must end the run."""
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
