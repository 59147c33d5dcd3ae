"""Several environments as one: their rows one after the other, each rollout played and scored by the environment that
its row came from. Owns the routing; every environment in it sees what it would see alone.

A row's `task` says where it belongs: `name`, or `name/task` where the row had a task of its own."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any, Unpack, cast, overload

from harness.core.errors import ConfigError, EnvironmentFault
from harness.core.records import Example, Score
from harness.core.state import State
from harness.core.types import JsonDict, Message, Messages
from harness.envs.environment import Environment
from harness.envs.options import EnvOptions, unknown_name
from harness.rubrics.functions import RewardFunc
from harness.rubrics.judge_port import JudgeSpec
from harness.rubrics.parser import Parser
from harness.rubrics.rubric import Rubric

SEPARATOR = "/"
"""Between an environment's name and a row's own task."""


class EnvGroup(Environment):
    """Environments that are evaluated together.

    Their sampling arguments, system prompts, tools and hooks stay their own. Examples are numbered anew. A metric that
    an environment does not have is null in its rows, and counts in no mean.

    Args:
        envs: At least one, in the order of their rows.
        env_names: What tables call them, as many as `envs`; by default their ids, else `env_0`, `env_1`, …
        **options: Of `EnvOptions` only `sampling_args`, `max_workers`, `env_id` and `env_args`: the others are the
            environments' own.

    Raises:
        EnvironmentFault: no environments, names that clash or hold a `/`, or environments of which some ask with
            messages and some with texts.
    """

    def __init__(
        self, envs: Sequence[Environment], env_names: Sequence[str] | None = None, **options: Unpack[EnvOptions]
    ) -> None:
        self.envs = list(envs)
        self.env_names = _names(self.envs, env_names)
        self.env_map = dict(zip(self.env_names, self.envs, strict=True))
        for name in sorted(EnvOptions.__annotations__.keys() - {"sampling_args", "max_workers", "env_id", "env_args"}):
            if options.get(name) is not None:
                raise EnvironmentFault(f"{type(self).__name__}({name}=…): give it to the environments in the group")
        options["message_type"] = self.envs[0].message_type
        # A builder: the rows of a group are those of its environments, which may be opened late themselves.
        options["eval_dataset"] = lambda: _Rows(self.env_map)
        options["rubric"] = GroupedRubric(self.env_map)
        super().__init__(**options)

    def get_env_for_task(self, task: str) -> Environment:
        """The environment that rows of `task` belong to.

        Raises:
            EnvironmentFault: there is none.
        """
        return _member(self.env_map, task)[1]

    @property
    def source_files(self) -> tuple[Path, ...]:
        """The files of its own code and of every environment in it."""
        return tuple(dict.fromkeys([*self._files, *(file for env in self.envs for file in env.source_files)]))

    @source_files.setter
    def source_files(self, files: tuple[Path, ...]) -> None:
        self._files = files

    async def play(self, state: State) -> None:
        """Let the row's environment play the whole rollout, its own clean-up included."""
        assert state.chat is not None
        with _as_member(self.env_map, state) as env:
            # What the run asks for still wins; a group has no sampling arguments of its own unless it was given some.
            state["sampling_args"] = {**env.sampling_args, **state["sampling_args"]}
            await env.rollout(state, state.chat)

    async def render_completion(self, state: State) -> None:
        """Nothing: the row's environment has done it."""

    async def teardown(self) -> None:
        """Tear down the group, then every environment in it."""
        await super().teardown()
        for env in {id(env): env for env in self.envs}.values():
            await env.teardown()

    def set_kwargs(self, **values: Any) -> None:
        """Change attributes of the group, or else of every environment in it that has them.

        Raises:
            ConfigError: none has such an attribute, or it cannot be changed or hold that value.
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
        """What the group or any environment in it can change."""
        return super().settable().union(*(env.settable() for env in self.envs))

    @property
    def has_reference(self) -> bool:
        """Whether every environment says how an ideal player answers."""
        return all(env.has_reference for env in self.envs)

    def reference_reply(self, example: Example, messages: Messages) -> Message | str:
        """As the row's environment says."""
        env, own = self._own(example)
        return env.reference_reply(own, messages)

    def null_reply(self, example: Example, messages: Messages) -> Message | str:
        """As the row's environment says."""
        env, own = self._own(example)
        return env.null_reply(own, messages)

    @property
    def has_reference_verdict(self) -> bool:
        """Whether every environment that a judge scores says what an ideal judge answers."""
        return all(env.has_reference_verdict for env in self.envs if env.rubric.judges)

    def reference_verdict(self, example: Example, messages: Messages) -> str:
        """As the row's environment says."""
        env, own = self._own(example)
        return env.reference_verdict(own, messages)

    def _own(self, example: Example) -> tuple[Environment, Example]:
        _, env, task = _member(self.env_map, example.task)
        return env, replace(example, task=task)


class GroupedRubric(Rubric):
    """The rubric of a group: every rollout is scored by the rubric of the environment that played it.

    Args:
        envs: The environments by name. Their rubrics are looked up when they are needed, so one that is added to an
            environment later counts.
    """

    def __init__(self, envs: Mapping[str, Environment]) -> None:
        super().__init__()
        self._envs = envs

    @property
    def rubrics(self) -> tuple[Rubric, ...]:
        """Each rubric once, in the order of the environments."""
        return tuple({id(env.rubric): env.rubric for env in self._envs.values()}.values())

    @property
    def parser(self) -> Parser:
        """The parser of the first rubric."""
        return self.rubrics[0].parser

    def adopt_parser(self, parser: Parser) -> None:
        """Nothing: each rubric has its environment's parser."""

    @property
    def metric_names(self) -> tuple[str, ...]:
        """Every function's name once: environments may share names, since a rollout belongs to one of them."""
        return tuple(dict.fromkeys(name for rubric in self.rubrics for name in rubric.metric_names))

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each function; of one that several rubrics have, the first one's."""
        return {name: weight for rubric in reversed(self.rubrics) for name, weight in rubric.weights.items()}

    @property
    def is_group(self) -> bool:
        """Whether any rubric must see all rollouts of an example together."""
        return any(rubric.is_group for rubric in self.rubrics)

    @property
    def needs_live_state(self) -> bool:
        """Whether any rubric can only score in the process that generated."""
        return any(rubric.needs_live_state for rubric in self.rubrics)

    @property
    def judges(self) -> tuple[JudgeSpec, ...]:
        """The judges of every rubric, in order."""
        return tuple(spec for rubric in self.rubrics for spec in rubric.judges)

    @property
    def reward_range(self) -> tuple[float, float]:
        """The lowest and the highest reward of any of them."""
        ranges = [rubric.reward_range for rubric in self.rubrics]
        return min(low for low, _ in ranges), max(high for _, high in ranges)

    def add_reward_func(self, func: RewardFunc, weight: float = 1.0) -> None:
        """Add a function to every rubric."""
        for rubric in self.rubrics:
            rubric.add_reward_func(func, weight)

    def add_class_object(self, name: str, obj: object) -> None:
        """Let functions of every rubric take `obj` as a parameter called `name`."""
        for rubric in self.rubrics:
            rubric.add_class_object(name, obj)

    async def score(self, states: Sequence[State]) -> list[Score]:
        """Score rollouts of one example with the rubric of its environment."""
        if not states:
            return []
        tasks = [state["task"] for state in states]
        name, env, own = _member(self._envs, tasks[0])
        if any(task != tasks[0] for task in tasks):
            raise EnvironmentFault(f"rollouts of one example belong to {name!r} and to others: {sorted(set(tasks))}")
        for state in states:
            state["task"] = own
        try:
            scores = await env.rubric.score(states)
        finally:
            for state, task in zip(states, tasks, strict=True):
                state["task"] = task
        names = self.metric_names
        return [replace(score, metrics={metric: score.metrics.get(metric) for metric in names}) for score in scores]


class _Rows(Sequence[JsonDict]):
    """The rows of all environments, one environment after the other, formatted by them."""

    def __init__(self, envs: Mapping[str, Environment]) -> None:
        self._envs = list(envs.items())
        self._ends = list(accumulate(env.row_count for env in envs.values()))

    def __len__(self) -> int:
        return self._ends[-1]

    @overload
    def __getitem__(self, index: int) -> JsonDict: ...
    @overload
    def __getitem__(self, index: slice) -> list[JsonDict]: ...
    def __getitem__(self, index: int | slice) -> JsonDict | list[JsonDict]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
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
        raise EnvironmentFault("an EnvGroup asks either with messages or with texts: its environments must agree")
    names = (
        list(given)
        if given is not None
        else [(env.env_id or "").split(SEPARATOR)[-1] or f"env_{number}" for number, env in enumerate(envs)]
    )
    if len(names) != len(envs):
        raise EnvironmentFault(f"an EnvGroup got {len(envs)} environments and {len(names)} names")
    for name in names:
        if not isinstance(cast(object, name), str) or not name or SEPARATOR in name:
            raise EnvironmentFault(f"EnvGroup(env_names=…): {name!r} must be a text without {SEPARATOR!r}")
        if names.count(name) > 1:
            raise EnvironmentFault(f"two environments of an EnvGroup are called {name!r}; give them env_names")
    return names


def _member(envs: Mapping[str, Environment], task: str) -> tuple[str, Environment, str]:
    """Name and environment that a task belongs to, and the task as that environment knows it."""
    name, _, own = task.partition(SEPARATOR)
    env = envs.get(name)
    if env is None:
        raise EnvironmentFault(f"task {task!r} belongs to no environment of the group; it has {', '.join(envs)}")
    return name, env, own


@contextmanager
def _as_member(envs: Mapping[str, Environment], state: State) -> Generator[Environment]:
    """The row's environment, while the state looks as it would without the group."""
    task = state["task"]
    _, env, state["task"] = _member(envs, task)
    try:
        yield env
    finally:
        state["task"] = task
