"""The loop of turns: model, environment, model, … until a stop condition holds. Owns the hooks of that loop and the
transcript; the frame around it is in `environment`."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Unpack, cast

from harness.core.errors import ContextLengthError, EnvironmentFault
from harness.core.state import Prefix, State, step
from harness.core.types import JsonDict, Messages, ModelResponse, Prompt
from harness.envs.dataset import message_fault
from harness.envs.environment import Environment
from harness.envs.hooks import Hook, check_signature, hooks_of, stop
from harness.envs.options import EnvOptions
from harness.rubrics.rubric import Rubric

_ASYNC_HOOKS: dict[str, tuple[str, ...]] = {
    "is_completed": ("state",),
    "get_prompt_messages": ("state",),
    "render_completion": ("state",),
    "add_model_response": ("state", "prompt", "response"),
    "add_trajectory_step": ("state", "step"),
}
"""Hooks that must be `async def`, and what they are called with."""


class MultiTurnEnv(Environment):
    """An environment that answers the model.

    Args:
        max_turns: Model replies after which a rollout ends; −1 for no bound.
        **options: See `EnvOptions`.

    Raises:
        EnvironmentFault: see `Environment`; or a hook with a wrong signature.
    """

    def __init__(self, max_turns: int = -1, **options: Unpack[EnvOptions]) -> None:
        super().__init__(**options)
        self.set_max_turns(max_turns)
        self._stops = hooks_of(self, "stop")
        self._set_up = self._hook("setup_state", ("state",))
        self._respond = self._hook("env_response", ("messages", "state"))
        for name, arguments in _ASYNC_HOOKS.items():
            if not self._hook(name, arguments).is_async:
                raise EnvironmentFault(f"{type(self).__name__}.{name} must be async def")
        self._add_monitor()

    def set_max_turns(self, max_turns: int) -> None:
        """Change the bound on model replies.

        Raises:
            EnvironmentFault: neither −1 nor at least 1.
        """
        if isinstance(max_turns, bool) or not isinstance(max_turns, int) or (max_turns < 1 and max_turns != -1):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise EnvironmentFault(f"max_turns must be at least 1, or -1 for no bound, not {max_turns!r}")
        self.max_turns = max_turns

    # Hooks

    async def setup_state(self, state: State) -> State | None:
        """Called before the first turn; put what the rollout needs into `state`. May be a plain `def`, then it runs in
        a thread."""
        return state

    @abstractmethod
    async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Prompt:
        """Answer the model. May be a plain `def`, then it runs in a thread.

        To end the rollout, put the last messages into `state["final_env_response"]`.

        Args:
            messages: The conversation so far; not to be changed. A text in completion environments.
            state: The rollout.
            **kwargs: Nothing yet; for overriding methods that take it.

        Returns:
            New messages only; a text in completion environments.
        """

    async def get_prompt_messages(self, state: State) -> Prompt:
        """What the model is asked next: the prompt at first, then the transcript with the environment's answer."""
        transcript = state.transcript
        if not state["trajectory"]:
            return transcript
        answer = await self._answer(transcript, state)
        if state["final_env_response"] is not None:
            return transcript
        if isinstance(transcript, str):
            state.transcript = transcript + cast(str, answer)
        else:
            transcript.extend(cast(Messages, answer))
        return state.transcript

    async def add_model_response(self, state: State, prompt: Prompt, response: ModelResponse) -> None:
        """Put the model's reply into transcript and trajectory.

        Args:
            state: The rollout.
            prompt: What was asked.
            response: What came back.
        """
        message = response.message
        if isinstance(prompt, str):
            text = str(message.get("content") or "")
            state.transcript = prompt + text
            await self.add_trajectory_step(state, step(state, prompt, text, response))
            return
        transcript = state.transcript
        if prompt is not transcript or isinstance(transcript, str):
            # An overriding get_prompt_messages made a conversation of its own: it goes on from there.
            transcript = state.transcript = list(prompt)
        asked = Prefix(transcript, len(transcript))
        transcript.append(message)
        await self.add_trajectory_step(state, step(state, asked, [message], response))

    async def add_trajectory_step(self, state: State, step: JsonDict) -> None:
        """Put one turn into the trajectory.

        Args:
            state: The rollout.
            step: See `harness.core.state.step`.
        """
        state["trajectory"].append(step)

    # Stop conditions

    @stop(priority=100)
    async def has_error(self, state: State) -> bool:
        """The environment put an error into the state: the rollout failed."""
        return state["error"] is not None

    @stop
    async def prompt_too_long(self, state: State) -> bool:
        """The conversation no longer fits the model's context: truncated, and scored as it is."""
        return bool(state.get("prompt_too_long"))

    @stop
    async def max_turns_reached(self, state: State) -> bool:
        """The model has had its turns."""
        return 0 < self.max_turns <= len(state["trajectory"])

    @stop
    async def has_final_env_response(self, state: State) -> bool:
        """The environment has said its last word."""
        return state["final_env_response"] is not None

    async def is_completed(self, state: State) -> bool:
        """Whether a stop condition holds; the first that does is noted."""
        for hook in self._stops:
            if _is_true(await hook(state), f"{type(self).__name__} @stop {hook.name}"):
                state["is_completed"], state["stop_condition"] = True, hook.name
                return True
        return False

    # The loop

    async def play(self, state: State) -> None:
        """Turn after turn until a stop condition holds."""
        await self._start(state)
        where = type(self).__name__
        while not _is_true(await self.is_completed(state), f"{where}.is_completed"):
            prompt = await self.get_prompt_messages(state)
            if state["final_env_response"] is not None:
                return await self._end(state, "has_final_env_response")
            if not prompt or not isinstance(prompt, str if self.message_type == "completion" else list):  # pyright: ignore[reportUnnecessaryIsInstance]
                said = "nothing" if prompt == [] or prompt == "" else type(prompt).__name__
                raise EnvironmentFault(f"{where}.get_prompt_messages must return what the model is asked, not {said}")
            try:
                response = await self.get_model_response(state, prompt)
            except ContextLengthError:
                state["prompt_too_long"] = state["is_truncated"] = True
                return await self._end(state, "prompt_too_long")
            if response.is_truncated:
                state["is_truncated"] = True
            await self.add_model_response(state, prompt, response)

    async def _end(self, state: State, condition: str) -> None:
        """End the rollout by whatever condition holds first, at the latest by this one, even if it was overridden."""
        if not await self.is_completed(state):
            state["is_completed"], state["stop_condition"] = True, condition

    async def _start(self, state: State) -> None:
        returned = await self._set_up(state)
        if returned is None or returned is state:
            pass
        elif isinstance(returned, dict):
            state.update(cast(JsonDict, returned))
        else:
            raise EnvironmentFault(f"setup_state must return the state or None, not {type(returned).__name__}")
        prompt = state["prompt"]
        state.transcript, state.start = (prompt if isinstance(prompt, str) else list(prompt)), len(prompt)

    async def _answer(self, transcript: Prompt, state: State) -> Prompt:
        """The environment's answer, checked. It gets the transcript itself: a copy a turn would cost O(turns²)."""
        before, last = len(transcript), transcript[-1:]
        answer = await self._respond(transcript, state)
        if isinstance(transcript, list):
            del transcript[before:]  # whoever appends to it takes it for a copy
            if len(transcript) < before or transcript[-1] is not last[0]:
                raise EnvironmentFault(
                    f"{type(self).__name__}.env_response changed the list of messages it was given; "
                    "work on a copy: list(messages)"
                )
        return answer if state["final_env_response"] is not None else self._checked(answer)

    def _checked(self, answer: object) -> Prompt:
        where = f"{type(self).__name__}.env_response"
        if self.message_type == "completion":
            if isinstance(answer, str):
                return answer
            raise EnvironmentFault(f"{where} must return a text, not {type(answer).__name__}")
        if isinstance(answer, tuple):
            raise EnvironmentFault(f"{where} must return messages alone, not a tuple; change the state in place")
        if not isinstance(answer, list):
            raise EnvironmentFault(f"{where} must return a list of messages, not {type(answer).__name__}")
        for number, message in enumerate(cast("Sequence[object]", answer)):
            words = message_fault(message)
            if words:
                raise EnvironmentFault(f"{where}: message {number} {words}")
        return cast(Messages, answer)

    def _hook(self, name: str, arguments: tuple[str, ...]) -> Hook:
        function = getattr(self, name)
        check_signature(function, arguments, f"{type(self).__name__}.{name}")
        return Hook(name, function, inspect.iscoroutinefunction(function))

    def _add_monitor(self) -> None:
        """Record how many turns rollouts take, unless the author does."""
        if "num_turns" not in self.rubric.metric_names:
            self.add_rubric(Rubric([num_turns], [0.0]))


def _is_true(value: object, where: str) -> bool:
    """What a condition says; refuses what is neither true nor false, and a coroutine, which would always be true."""
    if value is True or value is False:
        return value
    if inspect.iscoroutine(value):
        value.close()
        raise EnvironmentFault(f"{where} returned a coroutine, which would always be true: await it")
    try:
        return bool(value)
    except Exception as error:  # of an array, say
        kind = type(value).__name__
        raise EnvironmentFault(f"{where} returned {kind}, which is neither true nor false: {error}") from error


async def num_turns(state: State) -> float:
    """How often the model has replied. Async, so that it costs no thread."""
    return float(len(state["trajectory"]))
