"""Several environments evaluated as one. Each rollout is run and scored by the environment of its row.

A row's `task` names its environment: `name`, or `name/task` if the row has its own task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any, Unpack, cast

from harness.core.errors import ConfigError, EnvironmentFault
from harness.core.records import Example, Score
from harness.core.state import State
from harness.core.types import JsonDict, Message, Messages
from harness.envs.environment import Environment
from harness.envs.options import EnvOptions, unknown_name
from harness.rubrics.functions import RewardFunc
from harness.rubrics.group import CombinedRubric
from harness.rubrics.rubric import Rubric

SEPARATOR = "/"
"""Separator between an environment's name and a row's own task."""


_OWN = frozenset({"cluster_key", "sampling_args", "max_workers", "env_id", "env_args"})
"""Options of a group itself."""


class EnvGroup(Environment):
    """Environments that are evaluated together.

    Each environment keeps its own sampling arguments, system prompt, tools and hooks. Examples are renumbered. A metric
    that an environment lacks is null in its rows and does not count in means.

    Args:
        envs: At least one environment, in the order of their rows.
        env_names: Names for tables, one per environment; default to their ids, else `env_0`, `env_1`, …
        **options: Of `EnvOptions` only `cluster_key` (by default the one on which the environments agree),
            `sampling_args`, `max_workers`, `env_id` and `env_args`; the others belong to the environments.

    Raises:
        EnvironmentFault: no environments, names that are not unique or contain `/`, or a mix of chat and completion
            environments.
    """

    def __init__(
        self, envs: Sequence[Environment], env_names: Sequence[str] | None = None, **options: Unpack[EnvOptions]
    ) -> None:
        self.envs = list(envs)
        self.env_names = _names(self.envs, env_names)
        self.env_map = dict(zip(self.env_names, self.envs, strict=True))
        for name in sorted(EnvOptions.__annotations__.keys() - _OWN):
            if options.get(name) is not None:
                raise EnvironmentFault(f"{type(self).__name__}({name}=…): pass this option to the environments instead")
        options["message_type"] = self.envs[0].message_type
        if len(keys := {env.cluster_key for env in self.envs}) == 1:
            options.setdefault("cluster_key", keys.pop())
        # Passed as a function, so that the datasets of the environments are opened only on first use.
        options["eval_dataset"] = lambda: _Rows(self.env_map)
        options["rubric"] = GroupedRubric(self.env_map)
        super().__init__(**options)

    def get_env_for_task(self, task: str) -> Environment:
        """Return the environment that runs the rows of `task`.

        Raises:
            EnvironmentFault: no environment has this task.
        """
        return _member(self.env_map, task)[1]

    @property
    def source_files(self) -> tuple[Path, ...]:
        """The source files of the group itself and of all its environments."""
        return tuple(dict.fromkeys([*self._files, *(file for env in self.envs for file in env.source_files)]))

    @source_files.setter
    def source_files(self, files: tuple[Path, ...]) -> None:
        self._files = files

    async def play(self, state: State) -> None:
        """Run the rollout in the row's environment, including its cleanup."""
        assert state.chat is not None
        task = state["task"]
        _, env, state["task"] = _member(self.env_map, task)
        try:
            # The run's arguments take precedence; a group has sampling arguments only if it was given some.
            state["sampling_args"] = {**env.sampling_args, **state["sampling_args"]}
            await env.rollout(state, state.chat)
        finally:
            state["task"] = task

    async def render_completion(self, state: State) -> None:
        """Do nothing: the environment of the rollout's row has already set the completion."""

    async def teardown(self) -> None:
        """Tear down the group, then all of its environments."""
        await super().teardown()
        for env in {id(env): env for env in self.envs}.values():
            await env.teardown()

    def set_kwargs(self, **values: Any) -> None:
        """Change attributes of the group. One that the group lacks is changed in all its environments that have it.

        Raises:
            ConfigError: an attribute is unknown or cannot be changed, or its new value is invalid.
        """
        for name, value in values.items():
            takers = [env for env in self.envs if name in env.settable()]
            if name in super().settable():
                super().set_kwargs(**{name: value})
            elif not takers:
                where = f"env.extra_env_kwargs.{name} ({type(self).__name__})"
                raise ConfigError(unknown_name(where, name, self.settable()))
            for env in takers:
                env.set_kwargs(**{name: value})
            self.extra_env_kwargs[name] = value

    def settable(self) -> set[str]:
        """Names of attributes that can be changed in the group or in any of its environments."""
        return super().settable().union(*(env.settable() for env in self.envs))

    @property
    def has_reference(self) -> bool:
        """Whether all environments have a reference policy."""
        return all(env.has_reference for env in self.envs)

    def reference_reply(self, example: Example, messages: Messages) -> Message | str:
        """Return the next message of a perfect player, as the environment of the row defines it."""
        env, own = self._own(example)
        return env.reference_reply(own, messages)

    def null_reply(self, example: Example, messages: Messages) -> Message | str:
        """Return the next message of a player without knowledge, as the environment of the row defines it."""
        env, own = self._own(example)
        return env.null_reply(own, messages)

    @property
    def has_reference_verdict(self) -> bool:
        """Whether all environments that are scored by a judge have a reference judge."""
        return all(env.has_reference_verdict for env in self.envs if env.rubric.judges)

    def reference_verdict(self, example: Example, messages: Messages) -> str:
        """Return the reply of a perfect judge, as the environment of the row defines it."""
        env, own = self._own(example)
        return env.reference_verdict(own, messages)

    def _own(self, example: Example) -> tuple[Environment, Example]:
        _, env, task = _member(self.env_map, example.task)
        return env, replace(example, task=task)


class GroupedRubric(CombinedRubric):
    """The rubric of a group: each rollout is scored by the rubric of its environment.

    Args:
        envs: The environments by name. Their rubrics are read on use, so rubrics that are added later count.
    """

    def __init__(self, envs: Mapping[str, Environment]) -> None:
        super().__init__()
        self._envs = envs

    def _parts(self) -> Sequence[Rubric]:
        return tuple({id(env.rubric): env.rubric for env in self._envs.values()}.values())

    @property
    def metric_names(self) -> tuple[str, ...]:
        """Names of all reward functions, without duplicates. Environments may share a name, since each rollout belongs
        to only one environment."""
        return tuple(dict.fromkeys(name for rubric in self._parts() for name in rubric.metric_names))

    @property
    def weights(self) -> dict[str, float]:
        """Weights by function name; if several rubrics have the name, the first one's."""
        return {name: weight for rubric in reversed(self._parts()) for name, weight in rubric.weights.items()}

    @property
    def reward_range(self) -> tuple[float, float]:
        """Lowest and highest reward that any of the environments' rubrics can give."""
        ranges = [rubric.reward_range for rubric in self._parts()]
        return min(low for low, _ in ranges), max(high for _, high in ranges)

    def add_reward_func(self, func: RewardFunc, weight: float = 1.0) -> None:
        """Add a function to every rubric."""
        for rubric in self._parts():
            rubric.add_reward_func(func, weight)

    async def score(self, states: Sequence[State]) -> list[Score]:
        """Score rollouts of one example with the rubric of its environment."""
        if not states:
            return []
        tasks = [state["task"] for state in states]
        _, env, own = _member(self._envs, tasks[0])
        if any(task != tasks[0] for task in tasks):
            raise EnvironmentFault(f"rollouts scored together must have the same task, not {sorted(set(tasks))}")
        for state in states:
            state["task"] = own
        try:
            scores = await env.rubric.score(states)
        finally:
            for state, task in zip(states, tasks, strict=True):
                state["task"] = task
        names = self.metric_names
        return [replace(score, metrics={metric: score.metrics.get(metric) for metric in names}) for score in scores]


class _Rows:
    """The formatted rows of all environments, in sequence."""

    def __init__(self, envs: Mapping[str, Environment]) -> None:
        self._envs = list(envs.items())
        self._ends = list(accumulate(env.row_count for env in envs.values()))

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: int) -> JsonDict:
        number = next(number for number, end in enumerate(self._ends) if index < end)
        name, env = self._envs[number]
        row = env.row(index - (self._ends[number - 1] if number else 0))
        task = f"{name}{SEPARATOR}{row.task}" if row.task else name
        return {"prompt": row.prompt, "answer": row.answer, "info": row.info, "task": task, "example_id": index}


def _names(envs: Sequence[Environment], given: Sequence[str] | None) -> list[str]:
    if not envs:
        raise EnvironmentFault("an EnvGroup needs at least one environment")
    wrong = [env for env in envs if not isinstance(cast(object, env), Environment)]
    if wrong:
        raise EnvironmentFault(f"an EnvGroup takes environments, not {wrong[0]!r}")
    kinds = {env.message_type for env in envs}
    if len(kinds) > 1:
        raise EnvironmentFault("the environments of an EnvGroup must all have the same message_type")
    names = (
        list(given)
        if given is not None
        else [(env.env_id or "").split(SEPARATOR)[-1] or f"env_{number}" for number, env in enumerate(envs)]
    )
    if len(names) != len(envs):
        raise EnvironmentFault(
            f"EnvGroup(env_names=…): {len(names)} names for {len(envs)} environments; pass one for each"
        )
    for name in names:
        if not isinstance(cast(object, name), str) or not name or SEPARATOR in name:
            raise EnvironmentFault(f"EnvGroup(env_names=…): {name!r} must be a string without {SEPARATOR!r}")
        if names.count(name) > 1:
            raise EnvironmentFault(f"two environments of an EnvGroup are called {name!r}; pass unique env_names")
    return names


def _member(envs: Mapping[str, Environment], task: str) -> tuple[str, Environment, str]:
    """Return the name and the environment of a task, and the task's name within that environment."""
    name, _, own = task.partition(SEPARATOR)
    env = envs.get(name)
    if env is None:
        raise EnvironmentFault(f"task {task!r} must begin with the name of an environment: {', '.join(envs)}")
    return name, env, own
