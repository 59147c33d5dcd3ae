"""Validation of an agent's tools before a request: finds faults that an endpoint would reject. Tools are not
changed."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import cast

from pydantic import BaseModel

from harness.core.errors import ToolValidationError
from harness.core.types import JsonDict

MAX_NAME = 64
"""Maximum length of a tool's name in characters, at the strictest of the common endpoints."""

_NAME = re.compile(rf"[a-zA-Z_][a-zA-Z0-9_-]{{0,{MAX_NAME - 1}}}")


def validate_tools(tools: object) -> list[JsonDict]:
    """Validate an agent's tools and convert them to the list that is sent to the endpoint.

    Args:
        tools: The return value of an agent's `get_tools`: pydantic schemas (`OpenAIFunctionToolSchema`), or dicts in
            OpenAI's format, which are sent unchanged. A dict of a type other than `function` is a built-in tool of the
            endpoint and is not checked.

    Raises:
        ToolValidationError: a tool is invalid. The message names the tool and the reason.
    """
    if not isinstance(tools, Sequence) or isinstance(tools, str | bytes):
        raise ToolValidationError(f"get_tools() must return a list of tools, not {type(tools).__name__}")
    checked = [_checked(tool, number) for number, tool in enumerate(cast("Sequence[object]", tools))]
    names = [str(tool["function"]["name"]) for tool in checked if tool["type"] == "function"]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise ToolValidationError(f"Tool '{repeated}': two tools have this name; rename one")
    return checked


def _checked(tool: object, number: int) -> JsonDict:
    wire: object = tool.model_dump(mode="json", exclude_none=True) if isinstance(tool, BaseModel) else tool
    if not isinstance(wire, dict):
        raise ToolValidationError(f"Tool {number}: must be a tool schema or a dict, got {type(tool).__name__}")
    fields = cast(JsonDict, wire)
    kind: object = fields.get("type")
    if kind != "function" and ("function" in fields or not isinstance(kind, str)):
        raise ToolValidationError(f"Tool {number}: type must be 'function', got {kind!r}")
    where = f"Tool {number}"
    if kind == "function":
        where = _check_function(where, fields.get("function"))
    try:
        json.dumps(fields, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolValidationError(f"{where}: its schema cannot be written as JSON: {error}") from error
    return dict(fields)


def _check_function(where: str, function: object) -> str:
    """Validate the `function` of a tool, and return the tool's name for error messages."""
    if not isinstance(function, dict):
        raise ToolValidationError(f"{where}: 'function' must be an object, got {type(function).__name__}")
    fields = cast(JsonDict, function)
    name: object = fields.get("name")
    if not isinstance(name, str):
        raise ToolValidationError(f"{where}: the function has no name; add one")
    where = f"Tool '{name}'"
    if not _NAME.fullmatch(name):
        raise ToolValidationError(
            f"{where}: name must start with letter/underscore and contain only alphanumeric characters, underscores "
            f"and hyphens, {MAX_NAME} at most"
        )
    description: object = fields.get("description")
    if description is not None and not isinstance(description, str):
        raise ToolValidationError(f"{where}: description must be a string, got {type(description).__name__}")
    if "parameters" not in fields:
        return where
    if not isinstance(fields["parameters"], dict):
        kind = type(fields["parameters"]).__name__
        raise ToolValidationError(f"{where}: parameters must be a JSON schema, got {kind}")
    schema = cast(JsonDict, fields["parameters"])
    if schema.get("type") != "object":
        raise ToolValidationError(f"{where}: parameters.type must be 'object', got {schema.get('type')!r}")
    if not isinstance(schema.get("properties", {}), dict):
        raise ToolValidationError(f"{where}: parameters.properties must be an object that maps names to schemas")
    return where
