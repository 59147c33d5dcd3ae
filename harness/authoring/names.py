"""Names of a new environment: validation, and the package, module and class names derived from it."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import keyword
import re
import shlex
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError

from harness.core.errors import ConfigError

LONGEST = 50
"""Maximum length: the name is also a folder, a table column and a part of repository names."""

_SHAPE = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")

_TAKEN = {
    "agent_eval": "it is the built-in environment for agents",
    "multi_eval": "it is the built-in environment for lists of tasks",
    "bench": "it is this program's own command",
    "environments": "it is the default folder of environments",
    "harness": "it is the module that environments import",
    "src": "it is a common name of source folders",
    "tests": "it is the folder of an environment's tests",
    "verifiers": "it is the module that classic environments import",
}
"""Reserved names, with the reason."""


_BASES = ("MultiTurnEnv", "SingleTurnEnv", "ToolEnv")
"""Base classes; the class of a new environment must not have one of these names."""

_GIVEN = re.compile(r"(?:(?P<organisation>\w[\w.-]*)/)?(?P<name>[^/]*)")


@dataclass(frozen=True, slots=True)
class Names:
    """Names of one environment in different places."""

    name: str
    """Name of the distribution, and of the environment in `bench run NAME`."""

    @property
    def module(self) -> str:
        """Name of the Python module and of the project's folder."""
        return self.name.replace("-", "_")

    @property
    def class_name(self) -> str:
        """Name of the environment's class."""
        words = "".join(part[:1].upper() + part[1:] for part in self.name.split("-"))
        is_complete = self.name.endswith("-env") and words not in _BASES
        return words if is_complete else words + "Env"


def read_name(text: str) -> Names:
    """Validate the name of a new environment. An organisation in front (`org/my-env`) is dropped.

    Raises:
        ConfigError: the text is a path, is not a valid name, or is in use.
    """
    given = _GIVEN.fullmatch(text.strip())
    if given is None or (given["organisation"] and not given["name"]):
        raise _is_a_path(text.strip())
    name = given["name"]
    plain = name.replace("_", "-")
    if not _SHAPE.fullmatch(plain):
        spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name)
        near = re.sub(r"[^a-z0-9]+", "-", spaced.lower()).strip("-").lstrip("0123456789-")[:LONGEST]
        hint = f"; perhaps {near!r}?" if _SHAPE.fullmatch(near.strip("-")) else ""
        raise ConfigError(
            f"{text!r} is not a valid environment name: use lower-case letters, digits and dashes, and begin with a "
            f"letter{hint}"
        )
    if len(plain) > LONGEST:
        raise ConfigError(
            f"{text!r} is too long for a name: {len(plain)} characters, but at most {LONGEST} are allowed"
        )
    names = Names(plain)
    reason = _clash(names)
    if reason:
        raise ConfigError(f"an environment cannot be called {plain!r}: {reason}; choose another name")
    return names


def _is_a_path(text: str) -> ConfigError:
    """Error for a path given as a name: `./sub/thing`, `/srv/thing`, `../up`, `org/`."""
    folder, _, name = text.rstrip("/").rpartition("/")
    if not folder and not text.startswith("/"):
        return ConfigError(f"{text!r} is a folder, or an organisation without a name: add a name, as in {name}/my-env")
    name = name if _SHAPE.fullmatch(name.replace("_", "-")) else "NAME"
    return ConfigError(
        f"{text!r} is a path, not a name",
        remedy="name the folder as the path, as in: {init_command} {name} {init_path} {folder}",
        name=name,
        folder=shlex.quote(folder or "/"),
    )


def _clash(names: Names) -> str:
    """Existing use of the name, as a clause; "" if the name is free."""
    module = names.module
    if module in _TAKEN:
        return _TAKEN[module]
    if keyword.iskeyword(module) or keyword.issoftkeyword(module):
        return f"{module} is a Python keyword"
    if module in sys.stdlib_module_names:
        return f"{module} is a module of the Python standard library"
    with contextlib.suppress(PackageNotFoundError):
        return f"{names.name} {importlib.metadata.version(names.name)} is already installed"
    spec = importlib.util.find_spec(module)
    if spec is not None and spec.origin is not None:
        return f"a module {module} already exists ({spec.origin})"
    return ""
