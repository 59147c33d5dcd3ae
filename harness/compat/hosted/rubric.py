"""A hosted environment's rubric: the package's own scores the rollouts, as a group of one where nothing compares them.
Owns what becomes of its numbers: a function that raised or returned NaN leaves a rollout unscored, with its name.

After a crash the package's state is built anew from the journal; what no journal can hold is missing there, and a
function that reads it fails."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from harness.compat.hosted.dialect import Dialect, is_theirs, plain
from harness.compat.hosted.judges import exchange_judges
from harness.compat.hosted.members import routed, strip_route
from harness.compat.hosted.restoring import LIVE, carry_over, restored
from harness.compat.hosted.rows import HostedRows
from harness.compat.hosted.watching import Notes, Watch
from harness.compat.verifiers.rubric import column
from harness.errors import EnvironmentFault
from harness.parsers.parser import Parser
from harness.records import Score
from harness.rubrics.functions import RewardFunc, read
from harness.rubrics.judge_port import JudgeSpec, seated
from harness.rubrics.rubric import Rubric
from harness.state import State
from harness.types import JsonDict

PATIENCE = 60
"""Seconds that a check of their MathRubric gets at least: a few workers serve all of them, and a busy machine must not
turn right answers into wrong ones."""


class HostedRubric(Rubric):
    """The rubrics of a hosted environment, and of those inside it.

    Args:
        inner: The package's environment.
        dialect: How its release speaks.
        rows: Its dataset.
    """

    def __init__(self, inner: Any, dialect: Dialect, rows: HostedRows) -> None:
        super().__init__()
        self._inner = inner
        self._dialect = dialect
        self._rows = rows
        self._watch = Watch()
        rubrics = list({id(rubric): rubric for rubric in rubrics_of(inner.rubric)}.values())
        for rubric in rubrics:
            self._watch.wrap(rubric)
            _give_time(rubric)
        self._judges = exchange_judges(rubrics, dialect)
        self._routes = any(hasattr(rubric, "env_map") for rubric in rubrics)
        own = any(_overrides(rubric, "score_group") for rubric in rubrics)
        self._is_group = self._watch.is_group or own
        names = dict.fromkeys([*_names_of(inner.rubric), *self._watch.names])
        self._columns = {name: column(name) for name in names}

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The name of every function once; one that is called like a column of ours has `_metric` after it."""
        return tuple(self._columns.values())

    @property
    def is_group(self) -> bool:
        """Whether a function, or a rubric of the author's own, sees all rollouts of an example together."""
        return self._is_group

    @property
    def judges(self) -> tuple[JudgeSpec, ...]:
        """The judges of all rubrics inside, as far as they ask through the openai SDK."""
        return self._judges

    @property
    def reward_range(self) -> tuple[float, float]:
        """The sum of the negative and of the positive weights; two rubrics inside a group of environments exclude
        each other, so it may be wider than what there is."""
        weights = [weight for some in self._watch.weights.values() for weight in some]
        return sum(w for w in weights if w < 0), sum(w for w in weights if w > 0)

    def adopt_parser(self, parser: Parser) -> None:
        """Nothing: the package's rubric has its own parser."""

    def add_reward_func(self, func: RewardFunc, weight: float = 1.0) -> None:
        """Refuse: the package's rubric is complete. `Environment.add_rubric` adds another."""
        raise EnvironmentFault("a function cannot be added to a hosted rubric; add a rubric: environment.add_rubric(…)")

    def add_class_object(self, name: str, obj: object) -> None:
        """Refuse, as above."""
        raise EnvironmentFault("an object cannot be added to a hosted rubric; add a rubric: environment.add_rubric(…)")

    async def score(self, states: Sequence[State]) -> list[Score]:
        """Let the package's rubric score, and read what it put into its states."""
        if not states:
            return []
        theirs = [await self._theirs(state) for state in states]
        with seated(), self._watch.over(theirs, states) as notes:
            await self._run(theirs, self._rows.raw(states[0]["example_id"]))
        scores = [self._read(one, note) for one, note in zip(theirs, notes, strict=True)]
        for state, one, score in zip(states, theirs, scores, strict=True):
            state["reward"], state["metrics"] = score.reward, score.metrics
            carry_over(one, state)
        return scores

    async def _run(self, theirs: Sequence[Any], raw: JsonDict) -> None:
        """Score with the rubric of the environment that played: a group's own only looks for it, and not in groups."""
        rubric = self._inner.rubric
        if hasattr(rubric, "env_map"):
            env, row = routed(self._inner, raw)
            rubric = env.rubric
            for one in theirs:
                strip_route(one, row)
        # score_rollout refuses a rubric without functions; a group of one is scored the same and refuses nothing.
        arguments = {"score_sem": contextlib.nullcontext()} if _takes(rubric.score_group, "score_sem") else {}
        try:
            await rubric.score_group(list(theirs), **arguments)
        finally:
            if inspect.iscoroutinefunction(getattr(rubric, "cleanup", None)):
                for one in theirs:
                    await rubric.cleanup(one)

    def _read(self, theirs: Any, notes: Notes) -> Score:
        found = dict(theirs.get("metrics") or {})
        metrics: dict[str, float | None] = {}
        minor: dict[str, str] = {}
        for name, shown in self._columns.items():
            # A group of environments gives 0.0 to functions of the others, which were not asked.
            asked = name in found and not (self._routes and name in self._watch.weights and name not in notes.called)
            metrics[shown], reason = read(found[name]) if asked else (None, "")
            reason = notes.reasons.get(name, reason)
            if reason:
                metrics[shown], minor[shown] = None, reason
        counted = [shown for name, shown in self._columns.items() if shown in minor and self._counts(name)]
        fatal = {shown: minor.pop(shown) for shown in counted}
        reward, reason = read(theirs.get("reward"))
        if not fatal and reason:
            fatal["*"] = f"the rubric {reason}"
        more = {name: plain(value) for name, value in found.items() if name not in self._columns}
        if more:
            theirs["further_metrics"] = more
        return Score(None if fatal else reward, metrics, {**fatal, **minor})

    def _counts(self, name: str) -> bool:
        """Whether a function is part of the reward; one that is not in the rubrics' lists may be."""
        return any(self._watch.weights.get(name, (1.0,)))

    async def _theirs(self, state: State) -> Any:
        live = state.get(LIVE)
        return live if live is not None else await restored(state, self._inner, self._dialect, self._rows)


def rubrics_of(rubric: Any) -> Iterator[Any]:
    """A rubric and those inside it: of a group of rubrics, and of a group of environments."""
    yield rubric
    for inside in getattr(rubric, "rubrics", ()):
        yield from rubrics_of(inside)
    for env in dict(getattr(rubric, "env_map", {})).values():
        yield from rubrics_of(env.rubric)


def _give_time(rubric: Any) -> None:
    """Their MathRubric bounds a check by the clock on the wall, waiting included, and takes what is late for wrong."""
    seconds: object = getattr(rubric, "timeout_seconds", None)
    if isinstance(seconds, int | float) and any(kind.__name__ == "MathRubric" for kind in type(rubric).__mro__):
        rubric.timeout_seconds = max(seconds, PATIENCE)


def _overrides(rubric: Any, name: str) -> bool:
    """Whether the author wrote a method anew, rather than the package."""
    return not is_theirs(next(kind for kind in type(rubric).__mro__ if name in vars(kind)))


def _names_of(rubric: Any) -> list[str]:
    names: Any = getattr(rubric, "_get_reward_func_names", None)
    return [str(name) for name in names()] if names is not None else []


def _takes(function: Callable[..., Any], name: str) -> bool:
    return name in inspect.signature(function).parameters
