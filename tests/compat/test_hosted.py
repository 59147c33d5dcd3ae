"""The parts of the adapter for real `verifiers` packages that need none: recognition, messages, rows, and the watch
over reward functions. The whole is tested against the real releases in `test_hosted_releases.py`."""

from __future__ import annotations

import asyncio
import inspect
import math
import signal
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from scripted_chat import state_of

from harness.compat.hosted import host
from harness.compat.hosted.dialect import Dialect, text_of, to_wire
from harness.compat.hosted.rows import HostedRows
from harness.compat.hosted.watching import Watch
from harness.errors import EnvironmentFault, ModelError

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}


def made_by(module: str, name: str, **members: Any) -> Any:
    """An object of a class that says it is of `module`."""
    return type(name, (), {"__module__": module, **members})()


def test_what_is_not_theirs_is_not_hosted() -> None:
    assert host(object()) is None
    assert host(made_by("verifiers_extra.envs", "Environment")) is None


def test_the_newer_api_is_refused_by_name() -> None:
    with pytest.raises(EnvironmentFault, match=r"verifiers\.v1.*0\.1\.8 to 0\.3"):
        host(made_by("verifiers.v1.taskset", "Taskset"))


def test_a_release_before_the_classic_ones_is_refused_with_what_to_do() -> None:
    async def rollout(self: object, client: object, model: str, prompt: object) -> None:
        raise AssertionError

    old = made_by("verifiers.envs.environment", "Environment", rollout=rollout)
    with pytest.raises(EnvironmentFault, match=r"before 0\.1\.8.*pip install 'verifiers==0\.1\.9\.post3'"):
        host(old)


class Typed:
    """A message as the typed releases have them."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields

    def model_dump(self, *, mode: str, exclude_none: bool) -> dict[str, Any]:
        assert (mode, exclude_none) == ("json", True)
        return {name: value for name, value in self.fields.items() if value is not None}


def test_messages_of_any_release_become_those_of_the_wire() -> None:
    flat = {"id": "c1", "name": "add", "arguments": "{}"}
    said = [
        Typed(role="assistant", content=None, tool_calls=[flat], reasoning_content=None),
        {"role": "assistant", "content": "", "tool_calls": [Typed(**CALL)], "name": None},
        {"role": "tool", "content": "3", "tool_call_id": "c1"},
    ]
    assert to_wire(said) == [
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "content": "3", "tool_call_id": "c1"},
    ]
    assert to_wire("a text") == "a text"
    assert text_of([Typed(role="text", content="a "), {"role": "text", "content": "text"}]) == "a text"


def test_a_release_that_speaks_in_dicts_gets_its_client_and_messages_as_they_are() -> None:
    dialect = Dialect("verifiers", is_typed=False)
    sdk, messages = object(), [{"role": "user", "content": "x"}]
    assert dialect.client(sdk, "chat") is sdk
    assert dialect.messages(messages) is messages


def rows(*given: dict[str, Any], message_type: str = "chat") -> HostedRows:
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_list(list(given))
    return HostedRows(SimpleNamespace(message_type=message_type, get_eval_dataset=lambda: data))


def test_a_row_is_shown_to_our_table_and_kept_for_the_package() -> None:
    ask = [{"role": "user", "content": "2 + 2"}]
    table = rows(
        {"prompt": ask, "answer": 4, "example_id": 7, "level": "easy"}, {"prompt": ask, "answer": 4, "example_id": 9}
    )
    assert table[0] == {"prompt": ask, "answer": "4", "info": {}, "task": "", "example_id": 7}
    assert table.raw(7) == {"prompt": ask, "answer": 4, "example_id": 7, "level": "easy"}
    with pytest.raises(EnvironmentFault, match="no row with the example_id 8"):
        table.raw(8)


def test_rows_that_share_an_id_are_told_apart_by_their_place() -> None:
    table = rows({"prompt": "a", "example_id": 0}, {"prompt": "b", "example_id": 0})
    assert [table[i]["example_id"] for i in (0, 1)] == [0, 1]
    assert table.raw(1)["prompt"] == "b"
    assert table[0]["prompt"] == [{"role": "user", "content": "a"}]
    assert rows({"prompt": "a"}, message_type="completion")[0]["prompt"] == "a"


def watched(*functions: Callable[..., Any], theirs: int = 1) -> tuple[list[dict[str, str]], list[set[str]], list[Any]]:
    """Call functions as a classic rubric does, by the names in their signatures; reasons and calls of each rollout."""
    rubric = SimpleNamespace(funcs=list(functions), weights=[1.0] * len(functions))
    watch = Watch()
    watch.wrap(rubric)
    states = [{"answer": f"a{index}"} for index in range(theirs)]
    values: list[Any] = []

    async def call(function: Any, **offered: Any) -> None:
        taken = {n: v for n, v in offered.items() if n in inspect.signature(function).parameters}
        try:
            values.append(await function(**taken))
        except (Exception, SystemExit) as error:
            values.append(error)

    async def go() -> tuple[list[dict[str, str]], list[set[str]], list[Any]]:
        with watch.over(states, [state_of() for _ in states]) as notes:
            for function in rubric.funcs:
                if watch.is_group:
                    await call(function, states=states, answers=[s["answer"] for s in states])
                    continue
                async with asyncio.TaskGroup() as tasks:
                    for state in states:
                        tasks.create_task(call(function, state=state, answer=state["answer"]))
        return [note.reasons for note in notes], [note.called for note in notes], values

    return asyncio.run(go())


def test_a_function_s_failure_is_known_with_its_rollout() -> None:
    def picky(answer: str) -> float:
        if answer == "a1":
            raise KeyError("no such grade")
        return math.nan if answer == "a2" else 1.0

    reasons, called, values = watched(picky, theirs=3)
    assert reasons == [{}, {"picky": "raised KeyError: 'no such grade'"}, {"picky": "returned nan"}]
    assert called == [{"picky"}] * 3
    assert sorted(type(value).__name__ for value in values) == ["KeyError", "float", "float"], (
        "classic code sees it, too"
    )


def test_a_failed_model_call_inside_is_the_reason() -> None:
    async def judged(state: Any) -> float:
        try:
            raise ModelError("slow down", reason="rate_limit")
        except ModelError as error:
            raise RuntimeError("judge failed") from error

    assert watched(judged)[0] == [{"judged": "raised ModelError: slow down"}]


def test_a_group_function_fails_for_all_or_for_one() -> None:
    def ranks(answers: list[str]) -> list[float]:
        return [1.0, math.inf]

    def short(states: list[Any]) -> list[float]:
        return [1.0]

    reasons, called, _ = watched(ranks, short, theirs=2)
    words = "returned 1 values for 2 rollouts"
    assert reasons == [{"short": words}, {"ranks": "returned inf", "short": words}]
    assert called == [{"ranks", "short"}] * 2


def test_functions_run_in_a_thread_unless_they_cannot() -> None:
    places: list[bool] = []

    def plain() -> float:
        places.append(threading.current_thread() is threading.main_thread())
        return 1.0

    def alarmed() -> float:
        signal.signal(signal.SIGALRM, signal.getsignal(signal.SIGALRM))
        return 2.0

    reasons, _, values = watched(plain, alarmed)
    assert (reasons, values, places) == ([{}], [1.0, 2.0], [False])


def test_a_wrapper_looks_like_its_function() -> None:
    def picky(answer: str, **more: Any) -> float:
        return 1.0

    rubric = SimpleNamespace(funcs=[picky], weights=[0.5])
    watch = Watch()
    watch.wrap(rubric)
    assert rubric.funcs[0].__name__ == "picky"
    assert list(inspect.signature(rubric.funcs[0]).parameters) == ["answer", "more"]
    assert (watch.names, watch.weights, watch.is_group) == (["picky"], {"picky": [0.5]}, False)
