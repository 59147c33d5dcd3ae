"""Settings of MCP servers, and what they offer and answer as models see it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from fastmcp import FastMCP
from tables import for_each_row

from harness.core.errors import EnvironmentFault, ToolCallError, ToolServerError
from harness.tools.mcp import MCPServer, ServerTool, convert_error, read_result, read_servers, read_tools, tool_name


@dataclass
class Classic:
    """The classic API's own settings object."""

    name: str = "fetch"
    command: str = "uvx"
    args: list[str] = field(default_factory=lambda: ["mcp-server-fetch"])
    env: dict[str, str] | None = None
    description: str = "fetches"


STDIO = MCPServer("a", command="prog", args=("-v", "3"), env={"K": "1"}, cwd="/")
HTTP = MCPServer("b", url="http://localhost:1/mcp", headers={"X-Key": "v"})
SERVER = FastMCP[Any]("here")


def make_server() -> FastMCP[Any]:
    return FastMCP("made")


@for_each_row(
    ("settings", "servers"),
    [
        ([{"name": "a", "command": "prog", "args": ["-v", 3], "env": {"K": 1}, "cwd": "/"}], (STDIO,)),
        ({"a": {"command": "prog", "args": ["-v", "3"], "env": {"K": "1"}, "cwd": "/"}}, (STDIO,)),
        (
            {"mcpServers": {"b": {"type": "http", "url": "http://localhost:1/mcp", "headers": {"X-Key": "v"}}}},
            (HTTP,),
        ),
        ([STDIO, HTTP], (STDIO, HTTP)),
        ([Classic()], (MCPServer("fetch", command="uvx", args=("mcp-server-fetch",)),)),
        ([SERVER], (MCPServer("here", server=SERVER),)),
        ({"mine": SERVER}, (MCPServer("mine", server=SERVER),)),
        ([make_server], (MCPServer("make_server", server=make_server),)),
        ([{"name": "mine", "server": make_server}], (MCPServer("mine", server=make_server),)),
    ],
)
def test_servers_are_read_in_every_form(settings: Any, servers: tuple[MCPServer, ...]) -> None:
    assert read_servers(settings) == servers


@for_each_row(
    ("settings", "words"),
    [
        ([], "mcp_servers is empty"),
        ({}, "mcp_servers is empty"),
        ("uvx fetch", "must be a list or a mapping of servers"),
        (5, "must be a list or a mapping of servers"),
        ({"mcpServers": []}, "must be a mapping of servers by name"),
        ([5], r"mcp_servers\[0\] must be a dict"),
        ([{"command": "x"}], r"mcp_servers\[0\] needs a 'name'"),
        ({"a": {}}, r"mcp_servers\.a needs one of 'command'"),
        ({"a": {"command": "x", "url": "http://y"}}, "needs one of"),
        ({"a": {"comand": "x"}}, "unknown key 'comand'; known are name, command"),
        ({"a": {"command": "x", "args": "-v"}}, "'args' must be a list of strings"),
        ({"a": {"command": ["x"]}}, "'command' must be a string"),
        ({"a": {"command": "x", "env": ["K=1"]}}, "'env' must be a table of strings"),
        ([STDIO, STDIO], "two MCP servers are called 'a'"),
    ],
)
def test_a_server_that_is_described_wrongly_is_refused(settings: Any, words: str) -> None:
    with pytest.raises(EnvironmentFault, match=words):
        read_servers(settings)


class Wire:
    """A value as it came over the wire."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields

    def model_dump(self, *, mode: str, by_alias: bool) -> dict[str, Any]:
        assert (mode, by_alias) == ("json", True)
        return self.fields


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words, "annotations": None}


IMAGE = {"type": "image", "data": "AA==", "mimeType": "image/png"}


@for_each_row(
    ("blocks", "content"),
    [
        ([text("one")], "one"),
        ([text("one"), text("two")], "one\ntwo"),
        ([], ""),
        (
            [text("see"), IMAGE],
            [
                {"type": "text", "text": "see"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
            ],
        ),
        (
            [{"type": "audio", "data": "BB==", "mimeType": "audio/wav"}],
            [{"type": "input_audio", "input_audio": {"data": "BB==", "format": "wav"}}],
        ),
        ([{"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}}], "inside"),
        (
            [{"type": "resource", "resource": {"uri": "file:///a", "blob": "AA==", "mimeType": "image/png"}}],
            "[file:///a: image/png, not shown]",
        ),
        ([{"type": "resource_link", "name": "a", "uri": "file:///a"}], "a: file:///a"),
        ([{"type": "hologram", "x": 1}], '{"type": "hologram", "x": 1}'),
    ],
)
def test_a_result_becomes_content(blocks: list[dict[str, Any]], content: object) -> None:
    assert read_result(Wire(content=blocks, structuredContent=None, isError=False)) == content


def test_a_structured_result_without_content_is_json() -> None:
    assert read_result(Wire(content=[], structuredContent={"a": "é"}, isError=False)) == '{"a": "é"}'


@for_each_row(("blocks", "words"), [([text("no such city")], "no such city"), ([], "without a message")])
def test_a_failed_call_is_the_tools_error(blocks: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(ToolCallError, match=words):
        read_result(Wire(content=blocks, isError=True))


def test_schemas_pass_through_whole() -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"title": "A", "x-y": 1}}}
    tools = read_tools("s", [Wire(name="t", description="d", inputSchema=schema), Wire(name="u", description=None)])
    assert tools == [
        ServerTool("s", "t", "d", schema),
        ServerTool("s", "u", "", {"type": "object", "properties": {}}),
    ]


@for_each_row(
    ("server", "name", "plain", "prefixed"),
    [("s", "t", "t", "s_t"), ("my srv", "a.b/c", "a_b_c", "my_srv_a_b_c"), ("s", "x" * 80, "x" * 64, "s_" + "x" * 62)],
)
def test_names_are_what_endpoints_take(server: str, name: str, plain: str, prefixed: str) -> None:
    tool = ServerTool(server, name, "", {})
    assert (tool_name(tool, with_prefix=False), tool_name(tool, with_prefix=True)) == (plain, prefixed)


class Coded(Exception):
    """As the errors of every mcp release look."""

    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}")
        self.error = type("Data", (), {"code": code})()


@for_each_row(
    ("error", "kind"),
    [
        (Coded(-32602), ToolCallError),  # invalid params
        (Coded(-32601), ToolCallError),  # no such method
        (Coded(-32603), ToolServerError),  # internal error
        (Coded(-32000), ToolServerError),  # connection closed
        (ConnectionError(), ToolServerError),
        (ToolCallError("x"), ToolCallError),
    ],
)
def test_only_what_the_model_can_mend_is_told_to_it(error: Exception, kind: type[Exception]) -> None:
    assert type(convert_error(error, "s", "running the tool t")) is kind


def test_a_fault_of_a_server_names_it_and_what_it_did() -> None:
    assert str(convert_error(ConnectionError(), "s", "running the tool t")) == (
        "MCP server 's' failed while running the tool t: ConnectionError"
    )
