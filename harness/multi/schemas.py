"""Schemas of tasks: validation by the module `subset` or `json_schema`, the schema registry for scoring hooks, and the
parsing of outputs as JSON, as strict as JavaScript's `JSON.parse`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

from harness.core.errors import ConfigError
from harness.core.types import JsonDict
from harness.multi import javascript, json_schema, subset
from harness.multi.tasks import Task
from harness.settings.wording import shown, suggestion

SchemaMode: TypeAlias = Literal["subset", "jsonschema"]

SCHEMA_MODES: tuple[SchemaMode, ...] = ("subset", "jsonschema")

NOT_JSON = "Output is not valid JSON"

_FENCES = ("```", "~~~")


class SchemaRegistry:
    """Validator of values against schemas, with the tools of a request by name. The methods also have their documented
    camelCase names.

    Args:
        mode: `subset` for the documented check, `jsonschema` for JSON Schema.
        tools: The request's tools.
    """

    def __init__(self, mode: SchemaMode = "subset", tools: Mapping[str, JsonDict] | None = None) -> None:
        self.mode = mode
        self._tools = tools or {}

    def get_tool_schema(self, name: str) -> JsonDict | None:
        """Return the definition of a tool, with its `parameters`; None if there is no such tool."""
        return self._tools.get(name)

    def validate_schema(self, value: object, schema: object) -> JsonDict:
        """Validate a value against a schema.

        Returns:
            `{"valid": bool, "errors": [text, …]}`

        Raises:
            ConfigError: in the mode `jsonschema`, the schema cannot be used.
        """
        errors = self._errors(value, schema)
        return {"valid": not errors, "errors": errors}

    def validate_combined_output(self, outputs: Mapping[str, object], schema: object) -> JsonDict:
        """Validate several outputs; strings are parsed as JSON first.

        Args:
            outputs: Outputs by the author's name; each is a string or any other value.
            schema: A schema, or the name of a tool; for an unknown tool, any JSON is valid.

        Returns:
            `{"valid": bool, "errors": [{"expertId": name, "errors": [text, …]}, …]}`

        Raises:
            ConfigError: in the mode `jsonschema`, the schema cannot be used.
        """
        if isinstance(schema, str):
            schema = (self.get_tool_schema(schema) or {}).get("parameters")
        errors: list[JsonDict] = []
        for name, output in outputs.items():
            try:
                words = self._errors(self._read(output) if isinstance(output, str) else output, schema)
            except NotJsonError as error:
                words = [str(error)]
            if words:
                errors.append({"expertId": name, "errors": words})
        return {"valid": not errors, "errors": errors}

    getToolSchema = get_tool_schema
    validateSchema = validate_schema
    validateCombinedOutput = validate_combined_output

    def _read(self, text: str) -> object:
        return read_json(text) if self.mode == "subset" else read_fenced_json(text)

    def _errors(self, value: object, schema: object) -> list[str]:
        if self.mode == "subset":
            return subset.check(value, schema)
        return json_schema.checker(cast(JsonDict, schema))(value) if isinstance(schema, dict) else []


def chat_options_of(task: Task, common: JsonDict) -> JsonDict:
    """Return the chat options of a task's request: its own, or by default those of all tasks; they are not merged."""
    return common if task.chat_options is None else task.chat_options


def tools_of(chat_options: JsonDict) -> list[JsonDict]:
    """Return the tools in chat options, in the form of requests. A tool given as `{name, description, parameters}` is
    accepted.

    Raises:
        ConfigError: the value is not a list of tools.
    """
    given: object = chat_options.get("tools")
    if given is None:
        return []
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise ConfigError(f"chatOptions.tools must be a list of tools, not {shown(given)}")
    tools: list[JsonDict] = []
    for number, entry in enumerate(cast("Sequence[object]", given)):
        tool = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
        if isinstance(tool.get("name"), str) and "function" not in tool:
            tool = {"type": "function", "function": {name: part for name, part in tool.items() if name != "type"}}
        function: object = tool.get("function")
        if not isinstance(function, dict) or not isinstance(cast(JsonDict, function).get("name"), str):
            raise ConfigError(
                f"chatOptions.tools[{number}] must be a tool with a name, not {shown(cast(object, entry))}"
            )
        tools.append(tool)
    return tools


def registry_of(chat_options: JsonDict, mode: SchemaMode) -> SchemaRegistry:
    """Build the registry of a task's tool schemas, by tool name, from the tools in its chat options."""
    return SchemaRegistry(mode, {tool["function"]["name"]: tool["function"] for tool in tools_of(chat_options)})


def schema_of(task: Task, chat_options: JsonDict) -> JsonDict | None:
    """Return the schema of a task, or of the tool that the task names; None if the task has no schema.

    Raises:
        ConfigError: there is no such tool, or it has no parameters.
    """
    if not isinstance(task.schema, str):
        return task.schema
    tools = {tool["function"]["name"]: tool["function"] for tool in tools_of(chat_options)}
    if task.schema not in tools:
        known = suggestion(task.schema, tools) if tools else "there are no tools"
        raise ConfigError(
            f"schema = {shown(task.schema)}: must be a schema, or the name of a tool in chatOptions.tools; {known}"
        )
    parameters: object = tools[task.schema].get("parameters")
    if not isinstance(parameters, dict):
        raise ConfigError(f"schema = {shown(task.schema)}: this tool in chatOptions.tools has no parameters")
    return cast(JsonDict, parameters)


def check_schema(schema: JsonDict, mode: SchemaMode) -> None:
    """Reject a schema against which no output could be validated.

    Raises:
        ConfigError: the schema cannot be used; the message names the error in it.
    """
    if mode == "jsonschema":
        json_schema.checker(schema)
        return
    properties: object = schema.get("properties")
    if properties is None:
        return
    if not isinstance(properties, dict):
        raise ConfigError(f"the schema's properties must be an object, not {shown(properties)}")
    for name, rule in cast("dict[str, object]", properties).items():
        if not isinstance(rule, dict | bool):
            raise ConfigError(f"the schema's properties.{name} must be a schema, not {shown(rule)}")


class NotJsonError(Exception):
    """Error for text that is not valid JSON."""


def read_json(text: str) -> object:
    """Parse text that is a JSON value, optionally surrounded by white space.

    Raises:
        NotJsonError: the text is not JSON, or is nested too deeply to be parsed.
    """
    try:
        return cast(object, json.loads(text, parse_constant=_refuse, parse_int=_number))
    except (ValueError, RecursionError) as error:
        raise NotJsonError(NOT_JSON) from error


def read_fenced_json(text: str) -> object:
    """Parse JSON as `read_json` does; the text may be one fenced code block.

    Raises:
        NotJsonError: see `read_json`.
    """
    block = javascript.trimmed(text)
    first, newline, rest = block.partition("\n")
    if newline and block.startswith(_FENCES) and rest.endswith(block[:3]) and "{" not in first and "[" not in first:
        return read_json(rest.rstrip(block[0]))
    return read_json(text)


def _refuse(name: str) -> object:
    raise ValueError(name)  # NaN and infinities, which Python accepts


def _number(digits: str) -> float:
    try:
        return int(digits)
    except ValueError:  # longer than Python accepts; JavaScript uses a double anyway
        return float(digits)
