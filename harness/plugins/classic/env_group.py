"""Groups of classic environments, based on `harness.EnvGroup`. Rows are numbered separately for each environment of a
group. The name of a row's environment is in `task` in the older, dict-based API (generation B), and in `info["env_id"]`
in the newer, typed API (generation C)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from harness.core.records import Score
from harness.core.state import State
from harness.core.types import JsonDict
from harness.envs.env_group import SEPARATOR, GroupedRubric
from harness.envs.env_group import EnvGroup as NativeEnvGroup
from harness.envs.environment import Environment as NativeEnvironment
from harness.plugins.classic.context import generation as running
from harness.plugins.classic.environment import Environment
from harness.plugins.classic.generation import Generation
from harness.plugins.classic.state import ClassicState, classic_state

ENV_GROUP_INFO_KEY = "env_id"
"""Key in a row's `info` that holds the name of the row's environment, in the newer, typed API (generation C)."""


class EnvGroup(Environment, NativeEnvGroup):  # pyright: ignore[reportIncompatibleMethodOverride]  # theirs
    """`vf.EnvGroup(envs, env_names)` of the classic API: several environments evaluated as one.

    Args:
        envs: The environments.
        env_names: Their names; `env_0`, `env_1`, … by default.
        **kwargs: Stored as attributes.

    Raises:
        ValueError: the list of environments is empty, or its length differs from the number of names.
    """

    def __init__(
        self, envs: Sequence[NativeEnvironment], env_names: Sequence[str] | None = None, **kwargs: Any
    ) -> None:
        if not envs:
            raise ValueError("EnvGroup requires at least one environment")
        names = list(env_names or [f"env_{number}" for number in range(len(envs))])
        if len(names) != len(envs):
            raise ValueError("Number of env_names must match number of envs")
        self.generation: Generation = running()
        self.logger = logging.getLogger(f"verifiers.envs.{type(self).__name__}")
        env_id, env_args = kwargs.pop("env_id", None), kwargs.pop("env_args", None)
        NativeEnvGroup.__init__(self, envs, names, env_id=env_id, env_args=env_args)
        self.rubric = EnvGroupRubric(self)
        self._put("dataset", self._all_rows)
        for name, value in kwargs.items():
            setattr(self, name, value)
        self.__post_init__()

    def settle(self) -> None:
        """Validate the reward functions of all environments of the group."""
        for env in self.envs:
            if isinstance(env, Environment):
                env.settle()

    def get_env_for_task(self, task: str) -> NativeEnvironment:
        """Return the environment that a task name belongs to; the first environment if the task is unknown."""
        return self.env_map.get(task.partition(SEPARATOR)[0], self.envs[0])

    def prepared(self, state: State) -> ClassicState:
        """Convert a rollout's state to a classic state, as the environment that its row belongs to does."""
        if isinstance(state, ClassicState) and state.generation == self.generation:
            return state
        name = str(state["task"]).partition(SEPARATOR)[0]
        env = self.env_map.get(name)
        if not isinstance(env, Environment):
            return classic_state(state, self.generation, None)
        ends = list(accumulate(each.row_count for each in self.envs))
        before = ends[self.env_names.index(name)] - env.row_count
        number = state["example_id"]
        state["example_id"] = number - before  # the environment finds its row by its own row number
        try:
            return env.prepared(state)
        finally:
            state["example_id"] = number

    async def play(self, state: State) -> None:
        """Run a rollout in the environment that its row belongs to."""
        assert state.chat is not None
        task = str(state["task"])
        env = self.enter(state)
        try:
            await env.rollout(state, state.chat)
        finally:
            state["task"] = task

    def enter(self, state: State) -> NativeEnvironment:
        """Return the environment that a rollout's row belongs to, and set its task or `info` in the state."""
        name, _, own = str(state["task"]).partition(SEPARATOR)
        env = self.env_map[name]
        if isinstance(env, EnvGroup):
            state["task"] = own
        elif self.generation == "B":
            state["task"] = name
        else:
            state["task"] = own
            if isinstance(state["info"], dict):
                state["info"].setdefault(ENV_GROUP_INFO_KEY, name)
        return env

    async def render_completion(self, state: State) -> None:
        """Do nothing, since the environment that ran the rollout has already set the completion."""

    def _all_rows(self) -> list[JsonDict]:
        rows = [self.row(index) for index in range(self.row_count)]
        return [{"prompt": r.prompt, "answer": r.answer, "info": r.info, "task": r.task} for r in rows]

    def _table(self) -> Any:
        return NativeEnvGroup._table(self)


class EnvGroupRubric(GroupedRubric):
    """Rubric of a classic environment group: each rollout is scored by the rubric of its environment."""

    def __init__(self, group: EnvGroup) -> None:
        self._group = group
        super().__init__(group.env_map)

    async def score(self, states: Sequence[State]) -> list[Score]:
        """Score rollouts of one example with the rubric of its environment."""
        if not states:
            return []
        tasks = [str(state["task"]) for state in states]
        try:
            env = next(reversed([self._group.enter(self._group.prepared(state)) for state in states]))
            scores = await env.rubric.score(states)
        finally:
            for state, task in zip(states, tasks, strict=True):
                state["task"] = task
        names = self.metric_names
        return [replace(score, metrics={metric: score.metrics.get(metric) for metric in names}) for score in scores]
