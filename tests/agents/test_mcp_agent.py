"""The agent that offers a FastMCP server's tools: what the model is offered, what its calls are answered with, and how
long the server is up."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from fastmcp import Context, FastMCP
from fastmcp.server.middleware import Middleware
from fastmcp.utilities.types import Image
from pydantic import BaseModel
from tables import for_each_row

from harness.agents.loop import CompletionsResult, RolloutContext, RolloutResult
from harness.agents.mcp_agent import MCPAgentLoop
from harness.agents.schemas import RolloutRequest
from harness.agents.validation import validate_tools
from harness.core.errors import EnvironmentFault, MCPLoadError, SystemicError
from harness.core.types import JsonDict

REQUEST = RolloutRequest(rollout_id="discovery", server_url="http://h", messages=[], completion_params={})


def server_of(*tools: Callable[..., Any], **options: Any) -> FastMCP[Any]:
    server: FastMCP[Any] = FastMCP("tools", **options)
    for tool in tools:
        server.tool(tool)
    return server


def call(name: str, arguments: Any = "{}", call_id: str | None = "c") -> JsonDict:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


class Model:
    """Makes these turns of tool calls, and then has its say."""

    def __init__(self, *turns: Sequence[JsonDict]) -> None:
        self._replies: list[JsonDict] = [{"role": "assistant", "tool_calls": list(turn)} for turn in turns]
        self._replies.append({"role": "assistant", "content": "done"})
        self.asked: list[tuple[list[JsonDict], JsonDict]] = []

    async def chat_completions(self, messages: list[JsonDict], **kwargs: Any) -> CompletionsResult:
        self.asked.append((list(messages), kwargs))
        return CompletionsResult(self._replies.pop(0), [], [], {}, "stop")


def context(model: Any, debug_dir: Path | None = None, **fields: Any) -> RolloutContext:
    whole: dict[str, Any] = {"messages": [{"role": "user", "content": "q"}], "completion_params": {}, **fields}
    request = RolloutRequest(rollout_id="eval-0-run-0", server_url="http://h", **whole)
    return RolloutContext(request, [], model, _debug_dir=None if debug_dir is None else str(debug_dir))


def run(agent: MCPAgentLoop, *turns: Sequence[JsonDict], **fields: Any) -> RolloutResult:
    return asyncio.run(agent.run(context(Model(*turns), **fields)))


def answers(agent: MCPAgentLoop, *calls: JsonDict) -> list[str]:
    """What calls of one turn are answered with."""
    return [message["content"] for message in run(agent, calls).final_messages if message["role"] == "tool"]


# What the model is offered


class Point(BaseModel):
    x: int
    label: str | None = None


def plot(
    points: list[Point], size: Literal[1, 2, 3] = 2, scale: float = 1.5, tags: dict[str, int] | None = None
) -> int:
    """Plot points."""
    return len(points)


def test_schemas_are_passed_on_whole() -> None:
    [tool] = MCPAgentLoop(server_of(plot)).get_tools(REQUEST)
    assert (tool["type"], tool["function"]["name"], tool["function"]["description"]) == (
        "function", "plot", "Plot points.",
    )  # fmt: skip
    parameters = tool["function"]["parameters"]
    assert (parameters["type"], parameters["required"]) == ("object", ["points"])
    properties = parameters["properties"]
    assert properties["size"] == {"type": "integer", "enum": [1, 2, 3], "default": 2}
    assert properties["scale"] == {"type": "number", "default": 1.5}
    table = {"type": "object", "additionalProperties": {"type": "integer"}}
    assert properties["tags"] == {"anyOf": [table, {"type": "null"}], "default": None}
    items = properties["points"]["items"]
    point = parameters["$defs"]["Point"] if "$ref" in items else items
    assert point["properties"]["x"]["type"] == "integer"
    assert point["required"] == ["x"]


def test_they_are_what_an_endpoint_takes() -> None:
    agent = MCPAgentLoop(server_of(plot))
    offered = agent.get_tools(REQUEST)
    assert validate_tools(offered) == offered
    assert agent.get_default_tools() == offered


def test_a_tool_without_a_description_is_called_by_its_name() -> None:
    def now() -> str:
        return "now"

    [tool] = MCPAgentLoop(server_of(now)).get_tools(REQUEST)
    assert tool["function"]["description"] == "Tool: now"


def test_names_are_made_what_endpoints_take() -> None:
    server = server_of()
    for name in ("math.add", "2nd", "get-time"):
        server.tool(lambda: name, name=name)  # noqa: B023 - what they return is not asked
    agent = MCPAgentLoop(server)
    offered = agent.get_tools(REQUEST)
    assert [tool["function"]["name"] for tool in validate_tools(offered)] == ["math_add", "_2nd", "get-time"]
    assert len(answers(agent, call("math_add"), call("_2nd"))) == 2
    assert not any(text.startswith("Error") for text in answers(agent, call("math_add"), call("_2nd")))


def test_two_tools_that_would_have_one_name_are_refused() -> None:
    server = server_of()
    for name in ("a.b", "a_b"):
        server.tool(lambda: 1, name=name)
    with pytest.raises(MCPLoadError) as caught:
        MCPAgentLoop(server)
    assert str(caught.value) == (
        "the MCP server's tools 'a.b' and 'a_b' would both be named 'a_b' for the model, because a tool's name "
        "may have only letters, digits, _ and -, at most 64 of them; rename one"
    )


def test_a_server_without_tools_offers_none() -> None:
    agent = MCPAgentLoop(server_of(), agent_name="bare")
    assert agent.get_tools(REQUEST) == []
    assert (agent.name, MCPAgentLoop.name) == ("bare", "mcp_agent")
    assert run(agent).finish_reason == "stop"


def test_an_agent_can_be_made_while_a_loop_runs() -> None:
    async def main() -> str:
        agent = MCPAgentLoop(server_of(plot))
        result = await agent.run(context(Model([call("plot", '{"points": [{"x": 1}]}')])))
        return result.final_messages[2]["content"]

    assert asyncio.run(main()) == "1"


# What calls are answered with


def test_results_are_the_structured_value_else_the_text() -> None:
    def add(a: int, b: int = 2) -> int:
        return a + b

    def words() -> list[str]:
        return ["a", "b"]

    def point() -> Point:
        return Point(x=1)

    def table() -> dict[str, Any]:
        return {"result": 1, "more": 2}

    def whole() -> dict[str, Any]:
        return {"result": True}

    def nothing():  # type: ignore[no-untyped-def]
        return None

    def untyped():  # type: ignore[no-untyped-def]
        return ["a", 1]

    def image() -> Image:
        return Image(data=b"png", format="png")

    agent = MCPAgentLoop(server_of(add, words, point, table, whole, nothing, untyped, image))
    calls = [call("add", '{"a": 1}'), *map(call, ("words", "point", "table", "whole", "nothing", "untyped", "image"))]
    assert answers(agent, *calls) == [
        "3", '["a", "b"]', '{"x": 1, "label": null}', '{"result": 1, "more": 2}', "true", "", '["a",1]',
        "[image_url: not shown]",
    ]  # fmt: skip


def test_what_goes_wrong_is_told_to_the_model_and_the_run_goes_on() -> None:
    def divide(a: int, b: int) -> float:
        return a / b

    agent = MCPAgentLoop(server_of(divide))
    told = answers(
        agent,
        call("divide", '{"a": 1, "b": 0}'),
        call("divid", "{}"),
        call("divide", "{"),
        call("divide", "[1]"),
        call("divide", '{"a": 1}'),
        call("divide", '{"a": "x", "b": 1}'),
        call("divide", {"a": 1, "b": 4}),
    )
    assert told[:4] == [
        "Error: Error calling tool 'divide': division by zero",
        "Error: there is no tool 'divid'; did you mean 'divide'? The tools are divide",
        "Error: Invalid JSON arguments: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
        "Error: Expected dict from JSON, got list",
    ]
    assert told[4].startswith("Error: 1 validation error for ")
    assert "b\n  Missing required argument" in told[4]
    assert "a\n  Input should be a valid integer" in told[5]
    assert told[6:] == ["0.25"]


def test_calls_are_made_one_after_the_other_and_answered_in_their_order() -> None:
    made: list[str] = []

    async def slow(name: str) -> str:
        made.append(f"{name} begins")
        await asyncio.sleep(0.01)
        made.append(f"{name} ends")
        return name

    result = run(MCPAgentLoop(server_of(slow)), [call("slow", json.dumps({"name": x}), x) for x in "abc"])
    assert [(m["tool_call_id"], m["content"]) for m in result.final_messages[2:-1]] == [
        ("a", "a"), ("b", "b"), ("c", "c"),
    ]  # fmt: skip
    assert made == ["a begins", "a ends", "b begins", "b ends", "c begins", "c ends"]


def test_a_call_without_an_id_is_answered_too() -> None:
    result = run(MCPAgentLoop(server_of(plot)), [call("plot", '{"points": []}', None), call("nope", call_id=None)])
    assert [message["tool_call_id"] for message in result.final_messages[2:4]] == ["unknown", "unknown"]


# The loop


def test_a_run_from_question_to_answer() -> None:
    model = Model([call("plot", '{"points": []}')])
    ctx = context(model, completion_params={"temperature": 0.5})
    result = asyncio.run(MCPAgentLoop(server_of(plot)).run(ctx))
    question = {"role": "user", "content": "q"}
    called = {"role": "assistant", "tool_calls": [call("plot", '{"points": []}')]}
    answered = {"role": "tool", "content": "0", "tool_call_id": "c"}
    assert result.final_messages == [question, called, answered, {"role": "assistant", "content": "done"}]
    assert (result.status, result.finish_reason) == ("COMPLETED", "stop")
    assert model.asked == [
        ([question], {"temperature": 0.5}),
        ([question, called, answered], {"temperature": 0.5}),
    ]
    assert ctx.request.messages == [question]


def test_used_up_turns_are_an_end_and_no_failure() -> None:
    turns = [[call("plot", '{"points": []}')]] * 3
    result = run(MCPAgentLoop(server_of(plot)), *turns, max_turns=2)
    assert (result.status, result.finish_reason, len(result.final_messages)) == ("COMPLETED", "max_turns", 5)
    assert result.final_messages[-1]["role"] == "tool"


def test_every_call_is_counted_and_timed_also_one_that_fails() -> None:
    async def slow() -> str:
        await asyncio.sleep(0.05)
        return ""

    result = run(MCPAgentLoop(server_of(slow)), [call("slow"), call("slow"), call("nope"), call("slow", "{")])
    assert result.metrics is not None
    assert result.metrics.num_tool_calls == 4
    assert 100 <= result.metrics.tool_latency_ms < 10_000


def test_a_failed_model_call_ends_the_run() -> None:
    class Down:
        async def chat_completions(self, messages: Any, **kwargs: Any) -> CompletionsResult:
            raise SystemicError("no such model")

    with pytest.raises(SystemicError, match="no such model"):
        asyncio.run(MCPAgentLoop(server_of(plot)).run(context(Down())))


def test_tool_calls_are_in_the_trace(tmp_path: Path) -> None:
    agent = MCPAgentLoop(server_of(plot))
    asyncio.run(agent.run(context(Model([call("plot", '{"points": []}'), call("nope")]), tmp_path)))
    lines = [json.loads(line) for line in (tmp_path / "eval-0-run-0.jsonl").read_text().splitlines()]
    assert [(line["event"], line["call"]["function"]["name"], line["result"]) for line in lines] == [
        ("tool_call", "plot", "0"),
        ("tool_call", "nope", "Error: there is no tool 'nope'; The tools are plot"),
    ]
    assert all(line["latency_ms"] >= 0 for line in lines)


# The server


def living() -> tuple[FastMCP[Any], list[str]]:
    """A server that notes when its lifespan begins and ends, and a tool that looks into it."""
    events: list[str] = []

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncGenerator[JsonDict]:
        events.append("up")
        try:
            yield {"rows": 7}
        finally:
            events.append("down")

    async def rows(ctx: Context) -> int:
        assert ctx.request_context is not None
        return ctx.request_context.lifespan_context["rows"]

    return server_of(rows, lifespan=lifespan), events


def test_the_lifespan_is_entered_once_for_all_runs_and_ends_with_the_agent() -> None:
    server, events = living()
    agent = MCPAgentLoop(server)

    async def eight(agent: MCPAgentLoop) -> list[str]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(agent.run(context(Model([call("rows")])))) for _ in range(8)]
        return [task.result().final_messages[2]["content"] for task in tasks]

    assert asyncio.run(eight(agent)) == ["7"] * 8
    assert answers(agent, call("rows")) == ["7"]
    assert events == ["up"]
    del agent
    gc.collect()
    assert events == ["up", "down"]


def test_two_agents_of_one_server_share_its_lifespan() -> None:
    server, events = living()
    first, second = MCPAgentLoop(server), MCPAgentLoop(server)
    del first
    gc.collect()
    assert answers(second, call("rows")) == ["7"]
    assert events == ["up"]
    del second
    gc.collect()
    assert events == ["up", "down"]


def test_every_run_has_a_session_of_its_own() -> None:
    def session(ctx: Context) -> str:
        return ctx.session_id

    agent = MCPAgentLoop(server_of(session))
    first, second = (set(answers(agent, call("session"), call("session"))) for _ in range(2))
    assert first.isdisjoint(second)


def test_a_run_without_calls_opens_no_session() -> None:
    openings: list[str] = []

    class Ears(Middleware):
        async def on_list_tools(self, context: Any, call_next: Any) -> Any:
            openings.append("session")
            return await call_next(context)

    server = server_of(plot)
    server.add_middleware(Ears())
    agent = MCPAgentLoop(server)
    assert openings == ["session"]  # lists the tools, and keeps the server running
    assert run(agent).final_messages[-1]["content"] == "done"
    assert openings == ["session"]
    assert answers(agent, call("plot", '{"points": []}')) == ["0"]
    assert openings == ["session", "session"]


def test_all_calls_run_in_one_event_loop_also_of_runs_in_different_ones() -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    async def which() -> str:
        loops.append(asyncio.get_running_loop())
        return threading.current_thread().name

    agent = MCPAgentLoop(server_of(which))
    for _ in range(2):  # each in a loop of its own
        [name] = answers(agent, call("which"))
        assert name == "bench-mcp"
    assert loops[0] is loops[1]


def test_a_tool_that_blocks_holds_up_no_other_run() -> None:
    let_go = threading.Event()

    def block() -> str:
        return str(let_go.wait(30))

    blocking, free = MCPAgentLoop(server_of(block)), MCPAgentLoop(server_of(plot))

    async def main() -> list[str]:
        async with asyncio.TaskGroup() as group:
            blocked = group.create_task(blocking.run(context(Model([call("block")]))))
            other = await free.run(context(Model([call("plot", '{"points": []}')])))
            assert not blocked.done()
            let_go.set()
        return [result.final_messages[2]["content"] for result in (other, blocked.result())]

    assert asyncio.run(main()) == ["0", "True"]


def test_a_cancelled_run_leaves_the_server_to_the_others() -> None:
    begun = threading.Event()

    async def hang() -> str:
        begun.set()
        await asyncio.Event().wait()
        return ""

    agent = MCPAgentLoop(server_of(hang, plot))

    async def main() -> str:
        task = asyncio.ensure_future(agent.run(context(Model([call("hang")]))))
        await asyncio.to_thread(begun.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        result = await agent.run(context(Model([call("plot", '{"points": []}')])))
        return result.final_messages[2]["content"]

    assert asyncio.run(main()) == "0"


@for_each_row("is_async", [True, False])
def test_a_tool_that_exits_ends_no_process_and_the_next_run_has_the_server_again(is_async: bool) -> None:
    async def leave_on_loop() -> str:
        raise SystemExit(4)

    def leave_in_thread() -> str:
        raise SystemExit(4)

    def stay() -> str:
        return "here"

    leave = leave_on_loop if is_async else leave_in_thread
    agent = MCPAgentLoop(server_of(leave, stay))
    for _ in range(3):
        with pytest.raises(EnvironmentFault) as caught:
            run(agent, [call(leave.__name__)])
        assert str(caught.value) == (
            "an MCP server in this process raised SystemExit(4), which ended the server and all running calls; a "
            "failing tool should raise another exception"
        )
    assert answers(agent, call("stay")) == ["here"]


def test_a_number_that_json_lacks_is_told_to_the_model() -> None:
    def power(base: float, exponent: float) -> float:
        return float("inf")

    agent = MCPAgentLoop(server_of(power))
    asked = call("power", '{"base": 10, "exponent": 400}')
    [said, again] = answers(agent, asked, asked)
    assert said == again == "Error: Invalid structured content returned by tool power: None is not of type 'number'"
