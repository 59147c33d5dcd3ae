"""Environments with `reset` and `step` (gymnasium's and older ones) as classic environments. Owns the episode: the
row's seed starts it, the model's replies are its actions, the sum of its step rewards is the score."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, cast

from harness.core.errors import EnvironmentFault
from harness.core.state import State
from harness.core.types import JsonDict, Messages, MessageType, Prompt
from harness.plugins.classic import marks
from harness.plugins.classic.multi_turn import MultiTurnEnv
from harness.plugins.classic.rubric import Rubric
from harness.plugins.classic.state import ClassicState
from harness.rubrics.functions import total
from harness.usercode.threads import offload

_REWARDS = "gym_rewards"
"""The state's list of step rewards. The trajectory has them as well, but no journal does."""

_DEFAULT_STEPS = 1000
"""How long an episode may be if nobody says."""


class StepResetEnv(Protocol):
    """What can be played."""

    reset: Callable[..., Any]
    """Takes `seed`; returns the observation, or it and a dict."""
    step: Callable[..., Any]
    """Takes an action; returns observation, reward, whether it is over, (whether it was cut short,) and a dict."""


def normalize_reset(out: Any) -> tuple[Any, JsonDict]:
    """What `reset` returned, as observation and info."""
    values: Any = out
    return (values[0], values[1]) if isinstance(out, tuple) and len(values) == 2 else (values, {})


def normalize_step(out: Any) -> tuple[Any, float, bool, bool, JsonDict]:
    """What `step` returned, as observation, reward, terminated, truncated and info.

    Raises:
        EnvironmentFault: it is neither four nor five values.
    """
    values = list(cast("tuple[Any, ...]", out)) if isinstance(out, tuple | list) else []
    if len(values) == 4:
        values.insert(3, False)
    if len(values) != 5:
        raise EnvironmentFault(f"step() must return 4 or 5 values, not {out!r}")
    obs, reward, terminated, truncated, info = values
    return obs, float(reward), bool(terminated), bool(truncated), info


def sum_step_rewards(state: State) -> float:
    """The episode's rewards, added up."""
    rewards = state.get(_REWARDS)
    if rewards is None:
        rewards = [step.get("reward") or 0.0 for step in state.get("trajectory", [])]
    return total(rewards)


class EpisodicSumRubric(Rubric):
    """Scores an episode by the sum of its step rewards.

    Args:
        weight: Of the sum.
        **kwargs: See `Rubric`.
    """

    def __init__(self, weight: float = 1.0, **kwargs: Any) -> None:
        super().__init__(funcs=[sum_step_rewards], weights=[weight], **kwargs)


class GymEnv(MultiTurnEnv):
    """`vf.GymEnv`: each row is a seed, each reply an action.

    Args:
        env_cls: Makes the environment that is played; see `StepResetEnv`.
        env_kwargs: What it is made with.
        action_parser: Makes an action out of the reply's text; a reply that it refuses ends the episode.
        obs_to_text: Makes the message to the model out of an observation; `str` by default.
        num_train_episodes: Rows of the training dataset.
        num_eval_episodes: Rows of the evaluation dataset; at 0 the training rows are evaluated.
        max_episode_steps: Actions after which an episode ends; 1000 by default.
        seed: Of the first row; each row's is one higher.
        **kwargs: See `MultiTurnEnv`.

    Raises:
        EnvironmentFault: see `MultiTurnEnv`.
    """

    def __init__(
        self,
        env_cls: Callable[..., StepResetEnv],
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
        self.action_parser: Callable[[str], Any] = action_parser or _same
        self.obs_to_text_fn = obs_to_text
        self.num_train_episodes, self.num_eval_episodes = num_train_episodes, num_eval_episodes
        self.seed = seed
        self.message_type: MessageType = kwargs.setdefault("message_type", "chat")
        kwargs["rubric"] = kwargs.get("rubric") or EpisodicSumRubric()
        # Made when they are needed: resetting a thousand episodes to evaluate twenty takes a while.
        kwargs.setdefault("dataset", lambda: self._rows(0, num_train_episodes))
        if num_eval_episodes > 0:
            kwargs.setdefault("eval_dataset", lambda: self._rows(num_train_episodes, num_eval_episodes))
        super().__init__(max_turns=max_episode_steps or _DEFAULT_STEPS, **kwargs)

    def obs_to_text(self, obs: Any) -> str:
        """What the model is told of an observation."""
        return self.obs_to_text_fn(obs) if self.obs_to_text_fn else str(obs)

    def wrap_response(self, text: str) -> Prompt:
        """A text as the environment's answer."""
        return [{"role": "user", "content": text}] if self.message_type == "chat" else text

    async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Prompt:
        """Play the model's action."""
        if "gym_env" not in state:
            state["gym_env"], shown = await offload.run(self._start_episode, int(state["answer"]))
            state["gym_done"], state[_REWARDS] = False, []
            _check_shown(shown, state)
        last: JsonDict = state["trajectory"][-1]
        try:
            action = self.action_parser(self._said(messages, last))
        except Exception as error:  # the boundary around the author's parser: what it cannot read is the model's fault
            return self._told(state, last, 0.0, f"Action Parsing Error: {error}", is_over=True)
        obs, reward, terminated, truncated, info = await offload.run(self._step, state["gym_env"], action)
        last["extras"]["gym_info"] = info
        is_over = terminated or truncated
        ended = "\nEpisode already ended." if is_over else ""
        return self._told(state, last, reward, f"{self.obs_to_text(obs)}{ended}", is_over=is_over)

    @marks.stop(priority=1)
    async def is_done(self, state: State) -> bool:
        """The episode is over."""
        return bool(state.get("gym_done"))

    @marks.cleanup
    async def cleanup_env(self, state: State) -> None:
        """Close the environment that was played."""
        played = state.pop("gym_env", None)
        if played is not None:
            await offload.run(_close, played)

    def prepared(self, state: State) -> ClassicState:
        """See `Environment`; a trajectory out of a journal gets its rewards back."""
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

    def _start_episode(self, seed: int) -> tuple[StepResetEnv, str]:
        played = self.env_cls(**self.env_kwargs)
        obs, _ = normalize_reset(played.reset(seed=seed))
        return played, self.obs_to_text(obs)

    def _step(self, played: StepResetEnv, action: Any) -> tuple[Any, float, bool, bool, JsonDict]:
        return normalize_step(played.step(action))

    def _said(self, messages: Messages, step: JsonDict) -> str:
        text = self.parser.parse_answer(cast(Any, messages))
        if text is not None:
            return str(text)
        said: Any = step["completion"]
        return said if isinstance(said, str) else str(said[-1].get("content") or "")

    def _told(self, state: State, step: JsonDict, reward: float, text: str, *, is_over: bool) -> Prompt:
        """The environment's answer. The last one ends the rollout: a further reply would be paid for and do nothing."""
        step["reward"] = reward
        state[_REWARDS].append(reward)
        state["gym_done"] = is_over
        answer = self.wrap_response(text)
        if is_over:
            state["final_env_response"] = answer
        return answer


def _same(text: str) -> str:
    return text


def _close(played: Any) -> None:
    close = getattr(played, "close", None)
    if callable(close):
        close()


def _check_shown(shown: str, state: State) -> None:
    """An episode that does not begin as its row says is another one than the model was shown."""
    prompt: Any = state["prompt"]
    asked = prompt if isinstance(prompt, str) else str(prompt[-1].get("content"))
    if shown not in asked:
        raise EnvironmentFault(
            f"reset(seed={state['answer']}) shows {shown[:80]!r}, and showed {asked[:80]!r} when the rows were made; "
            "an environment must start the same way for the same seed"
        )
