"""MCP servers: their settings, and the conversion of their tools, results and errors. The only module that uses
`fastmcp` (2.14 or later). `mcp_host` opens and closes the servers."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO, TypeAlias, cast

from harness.core.errors import EnvironmentFault, ToolCallError, ToolServerError
from harness.core.types import JsonDict

INSTALL = "pip install 'bench-harness[mcp]'"

_KEYS = ("name", "command", "args", "env", "cwd", "url", "headers", "description", "transport", "type", "server")
"""Allowed keys in the settings of a server. `transport` and `type` are accepted but redundant."""

_CALLER_ERRORS = {-32602, -32601}
"""JSON-RPC errors that the model's call caused: invalid params, method not found. All others are faults of the
server."""

_SCHEMA_MISMATCH = "Invalid structured content"
"""Start of the client's message for a result that does not match the tool's output schema, such as an infinite
`float`."""

_MISSING_PROGRAM = (FileNotFoundError, NotADirectoryError, PermissionError)
"""Exceptions of starting a program that does not exist."""

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")

ServerSettings: TypeAlias = "Mapping[str, Any] | Sequence[Any]"
"""A list of servers, or a mapping of them by name (also as `{"mcpServers": {…}}`). A server is a dict, an `MCPServer`,
a FastMCP object, or a function without arguments that returns one."""


@dataclass(frozen=True, slots=True)
class MCPServer:
    """Address of one server: a command, a URL, or an object in this process."""

    name: str
    command: str = ""
    """A program that serves MCP over stdin and stdout."""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """Environment variables in addition to the few that every server gets (`PATH`, `HOME`, …). The server does not
    inherit those of bench, which contain API keys."""
    cwd: str | None = None
    url: str = ""
    """URL of a server for streamable HTTP."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    server: object = None
    """A FastMCP object, or a function that returns one."""


@dataclass(frozen=True, slots=True)
class ServerTool:
    """A tool that a server offers."""

    server: str
    name: str
    """The tool's name on the server."""
    description: str
    parameters: JsonDict
    """The full JSON schema of the arguments."""


def check_installed() -> None:
    """Check that `fastmcp` is installed.

    Raises:
        EnvironmentFault: `fastmcp` is not installed; the message says how to install it.
    """
    if importlib.util.find_spec("fastmcp") is None:
        raise EnvironmentFault(f"tools from MCP servers need fastmcp, which is not installed; {INSTALL}")


def read_servers(settings: ServerSettings) -> tuple[MCPServer, ...]:
    """Parse the server settings of an environment.

    Raises:
        EnvironmentFault: the settings name no server, or one is invalid; the message says which and why.
    """
    if isinstance(settings, Mapping):
        inner: object = settings.get("mcpServers", settings)
        if not isinstance(inner, Mapping):
            raise EnvironmentFault("mcp_servers: 'mcpServers' must be a mapping of servers by name")
        named = cast("Mapping[str, object]", inner)
        servers = tuple(_server(f"mcp_servers.{name}", value, name) for name, value in named.items())
    elif isinstance(settings, Sequence) and not isinstance(settings, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        servers = tuple(_server(f"mcp_servers[{number}]", value, "") for number, value in enumerate(settings))
    else:
        raise EnvironmentFault(f"mcp_servers must be a list or a mapping of servers, not {settings!r}")
    if not servers:
        raise EnvironmentFault("mcp_servers is empty")
    names = [server.name for server in servers]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise EnvironmentFault(f"two MCP servers are called {repeated!r}; give each a unique name")
    return servers


def make_client(server: MCPServer, log: TextIO) -> Any:
    """Make a `fastmcp.Client` that is not connected yet.

    Args:
        server: The server to connect to.
        log: File for the stderr of a command.
    """
    try:
        from fastmcp import Client
        from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
    except ImportError as error:
        raise EnvironmentFault(f"tools from MCP servers need fastmcp ({error}); {INSTALL}") from error
    if "FASTMCP_LOG_LEVEL" not in os.environ:
        # Its log of failed tools would fill the terminal; the model gets these errors anyway.
        logging.getLogger("fastmcp").setLevel(logging.CRITICAL + 1)
    if server.command:
        # No keep-alive: a server that outlives its client would outlive the rollout.
        transport: Any = StdioTransport(
            server.command, list(server.args), dict(server.env), server.cwd, keep_alive=False, log_file=log
        )
    elif server.url:
        transport = StreamableHttpTransport(server.url, headers=dict(server.headers))
    else:
        made = server.server
        transport = cast("Callable[[], object]", made)() if callable(made) else made
    return Client(transport, name=f"bench-{server.name}")


def read_tools(server: str, listed: Sequence[Any]) -> list[ServerTool]:
    """Convert the tool list of an MCP client's `list_tools` to `ServerTool` objects."""
    tools: list[ServerTool] = []
    for tool in listed:
        fields = cast(JsonDict, tool.model_dump(mode="json", by_alias=True))
        schema = cast(JsonDict, fields.get("inputSchema") or {"type": "object", "properties": {}})
        tools.append(ServerTool(server, fields["name"], fields.get("description") or "", schema))
    return tools


def tool_name(tool: ServerTool, *, with_prefix: bool) -> str:
    """The tool's name for models; characters that endpoints do not allow are replaced by `_`."""
    whole = f"{tool.server}_{tool.name}" if with_prefix else tool.name
    return _NOT_IN_NAMES.sub("_", whole)[:64]


def read_result(result: Any) -> str | list[JsonDict]:
    """Convert a tool's result to message content: text, or content parts if not all of it is text.

    Args:
        result: The result of a client's `call_tool_mcp`.

    Raises:
        ToolCallError: the tool reported an error; with the tool's message.
    """
    fields = cast(JsonDict, result.model_dump(mode="json", by_alias=True))
    parts = [_part(block) for block in cast("list[JsonDict]", fields.get("content") or [])]
    if not parts and fields.get("structuredContent") is not None:
        parts = [_text(json.dumps(fields["structuredContent"], ensure_ascii=False))]
    texts = [part["text"] for part in parts if part["type"] == "text"]
    if fields.get("isError"):
        raise ToolCallError("\n".join(texts) or "the tool failed without a message")
    return "\n".join(texts) if len(texts) == len(parts) else parts


def convert_error(error: Exception, server: str, doing: str) -> Exception:
    """Convert an exception of a client to a `ToolCallError` if the model's call caused it, else to a
    `ToolServerError`."""
    if isinstance(error, EnvironmentFault | ToolCallError):
        return error
    code: object = getattr(getattr(error, "error", None), "code", None)
    if code in _CALLER_ERRORS:
        return ToolCallError(str(error))
    if isinstance(error, RuntimeError) and str(error).startswith(_SCHEMA_MISMATCH):
        return ToolCallError(str(error).partition("\n")[0])  # the other lines repeat the value
    words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return ToolServerError(f"MCP server {server!r} failed while {doing}: {words}")


def opening_error(error: Exception, server: MCPServer, said: str) -> EnvironmentFault:
    """Convert an exception raised on opening a server. It is not retryable if the program does not exist.

    Args:
        error: Raised by a client, or by the function that makes the server.
        server: The server that was to be opened.
        said: The end of the server's stderr, to be appended to the message.
    """
    words = f"{convert_error(error, server.name, 'being opened')}{said}"
    is_permanent = isinstance(error, EnvironmentFault) or (bool(server.command) and _is_missing_program(error))
    return EnvironmentFault(words) if is_permanent else ToolServerError(words)


def _is_missing_program(error: BaseException | None) -> bool:
    """Return whether an exception, or one of its causes, says that the server's program does not exist."""
    while error is not None and not isinstance(error, _MISSING_PROGRAM):
        error = error.__cause__ or error.__context__
    return error is not None


def _part(block: JsonDict) -> JsonDict:
    """Convert a content block of MCP to an OpenAI content part."""
    kind: object = block.get("type")
    if kind == "text":
        return _text(str(block.get("text") or ""))
    if kind == "image":
        url = f"data:{block.get('mimeType')};base64,{block.get('data')}"
        return {"type": "image_url", "image_url": {"url": url}}
    if kind == "audio":
        form = str(block.get("mimeType") or "").rpartition("/")[2]
        return {"type": "input_audio", "input_audio": {"data": block.get("data"), "format": form}}
    if kind == "resource":
        resource = cast(JsonDict, block.get("resource") or {})
        if isinstance(resource.get("text"), str):
            return _text(resource["text"])
        return _text(f"[{resource.get('uri')}: {resource.get('mimeType') or 'binary data'}, not shown]")
    if kind == "resource_link":
        return _text(f"{block.get('name')}: {block.get('uri')}")
    return _text(json.dumps(block, ensure_ascii=False))


def _text(text: str) -> JsonDict:
    return {"type": "text", "text": text}


def _server(where: str, value: object, name: str) -> MCPServer:
    if isinstance(value, MCPServer):
        return value
    if isinstance(value, Mapping):
        return _from_settings(where, dict(cast("Mapping[str, Any]", value)), name)
    if isinstance(getattr(value, "command", None), str):  # the classic settings object
        fields = {key: getattr(value, key) for key in _KEYS if getattr(value, key, None) is not None}
        return _from_settings(where, fields, name)
    if _is_server(value) or callable(value):
        own: object = getattr(value, "name", None) or getattr(value, "__name__", None)
        return MCPServer(name or str(own or type(value).__name__), server=value)
    raise EnvironmentFault(f"{where} must be a dict, a FastMCP object or a function that returns one, not {value!r}")


def _from_settings(where: str, fields: JsonDict, name: str) -> MCPServer:
    unknown = sorted(set(fields) - set(_KEYS))
    if unknown:
        raise EnvironmentFault(f"{where}: unknown key {unknown[0]!r}; known are {', '.join(_KEYS)}")
    ways = [key for key in ("command", "url", "server") if fields.get(key)]
    if len(ways) != 1:
        raise EnvironmentFault(f"{where} needs one of 'command' (stdio), 'url' (streamable HTTP) or 'server'")
    called = str(fields.get("name") or name)
    if not called:
        raise EnvironmentFault(f"{where} needs a 'name'")
    args: object = fields.get("args") or ()
    if isinstance(args, str) or not isinstance(args, Sequence):
        raise EnvironmentFault(f"{where}: 'args' must be a list of strings, not {args!r}")
    return MCPServer(
        name=called,
        command=_word(where, fields, "command"),
        args=tuple(str(word) for word in cast("Sequence[object]", args)),
        env=_string_table(where, fields, "env"),
        cwd=_word(where, fields, "cwd") or None,
        url=_word(where, fields, "url"),
        headers=_string_table(where, fields, "headers"),
        server=fields.get("server"),
    )


def _word(where: str, fields: JsonDict, key: str) -> str:
    value: object = fields.get(key) or ""
    if not isinstance(value, str):
        raise EnvironmentFault(f"{where}: {key!r} must be a string, not {value!r}")
    return value


def _string_table(where: str, fields: JsonDict, key: str) -> dict[str, str]:
    value: object = fields.get(key) or {}
    if not isinstance(value, Mapping):
        raise EnvironmentFault(f"{where}: {key!r} must be a table of strings, not {value!r}")
    return {str(name): str(word) for name, word in cast("Mapping[object, object]", value).items()}


def _is_server(value: object) -> bool:
    """Return whether a value is a server object of `fastmcp` or `mcp`; imports neither of them."""
    return any(base.__module__.split(".")[0] in ("fastmcp", "mcp") for base in type(value).__mro__)
