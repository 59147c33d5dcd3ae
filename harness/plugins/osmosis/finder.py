"""How `import osmosis_ai…` gets to the names. Owns the finder on `sys.meta_path` and the modules that it makes; which
names there are is `names`.

The finder is the last one asked, so an installed SDK answers for itself, and agents made of its classes are run like
any other: by what they do. But the releases after 0.2.17 have no agent API any more, and installing the SDK brings one
of these: a command that runs files of the old API asks to be answered before such a release (`over_newer`)."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from harness.plugins.osmosis.names import MODULES, NAME, why_missing

_AGENT_API = Path("rollout", "core", "base.py")
"""A file that every release with the agent API has, and none without."""

_installing = threading.Lock()


def install(*, over_newer: bool = False) -> None:
    """Answer imports of the SDK from now on. Calling it again changes nothing.

    Args:
        over_newer: Also where a release is installed that has no agent API. Such a release then cannot be imported in
            this process: for commands, not for a library that other code imports.
    """
    with _installing:
        if not any(isinstance(finder, _Last) for finder in sys.meta_path):
            sys.meta_path.append(_Last())
        if over_newer and not any(isinstance(finder, _First) for finder in sys.meta_path):
            sys.meta_path.insert(0, _First())


def answers() -> bool:
    """Whether an import of the SDK leads to us, as things are."""
    if NAME in sys.modules:
        return _is_ours(sys.modules[NAME])
    for finder in list(sys.meta_path):
        spec = finder.find_spec(NAME, None, None)
        if spec is not None:
            return isinstance(spec.loader, _Loader)
    return False


class _Last(MetaPathFinder):
    """Asked when nobody else knows the SDK; and for everything below it, once it is ours."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == NAME:
            return _spec(NAME)
        root, _, _ = fullname.partition(".")
        if root != NAME or not _is_ours(sys.modules.get(NAME)):
            return None
        if fullname in MODULES:
            return _spec(fullname)
        module, _, name = fullname.rpartition(".")
        if module in MODULES and not name.startswith("__"):
            # `from osmosis_ai.rollout import X` gets here when the module has no X, and hasattr() does not.
            raise ImportError(why_missing(module, name), name=fullname)
        return None


class _First(MetaPathFinder):
    """Asked before anybody else, for the SDK itself: ours, if the one installed has no agent API."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != NAME:
            return None
        others = [finder for finder in list(sys.meta_path) if not isinstance(finder, _First | _Last)]
        found = (finder.find_spec(fullname, path, target) for finder in others)
        installed = next((spec for spec in found if spec is not None), None)
        return None if installed is None or _has_agent_api(installed) else _spec(NAME)


def _has_agent_api(spec: ModuleSpec) -> bool:
    return any((Path(folder) / _AGENT_API).is_file() for folder in spec.submodule_search_locations or ())


def _is_ours(module: ModuleType | None) -> bool:
    spec = getattr(module, "__spec__", None)
    return isinstance(getattr(spec, "loader", None), _Loader)


def _spec(name: str) -> ModuleSpec:
    # Every module passes for a package: so an import of a name that it lacks reaches the finder, which says why.
    return ModuleSpec(name, _Loader(), is_package=True)


class _Loader(Loader):
    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        module.__doc__ = f"{name}, as bench answers for it: see docs/guides/osmosis.md."
        public = sorted(each for each in MODULES[name] if not each.startswith("__"))
        vars(module).update(
            __all__=public, __getattr__=_Resolver(module), __dir__=lambda: sorted({*vars(module), *public})
        )


class _Resolver:
    """The `__getattr__` of one of the modules: looks a name up when it is asked for first, and leaves it there."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __call__(self, name: str) -> object:
        own = self._module.__name__
        target = MODULES[own].get(name)
        if target is not None:
            path, _, attribute = target.partition(":")
            value: object = getattr(importlib.import_module(path), attribute)
        elif f"{own}.{name}" in MODULES:
            value = importlib.import_module(f"{own}.{name}")
        elif name.startswith("__"):
            raise AttributeError(f"module {own!r} has no attribute {name!r}")
        else:
            raise AttributeError(why_missing(own, name), name=name, obj=self._module)
        setattr(self._module, name, value)
        return value
