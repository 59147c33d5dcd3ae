"""MCP servers: where they are, what they offer and what they answer. The one door to `fastmcp` (from 2.14). Owns the
reading of server settings and the translation of tools, results and errors; `mcp_host` owns when servers are open."""

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
"""What the settings of one server may hold; `transport` and `type` say what `command` or `url` say already."""

_MODELS_FAULT = {-32602, -32601}
"""JSON-RPC errors that are about the call: invalid params, no such method. All others are about the server."""

_MISFIT = "Invalid structured content"
"""How the client begins to say that a result is not of the schema that the tool declares: an infinite `float`, say."""

_NOT_THERE = (FileNotFoundError, NotADirectoryError, PermissionError)
"""What starting a program that does not exist raises."""

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")

ServerSettings: TypeAlias = "Mapping[str, Any] | Sequence[Any]"
"""A list of servers or a mapping of them by name (`{"mcpServers": {…}}` too). A server is a dict, an `MCPServer`, a
FastMCP object, or a function without arguments that makes one."""


@dataclass(frozen=True, slots=True)
class MCPServer:
    """Where one server is: a command, a URL, or an object in this process."""

    name: str
    command: str = ""
    """A program that speaks MCP over its stdin and stdout."""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables beside the few that every server gets (`PATH`, `HOME`, …): it does not see ours, so not our keys."""
    cwd: str | None = None
    url: str = ""
    """Of a server that speaks streamable HTTP."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    server: object = None
    """A FastMCP object, or a function that makes one."""


@dataclass(frozen=True, slots=True)
class ServerTool:
    """A tool that a server offers."""

    server: str
    name: str
    """What the server calls it."""
    description: str
    parameters: JsonDict
    """Its schema, whole."""


def check_installed() -> None:
    """Refuse to go on without `fastmcp`.

    Raises:
        EnvironmentFault: it is not installed; says how to install it.
    """
    if importlib.util.find_spec("fastmcp") is None:
        raise EnvironmentFault(f"tools from MCP servers need fastmcp, which is not installed; {INSTALL}")


def read_servers(settings: ServerSettings) -> tuple[MCPServer, ...]:
    """The servers that an environment names.

    Raises:
        EnvironmentFault: there are none, or one is described wrongly; says which and how.
    """
    if isinstance(settings, Mapping):
        inner: object = settings.get("mcpServers", settings)
        if not isinstance(inner, Mapping):
            raise EnvironmentFault("mcp_servers: 'mcpServers' must be servers by name")
        named = cast("Mapping[str, object]", inner)
        servers = tuple(_server(f"mcp_servers.{name}", value, name) for name, value in named.items())
    elif isinstance(settings, Sequence) and not isinstance(settings, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        servers = tuple(_server(f"mcp_servers[{number}]", value, "") for number, value in enumerate(settings))
    else:
        raise EnvironmentFault(f"mcp_servers must be a list of servers, or servers by name, not {settings!r}")
    if not servers:
        raise EnvironmentFault("mcp_servers is empty")
    names = [server.name for server in servers]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise EnvironmentFault(f"two MCP servers are called {repeated!r}; give each a name of its own")
    return servers


def make_client(server: MCPServer, log: TextIO) -> Any:
    """A `fastmcp.Client` that is not connected yet.

    Args:
        server: Where to.
        log: Where the stderr of a command goes.
    """
    try:
        from fastmcp import Client
        from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
    except ImportError as error:
        raise EnvironmentFault(f"tools from MCP servers need fastmcp ({error}); {INSTALL}") from error
    if "FASTMCP_LOG_LEVEL" not in os.environ:
        # Its log of failed tools would fill the terminal, and the model is told of them.
        logging.getLogger("fastmcp").setLevel(logging.CRITICAL + 1)
    if server.command:
        # Not kept alive: a server that outlives its client would outlive the rollout.
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
    """What a client's `list_tools` returned."""
    tools: list[ServerTool] = []
    for tool in listed:
        fields = cast(JsonDict, tool.model_dump(mode="json", by_alias=True))
        schema = cast(JsonDict, fields.get("inputSchema") or {"type": "object", "properties": {}})
        tools.append(ServerTool(server, fields["name"], fields.get("description") or "", schema))
    return tools


def tool_name(tool: ServerTool, *, with_prefix: bool) -> str:
    """What models call a tool: of its own name, what endpoints take."""
    whole = f"{tool.server}_{tool.name}" if with_prefix else tool.name
    return _NOT_IN_NAMES.sub("_", whole)[:64]


def read_result(result: Any) -> str | list[JsonDict]:
    """A tool's result as message content: text, or parts if there is more than text in it.

    Args:
        result: What a client's `call_tool_mcp` returned.

    Raises:
        ToolCallError: the tool failed; in its own words.
    """
    fields = cast(JsonDict, result.model_dump(mode="json", by_alias=True))
    parts = [_part(block) for block in cast("list[JsonDict]", fields.get("content") or [])]
    if not parts and fields.get("structuredContent") is not None:
        parts = [_text(json.dumps(fields["structuredContent"], ensure_ascii=False))]
    texts = [part["text"] for part in parts if part["type"] == "text"]
    if fields.get("isError"):
        raise ToolCallError("\n".join(texts) or "the tool failed and says nothing")
    return "\n".join(texts) if len(texts) == len(parts) else parts


def translated(error: Exception, server: str, doing: str) -> Exception:
    """An exception out of a client: what the model can mend, or a fault of the server."""
    if isinstance(error, EnvironmentFault | ToolCallError):
        return error
    code: object = getattr(getattr(error, "error", None), "code", None)
    if code in _MODELS_FAULT:
        return ToolCallError(str(error))
    if isinstance(error, RuntimeError) and str(error).startswith(_MISFIT):
        return ToolCallError(str(error).partition("\n")[0])  # of this call alone; the rest repeats schema and value
    words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return ToolServerError(f"MCP server {server!r} failed while {doing}: {words}")


def opening_fault(error: Exception, server: MCPServer, said: str) -> EnvironmentFault:
    """An exception out of the opening of a server. A program that is not there will not be there next time.

    Args:
        error: Out of a client, or of the function that makes the server.
        server: Which one.
        said: What it wrote at last, as the end of a sentence.
    """
    words = f"{translated(error, server.name, 'it was opened')}{said}"
    is_for_good = isinstance(error, EnvironmentFault) or (bool(server.command) and _is_not_there(error))
    return EnvironmentFault(words) if is_for_good else ToolServerError(words)


def _is_not_there(error: BaseException | None) -> bool:
    """Whether a program could not be started, whatever was made of that on the way."""
    while error is not None and not isinstance(error, _NOT_THERE):
        error = error.__cause__ or error.__context__
    return error is not None


def _part(block: JsonDict) -> JsonDict:
    """A content block of MCP as a content part of OpenAI."""
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
    raise EnvironmentFault(f"{where} must be a dict, a FastMCP object or a function that makes one, not {value!r}")


def _from_settings(where: str, fields: JsonDict, name: str) -> MCPServer:
    unknown = sorted(set(fields) - set(_KEYS))
    if unknown:
        raise EnvironmentFault(f"{where}: unknown key {unknown[0]!r}; known are {', '.join(_KEYS)}")
    ways = [key for key in ("command", "url", "server") if fields.get(key)]
    if len(ways) != 1:
        raise EnvironmentFault(f"{where} needs one of 'command' (stdio), 'url' (streamable HTTP) and 'server'")
    called = str(fields.get("name") or name)
    if not called:
        raise EnvironmentFault(f"{where} has no name")
    args: object = fields.get("args") or ()
    if isinstance(args, str) or not isinstance(args, Sequence):
        raise EnvironmentFault(f"{where}: 'args' must be a list of texts, not {args!r}")
    return MCPServer(
        name=called,
        command=_word(where, fields, "command"),
        args=tuple(str(word) for word in cast("Sequence[object]", args)),
        env=_words(where, fields, "env"),
        cwd=_word(where, fields, "cwd") or None,
        url=_word(where, fields, "url"),
        headers=_words(where, fields, "headers"),
        server=fields.get("server"),
    )


def _word(where: str, fields: JsonDict, key: str) -> str:
    value: object = fields.get(key) or ""
    if not isinstance(value, str):
        raise EnvironmentFault(f"{where}: {key!r} must be a text, not {value!r}")
    return value


def _words(where: str, fields: JsonDict, key: str) -> dict[str, str]:
    value: object = fields.get(key) or {}
    if not isinstance(value, Mapping):
        raise EnvironmentFault(f"{where}: {key!r} must be a table of texts, not {value!r}")
    return {str(name): str(word) for name, word in cast("Mapping[object, object]", value).items()}


def _is_server(value: object) -> bool:
    """Whether this is a server object of `fastmcp` or `mcp`; neither is imported to find out."""
    return any(base.__module__.split(".")[0] in ("fastmcp", "mcp") for base in type(value).__mro__)
