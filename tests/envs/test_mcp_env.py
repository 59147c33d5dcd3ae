"""Tools of MCP servers in this process, in child processes and over HTTP: offered, called, and closed again."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastmcp import FastMCP
from fastmcp.utilities.types import Image
from scripted_chat import ScriptedChat, example_of
from tables import for_each_row

from harness import MCPEnv, State, cleanup
from harness.core.errors import EnvironmentFault, ToolCallError, ToolServerError
from harness.core.records import Generated, Item
from harness.core.types import JsonDict, Message
from harness.engine.rollout import generate

ROWS = [{"question": "q"}]

CHILD = """
import asyncio, os, signal, sys, time
from pathlib import Path

folder, way = Path(sys.argv[1]), sys.argv[2]
(folder / f"{os.getpid()}.pid").touch()
if way == "hang":
    time.sleep(600)
if way == "die" or way == "flaky" and len(list(folder.glob("*.pid"))) == 1:
    sys.exit("cannot open the database")
if way == "prints":
    print("Server ready!\\n{not json", flush=True)
if way == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

from fastmcp import FastMCP

server = FastMCP("child")


@server.tool
def pid() -> int:
    return os.getpid()


@server.tool
def variable(name: str) -> str:
    return os.environ.get(name, "unset")


@server.tool
def chatter() -> str:
    for line in ("working on it", '{"half": ', "{}", '{"jsonrpc": "2.0", "id": 999, "result": {}}', "x" * 100_000):
        print(line, flush=True)
    os.write(1, b"\\xfe\\xfd no text\\n")
    return "heard"


@server.tool
def crash() -> str:
    os._exit(9)


@server.tool
async def never() -> str:
    await asyncio.Event().wait()
    return "at last"


requests = 0


@server.tool
def count() -> int:
    return requests


if way.startswith("http:"):
    import uvicorn

    _, port, is_stateless = way.split(":")
    app = server.http_app(stateless_http=is_stateless == "True")

    async def counted(scope, receive, send):
        global requests
        requests += scope.get("method") == "POST"
        await app(scope, receive, send)

    uvicorn.run(counted, port=int(port))
else:
    server.run(show_banner=False)
while way == "stubborn":  # not even the end of its input makes it go
    time.sleep(1)
"""

PATIENCE = 60.0


def call(name: str, arguments: dict[str, Any] | None = None, id: str = "c0") -> JsonDict:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments or {})}}


def calls(*made: JsonDict) -> Message:
    return {"role": "assistant", "content": None, "tool_calls": list(made)}


def begin(env: MCPEnv, **fields: Any) -> State:
    return State.begin(example_of(env.row(0).prompt, **fields), 0, "m", {})


def play(env: MCPEnv, *replies: object, **fields: Any) -> tuple[State, ScriptedChat]:
    state, chat = begin(env, **fields), ScriptedChat([*replies, "done"])
    asyncio.run(env.rollout(state, chat))
    return state, chat


def answers(state: State) -> list[Any]:
    return [message["content"] for message in state["completion"] if message["role"] == "tool"]


def offered(chat: ScriptedChat) -> list[list[str]]:
    return [[tool["function"]["name"] for tool in asked.tools or ()] for asked in chat.asked]


def is_alive(pid: int | str) -> bool:
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    return True


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"never came true: {what}"
        time.sleep(0.01)


class Children:
    """Servers in child processes; each says its pid in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.script = folder / "child.py"
        self.script.write_text(CHILD)

    def settings(self, way: str = "", **more: Any) -> dict[str, Any]:
        args = [str(self.script), str(self.folder), way]
        return {"name": "child", "command": sys.executable, "args": args, **more}

    def pids(self) -> list[int]:
        return [int(path.stem) for path in self.folder.glob("*.pid")]


@pytest.fixture
def children(tmp_path: Path) -> Generator[Children]:
    made = Children(tmp_path)
    yield made
    until(lambda: not any(map(is_alive, made.pids())), "every child has ended")


def make_calculator() -> FastMCP[Any]:
    server: FastMCP[Any] = FastMCP("calculator")
    total = [0]

    @server.tool
    def add(a: int, b: list[int] | None = None) -> int:
        """Add up.

        Args:
            a: The first.
            b: The others.
        """
        return a + sum(b or [])

    @server.tool
    def keep(number: int) -> int:
        total[0] += number
        return total[0]

    @server.tool
    def fails() -> str:
        raise ValueError("it is closed")

    @server.tool
    def shows():  # says no type, or old releases would want it to be structured
        return ["look:", Image(data=b"png", format="png")]

    @server.tool
    def talks(length: int) -> str:
        return "x" * length

    for tool in (add, keep, fails, shows, talks):
        assert tool
    return server


# A server in this process


def test_tools_of_a_server_are_offered_whole_and_called() -> None:
    env = MCPEnv([make_calculator], dataset=ROWS)
    reply = calls(call("add", {"a": 1, "b": [2, 3]}, "x"), call("fails", id="y"), call("add", {"a": "no"}, "z"))
    state, chat = play(env, reply)
    assert offered(chat) == [["add", "keep", "fails", "shows", "talks"]] * 2
    add = (chat.asked[0].tools or [])[0]["function"]
    assert add["description"].startswith("Add up.")
    assert add["parameters"]["properties"]["a"]["type"] == "integer" and add["parameters"]["required"] == ["a"]
    assert [(m["tool_call_id"], m["role"]) for m in state["completion"][1:4]] == [(id, "tool") for id in "xyz"]
    good, failed, wrong = answers(state)
    assert (good, failed) == ("6", "Error calling tool 'fails': it is closed")
    assert "validation error" in wrong
    assert state["stop_condition"] == "no_tools_called"


def test_images_become_content_parts_and_long_texts_are_capped() -> None:
    env = MCPEnv([make_calculator], dataset=ROWS, max_output_chars=10)
    state, _ = play(env, calls(call("shows"), call("talks", {"length": 50})))
    shown, talked = answers(state)
    assert shown == [
        {"type": "text", "text": "look:"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,cG5n"}},
    ]
    assert talked == "xxxxx\n[… 40 characters left out …]\nxxxxx"


@for_each_row(("scope", "kept"), [("rollout", ["1", "1"]), ("shared", ["1", "2"])])
def test_a_server_that_is_made_lives_as_long_as_its_scope(scope: Any, kept: list[str]) -> None:
    env = MCPEnv([make_calculator], dataset=ROWS, scope=scope)
    found = [answers(play(env, calls(call("keep", {"number": 1})))[0])[0] for _ in range(2)]  # in two event loops
    assert found == kept
    asyncio.run(env.teardown())
    assert answers(play(env, calls(call("keep", {"number": 1})))[0]) == ["1"]  # opened anew
    asyncio.run(env.teardown())


def test_python_functions_are_offered_beside_a_servers_tools() -> None:
    def twice(n: int) -> int:
        return 2 * n

    env = MCPEnv([make_calculator], tools=[twice], dataset=ROWS, allowed_tools=["add", "twice"])
    state, chat = play(env, calls(call("twice", {"n": 4}), call("add", {"a": 4}), call("keep", {"number": 1})))
    assert offered(chat)[0] == ["twice", "add"]
    assert answers(state) == ["8", "4", "there is no tool 'keep'; The tools are twice, add"]
    (score,) = asyncio.run(env.rubric.score([state]))
    assert score.metrics == {"num_turns": 2.0, "total_tool_calls": 3.0, "twice_calls": 1.0, "add_calls": 1.0}


def test_an_error_of_a_servers_tool_may_stop_the_rollout() -> None:
    env = MCPEnv([make_calculator], dataset=ROWS, stop_errors=[ToolCallError])
    with pytest.raises(ToolCallError, match="it is closed"):
        play(env, calls(call("fails")))


def test_a_row_offers_some_of_the_tools() -> None:
    flat = {"name": "add", "description": "Plus.", "parameters": {"type": "object"}}
    env = MCPEnv([make_calculator], dataset=ROWS)
    state, chat = play(env, calls(call("add", {"a": 1}), call("keep", {"number": 1})), info={"tool_defs": [flat]})
    assert offered(chat)[0] == ["add"]
    assert answers(state) == ["1", "there is no tool 'keep'; The tools are add"]


def test_names_that_two_servers_share_are_refused_or_told_apart() -> None:
    both = {"one": make_calculator, "two": make_calculator}
    with pytest.raises(EnvironmentFault, match="'two' and MCP server 'one' both offer a tool 'add'; pass prefix_tools"):
        play(MCPEnv(both, dataset=ROWS), "done")

    def add() -> None: ...

    with pytest.raises(EnvironmentFault, match="'make_calculator' and a Python function both offer a tool 'add'"):
        play(MCPEnv([make_calculator], tools=[add], dataset=ROWS), "done")
    env = MCPEnv(both, dataset=ROWS, prefix_tools=True, allowed_tools=["one_keep", "two_keep"])
    state, chat = play(
        env, calls(*[call("one_keep", {"number": 1})] * 2, call("two_keep", {"number": 5}), call("one_add", {"a": 1}))
    )
    assert offered(chat)[0] == ["one_keep", "two_keep"]
    assert answers(state)[:3] == ["1", "2", "5"]


def test_a_tool_that_is_asked_for_must_be_there() -> None:
    env = MCPEnv([make_calculator], dataset=ROWS, allowed_tools=["ad"])
    with pytest.raises(EnvironmentFault, match="no MCP server offers 'ad'; offered tools: add, keep"):
        play(env, "done")


def test_a_server_that_blocks_blocks_no_rollout_of_others() -> None:
    release = threading.Event()

    def make_blocking() -> FastMCP[Any]:
        server: FastMCP[Any] = FastMCP("blocking")

        @server.tool
        async def block() -> str:
            release.wait()  # on the loop that it runs in
            return "released"

        assert block
        return server

    env = MCPEnv([make_blocking], dataset=ROWS)
    state = begin(env)

    async def main() -> int:
        ticks = 0
        async with asyncio.TaskGroup() as tasks:
            rollout = tasks.create_task(env.rollout(state, ScriptedChat([calls(call("block")), "done"])))
            while ticks < 20:
                await asyncio.sleep(0.01)
                ticks += 1
            assert not rollout.done()
            release.set()
        return ticks

    assert asyncio.run(main()) == 20
    assert answers(state) == ["released"]


def test_tools_can_be_called_in_hooks_of_the_rollout_and_not_after_it() -> None:
    class Hooked(MCPEnv):
        async def setup_state(self, state: State) -> None:
            state["before"] = (await self.call_tool("add", {"a": 1}, "")).get("content")

        @cleanup
        async def look_again(self, state: State) -> None:
            state["after"] = (await self.call_tool("add", {"a": 2}, "")).get("content")

    env = Hooked([make_calculator], dataset=ROWS)
    state, _ = play(env, "done")
    assert (state["before"], state["after"]) == ("1", "2")
    with pytest.raises(EnvironmentFault, match="can only be called in a rollout"):
        asyncio.run(env.call_tool("add", {"a": 1}, ""))


# Servers in child processes


@pytest.mark.slow
def test_a_child_serves_one_rollout_and_ends_with_it(children: Children, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    env = MCPEnv([children.settings(env={"GIVEN": "yes"})], dataset=ROWS)
    asked = calls(call("pid"), call("variable", {"name": "GIVEN"}), call("variable", {"name": "OPENAI_API_KEY"}))
    first, given, key = answers(play(env, asked)[0])
    assert (given, key) == ("yes", "unset")
    assert not is_alive(first)
    (second,) = answers(play(env, calls(call("pid")))[0])
    assert second != first and not is_alive(second)
    assert sorted(children.pids()) == sorted([int(first), int(second)])


@pytest.mark.slow
def test_a_shared_child_serves_rollouts_at_once_until_teardown(children: Children) -> None:
    env = MCPEnv([children.settings()], dataset=ROWS, scope="shared")
    states = [begin(env) for _ in range(5)]

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            for state in states:
                tasks.create_task(env.rollout(state, ScriptedChat([calls(call("pid")), "done"])))

    asyncio.run(main())
    (pid,) = {answers(state)[0] for state in states}
    assert children.pids() == [int(pid)] and is_alive(pid)
    asyncio.run(env.teardown())
    assert not is_alive(pid)


@pytest.mark.slow
def test_a_child_ends_with_a_rollout_that_is_cancelled(children: Children) -> None:
    env = MCPEnv([children.settings()], dataset=ROWS)
    state = begin(env)

    async def main() -> bool:
        asked = asyncio.Event()

        class Waiting(ScriptedChat):
            async def __call__(self, prompt: Any, **more: Any) -> Any:
                asked.set()
                return await asyncio.Event().wait()

        async with asyncio.TaskGroup() as tasks:
            rollout = tasks.create_task(env.rollout(state, Waiting()))
            await asked.wait()
            assert [is_alive(pid) for pid in children.pids()] == [True]
            rollout.cancel()
        return rollout.cancelled()

    assert asyncio.run(main())
    assert [is_alive(pid) for pid in children.pids()] == [False]


def test_a_child_ends_with_a_rollout_that_is_cancelled_while_it_starts(children: Children) -> None:
    env = MCPEnv([children.settings("hang")], dataset=ROWS)

    async def main() -> bool:
        async with asyncio.TaskGroup() as tasks:
            rollout = tasks.create_task(env.rollout(begin(env), ScriptedChat()))
            async with asyncio.timeout(PATIENCE):
                while not children.pids():  # noqa: ASYNC110  # another process tells
                    await asyncio.sleep(0.01)
            rollout.cancel()
        return rollout.cancelled()

    assert asyncio.run(main())
    assert [is_alive(pid) for pid in children.pids()] == [False]


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("die", "MCP server 'child' failed while being opened: .*; the end of its stderr: …cannot open the database"),
        ("hang", "MCP server 'child' did not start within 1 s"),
    ],
)
def test_a_child_that_does_not_start_is_a_fault_and_no_score(children: Children, way: str, words: str) -> None:
    env = MCPEnv([children.settings(way)], dataset=ROWS, startup_timeout=1.0 if way == "hang" else 30.0)
    chat = ScriptedChat()
    with pytest.raises(ToolServerError, match=words):
        asyncio.run(env.rollout(begin(env), chat))
    assert chat.asked == []
    assert len(children.pids()) == 1


@for_each_row("command", ["/nonexistent/server", "nonexistent-server", __file__])
def test_a_command_that_does_not_exist_is_a_fault_for_good(command: str) -> None:
    env = MCPEnv({"gone": {"command": command}}, dataset=ROWS)
    with pytest.raises(EnvironmentFault, match="MCP server 'gone' failed while being opened") as caught:
        play(env, "done")
    assert not caught.value.retryable


@pytest.mark.slow
@pytest.mark.parametrize("scope", ["rollout", "shared"])
def test_a_start_that_failed_is_tried_again(children: Children, scope: Any) -> None:
    env = MCPEnv([children.settings("flaky")], dataset=ROWS, scope=scope)

    async def main() -> Any:
        chat = ScriptedChat([calls(call("pid")), "done"])
        item = Item("0.0", example_of(env.row(0).prompt), 0)
        try:
            return await generate(env, item, chat, sampling_args={}, timeout=None, max_retries=1)
        finally:
            await env.teardown()

    attempt = asyncio.run(main())
    assert isinstance(attempt.record, Generated), attempt.record
    assert attempt.record.attempts == len(children.pids()) == 2
    assert int(answers(attempt.state)[0]) in children.pids()


@pytest.mark.slow
@pytest.mark.parametrize("scope", ["rollout", "shared"])
def test_a_call_that_never_returns_fails_its_rollout_and_not_the_next(children: Children, scope: Any) -> None:
    env = MCPEnv([children.settings()], dataset=ROWS, scope=scope, call_timeout=0.5)
    with pytest.raises(ToolServerError, match=r"^MCP server 'child' did not answer never within 0\.5 s$"):
        play(env, calls(call("never")))
    env = MCPEnv([children.settings()], dataset=ROWS, scope=scope, call_timeout=60) if scope == "rollout" else env
    (pid,) = answers(play(env, calls(call("pid")))[0])
    assert len(children.pids()) == 2 and int(pid) in children.pids()
    asyncio.run(env.teardown())


@pytest.mark.slow
def test_a_shared_server_that_failed_one_rollout_serves_out_those_that_still_have_it(children: Children) -> None:
    env = MCPEnv([children.settings()], dataset=ROWS, scope="shared", call_timeout=2.0)
    first, second, third = begin(env), begin(env), begin(env)

    async def main() -> None:
        held, failed = asyncio.Event(), asyncio.Event()

        class Waiting(ScriptedChat):
            async def __call__(self, prompt: Any, **more: Any) -> Any:
                held.set()
                await failed.wait()
                return await super().__call__(prompt, **more)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(env.rollout(first, Waiting([calls(call("pid")), "done"])))
            await held.wait()
            with pytest.raises(ToolServerError):
                await env.rollout(second, ScriptedChat([calls(call("never"))]))
            await env.rollout(third, ScriptedChat([calls(call("pid")), "done"]))
            failed.set()

    asyncio.run(main())
    (old,), (new,) = answers(first), answers(third)
    assert sorted(children.pids()) == sorted([int(old), int(new)])
    assert not is_alive(old) and is_alive(new)
    asyncio.run(env.teardown())


@pytest.mark.slow
@pytest.mark.parametrize("scope", ["rollout", "shared"])
def test_a_child_that_dies_fails_its_rollout_and_not_the_next(children: Children, scope: Any) -> None:
    env = MCPEnv([children.settings()], dataset=ROWS, scope=scope)
    with pytest.raises(ToolServerError, match="MCP server 'child' failed while running the tool crash"):
        play(env, calls(call("crash")))
    assert len(answers(play(env, calls(call("pid")))[0])) == 1
    assert len(children.pids()) == 2
    asyncio.run(env.teardown())


@pytest.mark.slow
def test_what_a_server_prints_between_its_messages_harms_no_call(children: Children) -> None:
    env = MCPEnv([children.settings("prints")], dataset=ROWS)
    state, _ = play(env, calls(call("chatter"), call("pid", id="c1")))
    assert answers(state) == ["heard", str(children.pids()[0])]


@pytest.mark.slow
def test_a_child_that_ignores_sigterm_is_killed(children: Children) -> None:
    (pid,) = answers(play(MCPEnv([children.settings("stubborn")], dataset=ROWS), calls(call("pid")))[0])
    assert not is_alive(pid)


@pytest.mark.slow
def test_children_end_with_a_process_that_never_tears_down(children: Children) -> None:
    program = f"""
import asyncio, sys
sys.path.insert(0, {str(Path(__file__).parents[1] / "support")!r})
from scripted_chat import ScriptedChat, example_of
from harness import MCPEnv, State
env = MCPEnv([{children.settings()!r}], dataset=[{{"question": "q"}}], scope="shared")
state = State.begin(example_of(), 0, "m", {{}})
asyncio.run(env.rollout(state, ScriptedChat([{calls(call("pid"))!r}, "done"])))
print(state["completion"][1]["content"])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert children.pids() == [int(done.stdout)]


# A server over HTTP


@contextmanager
def http_server(children: Children, *, is_stateless: bool = False) -> Generator[str]:
    from socket import create_server

    with create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, *children.settings(f"http:{port}:{is_stateless}")["args"]]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        assert any("Uvicorn running" in line for line in process.stderr), "the server did not start"
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)


@pytest.mark.slow
def test_a_server_over_http_is_called_and_lives_on(children: Children) -> None:
    with http_server(children) as url:
        env = MCPEnv({"far": {"url": url}}, dataset=ROWS)
        state, chat = play(env, calls(call("pid")))
        assert offered(chat)[0] == ["pid", "variable", "chatter", "crash", "never", "count"]
        assert [int(pid) for pid in answers(state)] == children.pids()
        assert is_alive(children.pids()[0])
    with pytest.raises(EnvironmentFault, match="MCP server 'far' failed while being opened"):
        play(MCPEnv({"far": {"url": url}}, dataset=ROWS), "done")


@pytest.mark.slow
def test_connections_to_servers_without_session_ids_are_kept_for_further_rollouts(children: Children) -> None:
    def requests_of(env: MCPEnv) -> list[int]:
        """The number of requests that the server has got, at each of two calls of a rollout."""
        return [int(count) for count in answers(play(env, calls(call("count"), call("count", id="c1")))[0])]

    with http_server(children, is_stateless=True) as url:
        env = MCPEnv({"far": {"url": url}}, dataset=ROWS)
        first, second = requests_of(env), requests_of(env)
        assert second == [first[-1] + 1, first[-1] + 2]
        other = requests_of(MCPEnv({"far": {"url": url}}, dataset=ROWS))
        assert other[0] > second[-1] + 1
        with pytest.raises(ToolServerError):
            play(env, calls(call("crash")))
        with pytest.raises(ToolServerError, match="failed while being opened"):
            play(env, "done")  # it uses a new connection


# Construction


@for_each_row(
    ("options", "words"),
    [
        ({"mcp_servers": []}, "mcp_servers is empty"),
        ({"scope": "run"}, "scope"),
        ({"allowed_tools": "add"}, "allowed_tools"),
        ({"startup_timeout": 0}, "startup_timeout"),
        ({"call_timeout": 0}, "call_timeout"),
        ({"max_trns": 1}, "did you mean 'max_turns'"),
        ({"message_type": "completion"}, "tools require message_type='chat'"),
    ],
)
def test_wrong_options_are_refused_at_construction(options: dict[str, Any], words: str) -> None:
    with pytest.raises(EnvironmentFault, match=words):
        MCPEnv(**{"mcp_servers": [make_calculator], "dataset": ROWS, **options})


def test_nothing_is_opened_and_nothing_imported_before_a_rollout() -> None:
    program = """
import sys, threading
from harness import MCPEnv
env = MCPEnv({"a": {"command": "/nonexistent"}}, dataset=[{"question": "q"}])
env.rubric, env.row(0)
print(sorted({"fastmcp", "mcp"} & set(sys.modules)), threading.active_count())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[] 1\n"


def test_without_fastmcp_the_environment_says_what_to_install() -> None:
    program = """
import sys
sys.modules["fastmcp"] = None  # as if it were not installed
from harness import EnvironmentFault, MCPEnv
try:
    MCPEnv({"a": {"command": "x"}}, dataset=[{"question": "q"}])
except EnvironmentFault as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert "pip install 'bench-harness[mcp]'" in done.stdout
