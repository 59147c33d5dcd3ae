"""Functions of every kind as tools, and the calling of them."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from tables import for_each_row

from harness.core.errors import EnvironmentFault, ThreadsHung, ToolCallError, ToolParseError
from harness.tools import call_tool, parse_arguments, read_tool
from harness.usercode.threads import offload


def add(a: int, b: int = 1) -> int:
    """Add.

    Args:
        a: First.
        b: Second.
    """
    return a + b


async def multiply(a: int, b: int = 2) -> int:
    """Multiply."""
    return a * b


class Box:
    """A box."""

    def __init__(self, held: int = 0) -> None:
        self.held = held

    def put(self, number: int) -> int:
        """Put into the box."""
        self.held += number
        return self.held

    async def take(self, number: int) -> int:
        """Take out of the box."""
        self.held -= number
        return self.held

    @staticmethod
    def weigh(grams: float) -> float:
        """Weigh."""
        return grams

    @classmethod
    def make(cls, number: int) -> str:
        """Make a box."""
        return f"{cls.__name__} {number}"


class Doubler:
    """Doubles."""

    def __call__(self, number: int) -> int:
        return 2 * number


class AsyncDoubler:
    async def __call__(self, number: int) -> int:
        """Double, later."""
        return 2 * number


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


BOX = Box(10)


@for_each_row(
    ("function", "name", "description", "arguments", "result"),
    [
        (add, "add", "Add.", {"a": 1}, 2),
        (multiply, "multiply", "Multiply.", {"a": 4}, 8),
        (BOX.put, "put", "Put into the box.", {"number": 5}, 15),
        (BOX.take, "take", "Take out of the box.", {"number": 15}, 0),
        (Box.weigh, "weigh", "Weigh.", {"grams": 2}, 2.0),
        (Box.make, "make", "Make a box.", {"number": 7}, "Box 7"),
        (functools.partial(add, b=10), "add", "Add.", {"a": 1}, 11),
        (functools.partial(add, 5), "add", "Add.", {"b": 1}, 6),
        (functools.partial(multiply, b=10), "multiply", "Multiply.", {"a": 1}, 10),
        (Doubler(), "Doubler", "Doubles.", {"number": 4}, 8),
        (AsyncDoubler(), "AsyncDoubler", "Double, later.", {"number": 4}, 8),
        (wrapped(add), "add", "Add.", {"a": 1}, 2),
        (wrapped(multiply), "multiply", "Multiply.", {"a": 3}, 6),  # returns an awaitable
    ],
)
def test_functions_of_every_kind_are_tools(
    function: Callable[..., Any], name: str, description: str, arguments: dict[str, Any], result: object
) -> None:
    tool = read_tool(function)
    assert (tool.name, tool.description) == (name, description)
    assert set(arguments) <= set(tool.parameters["properties"])
    assert asyncio.run(call_tool(tool, arguments)) == result


def test_the_definition_is_the_wires() -> None:
    assert read_tool(add).definition == {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Add.",
            "parameters": {
                "type": "object",
                "properties": {
                    "a": {"type": "integer", "description": "First."},
                    "b": {"type": "integer", "default": 1, "description": "Second."},
                },
                "required": ["a"],
                "additionalProperties": False,
            },
        },
    }


def test_what_a_partial_binds_is_not_the_models_to_change() -> None:
    tool = read_tool(functools.partial(add, b=10))
    assert list(tool.parameters["properties"]) == ["a"]
    with pytest.raises(ToolCallError, match="unknown argument 'b'"):
        asyncio.run(call_tool(tool, {"a": 1, "b": 2}))


def test_a_tool_may_be_called_by_another_name_and_a_tool_stays_one() -> None:
    tool = read_tool(lambda x: x, name="echo")
    assert tool.name == "echo"
    assert read_tool(tool) is tool
    assert tool("said") == "said"


def test_a_partials_keyword_is_no_extra_argument_either() -> None:
    def collect(a: int, b: int = 0, **rest: Any) -> tuple[int, int, dict[str, Any]]:
        return a, b, rest

    tool = read_tool(functools.partial(collect, b=10))
    assert asyncio.run(call_tool(tool, {"a": 1, "c": 3})) == (1, 10, {"c": 3})
    with pytest.raises(ToolCallError, match="collect: unknown argument 'b'; it takes a"):
        asyncio.run(call_tool(tool, {"a": 1, "b": 2}))


def test_a_tool_may_be_read_again_with_more_hidden_or_another_name() -> None:
    def look(key: str, store: dict[str, int], limit: int = 5) -> tuple[int, int]:
        """Look up."""
        return store[key], limit

    tool = replace(read_tool(look, ["store"]), description="Look it up.")
    more = read_tool(tool, ["limit"], name="find")
    assert (more.name, more.description, more.hidden) == ("find", "Look it up.", {"store", "limit"})
    assert list(more.parameters["properties"]) == ["key"]
    with pytest.raises(ToolCallError, match="find: unknown argument 'limit'; it takes key"):
        more.read({"key": "k", "limit": 1})
    assert asyncio.run(call_tool(more, {"key": "k", "store": {"k": 1}, "limit": 2})) == (1, 2)
    named = read_tool(tool, ["store"], name="find")
    assert (named.name, named.hidden, named.description) == ("find", {"store"}, "Look it up.")
    with pytest.raises(ToolCallError, match="find: argument 'key' is missing"):
        named.read({})
    with pytest.raises(EnvironmentFault, match="tool 'a b': a tool's name has"):
        read_tool(tool, name="a b")
    with pytest.raises(EnvironmentFault, match="cannot hide a parameter: unknown argument 'limits'"):
        read_tool(tool, ["limits"])


@for_each_row("changed", [{"reader": None}, {"parameters": {"type": "object"}}])
def test_nothing_can_be_hidden_in_a_schema_of_somebody_elses(changed: dict[str, Any]) -> None:
    tool = replace(read_tool(add), **changed)
    assert read_tool(tool, name="plus").name == "plus"
    with pytest.raises(EnvironmentFault, match="tool 'add' has its own schema"):
        read_tool(tool, ["b"])


def test_parameters_without_names_are_passed_by_place() -> None:
    def f(a: int, b: int = 2, /, *, c: int = 3) -> tuple[int, int, int]:
        return a, b, c

    assert asyncio.run(call_tool(read_tool(f), {"a": 1})) == (1, 2, 3)
    assert asyncio.run(call_tool(read_tool(f), {"b": 5, "c": 6, "a": 4})) == (4, 5, 6)


@for_each_row(
    ("function", "words"),
    [
        ("add", "a tool must be a function, not 'add'"),
        (lambda x: x, "tool '<lambda>': a tool's name has 1 to 64 letters, digits, _ or -"),
        (lambda *rest: rest, "tool '<lambda>'"),
        (type, "tool 'type': cannot read its signature"),
    ],
)
def test_what_is_no_tool_is_refused(function: Any, words: str) -> None:
    with pytest.raises(EnvironmentFault) as caught:
        read_tool(function)
    assert str(caught.value).startswith(words)


def hits(query: str) -> Iterator[str]:
    yield query


async def later_hits(query: str) -> AsyncIterator[str]:
    yield query


class Hits:
    def __call__(self, query: str) -> Iterator[str]:
        yield query


@for_each_row("function", [hits, later_hits, Hits(), functools.partial(hits, query="x")])
def test_a_generator_is_refused_with_a_way_out(function: Any) -> None:
    with pytest.raises(EnvironmentFault, match="is a generator, which is not supported; return a list or a string"):
        read_tool(function)


def test_a_decorator_may_make_a_text_of_a_generator() -> None:
    @functools.wraps(hits)
    def joined(query: str) -> str:
        return ", ".join([*hits(query), *hits(query)])

    assert asyncio.run(call_tool(read_tool(joined), {"query": "a"})) == "a, a"


def test_a_star_is_refused_with_a_way_out() -> None:
    def f(*numbers: int) -> int:
        return sum(numbers)

    with pytest.raises(EnvironmentFault, match=r"\*numbers is not supported; use a list"):
        read_tool(f)


def test_only_parameters_that_there_are_can_be_hidden() -> None:
    with pytest.raises(
        EnvironmentFault, match=r"tool 'add': cannot hide a parameter: unknown argument 'bb' \(did you mean 'b'\?\)"
    ):
        read_tool(add, ["bb"])


@for_each_row(
    ("written", "arguments"),
    [
        ('{"a": 1}', {"a": 1}),
        ({"a": 1}, {"a": 1}),
        ("", {}),
        ("  ", {}),
        ("null", {}),
        (None, {}),
        ('{"a": 123456789012345678901234567890}', {"a": 123456789012345678901234567890}),
    ],
)
def test_arguments_are_json_text_or_an_object(written: Any, arguments: dict[str, Any]) -> None:
    assert parse_arguments("add", written) == arguments


@for_each_row(
    ("written", "words"),
    [
        ('{"a": 1', "add: the arguments are not valid JSON: Expecting ',' delimiter"),
        ("a=1", "add: the arguments are not valid JSON: Expecting value"),
        ("[1]", "add: the arguments must be a JSON object, not list"),
        ('"{}"', "add: the arguments must be a JSON object, not str"),
        ("[" * 100_000, "add: the arguments are not valid JSON: maximum recursion depth"),
        ("1" * 5000, "add: the arguments are not valid JSON: Exceeds the limit"),
    ],
)
def test_arguments_that_cannot_be_read_are_told(written: str, words: str) -> None:
    with pytest.raises(ToolParseError) as caught:
        parse_arguments("add", written)
    assert str(caught.value).startswith(words)


def test_hidden_arguments_are_filled_in_and_never_taken_from_the_model() -> None:
    def look(key: str, store: dict[str, int], limit: int = 5) -> tuple[int, int]:
        return store[key], limit

    tool = read_tool(look, ["store", "limit"])
    assert asyncio.run(call_tool(tool, {"key": "k", "store": {"k": 1}})) == (1, 5)
    assert asyncio.run(call_tool(tool, {"key": "k", "store": {"k": 1}, "limit": 2})) == (1, 2)
    with pytest.raises(ToolCallError, match="unknown argument 'store'; it takes key"):
        tool.read({"key": "k", "store": {"k": 2}})
    with pytest.raises(EnvironmentFault, match="its hidden argument 'store' has no value"):
        asyncio.run(call_tool(tool, {"key": "k"}))


def test_a_hidden_argument_is_no_extra_one_either() -> None:
    def write(text: str, owner: str = "nobody", **rest: Any) -> tuple[str, str, dict[str, Any]]:
        return text, owner, rest

    tool = read_tool(write, ["owner"])
    assert asyncio.run(call_tool(tool, {"text": "t", "colour": "red"})) == ("t", "nobody", {"colour": "red"})
    with pytest.raises(ToolCallError, match="write: unknown argument 'owner'; it takes text"):
        tool.read({"text": "t", "owner": "root"})


def test_sync_functions_run_in_a_thread_and_async_ones_on_the_loop() -> None:
    def where() -> int:
        return threading.get_ident()

    async def where_async() -> int:
        return threading.get_ident()

    async def main() -> tuple[object, object]:
        return await call_tool(read_tool(where), {}), await call_tool(read_tool(where_async), {})

    thread, loop = asyncio.run(main())
    assert loop == threading.get_ident() != thread


def test_what_the_function_raises_comes_out_as_it_is() -> None:
    error = ValueError("no")

    def fails() -> None:
        raise error

    with pytest.raises(ValueError) as caught:
        asyncio.run(call_tool(read_tool(fails), {}))
    assert caught.value is error


def test_a_tool_that_ends_the_process_is_a_fault_of_the_environment() -> None:
    def leaves() -> None:
        raise SystemExit(3)

    with pytest.raises(EnvironmentFault, match=r"leaves raised SystemExit: 3 \(in leaves, "):
        asyncio.run(call_tool(read_tool(leaves), {}))


def test_a_hung_tool_blocks_nobody_else_and_can_be_given_up() -> None:
    release = threading.Event()

    def hangs(started: Callable[[], None]) -> None:
        started()
        release.wait()

    async def main() -> object:
        before = offload.abandoned
        async with asyncio.TaskGroup() as tasks:
            started, loop = asyncio.Event(), asyncio.get_running_loop()
            tell = functools.partial(loop.call_soon_threadsafe, started.set)
            hung = tasks.create_task(call_tool(read_tool(hangs, ["started"]), {"started": tell}))
            await started.wait()
            answer = await call_tool(read_tool(add), {"a": 1})  # while the other hangs
            hung.cancel()
        assert offload.abandoned == before + 1
        return answer

    try:
        assert asyncio.run(main()) == 2
    finally:
        release.set()
    assert issubclass(ThreadsHung, EnvironmentFault)  # so a tool's caller lets it through
