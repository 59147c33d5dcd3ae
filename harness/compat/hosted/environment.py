"""A classic environment object as one of ours: the package's own `rollout` is run with a client that asks our chat, and
what it returns becomes our state. Owns the frame around that call: which model it gets, what of it is recorded, and
what its errors mean. Its semaphores, its env server and its saving of results are never used."""

from __future__ import annotations

import contextvars
import inspect
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any, cast

from harness.compat.hosted.dialect import Dialect, text_of, to_wire
from harness.compat.hosted.members import members
from harness.compat.hosted.restoring import LIVE, carry_input, carry_over, carry_steps
from harness.compat.hosted.rows import HostedRows
from harness.compat.hosted.rubric import HostedRubric
from harness.compat.openai_client import Faults, async_openai, original, sdk_arguments
from harness.envs.environment import Environment
from harness.envs.hooks import cleanup, teardown
from harness.envs.options import unknown_name
from harness.errors import ConfigError, EnvironmentFault
from harness.state import State, own
from harness.types import Chat, JsonDict, Message, MessageType, ModelResponse, Prompt

logger = logging.getLogger(__name__)

_UNSETTABLE = frozenset({"dataset", "eval_dataset", "env_id", "env_args", "message_type", "parser", "rubric"})

_OWNER, _CLEAN = "bench_env", "bench_is_clean"
"""Attributes that we give the package's states: the environment that made it, and whether its cleanup has run."""

_playing: contextvars.ContextVar[State | None] = contextvars.ContextVar("playing", default=None)
"""Our state of the rollout that the current task plays."""


class HostedEnvironment(Environment):
    """An environment of a real `verifiers` package.

    Args:
        inner: The object that its module's `load_environment` returned.
        dialect: How its release speaks.
    """

    def __init__(self, inner: Any, dialect: Dialect) -> None:
        self.inner = inner
        self._dialect = dialect
        self._rows = HostedRows(inner)
        self._members = list({id(env): env for env in members(inner)}.values())
        for env in self._members:
            _adopt(env)
        super().__init__(
            dataset=lambda: self._rows,
            rubric=HostedRubric(inner, dialect, self._rows),
            sampling_args=_meant(inner.sampling_args),
            message_type=inner.message_type,
            env_id=inner.env_id or None,
            max_workers=None,
        )

    async def play(self, state: State) -> None:
        """Run the package's rollout.

        Raises:
            SystemicError: the endpoint is unusable, whatever the package made of it.
            ModelError: a model call failed and the package ended the rollout for it.
            EnvironmentFault: the package ended the rollout with another error, or asked for what there is not.
        """
        assert state.chat is not None
        faults, heard = Faults(), _Heard(state.chat, state)
        args = own(state["sampling_args"])
        sdk = async_openai(heard, sampling_args=args, faults=faults)
        client = self._dialect.client(sdk, self.message_type)
        raw = self._rows.raw(state["example_id"])
        token = _playing.set(state)
        try:
            theirs = await self.inner.rollout(raw, client, heard.model, _for_sdk(args, self.message_type))
        except Exception as error:  # the boundary around the package: what failed below it is told as what it is
            faults.check()
            raise original(error) or error from error
        finally:
            _playing.reset(token)
        state[LIVE] = theirs
        faults.check()
        self._read(theirs, raw, state)
        heard.mark_refusal()

    def _read(self, theirs: Any, raw: JsonDict, state: State) -> None:
        for name in ("is_completed", "is_truncated", "stop_condition", "final_env_response", "prompt_too_long"):
            if name in theirs:
                state[name] = to_wire(theirs[name]) if name == "final_env_response" else theirs[name]
        state["is_truncated"] = bool(state["is_truncated"])
        carry_input(theirs, raw, state)
        carry_over(theirs, state)
        carry_steps(theirs, state)
        error = theirs.get("error")
        if error is not None:
            raise original(error) or EnvironmentFault(_words(error))

    async def render_completion(self, state: State) -> None:
        """Take the completion from the package's state; of a rollout that failed, what had been said."""
        theirs = state.get(LIVE)
        if theirs is None:
            return
        said = theirs.get("completion") or _said(theirs)
        is_text = isinstance(state["prompt"], str)
        state["completion"] = text_of(said or "") if is_text else to_wire(said or [])

    @cleanup
    async def clean_up_after_a_broken_rollout(self, state: State) -> None:
        """Run the package's cleanup where it does not: up to 0.1.10 an exception or a cancelled rollout skips it."""
        env = getattr(state.get(LIVE), _OWNER, None)
        if env is not None and not self._dialect.is_typed:
            await env._cleanup(state[LIVE])

    @teardown
    async def tear_down(self) -> None:
        """Run the package's teardown, once: it would do so again when the process ends."""
        for env in self._members:
            try:
                await env._teardown()
            finally:
                env._teardown_handlers = []

    def set_kwargs(self, **values: Any) -> None:
        """Change attributes of the package's environment, through its own setters where it has them.

        Raises:
            ConfigError: there is no such attribute, or it says what the environment is.
        """
        known = {name for name in dir(self.inner) if not name.startswith("_")} - _UNSETTABLE
        known |= {name.removeprefix("set_") for name in known if name.startswith("set_")}
        for name, value in values.items():
            where = f"env.extra_env_kwargs.{name}"
            if name not in known or inspect.ismethod(getattr(self.inner, name, None)):
                settable = [n for n in known if not callable(getattr(self.inner, n, None))]
                raise ConfigError(unknown_name(f"{where} ({type(self.inner).__name__})", name, settable))
            try:
                setter = getattr(self.inner, f"set_{name}", None)
                setter(value) if callable(setter) else setattr(self.inner, name, value)
            except (TypeError, ValueError, AssertionError) as error:
                raise ConfigError(f"{where}: {error}") from error
            self.extra_env_kwargs[name] = value


class _Heard:
    """The rollout's model, and what of its last reply the package would drop."""

    def __init__(self, chat: Chat, state: State) -> None:
        self._chat = chat
        self._state = state
        self._last: Message = {}

    @property
    def model(self) -> str:
        """The model's name at its endpoint."""
        return self._chat.model

    async def __call__(
        self,
        prompt: Prompt,
        *,
        tools: Sequence[JsonDict] | None = None,
        sampling_args: Mapping[str, Any] | None = None,
    ) -> ModelResponse:
        """Ask the model."""
        response = await self._chat(prompt, tools=tools, sampling_args=sampling_args)
        self._state["timing"]["model"] += response.seconds
        self._last = response.message
        return response

    def mark_refusal(self) -> None:
        """Give the last message the refusal that the package has dropped: results count it."""
        refusal, said = self._last.get("refusal"), self._state[LIVE].get("completion")
        if refusal and isinstance(said, list) and said:
            last = cast("list[Any]", said)[-1]
            if last["role"] == "assistant" and (last["content"] or "") == (self._last.get("content") or ""):
                last["refusal"] = refusal


def _adopt(env: Any) -> None:
    """Learn of each state when it is made, not when its rollout returns: one that fails never does."""
    begin, clean = env.init_state, getattr(env, "_cleanup", None)

    async def init_state(*args: Any, **kwargs: Any) -> Any:
        theirs = await begin(*args, **kwargs)
        setattr(theirs, _OWNER, env)
        _offer_row_tools(theirs)
        ours = _playing.get()
        if ours is not None and ours.get(LIVE) is None:
            ours[LIVE] = theirs
        return theirs

    async def clean_once(theirs: Any) -> None:
        if not getattr(theirs, _CLEAN, False):
            setattr(theirs, _CLEAN, True)
            await cast(Any, clean)(theirs)

    env.init_state = init_state
    if clean is not None:
        env._cleanup = clean_once


def _offer_row_tools(theirs: Any) -> None:
    """Offer a row's own tools: 0.1.8 to 0.1.10 look for them as an attribute of `info`, which is a dict."""
    info: object = theirs.get("info")
    tools = cast(JsonDict, info).get("oai_tools") if isinstance(info, dict) else None
    if tools and "oai_tools" in theirs:
        theirs["oai_tools"] = json.loads(tools) if isinstance(tools, str) else tools


def _said(theirs: Any) -> Any:
    """What was said after the prompt, by the last step of a trajectory."""
    steps = theirs.get("trajectory")
    if not steps:
        return None
    prompt, completion = steps[-1]["prompt"], steps[-1]["completion"]
    whole = prompt + completion if isinstance(completion, str) else [*prompt, *completion]
    return whole[len(theirs["prompt"]) :]


def _words(error: object) -> str:
    """An error of the package's with its causes, which often say more than it does."""
    if not isinstance(error, BaseException):
        return str(error)
    parts: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(parts) < 8:
        parts.append(f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__)
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return " ← ".join(parts)


def _meant(sampling_args: Mapping[str, Any] | None) -> JsonDict:
    """The environment's own sampling arguments, without those that every classic environment starts with."""
    return {
        name: value
        for name, value in (sampling_args or {}).items()
        if not (name == "n" and value == 1) and not (name == "extra_body" and not value)
    }


def _for_sdk(sampling_args: Mapping[str, Any], message_type: MessageType) -> JsonDict:
    """Sampling arguments as a classic rollout gets them: what the SDK does not name goes into `extra_body`."""
    known = sdk_arguments(message_type)
    args = {name: value for name, value in sampling_args.items() if name in known}
    extra = {name: value for name, value in sampling_args.items() if name not in known}
    return {"n": 1, **args, "extra_body": {**(sampling_args.get("extra_body") or {}), **extra}}
