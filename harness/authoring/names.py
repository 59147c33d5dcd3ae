"""The names of a new environment: what it may be called, and what its package, module and class are called then. Owns
the refusals; makes no file."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import keyword
import re
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError

from harness.errors import ConfigError

LONGEST = 50
"""Characters of a name: it becomes a folder, a column of tables and a part of repository names."""

_SHAPE = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")

_TAKEN = {
    "bench": "it is this program's own command",
    "environments": "it is the folder that environments are kept in",
    "harness": "it is the module that environments import",
    "src": "it is a folder of projects",
    "tests": "it is the folder of an environment's tests",
    "verifiers": "it is the module that classic environments import",
}
"""Names that would hide something."""


@dataclass(frozen=True, slots=True)
class Names:
    """What one environment is called in each place."""

    name: str
    """`bench run NAME`, and the distribution."""

    @property
    def module(self) -> str:
        """What Python imports; also the project's folder."""
        return self.name.replace("-", "_")

    @property
    def class_name(self) -> str:
        """The environment's class."""
        return "".join(part[:1].upper() + part[1:] for part in self.name.split("-")) + "Env"


def read_name(text: str) -> Names:
    """The names of an environment that is to be called `text`; an organisation in front is dropped.

    Raises:
        ConfigError: it is no name, or one that something else has.
    """
    name = text.strip().rstrip("/").rsplit("/", 1)[-1]
    plain = name.replace("_", "-")
    if not _SHAPE.fullmatch(plain):
        raise ConfigError(
            f"{text!r} is no name for an environment: use lower-case letters, digits and dashes, and begin with a "
            f"letter{_instead(name)}"
        )
    if len(plain) > LONGEST:
        raise ConfigError(f"{text!r} is too long for a name: {len(plain)} characters, and {LONGEST} are allowed")
    names = Names(plain)
    reason = _clash(names)
    if reason:
        raise ConfigError(f"an environment cannot be called {plain!r}: {reason}; choose another name")
    return names


def _instead(name: str) -> str:
    """The nearest name that would do, as the rest of a sentence."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name)
    near = re.sub(r"[^a-z0-9]+", "-", spaced.lower()).strip("-").lstrip("0123456789-")
    return f"; perhaps {near[:LONGEST]!r}?" if near and _SHAPE.fullmatch(near[:LONGEST].strip("-")) else ""


def _clash(names: Names) -> str:
    """Who has the name already, as a clause; "" if nobody."""
    module = names.module
    if module in _TAKEN:
        return _TAKEN[module]
    if keyword.iskeyword(module) or keyword.issoftkeyword(module):
        return f"{module} is a word of Python"
    if module in sys.stdlib_module_names:
        return f"{module} is a module of Python"
    try:
        version = importlib.metadata.version(names.name)
    except PackageNotFoundError:
        pass
    else:
        return f"{names.name} {version} is installed here"
    spec = importlib.util.find_spec(module)
    if spec is not None and spec.origin is not None:
        return f"there is a module {module} already ({spec.origin})"
    return ""
