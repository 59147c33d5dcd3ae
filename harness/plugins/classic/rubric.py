"""Rubrics of the classic API, with the lists that authors may change (`funcs`, `weights`, `class_objects`), the methods
that they may override, and the rule for reward functions with the same name. `harness.rubrics` calls the functions and
handles failures."""

from __future__ import annotations

import contextlib
import inspect
import logging
import math
import time
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, cast

from harness.core.records import FIXED_COLUMNS, Score
from harness.core.state import State
from harness.plugins.classic import marks, reward_functions
from harness.plugins.classic.context import current
from harness.plugins.classic.context import generation as running
from harness.plugins.classic.generation import Generation
from harness.plugins.classic.own_rollouts import awaited
from harness.plugins.classic.parsers import Parser
from harness.plugins.classic.reward_functions import RewardFunc, Weights
from harness.rubrics.functions import read, weight_limits
from harness.rubrics.parser import Parser as NativeParser
from harness.rubrics.rubric import Rubric as NativeRubric
from harness.usercode.functions import name_of


class Rubric(NativeRubric):
    """`vf.Rubric(funcs, weights, parser)`: weighted reward functions.

    Args:
        funcs: Reward functions.
        weights: One weight per function; 1 by default.
        parser: Passed to functions with the parameter `parser`; a plain `vf.Parser` by default.
        **kwargs: Stored as attributes.

    Raises:
        ValueError: the number of weights differs from the number of functions.
    """

    def __init__(
        self,
        funcs: Sequence[RewardFunc] | None = None,
        weights: Sequence[float] | None = None,
        parser: NativeParser | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(parser=parser or Parser())
        self.generation: Generation = running()
        self.logger = logging.getLogger(f"verifiers.rubrics.{type(self).__name__}")
        self.funcs: list[RewardFunc] = list(funcs or [])
        given = list(weights or []) or [1.0] * len(self.funcs)
        if len(given) != len(self.funcs):
            raise ValueError(f"Number of weights ({len(given)}) must match number of functions ({len(self.funcs)})")
        self.weights = given
        self.class_objects: dict[str, Any] = {"parser": self.parser}
        self._reasons: dict[str, dict[str, str]] = {}
        """Reasons why values of reward functions are missing, by rollout. Needed if an author's subclass overrides the
        scoring and calls the method of this class."""
        self.prepare: Callable[[State], State] | None = None
        """Function that converts a state of the engine to a classic state; set by the environment."""
        for name, value in kwargs.items():
            setattr(self, name, value)

    # Methods for authors

    @property
    def parser(self) -> NativeParser:
        """The parser that is passed to functions with the parameter `parser`."""
        return super().parser

    @parser.setter
    def parser(self, parser: NativeParser) -> None:
        self._own_parser = parser
        if "parser" in vars(self).get("class_objects", {}):
            self.class_objects["parser"] = parser

    @property
    def weights(self) -> Any:
        """The weights of the functions: a list in the order of the functions, which authors may change."""
        return self._weights

    @weights.setter
    def weights(self, weights: Sequence[float]) -> None:
        self._weights = Weights(weights, self.get_reward_func_names)

    def add_reward_func(self, func: RewardFunc, weight: float = 1.0) -> None:
        """Add a function to the reward."""
        self.funcs.append(func)
        self.weights.append(weight)

    def add_metric(self, func: RewardFunc, weight: float = 0.0) -> None:
        """Add a function with weight 0, which is only recorded."""
        self.funcs.append(func)
        self.weights.append(weight)

    def add_class_object(self, name: str, obj: object) -> None:
        """Pass `obj` to functions that have a parameter called `name`, including those that were added earlier."""
        self.class_objects[name] = obj

    def get_reward_func_names(self) -> list[str]:
        """Return the names of the reward functions."""
        return [name_of(function) for function in self.funcs]

    def get_reward_funcs(self) -> list[RewardFunc]:
        """Return the reward functions."""
        return list(self.funcs)

    def get_reward_weights(self) -> list[float]:
        """Return the weights of the reward functions."""
        return list(self.weights)

    # Methods for our engine

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The names of all reward functions, without duplicates."""
        return tuple(dict.fromkeys(column(name) for name in self.get_reward_func_names()))

    @property
    def is_group(self) -> bool:
        """Whether all rollouts of an example are scored together: by a reward function, or by a `score_group` that a
        subclass overrides."""
        return self._overrides("score_group") or any(reward_functions.is_group(function) for function in self.funcs)

    @property
    def reward_range(self) -> tuple[float, float]:
        """Lowest and highest possible reward: the sums of the negative and of the positive weights."""
        return weight_limits(self.weights)

    def settle(self, prepare: Callable[[State], State], columns: Collection[str] | None) -> None:
        """Validate the reward functions when the environment is completely built, and store the function `prepare`.

        Args:
            prepare: See the attribute `prepare`.
            columns: The dataset's columns; None while unknown.

        Raises:
            EnvironmentFault: a function has a parameter that cannot be supplied.
        """
        self.prepare = prepare
        if columns is None and self.generation == "C":
            return  # functions may take columns, which are known only after the dataset is built
        extra = columns or () if self.generation == "C" else ()
        for function in self.funcs:
            reward_functions.check(function, {*self.class_objects, *extra}, "reward function")

    async def score(self, states: Sequence[State]) -> list[Score]:
        """Score rollouts. If an author's subclass overrides `score_group` or `score_rollout`, use that method."""
        if not states:
            return []
        prepare = self.prepare
        prepared = [state if prepare is None else prepare(state) for state in states]
        token = current.set(self.generation)
        try:
            async with self._cleaning(prepared):
                return await self._scored(prepared)
        finally:
            current.reset(token)

    async def _scored(self, states: Sequence[State]) -> list[Score]:
        if self._overrides("score_group"):
            await self._call(self.score_group, list(states))
        elif self._overrides("score_rollout"):
            for state in states:
                await self._call(self.score_rollout, state)
        else:
            scores = await self._run(states)
            self._reasons.clear()
            return scores
        return [self._stored_score(state) for state in states]

    # Methods that authors override, or call from an override

    async def score_rollout(self, state: State, score_sem: object = None, **kwargs: Any) -> None:
        """Score one rollout, and set `reward` and `metrics` in its state."""
        await self._run([state])

    async def score_group(self, states: list[State], score_sem: object = None, **kwargs: Any) -> None:
        """Score all rollouts of an example."""
        await self._run(states)

    async def cleanup(self, state: State) -> None:
        """Run the rubric's methods that are marked `@vf.cleanup`."""
        for method in marks.marked(self, "cleanup"):
            await awaited(method(state))

    async def teardown(self) -> None:
        """Run the rubric's methods that are marked `@vf.teardown`."""
        for method in marks.marked(self, "teardown"):
            await awaited(method())

    async def _run(self, states: Sequence[State]) -> list[Score]:
        """Call the reward functions in order, and compute the weighted sum."""
        columns = self.generation == "C"
        plans = [
            reward_functions.planned(function, weight, self.class_objects, columns)
            for function, weight in zip(self.funcs, self.weights, strict=True)
        ]
        started = time.time()
        rubric = NativeRubric()
        # If functions have the same name, each counts in the reward, and the value of the last one is the metric.
        rubric._functions = [replace(plan, name=f"{number}#{plan.name}") for number, plan in enumerate(plans)]
        scores = [_named(score) for score in await rubric.score(states)]
        self._keep(states, scores, started)
        return scores

    def _keep(self, states: Sequence[State], scores: Sequence[Score], started: float) -> None:
        """Store the scores in the states, in the form that authors read."""
        known = [score.reward for score in scores if score.reward is not None]
        mean = math.fsum(known) / len(known) if known else 0.0
        for state, score in zip(states, scores, strict=True):
            state["reward"], state["metrics"] = score.reward, dict(score.metrics)
            state["advantage"] = None if score.reward is None else score.reward - mean
            self._reasons[state["trajectory_id"]] = score.reasons
            _note_time(state, started)

    def _stored_score(self, state: State) -> Score:
        """Read the score that an author's overriding method has stored in a state."""
        reward = state.get("reward")
        given: dict[str, object] = state.get("metrics") or {}
        metrics = {column(str(name)): read(value)[0] for name, value in given.items()}
        reasons = self._reasons.pop(state["trajectory_id"], {})
        number = read(reward)[0]
        if number is None and not reasons:
            reasons = {"*": f"{type(self).__name__} set the reward to {reward!r}, which is not a number"}
        return Score(number, {name: metrics.get(name) for name in self.metric_names} | metrics, reasons)

    def _overrides(self, name: str) -> bool:
        """Return whether an author's class overrides this method."""
        owner = next(base for base in type(self).__mro__ if name in vars(base))
        return not owner.__module__.startswith("harness.")

    async def _call(self, method: Callable[..., Any], states: object) -> None:
        """Call a scoring method written by an author. In the older API (generation B), such a method may take a
        semaphore; it gets one that never blocks."""
        if "score_sem" in inspect.signature(method).parameters:
            await method(states, score_sem=contextlib.nullcontext())
        else:
            await method(states)

    @contextlib.asynccontextmanager
    async def _cleaning(self, states: Sequence[State]) -> AsyncGenerator[None]:
        """Return a context manager for scoring rollouts, which on exit runs the rubric's methods that are marked
        `@vf.cleanup` (newer API, generation C, only)."""
        try:
            yield
        finally:
            if self.generation == "C":
                for state in states:
                    await self.cleanup(state)


def _named(score: Score) -> Score:
    """Remove the numbers from the names of metrics in a score. Internally, reward functions are numbered, since several
    may have the same name."""
    metrics = {column(name.partition("#")[2]): value for name, value in score.metrics.items()}
    return replace(
        score, metrics=metrics, reasons={n.partition("#")[2] or n: words for n, words in score.reasons.items()}
    )


def _note_time(state: State, started: float) -> None:
    timing = state.get("timing")
    now = time.time()
    if isinstance(timing, dict) and "scoring_ms" in timing:
        cast("dict[str, float]", timing)["scoring_ms"] = (now - started) * 1000.0
        timing["total_ms"] = timing["generation_ms"] + timing["scoring_ms"]
    elif isinstance(timing, dict) and "scoring" in timing:
        cast("dict[str, dict[str, float]]", timing)["scoring"].update(start=started, end=now)


def column(name: str) -> str:
    """Return the name of a metric's column in results: the metric's name, changed if a fixed column has that name."""
    return f"{name}_metric" if name in FIXED_COLUMNS else name


def settle_all(rubric: NativeRubric, prepare: Callable[[State], State], columns: Collection[str] | None) -> None:
    """Validate the reward functions of every classic rubric that a rubric contains.

    Raises:
        EnvironmentFault: see `Rubric.settle`.
    """
    if isinstance(rubric, Rubric):
        rubric.settle(prepare, columns)
    for inner in getattr(rubric, "rubrics", ()):
        settle_all(inner, prepare, columns)
