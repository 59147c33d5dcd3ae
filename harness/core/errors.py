"""The exception classes of the project. Every exception that one module raises and another catches is defined here.

    HarnessError
    ├── UsageError                 invalid input from the caller: exit code 2, nothing was started
    │   ├── ConfigError            an invalid setting: names the file, the key and a remedy
    │   ├── ResumeRefused          the run on disk differs from the requested run
    │   ├── ValidationError        a multi-model evaluation without tasks or without models
    │   └── StateError             a stored multi-model evaluation is missing or has no inputs
    ├── EnvironmentFault           the environment's own code failed
    │   ├── AgentFailed            the agent under evaluation raised an exception or reported an error
    │   ├── TaskTimeout            a request of a task exceeded the task's timeout
    │   ├── EnvironmentNotFound    no such environment (says how to install it)
    │   ├── EnvironmentLoadError   importing or constructing the environment failed
    │   ├── SandboxMissing         the environment needs a sandbox and none is available (says what to install)
    │   ├── ToolServerError        a tool server did not start, died or stopped answering: may be retried
    │   ├── WorkerDied             the process of an isolated environment ended unexpectedly
    │   └── ThreadsHung            too many blocking calls of the environment never returned: the run stops
    ├── ModelError                 a model call failed after all retries; `retryable`: a later call may succeed
    │   ├── ContextLengthError     the prompt exceeds the context length: a property of the model, not a fault
    │   ├── ResponseError          the endpoint's reply could not be parsed
    │   ├── LimitReached           a limit of the rollout is reached: it ends and is scored
    │   └── SystemicError          the endpoint as a whole is unusable: the run stops
    │       └── BudgetSpent        the budget of the invocation is spent: no further call is made
    ├── ToolError                  a tool call failed: reported to the model, or ends the rollout (`stop_errors`)
    │   ├── ToolParseError         the arguments are not a JSON object
    │   └── ToolCallError          unknown tool, wrong arguments, or the tool raised an exception
    ├── SandboxError               the sandbox itself failed, not the code in it
    ├── VerificationError          a math answer could not be compared: the rollout is unscored, not wrong
    ├── JudgeError                 a judge gave no verdict: the rollout is unscored, not wrong
    ├── LocalExecutionError        an agent evaluation cannot run
    │   ├── DatasetParseError      the dataset file cannot be parsed
    │   ├── DatasetValidationError a row lacks a required column
    │   ├── ToolValidationError    the agent offers a tool whose schema endpoints reject
    │   └── ProviderError          a model call of the agent failed
    │       ├── RolloutLimitError  a limit of the rollout is reached: it ends and is scored
    │       └── SystemicProviderError  every other model call would fail as well
    ├── EvalFnError                an eval function cannot be loaded or called, or returned an invalid value
    ├── AgentLoadError             the agent does not exist or cannot be imported
    │   └── MCPLoadError           a folder of MCP tools cannot be imported
    ├── StateLost                  scoring reads a state value that could not be stored in the journal
    ├── StoreError                 the run folder cannot be read or written: the run stops
    │   ├── JournalDamaged         a line in the middle of a journal cannot be parsed
    │   └── RunLocked              another process has locked the run folder
    └── PublishError               a push to the Hub failed; the local result is intact

A message says what happened, to which thing, and what to do next. Exceptions of other libraries are converted to these
classes once, where the library is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.messages import PLAIN, Labels, Message, Spelled, spelled

if TYPE_CHECKING:
    from harness.core.types import Usage


class HarnessError(Exception, Spelled):
    """Base class of all errors that are shown to the user without a traceback.

    Args:
        problem: The problem, in one sentence. A `Message` if the sentence contains names of settings.
        setting: Name of the setting or option that is wrong, with which the error message begins.
        given: Value of this setting, which follows the name.
        remedy: What the user can do about the problem, as the template of a `Message`.
        **values: Values for the placeholders in the templates.
    """

    exit_code: int = 1
    place: str = ""
    """File and key, or option, that the error is about. A caller may set it; the error message then begins with it."""
    setting: str = ""
    given: str = ""
    remedy: Message | None = None
    labels: Labels | None = None
    """How the names of settings are spelled; set by the command or Python function that shows the error."""

    def __init__(
        self, problem: object = "", *, setting: str = "", given: str = "", remedy: str = "", **values: object
    ) -> None:
        super().__init__(problem)
        self.setting, self.given = setting, given
        if remedy:
            self.remedy = Message(remedy, **values)

    @property
    def problem(self) -> object:
        """The error message without the name of the setting and without the remedy."""
        return self.args[0] if self.args else ""

    def text(self, labels: Labels) -> str:
        """The complete error message, with the names of settings spelled as in `labels`."""
        words = str(spelled(self.problem, labels))
        if self.setting:
            words = f"{labels[self.setting]}{self.given and ' '}{self.given}: {words}"
        if self.place:
            words = f"{self.place}: {words}"
        if self.remedy is not None:
            words += f"{' ' if words.endswith('.') else '; '}{self.remedy.text(labels)}"
        return words

    def __str__(self) -> str:
        return self.text(PLAIN if self.labels is None else self.labels)


class UsageError(HarnessError):
    """The command line, or a file that it names, is invalid."""

    exit_code = 2


class ConfigError(UsageError):
    """A setting is unknown, missing, of the wrong type or out of range."""


class ResumeRefused(UsageError):
    """A run cannot be resumed, because a setting that changes results differs from the recorded run."""


class ValidationError(UsageError):
    """A multi-model evaluation has no tasks or no models. Part of the documented API."""


class StateError(UsageError):
    """A stored multi-model evaluation does not exist or has no inputs. Part of the documented API."""


class EnvironmentFault(HarnessError):
    """The environment's own code raised an exception or violated its interface."""

    retryable: bool = False
    """Whether the rollout may succeed if it is retried at once, for up to `--max-retries` retries."""
    reason: str = "environment_error"
    """Short identifier of the reason for tables, which does not change between versions."""


class AgentFailed(EnvironmentFault):
    """The agent under evaluation raised an exception or reported an error.

    Args:
        message: The agent's error message.
        retryable: Whether a retry may succeed because the cause was a temporary model error.
    """

    reason = "agent_error"

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable


class TaskTimeout(EnvironmentFault):
    """A request of a task exceeded its `timeoutMs`. May be retried."""

    retryable = True
    reason = "timeout"


class EnvironmentNotFound(EnvironmentFault):
    """No installed module or distribution has the environment's name."""

    exit_code = 2


class EnvironmentLoadError(EnvironmentFault):
    """Importing the environment or calling its `load_environment` failed."""


class SandboxMissing(EnvironmentFault):
    """Model-written code must run, and no sandbox is available on this machine."""

    exit_code = 2


class ToolServerError(EnvironmentFault):
    """A tool server of an environment did not start, died or did not answer. A retry starts the server again."""

    retryable = True


WORKER_DIED, WORKER_HUNG, NODE_LOST = "worker_died", "worker_hung", "node_lost"
"""Reasons of `WorkerDied`. With the last one, the computer was lost on which the process ran."""


class WorkerDied(EnvironmentFault):
    """The process of an isolated environment ended unexpectedly.

    Args:
        words: How the process ended.
        reason: Short identifier for tables: `WORKER_DIED`, `WORKER_HUNG` or `NODE_LOST`.
    """

    def __init__(self, words: str, reason: str = WORKER_DIED) -> None:
        super().__init__(words)
        self.reason = reason

    def anew(self) -> WorkerDied:
        """Return a copy of this error. Several waiting tasks must each raise their own copy, since an exception stores
        its traceback."""
        return WorkerDied(str(self), self.reason)


class ThreadsHung(EnvironmentFault):
    """So many threads are blocked by the environment's code that further calls would hang as well, so the run stops."""


class ModelError(HarnessError):
    """A model call failed after all retries.

    Args:
        message: What failed and at which endpoint. Never contains an API key.
        status: HTTP status, if there was a reply.
        retryable: Whether the same call may succeed later, so that `--retry-failed` repeats the rollout.
        reason: Short identifier for tables: `timeout`, `rate_limit`, `connection`, `server_error`, `bad_request`,
            `auth`, `not_found`, `bad_response`.
    """

    def __init__(
        self, message: str | Message, *, status: int | None = None, retryable: bool = False, reason: str = "model_error"
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retryable = retryable
        self.reason = reason
        self.wasted: Usage | None = None
        """Token usage of the replies that had to be discarded; None if no reply reported its usage."""


class ContextLengthError(ModelError):
    """The endpoint rejected the prompt because it exceeds the model's context length."""


class ResponseError(ModelError):
    """The endpoint answered with a 2xx status, but the body is not a valid model reply."""


class LimitReached(ModelError):
    """The rollout has reached a limit such as `message_limit`. The call was not sent, and every further call of this
    rollout raises the same error. The rollout ends with `reason` as its stop condition and is scored."""


class SystemicError(ModelError):
    """A fatal error of the endpoint, such as an invalid key, an unknown model or an unreachable host: every further
    call would fail in the same way."""


class BudgetSpent(SystemicError):
    """The budget of the invocation is spent. The call was not sent. The rollout gets no score (reason `budget`) and is
    repeated when the run is resumed with a larger budget."""


class ToolError(HarnessError):
    """A tool call of the model failed. The error is reported to the model, unless the environment's `stop_errors` names
    it; then the rollout ends."""


class ToolParseError(ToolError):
    """The arguments of a tool call are not a JSON object."""


class ToolCallError(ToolError):
    """A tool call names an unknown tool or passes invalid arguments, or the tool raised an exception."""


class SandboxError(HarnessError):
    """The sandbox itself failed, and not the program in it, so the program counts as neither right nor wrong."""


class VerificationError(HarnessError):
    """A mathematical answer could not be compared with the expected answer, so it may be right or wrong."""


class JudgeError(HarnessError):
    """A judge gave no verdict that can be parsed: the call failed, or the judge refused, or its reply was empty,
    truncated or without a verdict.

    Args:
        reason: Short identifier for tables: `judge refused`, `no verdict`, `judge rate_limit`, …
        detail: The judge's reply, or the error of the call.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


class LocalExecutionError(HarnessError):
    """In an agent evaluation, a dataset or tool is invalid, or a model call failed. The subclasses are part of the
    documented API."""


class DatasetParseError(LocalExecutionError):
    """A dataset file does not match the format of its file name, or its format is not supported."""

    exit_code = 2


class DatasetValidationError(LocalExecutionError):
    """A row of a dataset lacks a required column or has a value that is not a string. The message names the row."""

    exit_code = 2


class ToolValidationError(LocalExecutionError):
    """Endpoints would reject the schema of a tool. The message names the tool."""

    exit_code = 2


class ProviderError(LocalExecutionError):
    """A model call failed after all retries. The `ModelError` is the cause of this exception."""


class MissingApiKey(ConfigError, ProviderError):
    """The API key of a provider is not set. Also a `ProviderError`, which scripts of the Python API catch."""


class RolloutLimitError(ProviderError):
    """The rollout has reached a limit such as `message_limit`. The call was not sent, and every further call raises the
    same error. The rollout ends with that stop condition and is scored on the conversation so far, whether
    the agent raises this error or catches it and returns a result."""


class SystemicProviderError(ProviderError):
    """A fatal error of the endpoint: every further call would fail in the same way.

    Args:
        message: What is wrong, and at which endpoint.
        duration_ms: Duration of the run until the error, in milliseconds.
        tokens: Number of tokens that the run had used until the error.
    """

    def __init__(self, message: str, duration_ms: float = 0.0, tokens: int = 0) -> None:
        super().__init__(message)
        self.duration_ms = duration_ms
        self.tokens = tokens


class EvalFnError(HarnessError):
    """An eval function cannot be loaded, has parameters that are not supplied, or returned a value that is not a
    number."""

    exit_code = 2


class AgentLoadError(HarnessError):
    """No agent could be loaded from `-m module:attribute`."""

    exit_code = 2


class MCPLoadError(AgentLoadError):
    """The folder in `--mcp DIR` contains no FastMCP instance."""


class StateLost(HarnessError):
    """A reward function read a state value that is not in the journal because JSON cannot represent it."""


class StoreError(HarnessError):
    """The run folder cannot be written or read."""


class JournalDamaged(StoreError):
    """A journal line other than an incomplete last one cannot be parsed. The message names the file and the line."""


class RunLocked(StoreError):
    """Another process has locked the run folder for writing."""


class PublishError(HarnessError):
    """A push to the Hub failed. The message names the repository, the cause and the command with which to try again."""
