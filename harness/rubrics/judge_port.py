"""Connection between rubrics and their judge models: the description of a judge (`JudgeSpec`), the engine's connected
judges (`Panel`), and the record of every reply.

    rubric.judges ──► JudgeSpec ──► engine: alias, key, request limit ──► Panel, for the whole run
    reward function ──► judge_chat(spec, state) / ask(spec, …) ──► Panel.chat(spec, state) ──► reply
                                                └──► state["judgements"]: text, model, tokens, cost

A rubric that uses this module directly (the classic API does) returns its specs from `judges`, wraps its `score` in
`scoring_pass()`, and asks through `ask` or `judge_chat`. Tests and notebooks that score without the engine provide a
panel with `judged_by`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

from harness.core.errors import ConfigError, EnvironmentFault, ModelError, SystemicError
from harness.core.keys import digest
from harness.core.records import JUDGEMENTS
from harness.core.redact import Redactor, redactor
from harness.core.types import Chat, JsonDict, ModelResponse, Prompt, Usage, text_of
from harness.settings.checks import url, variable


@dataclass(frozen=True, slots=True, eq=False)
class JudgeSpec:
    """A judge model as requested by a rubric. Compared by identity, since each has its own request limit."""

    model: str
    """An alias in the endpoint registry, or the model's name at its endpoint, or `reference/…`."""
    base_url: str | None = None
    """Base URL; None for that of the alias, or else of any model without a URL."""
    api_key_var: str | None = None
    """Environment variable with the key; None for the alias's own, or for no key if `base_url` is given."""
    sampling_args: Mapping[str, Any] = field(default_factory=dict[str, Any])
    max_concurrent: int | None = None
    """Maximum concurrent requests of one run; None for no limit besides those of scoring and of the endpoint."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Headers in addition to the endpoint's, which they override. Their values are never recorded."""
    prompt: object = None
    """The judge's prompt and verdicts as a JSON value. Part of the run's identity; only its digest is stored."""
    default_url: str | None = None
    """Base URL, used with `api_key_var`, if neither `base_url` nor the endpoint registry gives one. The run is rejected
    if a settings layer names another host for its model. None for the default of models without a URL."""
    key: str | None = field(default=None, repr=False)
    """A literal key from a client object. Never recorded or shown."""

    def __post_init__(self) -> None:
        """Validate the settings.

        Raises:
            ConfigError: `api_key_var` is not a variable name, or `base_url` is not a URL.
        """
        if self.key:
            redactor.add(self.key)
        _check("judge_api_key_var", self.api_key_var, _key_variable, "the name of an environment variable")
        _check("judge_base_url", self.base_url, url, "a url")


def _check(name: str, value: object, check: Callable[[str], str], kind: str) -> None:
    """Validate a setting. The message never repeats the value, which may be a key."""
    if value is None:
        return
    if not isinstance(value, str):
        raise ConfigError(f"{name} must be {kind} as a string, not a value of type {type(value).__name__}")
    try:
        check(value)
    except ValueError as error:
        raise ConfigError(f"{name} {error}") from None


def _key_variable(value: str) -> str:
    # Keys of some providers (hf_…, gsk_…) are valid variable names.
    return variable(value if Redactor().text(value) == value else "-")


class Panel(Protocol):
    """The connected judges of one run."""

    def chat(self, spec: JudgeSpec, state: Mapping[str, Any] | None) -> Chat:
        """The model for `spec`, for questions about the rollout of `state`.

        Raises:
            EnvironmentFault: the run's rubric did not declare this judge.
        """
        ...


@dataclass(slots=True)
class _ScoringPass:
    """Errors of one scoring pass."""

    fault: SystemicError | None = None
    failed: dict[tuple[int, str], ModelError] = field(default_factory=dict[tuple[int, str], ModelError])
    """Failed calls by state and question, so that the next function does not repeat them."""


@dataclass(frozen=True, slots=True)
class _JudgeContext:
    """The judges for calls of the current task, and where the errors of these calls are collected."""

    panel: Panel | None = None
    scoring: _ScoringPass | None = None
    failures: list[ModelError] | None = None
    """Where failed calls are collected."""


_context: ContextVar[_JudgeContext] = ContextVar("judges", default=_JudgeContext())  # noqa: B039 - frozen


@contextmanager
def _changed(**changes: Any) -> Generator[None]:
    token = _context.set(replace(_context.get(), **changes))
    try:
        yield
    finally:
        _context.reset(token)


def judged_by(panel: Panel | None) -> AbstractContextManager[None]:
    """Provide `panel` to judge calls inside the block and in tasks started there; None for no judges."""
    return _changed(panel=panel)


def panel() -> Panel | None:
    """The current panel, set by `judged_by`; None if there is none."""
    return _context.get().panel


@contextmanager
def scoring_pass() -> Generator[None]:
    """Context of one scoring pass. If a judge's endpoint is unusable, the pass fails, even if an author's code caught
    the error.

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
    """Collect failed judge calls inside the block and in tasks started there. If a function catches such an error, its
    value says nothing about the rollout."""
    failures: list[ModelError] = []
    with _changed(failures=failures):
        yield failures


@dataclass(frozen=True, slots=True)
class JudgeReply:
    """A judge's reply and its record."""

    response: ModelResponse
    entry: JsonDict
    """The record in `state["judgements"]`: `model prompt text finish_reason seconds usage`. Callers add the label."""


async def ask(
    spec: JudgeSpec,
    prompt: Prompt,
    state: MutableMapping[str, Any] | None = None,
    *,
    tools: Sequence[JsonDict] | None = None,
    sampling_args: Mapping[str, Any] | None = None,
) -> JudgeReply:
    """Ask a judge.

    Args:
        spec: One of the `judges` of the run's rubric.
        prompt: Messages or a text.
        state: The rollout's state, in which the reply is recorded; None to record nothing.
        tools: Tool definitions for the judge.
        sampling_args: Override those of the spec.

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
    now, place = _context.get().scoring or _ScoringPass(), (id(state), question)
    if state is not None and (failed := now.failed.get(place)) is not None:
        _note(failed)
        raise failed
    try:
        chat = connected.chat(spec, state)
        response = await chat(prompt, tools=tools, sampling_args=sampling_args)
    except SystemicError as error:
        words = f"the judge {spec.model} cannot be asked: {error}"
        fault = type(error)(words, status=error.status, retryable=error.retryable, reason=error.reason)
        now.fault = now.fault or fault
        raise fault from error
    except ModelError as error:
        now.failed[place] = error
        _note(error)
        if state is not None and error.wasted is not None:
            state.setdefault(JUDGEMENTS, []).append(_unread(spec.model, error, error.wasted))
        raise
    entry = _entry(chat.model, question, response)
    if state is not None:
        state.setdefault(JUDGEMENTS, []).append(entry)
    return JudgeReply(response, entry)


def _note(error: ModelError) -> None:
    if (failures := _context.get().failures) is not None:
        failures.append(error)


def _entry(model: str, question: str, response: ModelResponse) -> JsonDict:
    """The record of a reply."""
    return {
        "model": model,
        "prompt": question,
        "text": text_of(response.message),
        "finish_reason": response.finish_reason,
        "seconds": response.seconds,
        "usage": asdict(response.usage if response.wasted is None else response.usage + response.wasted),
    }


def _unread(model: str, error: ModelError, wasted: Usage) -> JsonDict:
    """The record of replies that could not be parsed, for their cost. They match no prompt."""
    entry: JsonDict = {"model": model, "prompt": "", "text": "", "finish_reason": None, "seconds": 0.0}
    return {**entry, "error": redactor.text(str(error)), "usage": asdict(wasted)}


def prompt_digest(spec: JudgeSpec, prompt: Prompt, sampling_args: Mapping[str, Any] | None = None) -> str:
    """Digest that identifies a question to a judge."""
    return digest(
        [spec.model, spec.base_url or spec.default_url, dict(spec.sampling_args), dict(sampling_args or {}), prompt]
    )


def judge_chat(spec: JudgeSpec, state: MutableMapping[str, Any] | None = None) -> Chat:
    """`ask` as a `Chat`, for code that needs one (a classic `judge_client`)."""
    return _JudgeChat(spec, state, spec.model)


@dataclass(frozen=True, slots=True)
class _JudgeChat:
    spec: JudgeSpec
    state: MutableMapping[str, Any] | None
    model: str

    async def __call__(
        self,
        prompt: Prompt,
        *,
        tools: Sequence[JsonDict] | None = None,
        sampling_args: Mapping[str, Any] | None = None,
    ) -> ModelResponse:
        return (await ask(self.spec, prompt, self.state, tools=tools, sampling_args=sampling_args)).response
