"""The rollout loop: model, environment, model, … until a stop condition is true."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Unpack, cast

from harness.core.errors import ContextLengthError, EnvironmentFault
from harness.core.state import Prefix, State, step
from harness.core.types import JsonDict, Messages, ModelResponse, Prompt
from harness.envs.dataset import messages_fault
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
"""Hooks that must be `async def`, with their arguments."""


class MultiTurnEnv(Environment):
    """An environment that responds to the model in several turns.

    Args:
        max_turns: Maximum number of model replies; −1 for no limit.
        **options: See `EnvOptions`.

    Raises:
        EnvironmentFault: see `Environment`; or a hook has a wrong signature.
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
        """Change the maximum number of model replies.

        Raises:
            EnvironmentFault: the number is neither −1 nor at least 1.
        """
        if isinstance(max_turns, bool) or not isinstance(max_turns, int) or (max_turns < 1 and max_turns != -1):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise EnvironmentFault(f"max_turns must be at least 1, or -1 for no limit, not {max_turns!r}")
        self.max_turns = max_turns

    # Hooks

    async def setup_state(self, state: State) -> State | None:
        """Hook before the first turn; may store values in `state`. A sync method runs in a thread."""
        return state

    @abstractmethod
    async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Prompt:
        """Return the environment's messages after a reply of the model. An override may be a `def`, which runs in a
        thread.

        To end the rollout, store the last messages in `state["final_env_response"]`.

        Args:
            messages: The conversation so far; must not be changed. A string in completion environments.
            state: The rollout.
            **kwargs: Unused; for compatibility of overriding methods.

        Returns:
            Only the new messages; a string in completion environments.
        """

    async def get_prompt_messages(self, state: State) -> Prompt:
        """Return the next prompt for the model: at first the rollout's prompt, later the transcript with the
        environment's response."""
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
        """Add the model's reply to the transcript and the trajectory.

        Args:
            state: The rollout.
            prompt: The prompt of this turn.
            response: The model's reply.
        """
        message = response.message
        if isinstance(prompt, str):
            text = str(message.get("content") or "")
            state.transcript = prompt + text
            await self.add_trajectory_step(state, step(state, prompt, text, response))
            return
        transcript = state.transcript
        if prompt is not transcript or isinstance(transcript, str):
            # A subclass's get_prompt_messages may return a different conversation, which then replaces the transcript.
            transcript = state.transcript = list(prompt)
        asked = Prefix(transcript, len(transcript))
        transcript.append(message)
        await self.add_trajectory_step(state, step(state, asked, [message], response))

    async def add_trajectory_step(self, state: State, step: JsonDict) -> None:
        """Add one turn to the trajectory.

        Args:
            state: The rollout.
            step: See `harness.core.state.step`.
        """
        state["trajectory"].append(step)

    # Stop conditions

    @stop(priority=100)
    async def has_error(self, state: State) -> bool:
        """Stop condition: the environment set an error in the state, so the rollout has failed."""
        return state["error"] is not None

    @stop
    async def prompt_too_long(self, state: State) -> bool:
        """Stop condition: the conversation exceeds the model's context. The rollout is truncated, but scored."""
        return bool(state.get("prompt_too_long"))

    @stop
    async def max_turns_reached(self, state: State) -> bool:
        """Stop condition: the model has used all of its turns."""
        return 0 < self.max_turns <= len(state["trajectory"])

    @stop
    async def has_final_env_response(self, state: State) -> bool:
        """Stop condition: the environment has set `final_env_response`."""
        return state["final_env_response"] is not None

    async def is_completed(self, state: State) -> bool:
        """Return whether a stop condition is true, and store the name of the first one."""
        for hook in self._stops:
            value = await (hook.function(state) if hook.is_async else hook(state))
            if value is not False and _is_true(value, f"{type(self).__name__} @stop {hook.name}"):
                state["is_completed"], state["stop_condition"] = True, hook.name
                return True
        return False

    # The loop

    async def play(self, state: State) -> None:
        """Run turns until a stop condition is true."""
        await self._start(state)
        where = type(self).__name__
        while True:
            is_completed = await self.is_completed(state)
            if is_completed is not False and _is_true(is_completed, f"{where}.is_completed"):
                return
            prompt = await self.get_prompt_messages(state)
            if state["final_env_response"] is not None:
                return await self._end(state, "has_final_env_response")
            if not prompt or not isinstance(prompt, str if self.message_type == "completion" else list):  # pyright: ignore[reportUnnecessaryIsInstance]
                said = "nothing" if prompt == [] or prompt == "" else type(prompt).__name__
                raise EnvironmentFault(f"{where}.get_prompt_messages must return the prompt for the model, not {said}")
            try:
                response = await self.get_model_response(state, prompt)
            except ContextLengthError:
                state["prompt_too_long"] = state["is_truncated"] = True
                return await self._end(state, "prompt_too_long")
            if response.is_truncated:
                state["is_truncated"] = True
            await self.add_model_response(state, prompt, response)

    async def _end(self, state: State, condition: str) -> None:
        """End the rollout with the first stop condition that is true, or with `condition` if none is, even if a
        subclass overrides `condition`."""
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
        """Get and validate the environment's response. Its hook gets the transcript itself, since copies would take
        O(turns²) time."""
        before, last = len(transcript), transcript[-1:]
        answer = await self._respond(transcript, state)
        if isinstance(transcript, list):
            del transcript[before:]  # remove messages that the hook appended in place
            if len(transcript) < before or transcript[-1] is not last[0]:
                raise EnvironmentFault(
                    f"{type(self).__name__}.env_response changed the list of messages that it received; "
                    "work on a copy: list(messages)"
                )
        return answer if state["final_env_response"] is not None else self._checked(answer)

    def _checked(self, answer: object) -> Prompt:
        where = f"{type(self).__name__}.env_response"
        if self.message_type == "completion":
            if isinstance(answer, str):
                return answer
            raise EnvironmentFault(f"{where} must return a string, not {type(answer).__name__}")
        if isinstance(answer, tuple):
            raise EnvironmentFault(f"{where} must return only the messages, not a tuple; change the state in place")
        if not isinstance(answer, list):
            raise EnvironmentFault(f"{where} must return a list of messages, not {type(answer).__name__}")
        if words := messages_fault(cast("Sequence[object]", answer)):
            raise EnvironmentFault(f"{where}: {words}")
        return cast(Messages, answer)

    def _hook(self, name: str, arguments: tuple[str, ...]) -> Hook:
        function = getattr(self, name)
        check_signature(function, arguments, f"{type(self).__name__}.{name}")
        return Hook(name, function, inspect.iscoroutinefunction(function))

    def _add_monitor(self) -> None:
        """Add the metric `num_turns`, unless the author has defined a metric of this name."""
        if "num_turns" not in self.rubric.metric_names:
            self.add_rubric(Rubric([num_turns], [0.0]))


def _is_true(value: object, where: str) -> bool:
    """Convert the result of a condition to bool. Rejects coroutines, which would always be true."""
    if value is True or value is False:
        return value
    if inspect.iscoroutine(value):
        value.close()
        raise EnvironmentFault(f"{where} returned a coroutine, which would always be true: await it")
    try:
        return bool(value)
    except Exception as error:  # for example of an array
        kind = type(value).__name__
        raise EnvironmentFault(f"{where} returned {kind}, which cannot be converted to bool: {error}") from error


async def num_turns(state: State) -> float:
    """Number of model replies. Async, so that it needs no thread."""
    return float(len(state["trajectory"]))
