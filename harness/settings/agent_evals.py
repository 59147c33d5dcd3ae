"""Agent evaluations in a suite file: the keys of an `[[eval]]` that select the built-in environment `agent-eval`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from harness.core.errors import ConfigError
from harness.settings.built_in import AGENT_EVAL
from harness.settings.layers import KeyPath, Layer, LayerValue, Origin
from harness.settings.schema import BY_PATH
from harness.settings.sections import Place
from harness.settings.wording import shown

KEYS = ("agent", "mcp", "dataset", "eval_fns", "max_turns", "offset")
"""Keys of an `[[eval]]` that evaluates an agent. Each of them sets the environment argument of the same name."""

_ENV_ID = BY_PATH["env", "env_id"]
_ARGS = BY_PATH["env", "env_args"]


def read_agent_eval(table: Mapping[str, object], place: Place) -> Layer:
    """Convert the keys of an agent evaluation to settings; an empty layer if the table has no such key.

    Raises:
        ConfigError: a key is missing, has an invalid value, or conflicts with another.
    """
    given = {name: table[name] for name in KEYS if name in table}
    if not given:
        return {}
    named = next((name for name in ("env_id", "id") if name in table), None)
    if named is not None:
        raise ConfigError(
            f"{place.of(named)}: cannot be combined with {place.of(next(iter(given)))}, a key for agents; remove one"
        )
    _check(given, place)
    what = "agent" if "agent" in given else "mcp"
    layer: dict[KeyPath, LayerValue] = {
        _ENV_ID.path: LayerValue(_ENV_ID.path, AGENT_EVAL, Origin("eval", place.of(what)))
    }
    for name, value in given.items():
        path = (*_ARGS.path, name)
        kept = [value] if name == "eval_fns" and isinstance(value, str) else value
        layer[path] = LayerValue(path, kept, Origin("eval", place.of(name)))
    return layer


def _check(given: Mapping[str, object], place: Place) -> None:
    if "agent" in given and "mcp" in given:
        raise ConfigError(f"{place.of('mcp')}: agent and mcp are mutually exclusive")
    if "agent" not in given and "mcp" not in given:
        raise ConfigError(f'{place.of()}: no agent to evaluate; add agent = "module:attribute" or mcp = "DIR"')
    if "dataset" not in given:
        raise ConfigError(f"{place.of('dataset')}: this key is missing; set it to the file with the rows for the agent")
    for name in ("agent", "mcp", "dataset"):
        if name in given and not (isinstance(given[name], str) and given[name]):
            raise ConfigError(f"{place.of(name)} = {shown(given[name])}: must be a string")
    functions = given.get("eval_fns")
    listed = cast("list[object]", functions) if isinstance(functions, list) else [functions]
    if not listed or not all(isinstance(each, str) and each for each in listed):
        raise ConfigError(f'{place.of("eval_fns")}: must be a list of eval functions, each "module:function"')
    for name, least in (("max_turns", 1), ("offset", 0)):
        value = given.get(name, least)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ConfigError(f"{place.of(name)} = {shown(value)}: must be an integer, {least} or more")
