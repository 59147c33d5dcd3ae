"""Environments inside a hosted group: which there are, and which of them a row is for. Owns the package's two ways of
marking rows: by the `task` column, later by `info["env_id"]`, from which each level of groups takes its own part."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

from harness.compat.hosted.dialect import is_theirs
from harness.types import JsonDict

ROUTE = "env_id"
"""The key of `info` that says which environment of a group a row is for."""


def members(env: Any) -> Iterator[Any]:
    """An environment and, of a group, those inside it."""
    yield env
    for member in _inside(env):
        yield from members(member)


def routed(env: Any, row: JsonDict) -> tuple[Any, JsonDict]:
    """The environment that plays a row, and the row as that environment gets it.

    Args:
        env: A hosted environment, which may be a group, of groups even.
        row: A row of its dataset.
    """
    while _inside(env):
        if hasattr(env, "_route_child_input"):
            name, row, _ = env._route_child_input(row)
            env = env.get_env_for_name(name)
        else:
            env = env.get_env_for_task(row["task"])
    return env, row


def strip_route(theirs: Any, row: JsonDict) -> None:
    """Let a state's `info` be what the environment of `row` knows: a group has put its mark back after the rollout."""
    info, own = theirs.get("info"), _info(row)
    if isinstance(info, dict) and ROUTE in info:
        kept = {name: value for name, value in cast(JsonDict, info).items() if name != ROUTE}
        theirs["info"] = {**kept, ROUTE: own[ROUTE]} if ROUTE in own else kept


def _info(row: JsonDict) -> JsonDict:
    info: object = row.get("info")
    if isinstance(info, str):
        info = cast(object, json.loads(info))
    return cast(JsonDict, info) if isinstance(info, dict) else {}


def _inside(env: Any) -> list[Any]:
    inside: object = getattr(env, "envs", None)
    if not isinstance(inside, list) or not hasattr(env, "env_map"):
        return []
    return [member for member in cast("list[Any]", inside) if any(is_theirs(kind) for kind in type(member).__mro__)]
