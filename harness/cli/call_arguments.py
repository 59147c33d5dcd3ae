"""Arguments of `evaluate()` as Python programs pass them: environments by name or as objects, and values of numpy."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, cast

from harness.core.errors import UsageError
from harness.envs.environment import Environment

_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def read_environments(environments: object) -> tuple[list[str], dict[str, Environment]]:
    """Return the names of the requested environments, in order, and the objects among them by name.

    Args:
        environments: A name, a path or an `Environment`, or a sequence of these.

    Raises:
        UsageError: it is something else, or empty, or two objects have the same name.
    """
    several = [environments] if isinstance(environments, str | Path | Environment) else environments
    if not isinstance(several, Sequence) or isinstance(several, bytes | bytearray):
        raise UsageError(f"environments: must be names, paths or environments, not {described(environments)}")
    names: list[str] = []
    objects: dict[str, Environment] = {}
    for index, each in enumerate(cast("Sequence[object]", several)):
        if isinstance(each, Environment):
            name = name_of(each)
            if name in objects:
                raise UsageError(f"two environments are called {name!r}; give one of them a different env_id")
            if "," in name or name.endswith(".toml"):
                raise UsageError(f"env_id {name!r}: must not contain a comma or end in .toml")
            objects[name] = each
        elif isinstance(each, str | Path):
            name = str(each)
        else:
            where = f"environments[{index}]"
            raise UsageError(f"{where}: must be a name, a path or an environment, not {described(each)}")
        names.append(name)
    if not names:
        raise UsageError("environments: is empty; give at least one name, path or environment")
    return names, objects


def name_of(environment: Environment) -> str:
    """Return the name of an environment object: its `env_id`, else one from its class (`my-task` for `MyTask`)."""
    return environment.env_id or dashed(type(environment).__name__)


def dashed(name: str) -> str:
    """Convert the name of a class to lower case with dashes: `my-task` for `MyTask`."""
    return _WORD.sub("-", name).lower()


def described(value: object) -> str:
    """Describe an argument of a wrong type for a message."""
    if isinstance(value, type):
        return f"the class {value.__name__}; call it: {value.__name__}(…)"
    name: object = getattr(value, "__name__", None)
    if callable(value) and isinstance(name, str):
        return f"the function {name}; call it: {name}(…)"
    return type(value).__name__


def plain(value: object) -> object:
    """Convert numbers and arrays of numpy and paths, also inside lists and dicts, to values that a suite file can have.
    Other values are returned unchanged."""
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in cast("Mapping[object, object]", value).items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in cast("Sequence[object]", value)]
    if isinstance(value, PurePath):
        return str(value)
    is_numpy = type(value).__module__ == "numpy" and hasattr(value, "tolist")
    return cast("Any", value).tolist() if is_numpy else value
