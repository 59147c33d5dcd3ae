"""The error tree. Owns every exception that crosses a module boundary; owns no printing and no exit.

    HarnessError
    ├── UsageError                 the caller's words are wrong: exit 2, nothing was started
    │   ├── ConfigError            a setting: which file, which key, what to do next
    │   ├── ResumeRefused          the run on disk is not the run that was asked for
    │   ├── ValidationError        a multi-model evaluation without tasks, or without models
    │   └── StateError             a stored multi-model evaluation that is not there, or holds no inputs
    ├── EnvironmentFault           the environment's own code is at fault
    │   ├── AgentFailed            the agent under evaluation raised, or said that it failed
    │   ├── TaskTimeout            a task's request took longer than the task allows
    │   ├── EnvironmentNotFound    no such environment (says how to install it)
    │   ├── EnvironmentLoadError   importing or constructing it failed
    │   ├── SandboxMissing         it needs a sandbox and there is none (says what to install)
    │   ├── ToolServerError        a server of its tools did not start, died or fell silent: another try may do
    │   ├── WorkerDied             the process of an isolated environment ended, and not because it was asked to
    │   └── ThreadsHung            too many calls of its blocking code never return: the run stops
    ├── ModelError                 one model call failed for good; `retryable` says whether time may heal it
    │   ├── ContextLengthError     the prompt no longer fits: a property of the model, not a fault
    │   ├── ResponseError          the endpoint answered, but not with a reply that can be read
    │   ├── LimitReached           the rollout has used up its `message_limit` or `token_limit`: it ends, and is scored
    │   └── SystemicError          the endpoint as a whole is unusable: the run stops
    │       └── BudgetSpent        the budget of the invocation is spent: no further call is made
    ├── ToolError                  a tool call came to nothing: told to the model, unless `stop_errors` ends the rollout
    │   ├── ToolParseError         its arguments are no JSON object
    │   └── ToolCallError          it names no tool or passes wrong arguments, or the tool raised
    ├── SandboxError               the sandbox itself failed: says nothing about the code that was to run in it
    ├── VerificationError          a math answer could not be compared: no verdict, never a wrong answer
    ├── JudgeError                 a judge gave no verdict: the rollout is unscored, never wrong
    ├── LocalExecutionError        an agent evaluation cannot be made
    │   ├── DatasetParseError      its dataset file cannot be read
    │   ├── DatasetValidationError a row lacks what every row must have
    │   ├── ToolValidationError    the agent offers a tool that no endpoint would take
    │   └── ProviderError          a model call of the agent failed
    │       ├── RolloutLimitError  the rollout has used up its `message_limit` or `token_limit`: it ends, and is scored
    │       └── SystemicProviderError  and so would every other one
    ├── EvalFnError                an eval function cannot be loaded, called or believed
    ├── AgentLoadError             there is no such agent, or it cannot be imported
    │   └── MCPLoadError           nor a folder of MCP tools
    ├── StateLost                  scoring reads a state value that no journal can hold
    ├── StoreError                 the run folder cannot be read or written: the run stops
    │   ├── JournalDamaged         a line in the middle of a journal cannot be read
    │   └── RunLocked              another process holds the run folder
    └── PublishError               a push to the Hub failed; the local result is intact

A message says what happened, to which thing, and what to do next. Foreign exceptions are translated
once, at the edge where the foreign library is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.core.types import Usage


class HarnessError(Exception):
    """Base of all errors that a user may see without a traceback."""

    exit_code: int = 1


class UsageError(HarnessError):
    """The command line or a file that it names is wrong."""

    exit_code = 2


class ConfigError(UsageError):
    """A setting is unknown, missing, of the wrong type or out of range."""


class ResumeRefused(UsageError):
    """The recorded run differs from the requested one in something that changes results."""


class ValidationError(UsageError):
    """A multi-model evaluation has no tasks or no models. The name is that of the documents."""


class StateError(UsageError):
    """A stored multi-model evaluation is not there, or holds no inputs. The name is that of the documents."""


class EnvironmentFault(HarnessError):
    """An environment's own code raised or broke its contract."""

    retryable: bool = False
    """Whether the same rollout may succeed if it is made again at once (`--max-retries`)."""
    reason: str = "environment_error"
    """Short stable word for tables."""


class AgentFailed(EnvironmentFault):
    """The agent under evaluation raised an exception, or ended its run with an error of its own.

    Args:
        message: What it said.
        retryable: Whether another try may do, because a model call failed that may heal.
    """

    reason = "agent_error"

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable


class TaskTimeout(EnvironmentFault):
    """The request of a task took longer than its `timeoutMs`; another try may be quicker."""

    retryable = True
    reason = "timeout"


class EnvironmentNotFound(EnvironmentFault):
    """No installed module or distribution answers to the environment's name."""

    exit_code = 2


class EnvironmentLoadError(EnvironmentFault):
    """Importing the environment or calling its `load_environment` failed."""


class SandboxMissing(EnvironmentFault):
    """Model-written code is to run, and nothing on this machine can contain it."""

    exit_code = 2


class ToolServerError(EnvironmentFault):
    """A server of an environment's tools did not start, died or did not answer; it is opened anew for the next try."""

    retryable = True


class WorkerDied(EnvironmentFault):
    """A process of an isolated environment ended although nobody had asked it to.

    Args:
        words: How.
        reason: Short and stable, for tables: `worker_died`, `worker_hung`.
    """

    def __init__(self, words: str, reason: str = "worker_died") -> None:
        super().__init__(words)
        self.reason = reason

    def anew(self) -> WorkerDied:
        """The same, to be raised: many may learn of one death, and an exception keeps what each of them was doing."""
        return WorkerDied(str(self), self.reason)


class ThreadsHung(EnvironmentFault):
    """Blocking environment code hangs in so many threads that every further call would hang too."""


class ModelError(HarnessError):
    """A model call failed after all retries.

    Args:
        message: What failed and at which endpoint; never holds a key.
        status: HTTP status, when there was a reply.
        retryable: Whether the same call may succeed later (`--retry-failed` picks it up).
        reason: Short stable word for tables: `timeout`, `rate_limit`, `connection`, `server_error`,
            `bad_request`, `auth`, `not_found`, `bad_response`.
    """

    def __init__(
        self, message: str, *, status: int | None = None, retryable: bool = False, reason: str = "model_error"
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retryable = retryable
        self.reason = reason
        self.wasted: Usage | None = None
        """What the replies took that could not be used; None if there were none that said it."""


class ContextLengthError(ModelError):
    """The endpoint refused the prompt because it is longer than the model's context."""


class ResponseError(ModelError):
    """The endpoint answered 2xx with something that is no model reply."""


class LimitReached(ModelError):
    """The rollout has used up its `message_limit` or `token_limit`. The call was not sent, and every further call of
    this rollout raises the same error. The rollout ends with `reason` as its stop condition and is scored."""


class SystemicError(ModelError):
    """Every further call would fail the same way: bad key, unknown model, dead endpoint."""


class BudgetSpent(SystemicError):
    """The budget of the invocation is spent. The call was not sent; the rollout stays unscored (`budget`), and a resume
    with a larger budget makes it again."""


class ToolError(HarnessError):
    """A tool call of the model's came to nothing. The model is told, unless the environment's `stop_errors` ends the
    rollout with it."""


class ToolParseError(ToolError):
    """The arguments of a tool call are not a JSON object."""


class ToolCallError(ToolError):
    """A tool call names no tool that is offered or passes arguments that do not fit, or the tool itself raised."""


class SandboxError(HarnessError):
    """A sandbox failed before or beside the program in it, which is therefore neither right nor wrong."""


class VerificationError(HarnessError):
    """A mathematical answer could not be compared with the expected one; says nothing about whether it is right."""


class JudgeError(HarnessError):
    """A judge gave no verdict that can be read: its call failed, or it refused, said nothing, was cut short or rambled.

    Args:
        reason: Short and stable, for tables: `judge refused`, `no verdict`, `judge rate_limit`, …
        detail: What it said, or what failed.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


class LocalExecutionError(HarnessError):
    """Something that an agent evaluation needs is not as it must be. The names below are those of the documents."""


class DatasetParseError(LocalExecutionError):
    """A dataset file is not of the format that its name says, or of none that is read."""

    exit_code = 2


class DatasetValidationError(LocalExecutionError):
    """A row lacks a required column, or holds a value that is no text; names the row."""

    exit_code = 2


class ToolValidationError(LocalExecutionError):
    """A tool's schema is one that endpoints refuse; names the tool."""

    exit_code = 2


class ProviderError(LocalExecutionError):
    """A model call failed for good; the `ModelError` is chained."""


class RolloutLimitError(ProviderError):
    """The rollout has used up its `message_limit` or `token_limit`. The call was not sent, and every further call
    raises the same error. The rollout ends with that stop condition and is scored on the conversation so far, whether
    the agent lets this error through or returns a result."""


class SystemicProviderError(ProviderError):
    """Every further call would fail the same way.

    Args:
        message: What is wrong, and at which endpoint.
        duration_ms: How long the run took until then.
        tokens: What it had used by then.
    """

    def __init__(self, message: str, duration_ms: float = 0.0, tokens: int = 0) -> None:
        super().__init__(message)
        self.duration_ms = duration_ms
        self.tokens = tokens


class EvalFnError(HarnessError):
    """An eval function cannot be loaded, takes arguments that it would not get, or returned what is no number."""

    exit_code = 2


class AgentLoadError(HarnessError):
    """`-m module:attribute` leads to nothing that can be run."""

    exit_code = 2


class MCPLoadError(AgentLoadError):
    """`--mcp DIR` leads to no FastMCP instance."""


class StateLost(HarnessError):
    """A reward function read a state value that was not JSON-able and so is not in the journal."""


class StoreError(HarnessError):
    """The run folder cannot be written or read."""


class JournalDamaged(StoreError):
    """A journal line other than a torn last one is unreadable; names file and line."""


class RunLocked(StoreError):
    """Another process has the run folder open for writing."""


class PublishError(HarnessError):
    """Pushing to the Hub failed; names the repository, the cause and the command that tries again."""
