"""Import finder for the modules of `osmosis_ai` that are listed in `names`. It is the last one on `sys.meta_path`, so
that an installed SDK takes precedence; agents that use its classes run like any others. But releases after 0.2.17 have
no agent API, and pip installs one of these by default. Commands that run files written for the old API therefore
replace such a release (`over_newer`)."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Sequence
from functools import partial
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from harness.plugins.osmosis.names import MODULES, NAME, why_missing

_AGENT_API = Path("rollout", "core", "base.py")
"""A file that exists only in releases of osmosis_ai with the agent API."""

_installing = threading.Lock()


def install(*, over_newer: bool = False) -> None:
    """Make `import osmosis_ai` load bench's implementation from now on. Further calls have no effect.

    Args:
        over_newer: Whether to replace an installed release without the agent API. That release then cannot be imported
            in this process, so use this only in commands, not in a library that other code imports.
    """
    with _installing:
        if not any(isinstance(finder, _Last) for finder in sys.meta_path):
            sys.meta_path.append(_Last())
        if over_newer and not any(isinstance(finder, _First) for finder in sys.meta_path):
            sys.meta_path.insert(0, _First())


def answers() -> bool:
    """Return whether an import of the SDK currently resolves to this shim."""
    if NAME in sys.modules:
        return _is_ours(sys.modules[NAME])
    for finder in list(sys.meta_path):
        spec = finder.find_spec(NAME, None, None)
        if spec is not None:
            return isinstance(spec.loader, _Loader)
    return False


class _Last(MetaPathFinder):
    """Import finder for `osmosis_ai`, if no other finder has found that package, and for its submodules."""

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
            # Reached by `from osmosis_ai.rollout import X` if the module has no X; hasattr() does not get here.
            raise ImportError(why_missing(module, name), name=fullname)
        return None


class _First(MetaPathFinder):
    """Import finder that is asked before all others: replaces an installed `osmosis_ai` that has no agent API."""

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
    # The spec of a module. Every module is a package, so that an import of a missing name reaches the finder, which
    # explains it.
    return ModuleSpec(name, _Loader(), is_package=True)


class _Loader(Loader):
    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        module.__doc__ = f"{name}, implemented by bench: see docs/guides/osmosis.md."
        public = sorted(each for each in MODULES[name] if not each.startswith("__"))
        vars(module).update(
            __all__=public,
            __getattr__=partial(_resolve, module),
            __dir__=lambda: sorted({*vars(module), *public}),
        )


def _resolve(module: ModuleType, name: str) -> object:
    """Resolve a name of a module on first use, and cache it in the module."""
    own = module.__name__
    target = MODULES[own].get(name)
    if target is not None:
        path, _, attribute = target.partition(":")
        value: object = getattr(importlib.import_module(path), attribute)
    elif f"{own}.{name}" in MODULES:
        value = importlib.import_module(f"{own}.{name}")
    elif name.startswith("__"):
        raise AttributeError(f"module {own!r} has no attribute {name!r}")
    else:
        raise AttributeError(why_missing(own, name), name=name, obj=module)
    setattr(module, name, value)
    return value
