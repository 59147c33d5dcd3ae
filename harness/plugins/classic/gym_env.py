"""Reinforcement-learning environments with `reset` and `step` (gymnasium and older APIs) as classic environments. The
row's seed starts an episode, each model reply is an action, and the sum of the step rewards is the score."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from harness.core.errors import EnvironmentFault
from harness.core.state import State
from harness.core.types import JsonDict, Messages, MessageType, Prompt
from harness.envs.hooks import cleanup, stop
from harness.plugins.classic.multi_turn import MultiTurnEnv
from harness.plugins.classic.rubric import Rubric
from harness.plugins.classic.state import ClassicState
from harness.rubrics.functions import total
from harness.rubrics.parser import identity
from harness.usercode.threads import offload

_REWARDS = "gym_rewards"
"""State key of the list of step rewards. The list is stored in the journal, unlike the trajectory."""

_DEFAULT_STEPS = 1000
"""Default limit of steps per episode."""


def normalize_reset(out: Any) -> tuple[Any, JsonDict]:
    """Convert the return value of an environment's `reset` to the observation and an info dict."""
    values: Any = out
    return (values[0], values[1]) if isinstance(out, tuple) and len(values) == 2 else (values, {})


def normalize_step(out: Any) -> tuple[Any, float, bool, bool, JsonDict]:
    """Convert the return value of an environment's `step` to observation, reward, terminated, truncated and info dict.

    Raises:
        EnvironmentFault: the return value does not consist of four or five values.
    """
    values = list(cast("tuple[Any, ...]", out)) if isinstance(out, tuple | list) else []
    if len(values) == 4:
        values.insert(3, False)
    if len(values) != 5:
        raise EnvironmentFault(f"step() must return 4 or 5 values, not {out!r}")
    obs, reward, terminated, truncated, info = values
    return obs, float(reward), bool(terminated), bool(truncated), info


def sum_step_rewards(state: State) -> float:
    """Reward function: the sum of the episode's step rewards."""
    rewards = state.get(_REWARDS)
    if rewards is None:
        rewards = [step.get("reward") or 0.0 for step in state.get("trajectory", [])]
    return total(rewards)


class EpisodicSumRubric(Rubric):
    """Scores an episode by the sum of its step rewards.

    Args:
        weight: Weight of the sum in the reward.
        **kwargs: See `Rubric`.
    """

    def __init__(self, weight: float = 1.0, **kwargs: Any) -> None:
        super().__init__(funcs=[sum_step_rewards], weights=[weight], **kwargs)


class GymEnv(MultiTurnEnv):
    """`vf.GymEnv`: a model acts in an environment with `reset` and `step`. Each row is a seed, each reply an action.

    Args:
        env_cls: Class or function that creates the wrapped environment. Its method `reset` takes `seed` and returns the
            first observation, alone or with an info dict; `step` takes an action and returns observation, reward,
            terminated, (truncated,) and an info dict.
        env_kwargs: Its keyword arguments.
        action_parser: Converts the reply's text to an action; if it raises, the episode ends.
        obs_to_text: Converts an observation to the message to the model; `str` by default.
        num_train_episodes: Number of rows of the training dataset.
        num_eval_episodes: Number of rows of the evaluation dataset; if 0, the training rows are evaluated.
        max_episode_steps: Actions after which an episode ends; 1000 by default.
        seed: Seed of the first row; each later row has the next higher seed.
        **kwargs: See `MultiTurnEnv`.

    Raises:
        EnvironmentFault: see `MultiTurnEnv`.
    """

    def __init__(
        self,
        env_cls: Callable[..., Any],
        env_kwargs: Mapping[str, Any] | None = None,
        action_parser: Callable[[str], Any] | None = None,
        obs_to_text: Callable[[Any], str] | None = None,
        num_train_episodes: int = 1000,
        num_eval_episodes: int = 20,
        max_episode_steps: int | None = None,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        self.env_cls = env_cls
        self.env_kwargs: JsonDict = dict(env_kwargs or {})
        self.action_parser: Callable[[str], Any] = action_parser or identity
        self.obs_to_text_fn = obs_to_text
        self.num_train_episodes, self.num_eval_episodes = num_train_episodes, num_eval_episodes
        self.seed = seed
        self.message_type: MessageType = kwargs.setdefault("message_type", "chat")
        kwargs["rubric"] = kwargs.get("rubric") or EpisodicSumRubric()
        # Rows are created on first use, since resetting a thousand episodes to evaluate only twenty takes long.
        kwargs.setdefault("dataset", lambda: self._rows(0, num_train_episodes))
        if num_eval_episodes > 0:
            kwargs.setdefault("eval_dataset", lambda: self._rows(num_train_episodes, num_eval_episodes))
        super().__init__(max_turns=max_episode_steps or _DEFAULT_STEPS, **kwargs)

    def obs_to_text(self, obs: Any) -> str:
        """Convert an observation to the message to the model."""
        return self.obs_to_text_fn(obs) if self.obs_to_text_fn else str(obs)

    def wrap_response(self, text: str) -> Prompt:
        """Convert a string to the environment's response: a user message, or the same string for completion models."""
        return [{"role": "user", "content": text}] if self.message_type == "chat" else text

    async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Prompt:
        """Parse the action in the model's reply, run it in the wrapped environment, and return the observation."""
        if "gym_env" not in state:
            state["gym_env"], shown = await offload.run(self._start_episode, int(state["answer"]))
            state["gym_done"], state[_REWARDS] = False, []
            _check_shown(shown, state)
        last: JsonDict = state["trajectory"][-1]
        try:
            action = self.action_parser(self._action_text(messages, last))
        except Exception as error:  # an exception of the author's parser counts as an invalid action of the model
            return self._response_to(state, last, 0.0, f"Action Parsing Error: {error}", is_over=True)
        stepped = await offload.run(state["gym_env"].step, action)
        obs, reward, terminated, truncated, info = normalize_step(stepped)
        last["extras"]["gym_info"] = info
        is_over = terminated or truncated
        ended = "\nEpisode already ended." if is_over else ""
        return self._response_to(state, last, reward, f"{self.obs_to_text(obs)}{ended}", is_over=is_over)

    @stop(priority=1)
    async def is_done(self, state: State) -> bool:
        """Stop condition: the episode is over."""
        return bool(state.get("gym_done"))

    @cleanup
    async def cleanup_env(self, state: State) -> None:
        """Close the wrapped environment."""
        played = state.pop("gym_env", None)
        if played is not None:
            await offload.run(_close, played)

    def prepared(self, state: State) -> ClassicState:
        """Convert a state of the engine to a classic state. If it was restored from a journal, also restore the step
        rewards in its trajectory."""
        made = super().prepared(state)
        for step, reward in zip(made["trajectory"], made.get(_REWARDS) or (), strict=False):
            step["reward"] = reward if step.get("reward") is None else step["reward"]
        return made

    def _rows(self, start: int, count: int) -> list[JsonDict]:
        played = self.env_cls(**self.env_kwargs)
        column = "prompt" if self.message_type == "completion" else "question"
        try:
            rows: list[JsonDict] = []
            for seed in range(self.seed + start, self.seed + start + count):
                obs, _ = normalize_reset(played.reset(seed=seed))
                rows.append({column: self.obs_to_text(obs), "answer": str(seed)})
            return rows
        finally:
            _close(played)

    def _start_episode(self, seed: int) -> tuple[Any, str]:
        played = self.env_cls(**self.env_kwargs)
        obs, _ = normalize_reset(played.reset(seed=seed))
        return played, self.obs_to_text(obs)

    def _action_text(self, messages: Messages, step: JsonDict) -> str:
        text = self.parser.parse_answer(cast(Any, messages))
        if text is not None:
            return str(text)
        said: Any = step["completion"]
        return said if isinstance(said, str) else str(said[-1].get("content") or "")

    def _response_to(self, state: State, step: JsonDict, reward: float, text: str, *, is_over: bool) -> Prompt:
        """Return the environment's response to an action. After the last step, end the rollout, because another model
        reply would have no effect."""
        step["reward"] = reward
        state[_REWARDS].append(reward)
        state["gym_done"] = is_over
        answer = self.wrap_response(text)
        if is_over:
            state["final_env_response"] = answer
        return answer


def _close(played: Any) -> None:
    close = getattr(played, "close", None)
    if callable(close):
        close()


def _check_shown(shown: str, state: State) -> None:
    """Check that an episode begins with the observation shown in the row's prompt."""
    prompt: Any = state["prompt"]
    asked = prompt if isinstance(prompt, str) else str(prompt[-1].get("content"))
    if shown not in asked:
        raise EnvironmentFault(
            f"reset(seed={state['answer']}) returned {shown[:80]!r}, but the prompt of this row is {asked[:80]!r}; "
            "the environment must begin with the same observation for the same seed"
        )
