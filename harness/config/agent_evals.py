"""Agent evaluations as runs: the environment `agent-eval`, which is built in, and the keys of a suite that ask for it.
Owns these names and what such a run is called; what the keys lead to is read by `harness.agents`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from harness.config.built_in import AGENT_EVAL
from harness.config.layers import Entry, KeyPath, Layer, Origin
from harness.config.schema import BY_PATH
from harness.config.sections import Place
from harness.config.wording import shown
from harness.errors import ConfigError

KEYS = ("agent", "mcp", "dataset", "eval_fns", "max_turns", "offset")
"""Keys of an `[[eval]]` that evaluates an agent; each is the argument of that name."""

_ENV_ID = BY_PATH["env", "env_id"]
_ARGS = BY_PATH["env", "env_args"]
_LONGEST = 80
"""Characters of a name: it becomes part of a folder's."""


def names_rows(env_args: Mapping[str, object]) -> bool:
    """Whether the arguments of an agent evaluation say where its rows are. Those of the Python API do not: there, the
    rows are in the program."""
    return "dataset" in env_args


def require_rows(env_args: Mapping[str, object], where: str) -> None:
    """Refuse an agent evaluation without a dataset.

    Args:
        env_args: Its arguments.
        where: What names it, a flag or a file with key path.

    Raises:
        ConfigError: there is none; says how to name one, and what to do about a run of the Python API.
    """
    if not names_rows(env_args):
        raise ConfigError(
            f"{where}: {AGENT_EVAL} without a dataset: name a file of rows, with -a dataset=FILE or as `dataset` of an "
            "[[eval]]. Settings of a run that a Python program made cannot repeat it, since its rows are in that "
            "program: run the program again, with resume=True to go on"
        )


def read_agent_eval(table: Mapping[str, object], place: Place) -> Layer:
    """The settings that the keys of an agent evaluation stand for; none if the table has no such key.

    Raises:
        ConfigError: a key is missing, wrong, or at odds with another.
    """
    given = {name: table[name] for name in KEYS if name in table}
    if not given:
        return {}
    named = next((name for name in ("env_id", "id") if name in table), None)
    if named is not None:
        raise ConfigError(f"{place.of(named)}: {place.of(next(iter(given)))} evaluates an agent; keep one of them")
    _check(given, place)
    what = "agent" if "agent" in given else "mcp"
    layer: dict[KeyPath, Entry] = {_ENV_ID.path: Entry(_ENV_ID.path, AGENT_EVAL, Origin("eval", place.of(what)))}
    for name, value in given.items():
        path = (*_ARGS.path, name)
        kept = [value] if name == "eval_fns" and isinstance(value, str) else value
        layer[path] = Entry(path, kept, Origin("eval", place.of(name)))
    return layer


def _check(given: Mapping[str, object], place: Place) -> None:
    if "agent" in given and "mcp" in given:
        raise ConfigError(f"{place.of('mcp')}: agent and mcp are mutually exclusive")
    if "agent" not in given and "mcp" not in given:
        raise ConfigError(f'{place.of()}: evaluates no agent; add agent = "module:attribute" or mcp = "DIR"')
    if "dataset" not in given:
        raise ConfigError(f"{place.of('dataset')}: missing; an agent is evaluated over the rows of a dataset file")
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


def name_of(env_args: Mapping[str, object]) -> str:
    """What tables, folders and datasets call an agent evaluation: its agent and its rows, such as `Loop-rows`."""
    agent, folder = env_args.get("agent"), env_args.get("mcp")
    player = str(agent).rpartition(":")[2] if agent else Path(str(folder or ".")).resolve().name
    rows = Path(str(env_args.get("dataset") or "rows")).stem
    return re.sub(r"[^A-Za-z0-9._-]+", "_", f"{player}-{rows}").strip("._-")[:_LONGEST] or AGENT_EVAL
