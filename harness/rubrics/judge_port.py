"""Connection between rubrics and their judge models: the description of a judge (`JudgeSpec`), the judges that the
engine has connected (`Panel`), and the record of every reply.

    rubric.judges ──► JudgeSpec ──► engine: alias, key, request limit ──► Panel, for the whole run
    reward function ──► judge_chat(spec, state) / ask(spec, …) ──► Panel.chat(spec, state) ──► reply
                                                └──► state["judgements"]: text, model, tokens, cost

A rubric that uses this module directly (like that of the classic API) returns its specs from `judges`, wraps its
`score` in `scoring_pass()`, and calls judges with `ask` or `judge_chat`. Tests and notebooks that score without the
engine provide a panel with `judged_by`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping, MutableMapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

from harness.core.errors import ConfigError, EnvironmentFault, ModelError, SystemicError
from harness.core.keys import digest
from harness.core.records import JUDGEMENTS
from harness.core.redact import Redactor, redactor
from harness.core.types import Chat, JsonDict, ModelResponse, Prompt, Sampling, Tools, text_of, value_class
from harness.settings.checks import url, variable
from harness.usercode.event_loop import in_loop


@dataclass(frozen=True, slots=True, eq=False)
class JudgeSpec:
    """A judge model as requested by a rubric. Compared by identity, since each has its own request limit."""

    model: str
    """An alias in the endpoint registry, or the model's name at its endpoint, or `reference/…`."""
    base_url: str | None = None
    """Base URL; None for that of the alias, or for the default of models without a URL."""
    api_key_var: str | None = None
    """Environment variable with the key; None for that of the alias, or for no key if `base_url` is given."""
    sampling_args: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Sampling arguments of every request."""
    max_concurrent: int | None = None
    """Maximum number of concurrent requests of one run; None for no limit besides those of scoring and of the
    endpoint."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Headers in addition to the endpoint's, which they override. Their values are never recorded."""
    prompt: object = None
    """The judge's prompt and verdicts as a JSON value. Part of the run's identity; only its digest is stored."""
    default_url: str | None = None
    """Base URL that is used with `api_key_var` if there is neither a `base_url` nor one in the endpoint registry. The
    run is rejected if its settings name another host for the model. None for the default of models without a URL."""
    key: str | None = field(default=None, repr=False)
    """API key, taken from a client object. Never recorded or shown."""
    is_undeclared: bool = False
    """Whether the judge is first named by a reward function that is being scored, and thus is not among the `judges`
    of the rubric. Its URL is then always given."""

    def __post_init__(self) -> None:
        """Validate the settings.

        Raises:
            ConfigError: `api_key_var` is not the name of a variable, or `base_url` is not a URL.
        """
        if self.key:
            redactor.add(self.key)
        _check("judge_api_key_var", self.api_key_var, _key_variable, "the name of an environment variable")
        _check("judge_base_url", self.base_url, url, "a URL")


def _check(name: str, value: object, check: Callable[[str], str], kind: str) -> None:
    """Validate a setting. The error message does not repeat the value, which may be a key."""
    if value is None:
        return
    if not isinstance(value, str):
        raise ConfigError(f"{name} must be {kind} as a string, not a value of type {type(value).__name__}")
    try:
        check(value)
    except ValueError as error:
        raise ConfigError(f"{name} {error}") from None


def _key_variable(value: str) -> str:
    """Validate the name of an environment variable; a value that looks like an API key is rejected."""
    # Keys of some providers (hf_…, gsk_…) are valid variable names.
    return variable(value if Redactor().text(value) == value else "-")


class Panel(Protocol):
    """The connected judges of one run."""

    def chat(self, spec: JudgeSpec, state: Mapping[str, Any] | None) -> Chat:
        """Return the model for `spec`, for questions about the rollout with this `state`.

        Raises:
            EnvironmentFault: the run's rubric did not declare this judge.
        """
        ...


@dataclass(slots=True)
class _ScoringPass:
    """Errors of judge calls in one scoring pass."""

    fault: SystemicError | None = None
    failed: dict[tuple[int, str], ModelError] = field(default_factory=dict[tuple[int, str], ModelError])
    """Errors of failed calls by state and question, so that the next function does not repeat these calls."""


@value_class
class _JudgeContext:
    """The judges for calls of the current task, and the collections of the errors of these calls."""

    panel: Panel | None = None
    scoring: _ScoringPass | None = None
    failures: list[ModelError] | None = None
    """Errors of failed judge calls, for `collect_failures`; None outside of it."""
    loop: asyncio.AbstractEventLoop | None = None
    """The event loop in which the judges are called."""
    state: MutableMapping[str, Any] | None = None
    """State of the rollout that is being scored, for functions that get none."""


_context: ContextVar[_JudgeContext] = ContextVar("judges", default=_JudgeContext())  # noqa: B039 - frozen


@contextmanager
def _changed(**changes: Any) -> Generator[None]:
    """Use other judges, or other lists of errors, for judge calls of the current task inside the block."""
    token = _context.set(replace(_context.get(), **changes))
    try:
        yield
    finally:
        _context.reset(token)


def judged_by(panel: Panel | None) -> AbstractContextManager[None]:
    """Use the judges of `panel` for judge calls inside the block and in tasks started there; None for no judges."""
    return _changed(panel=panel, loop=running_loop() if panel is not None else None)


def panel() -> Panel | None:
    """Return the panel of judges that `judged_by` has set; None if it has set none."""
    return _context.get().panel


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs the calling code; None if the thread has no event loop."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def run_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop in which the current judges are called; None if there are no judges."""
    return _context.get().loop


def other_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop in which the current judges are called if the caller runs in another one; else None."""
    loop = run_loop()
    return None if loop is running_loop() else loop


def current_rollout() -> MutableMapping[str, Any] | None:
    """Return the state of the rollout that `scored_rollout` has set; None if it has set none."""
    return _context.get().state


@contextmanager
def scored_rollout(state: MutableMapping[str, Any]) -> Generator[list[ModelError]]:
    """Associate judge calls inside the block, and in threads and tasks started there, with the rollout of `state`.
    Also collect their errors, as `collect_failures` does."""
    failures: list[ModelError] = []
    with _changed(failures=failures, state=state):
        yield failures


def note_failure(error: ModelError) -> None:
    """Add an error, such as a reply without a score, to those of failed judge calls, if these are collected."""
    _collect(error)


@contextmanager
def scoring_pass() -> Generator[None]:
    """Begin a scoring pass, which lasts for the block. It fails if a judge's endpoint is unusable, even if a reward
    function has caught the error.

    Raises:
        SystemicError: at the end of the block, if a judge's endpoint was unusable.
    """
    now = _ScoringPass()
    with _changed(scoring=now):
        yield
    if now.fault is not None:
        raise now.fault


@contextmanager
def collect_failures() -> Generator[list[ModelError]]:
    """Collect the errors of failed judge calls inside the block and in tasks started there. If a reward function
    catches such an error, the function's value is meaningless."""
    failures: list[ModelError] = []
    with _changed(failures=failures):
        yield failures


@dataclass(frozen=True, slots=True)
class JudgeReply:
    """A judge's reply and its record."""

    response: ModelResponse
    entry: JsonDict
    """The record in `state["judgements"]`: `model prompt text finish_reason seconds usage`. Callers add the label of a
    verdict."""


async def ask(
    spec: JudgeSpec,
    prompt: Prompt,
    state: MutableMapping[str, Any] | None = None,
    *,
    tools: Tools = None,
    sampling_args: Sampling = None,
) -> JudgeReply:
    """Send a question to a judge, and record its reply.

    Args:
        spec: One of the `judges` of the run's rubric.
        prompt: The question, as messages or a string.
        state: The rollout's state, in which the reply is recorded; None to record nothing.
        tools: Tool definitions for the judge.
        sampling_args: Sampling arguments that override those of the spec.

    Raises:
        SystemicError: the judge's endpoint is unusable; the run stops.
        ModelError: the call failed after all retries.
        EnvironmentFault: no judge is connected.
    """
    connected = panel()
    if connected is None:
        raise EnvironmentFault(
            f"the judge {spec.model!r} is not connected; outside of a run, connect it with `judged_by(panel)`"
        )
    question = prompt_digest(spec, prompt, sampling_args)
    now, key = _context.get().scoring or _ScoringPass(), (id(state), question)
    if state is not None and (failed := now.failed.get(key)) is not None:
        _collect(failed)
        raise failed
    try:
        chat = connected.chat(spec, state)
        response = await chat(prompt, tools=tools, sampling_args=sampling_args)
    except SystemicError as error:
        words = f"the judge {spec.model} cannot be used: {error}"
        fault = type(error)(words, status=error.status, retryable=error.retryable, reason=error.reason)
        now.fault = now.fault or fault
        raise fault from error
    except ModelError as error:
        now.failed[key] = error
        _collect(error)
        if state is not None and error.wasted is not None:
            # Replies that could not be parsed are recorded for their cost; the empty prompt matches no question.
            entry: JsonDict = {"model": spec.model, "prompt": "", "text": "", "finish_reason": None, "seconds": 0.0}
            entry |= {"error": redactor.text(str(error)), "usage": asdict(error.wasted)}
            state.setdefault(JUDGEMENTS, []).append(entry)
        raise
    entry = {
        "model": chat.model,
        "prompt": question,
        "text": text_of(response.message),
        "finish_reason": response.finish_reason,
        "seconds": response.seconds,
        "usage": asdict(response.usage if response.wasted is None else response.usage + response.wasted),
    }
    if state is not None:
        state.setdefault(JUDGEMENTS, []).append(entry)
    return JudgeReply(response, entry)


def _collect(error: ModelError) -> None:
    """Add the error of a failed call to those of `collect_failures`, if it is active."""
    if (failures := _context.get().failures) is not None:
        failures.append(error)


def prompt_digest(spec: JudgeSpec, prompt: Prompt, sampling_args: Mapping[str, Any] | None = None) -> str:
    """Compute a digest that identifies a question to a judge, from model, URL, sampling arguments and prompt."""
    return digest(
        [spec.model, spec.base_url or spec.default_url, dict(spec.sampling_args), dict(sampling_args or {}), prompt]
    )


def judge_chat(spec: JudgeSpec, state: MutableMapping[str, Any] | None = None) -> Chat:
    """Wrap `ask` as a `Chat` object, for code that needs one (such as a `judge_client` of the classic API)."""
    return _JudgeChat(spec, state, spec.model)


@dataclass(frozen=True, slots=True)
class _JudgeChat:
    spec: JudgeSpec
    state: MutableMapping[str, Any] | None
    model: str

    async def __call__(self, prompt: Prompt, *, tools: Tools = None, sampling_args: Sampling = None) -> ModelResponse:
        asking = ask(self.spec, prompt, self.state, tools=tools, sampling_args=sampling_args)
        loop = other_loop()
        return (await (asking if loop is None else in_loop(loop, asking))).response
