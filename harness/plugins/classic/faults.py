"""The errors of the classic API. Owns the tree and the way from our own errors into it: `vf.ModelError` is one of ours
too, so that what an endpoint did is still known when an author let it pass."""

from __future__ import annotations

from harness.core.errors import ContextLengthError, ResponseError, SystemicError
from harness.core.errors import ModelError as HarnessModelError


class Error(Exception):
    """Base of what a classic package raises to fail a rollout."""


class ModelError(Error, HarnessModelError):
    """A model call failed."""

    def __init__(self, *args: object) -> None:
        HarnessModelError.__init__(self, " ".join(str(part) for part in args) or "the model call failed")


class EmptyModelResponseError(ModelError):
    """The endpoint answered with nothing that can be read."""


class InvalidModelResponseError(ModelError):
    """The endpoint answered with something that is no reply."""


class OverlongPromptError(Error, ContextLengthError):
    """The prompt no longer fits the model's context: the rollout ends, truncated."""

    def __init__(self, *args: object) -> None:
        words = " ".join(str(part) for part in args) or "the prompt is longer than the model's context"
        ContextLengthError.__init__(self, words, reason="context_length")


class ToolError(Error):
    """Something about a tool."""


class ToolParseError(ToolError):
    """A tool call cannot be read."""


class ToolCallError(ToolError):
    """A tool raised."""


class InfraError(Error):
    """What the environment runs on failed."""


class SandboxError(InfraError):
    """A sandbox failed."""


class TunnelError(InfraError):
    """A tunnel failed."""


class BrowserSandboxError(SandboxError):
    """A browser's sandbox failed."""


def classic(error: HarnessModelError) -> HarnessModelError:
    """A failed model call as classic code may catch it; chained to ours. An unusable endpoint stays what it is: that
    ends the run, and is no author's to handle."""
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
