"""Where a rubric's judge models come from: what a rubric says of a judge (`JudgeSpec`), what the engine puts in its
place (`Panel`), and the account that is kept of every reply. Owns no prompt and no verdict (`judge`), no endpoint and
no gate (`engine.judges`).

    rubric.judges ──► JudgeSpec ──► engine: alias, key, gate, limiter ──► Panel, entered for the whole run
    reward function ──► judge_chat(spec, state) / ask(spec, …) ──► Panel.chat(spec, state) ──► reply
                                                └──► state["judgements"]: text, model, tokens, cost

A rubric that keeps the port by hand (the classic API does) returns its specs from `judges`, wraps its `score` in
`seated()`, and asks through `ask` or `judge_chat`. Tests and notebooks that score without the engine enter a panel of
their own with `judged_by`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from harness.core.errors import ConfigError, EnvironmentFault, ModelError, SystemicError
from harness.core.keys import digest
from harness.core.records import JUDGEMENTS
from harness.core.redact import Redactor, redactor
from harness.core.types import Chat, JsonDict, ModelResponse, Prompt, Usage, text_of
from harness.settings.checks import url, variable


@dataclass(frozen=True, slots=True, eq=False)
class JudgeSpec:
    """A judge model as a rubric asks for it. Compared by identity: each has a gate of its own."""

    model: str
    """An alias of the endpoint registry, else the model's name at its endpoint, else `reference/…`."""
    base_url: str | None = None
    """None: where the alias, or else any model without a url, is asked."""
    api_key_var: str | None = None
    """Environment variable that holds the key; None: the alias's own, or none where `base_url` is given."""
    sampling_args: Mapping[str, Any] = field(default_factory=dict[str, Any])
    max_concurrent: int | None = None
    """Requests of one run that may be in flight; None for no bound but the scoring gate and the endpoint's limiter."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Over the endpoint's own; their values are never recorded."""
    prompt: object = None
    """What the judge is told and may say, as a JSON value: part of what the run measures. Only its digest is kept."""
    default_url: str | None = None
    """Where it is asked, with `api_key_var`, if neither `base_url` nor the endpoint registry says; the run is refused
    if a layer names another host for its model. None: where any model without a url is asked."""
    key: str | None = field(default=None, repr=False)
    """A literal key, out of a client object that code was given. Never recorded, never shown."""

    def __post_init__(self) -> None:
        """Refuse what would be recorded, or asked, as something that it is not.

        Raises:
            ConfigError: a key variable that is no variable's name, or a url that is none.
        """
        if self.key:
            redactor.add(self.key)
        _check("judge_api_key_var", self.api_key_var, _key_variable, "the name of an environment variable")
        _check("judge_base_url", self.base_url, url, "a url")


def _check(name: str, value: object, check: Callable[[str], str], kind: str) -> None:
    """Run a setting's check. What is wrong is never repeated: it may be a key."""
    if value is None:
        return
    if not isinstance(value, str):
        raise ConfigError(f"{name} must be {kind}, a text, not a value of type {type(value).__name__}")
    try:
        check(value)
    except ValueError as error:
        raise ConfigError(f"{name} {error}") from None


def _key_variable(value: str) -> str:
    # Some providers' keys (hf_…, gsk_…) could be names of variables.
    return variable(value if Redactor().text(value) == value else "-")


class Panel(Protocol):
    """The judges of one run, connected."""

    def chat(self, spec: JudgeSpec, state: Mapping[str, Any] | None) -> Chat:
        """The judge that `spec` asks for, to be asked about the rollout of `state`.

        Raises:
            EnvironmentFault: the run's rubric did not name this judge.
        """
        ...


class _Pass:
    """One pass of scoring, and what went wrong in it."""

    __slots__ = ("failed", "fault")

    def __init__(self) -> None:
        self.fault: SystemicError | None = None
        self.failed: dict[tuple[int, str], ModelError] = {}
        """By state and question: what has failed for good is not asked again by the next function."""


_panel: ContextVar[Panel | None] = ContextVar("judge_panel", default=None)
_pass: ContextVar[_Pass | None] = ContextVar("judge_pass", default=None)
_watch: ContextVar[list[ModelError] | None] = ContextVar("judge_watch", default=None)


@contextmanager
def judged_by(panel: Panel | None) -> Generator[None]:
    """Whoever asks for a judge inside is given `panel`'s; so are the tasks that are started inside. None: there are
    none."""
    token = _panel.set(panel)
    try:
        yield
    finally:
        _panel.reset(token)


def panel() -> Panel | None:
    """Whom `judged_by` has seated; None if it has seated nobody."""
    return _panel.get()


@contextmanager
def seated() -> Generator[None]:
    """One pass of scoring: a judge that no request can reach any more ends it, whatever author code made of the error.

    Raises:
        SystemicError: at the end of the block, if a judge asked inside proved unusable.
    """
    now = _Pass()
    token = _pass.set(now)
    try:
        yield
    finally:
        _pass.reset(token)
    if now.fault is not None:
        raise now.fault


@contextmanager
def watched() -> Generator[list[ModelError]]:
    """The calls of judges that fail inside, also in tasks that are started there: a function that swallows such a
    failure has a value, but not one that says anything about the rollout."""
    failures: list[ModelError] = []
    token = _watch.set(failures)
    try:
        yield failures
    finally:
        _watch.reset(token)


@dataclass(frozen=True, slots=True)
class JudgeReply:
    """A judge's reply, and what is kept of it."""

    response: ModelResponse
    entry: JsonDict
    """The reply's place in `state["judgements"]`: `model prompt text finish_reason seconds usage`; the label is added
    by who reads it."""


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
        spec: Which one; of the `judges` of the run's rubric.
        prompt: Messages or a text.
        state: The rollout that it is about, where the reply is kept. None keeps nothing.
        tools: Offered to the judge.
        sampling_args: Over the spec's own.

    Raises:
        SystemicError: the judge's endpoint is unusable; the run stops.
        ModelError: the call failed for good.
        EnvironmentFault: nobody has connected a judge here.
    """
    seated_here = panel()
    if seated_here is None:
        raise EnvironmentFault(
            f"nobody has connected the judge {spec.model!r}: `bench run` does, and `judged_by(panel)` does elsewhere"
        )
    question = prompt_digest(spec, prompt, sampling_args)
    now, place = _pass.get() or _Pass(), (id(state), question)
    if state is not None and (failed := now.failed.get(place)) is not None:
        _note(failed)
        raise failed
    try:
        chat = seated_here.chat(spec, state)
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
    if (failures := _watch.get()) is not None:
        failures.append(error)


def _entry(model: str, question: str, response: ModelResponse) -> JsonDict:
    """What is kept of a reply."""
    return {
        "model": model,
        "prompt": question,
        "text": text_of(response.message),
        "finish_reason": response.finish_reason,
        "seconds": response.seconds,
        "usage": asdict(response.usage if response.wasted is None else response.usage + response.wasted),
    }


def _unread(model: str, error: ModelError, wasted: Usage) -> JsonDict:
    """What is kept of replies that nobody could read, because they are paid for. They answer no prompt."""
    entry: JsonDict = {"model": model, "prompt": "", "text": "", "finish_reason": None, "seconds": 0.0}
    return {**entry, "error": redactor.text(str(error)), "usage": asdict(wasted)}


def prompt_digest(spec: JudgeSpec, prompt: Prompt, sampling_args: Mapping[str, Any] | None = None) -> str:
    """Tells one question to a judge from another."""
    return digest(
        [spec.model, spec.base_url or spec.default_url, dict(spec.sampling_args), dict(sampling_args or {}), prompt]
    )


def judge_chat(spec: JudgeSpec, state: MutableMapping[str, Any] | None = None) -> Chat:
    """`ask` as a `Chat`, for code that wants one (a classic `judge_client`)."""
    return _AskingChat(spec, state)


@dataclass(frozen=True, slots=True)
class _AskingChat:
    spec: JudgeSpec
    state: MutableMapping[str, Any] | None

    @property
    def model(self) -> str:
        """The judge's name as the rubric gives it."""
        return self.spec.model

    async def __call__(
        self,
        prompt: Prompt,
        *,
        tools: Sequence[JsonDict] | None = None,
        sampling_args: Mapping[str, Any] | None = None,
    ) -> ModelResponse:
        return (await ask(self.spec, prompt, self.state, tools=tools, sampling_args=sampling_args)).response
