"""JSON Schemas of suite files and endpoint registries, for editors that complete and check TOML files."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, cast

from harness.core.types import JsonDict
from harness.settings.agent_evals import KEYS as AGENT_KEYS
from harness.settings.budget import BOUNDS, BUDGET
from harness.settings.checks import NONE_WORD
from harness.settings.classic_keys import OTHER_KEYS
from harness.settings.endpoints import ENDPOINT_KEYS, PRICES, REPORTED
from harness.settings.schema import BY_FLAT_NAME, BY_PATH, GROUPS, SETTINGS, SHORTCUT_BY_KEY, Setting, adapter

DRAFT = "https://json-schema.org/draft/2020-12/schema"

_TYPES = {"integer": "integer", "number": "number", "duration": "string", "string": "string"}

_AGENT_DOCS: Mapping[str, JsonDict] = {
    "agent": {"type": "string", "description": 'The agent to evaluate, "module:attribute".'},
    "mcp": {"type": "string", "description": "Folder of MCP tools that an agent of bench uses."},
    "dataset": {"type": "string", "description": "File with the rows for the agent."},
    "eval_fns": {"type": ["string", "array"], "items": {"type": "string"},
                 "description": 'Eval functions, each "module:function".'},
    "max_turns": {"type": "integer", "minimum": 1, "description": "Maximum number of model calls of a rollout."},
    "offset": {"type": "integer", "minimum": 0, "description": "Number of the first row."},
}  # fmt: skip


def suite_schema() -> JsonDict:
    """JSON Schema (draft 2020-12) of a suite file, the TOML file that `bench run` reads."""
    entry = _settings() | {name: _AGENT_DOCS[name] for name in AGENT_KEYS}
    sweep = {"type": "object", "description": "Lists of values by setting; every combination is one run."}
    tables = {"type": "object", "properties": entry, "additionalProperties": False}
    swept = {"type": "object", "properties": entry | {"sweep": sweep}, "additionalProperties": False}
    limits = {name: _shortcut(name) for name in BOUNDS}
    return {
        "$schema": DRAFT,
        "title": "Suite of bench",
        "description": "Environments to evaluate, and settings. Settings at the top apply to every [[eval]].",
        "type": "object",
        "properties": _settings()
        | {
            "eval": {"type": "array", "items": tables, "description": "Runs: one environment each."},
            "ablation": {"type": "array", "items": swept, "description": "Runs with every combination of a sweep."},
            "endpoint": _endpoints(),
            "endpoints_path": {"type": "string", "description": "Endpoint registry to use, a .toml or .py file."},
            BUDGET: {"type": "object", "properties": limits, "additionalProperties": False,
                     "description": "Limits of the whole invocation."},
        },
        "additionalProperties": False,
    }  # fmt: skip


def endpoints_schema() -> JsonDict:
    """JSON Schema (draft 2020-12) of an endpoint registry in TOML, such as `configs/endpoints.toml`."""
    return {
        "$schema": DRAFT,
        "title": "Endpoint registry of bench",
        "type": "object",
        "properties": {"endpoint": _endpoints()},
        "additionalProperties": False,
    }


@cache
def _settings() -> JsonDict:
    """JSON Schema of the keys in a table of settings: grouped in tables, flat, and as in suites of the classic API."""
    flat = {name: _setting(setting, name) for name, setting in BY_FLAT_NAME.items()}
    groups: JsonDict = {}
    for group in GROUPS:
        properties = {each.key: _setting(each, each.key) for each in SETTINGS if each.group == group}
        groups[group] = {"type": "object", "properties": properties, "additionalProperties": False}
    model = {"anyOf": [flat["model"], groups["model"]], "description": flat["model"]["description"]}
    others = {name: {"description": "A key of classic suites."} for name in OTHER_KEYS}
    return {**others, **flat, **groups, "model": model}


def _setting(setting: Setting, name: str) -> JsonDict:
    schema = _plain(adapter(setting.path).json_schema())
    if setting.door.kind == "headers":  # of classic suites, also a list
        schema = {"anyOf": [schema, {"type": "array", "items": {"type": "string"}}]}
    elif setting.is_table:
        schema = {"anyOf": [schema, {"type": "string", "description": "The table as a JSON object."}]}
    doc = setting.doc if name == setting.key else f"Same as `{setting.key}`. {setting.doc}"
    default = setting.default
    return {**schema, "description": doc, **({} if default is None else {"default": _json(default)})}


def _plain(schema: Any) -> Any:
    """Replace null, which TOML cannot represent, by the word that stands for null in a settings file."""
    if isinstance(schema, list):
        return [_plain(each) for each in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    fields = cast(JsonDict, schema)
    if fields.get("type") == "null":
        return {"const": NONE_WORD}
    return {name: _plain(value) for name, value in fields.items() if name not in ("title", "default")}


def _json(value: object) -> object:
    return list(cast("tuple[object, ...]", value)) if isinstance(value, tuple) else value


def _shortcut(name: str) -> JsonDict:
    shortcut = SHORTCUT_BY_KEY[name]
    return {"type": _TYPES[shortcut.kind], "description": shortcut.doc}


def _endpoints() -> JsonDict:
    amount = {"type": "number", "minimum": 0}
    price = {"type": "object", "properties": dict.fromkeys(PRICES, amount), "additionalProperties": False}
    properties: JsonDict = {name: _setting(BY_PATH[path], name) for name, path in ENDPOINT_KEYS.items()}
    properties |= {
        "endpoint_id": {"type": "string", "minLength": 1,
                        "description": "Alias that runs use as model name; repeated, the endpoints are replicas."},
        "price": {"anyOf": [price, {"const": REPORTED}], "description": "US dollars per million tokens."},
        "type": {"type": "string", "description": "Request format of the endpoint."},
        "api_client_type": {"type": "string", "description": "Same as `type`."},
    }  # fmt: skip
    items = {"type": "object", "properties": properties, "required": ["endpoint_id"], "additionalProperties": False}
    return {"type": "array", "items": items, "description": "Endpoints of models, by alias."}
