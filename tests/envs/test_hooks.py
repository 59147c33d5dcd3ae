"""Marks on methods: found, ordered, inherited, and checked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from harness import MultiTurnEnv, SingleTurnEnv, State, cleanup, stop, teardown
from harness.core.errors import EnvironmentFault
from harness.core.types import Messages, Prompt
from harness.envs.hooks import hooks_of

ROWS = [{"question": "q"}]


class Base:
    @stop
    async def b(self, state: State) -> bool:
        return False

    @stop(priority=3)
    async def c(self, state: State) -> bool:
        return False

    @stop(5)
    def d(self, state: State) -> bool:
        return False

    @stop()
    async def a(self, state: State) -> bool:
        return False

    @cleanup
    @teardown
    def both(self, state: Any = None) -> None: ...

    @property
    def costly(self) -> int:
        raise AssertionError("looking for hooks must not run properties")


def test_hooks_are_ordered_by_priority_and_then_by_name() -> None:
    hooks = hooks_of(Base(), "stop")
    assert [hook.name for hook in hooks] == ["d", "c", "a", "b"]
    assert [hook.is_async for hook in hooks] == [False, True, True, True]


def test_one_method_may_serve_twice() -> None:
    assert [hook.name for hook in hooks_of(Base(), "cleanup")] == ["both"]
    assert [hook.name for hook in hooks_of(Base(), "teardown")] == ["both"]


def test_an_override_keeps_the_mark_and_may_change_it() -> None:
    class Child(Base):
        async def b(self, state: State) -> bool:
            return True

        @stop(priority=9)
        async def a(self, state: State) -> bool:
            return True

        c = None  # pyright: ignore[reportAssignmentType]

    hooks = hooks_of(Child(), "stop")
    assert [hook.name for hook in hooks] == ["a", "d", "b"]
    assert asyncio.run(hooks[-1](State())) is True


def test_the_built_in_stops_are_there() -> None:
    env = SingleTurnEnv(dataset=ROWS)
    assert [hook.name for hook in hooks_of(env, "stop")] == [
        "has_error", "has_final_env_response", "max_turns_reached", "prompt_too_long",
    ]  # fmt: skip


def test_a_hook_that_cannot_be_called_is_refused_at_construction() -> None:
    class Stops(SingleTurnEnv):
        @stop
        async def won(self) -> bool:
            return False

    class Cleans(SingleTurnEnv):
        @cleanup
        async def clean(self, state: State, box: str) -> None: ...

    class Tears(SingleTurnEnv):
        @teardown
        async def close(self, state: State) -> None: ...

    for kind, words in (
        (Stops, r"@stop Stops\.won must take the arguments \(self, state\)"),
        (Cleans, r"@cleanup Cleans\.clean must take the arguments \(self, state\).*box"),
        (Tears, r"@teardown Tears\.close must take the arguments \(self\)"),
    ):
        with pytest.raises(EnvironmentFault, match=words):
            kind(dataset=ROWS)


def test_a_hook_of_the_loop_that_cannot_be_called_is_refused_at_construction() -> None:
    class Answers(MultiTurnEnv):
        async def env_response(self, state: State) -> Prompt:  # pyright: ignore[reportIncompatibleMethodOverride]
            return []

    class Oldest(SingleTurnEnv):
        async def is_completed(self, messages: Messages, state: State) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride]
            return True

    class Plain(SingleTurnEnv):
        def render_completion(self, state: State) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
            return None

    with pytest.raises(
        EnvironmentFault, match=r"Answers\.env_response must take the arguments \(self, messages, state\)"
    ):
        Answers(dataset=ROWS)
    with pytest.raises(EnvironmentFault, match=r"Oldest\.is_completed must take the arguments \(self, state\)"):
        Oldest(dataset=ROWS)
    with pytest.raises(EnvironmentFault, match=r"Plain\.render_completion must be async def"):
        Plain(dataset=ROWS)


def test_an_environment_that_never_answers_cannot_be_built() -> None:
    with pytest.raises(TypeError, match="env_response"):
        MultiTurnEnv(dataset=ROWS)  # pyright: ignore[reportAbstractUsage]
