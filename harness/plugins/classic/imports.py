"""Import system that makes `import verifiers` in classic packages import bench's implementation of the classic API,
even if `verifiers` is installed. `modules` implements the API; `packages` determines which of its two generations a
package gets. The modules of a classic package run with their own `__builtins__`, whose `__import__` returns that
generation, also in functions that run later, during rollouts. Packages of different generations can therefore run
together. While a package is loaded, the API is in `sys.modules` as well, for `importlib.import_module` and for
libraries; afterwards, the previous entry is restored."""

from __future__ import annotations

import builtins
import importlib
import importlib.abc
import importlib.metadata
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from harness.plugins.classic.context import current
from harness.plugins.classic.generation import VERSIONS, Generation
from harness.plugins.classic.modules import NAME, module_of, modules_of
from harness.plugins.classic.packages import Package

NO_V1 = (
    "verifiers.v1 is not supported, even if verifiers is installed: bench runs environments of the classic API, "
    "`import verifiers as vf` as in releases 0.1.8 to 0.3"
)

_roots: dict[str, Generation] = {}
"""Top-level modules that get the classic API on `import verifiers`, with the generation of each."""

_builtins: dict[Generation, dict[str, Any]] = {}
_aside: dict[Generation, dict[str, ModuleType]] = {"B": {}, "C": {}}
"""Modules that were imported separately for both generations of the classic API. `sys.modules` holds the copy for the
generation that was loaded last; this dict holds the other copy, for later imports by packages of that generation."""

_swapping = threading.RLock()


@contextmanager
def answering(package: Package) -> Generator[None]:
    """Return a context manager in which `import verifiers` imports the classic API, for loading environments."""
    _roots.update({**package.libraries, **dict.fromkeys(package.roots, package.generation)})
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    hidden = _hide_foreign(package.roots | package.libraries.keys())
    token = current.set(package.generation)
    try:
        with _swapped(package.generation):
            yield
    except BaseException:
        for name, module in hidden.items():
            sys.modules.setdefault(name, module)
        raise
    finally:
        current.reset(token)


def set_generation(spec: ModuleSpec, generation: Generation) -> None:
    """In a module loaded from a file path, make `import verifiers` import the given generation of the classic API."""
    _roots[spec.name.partition(".")[0]] = generation
    _prepare(spec, generation)


def _hide_foreign(roots: Iterable[str]) -> dict[str, ModuleType]:
    """Remove those modules of a package from `sys.modules` that were imported without this hook or for the other
    generation of the classic API, so that they are imported again. Restore modules that were imported for this
    generation earlier."""
    wanted = set(roots)
    foreign: dict[str, Generation | None] = {
        name.partition(".")[0]: _generation_of(module)
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] in wanted and _is_foreign(name, module)
    }
    hidden: dict[str, ModuleType] = {}
    for root, theirs in foreign.items():
        taken = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == root}
        hidden.update(taken)
        if theirs is not None:
            _aside[theirs].update(taken)
        mine = _aside[_roots[root]]
        sys.modules.update({name: mine.pop(name) for name in list(mine) if name.partition(".")[0] == root})
    return hidden


def _is_foreign(name: str, module: ModuleType) -> bool:
    """Return whether a module must be imported again: it was imported for the other generation of the classic API, or
    without this hook although its source contains `verifiers`."""
    theirs = _generation_of(module)
    if theirs is not None:
        return theirs != _roots[name.partition(".")[0]]
    file = getattr(module, "__file__", None)
    try:
        return bool(file) and NAME in Path(str(file)).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def _generation_of(module: ModuleType) -> Generation | None:
    """Return the generation of the API that a module was imported for; None if it was imported without this hook."""
    found = vars(module).get("__builtins__")
    return next((kind for kind, each in _builtins.items() if found is each), None)


# Imports


class _Import:
    """Replacement for `__import__` in classic packages: `import verifiers` imports the API generation that they
    need."""

    def __init__(self, generation: Generation) -> None:
        self.generation: Generation = generation
        self._importlib = _Importlib(self)

    def __call__(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        head = name.partition(".")[0]
        if level == 0 and head == NAME:
            found = self.module(name)
            _require(found, fromlist or ())
            return found if fromlist else self.module(NAME)
        if level == 0 and head == "importlib" and (name == head or not fromlist):
            builtins.__import__(name, globals, locals, (), level)
            return self._importlib
        if level == 0 and name in _aside[self.generation]:
            return _aside[self.generation][name if fromlist else head]
        if level == 0 and head not in sys.modules:
            # A library that is imported here for the first time may itself import `verifiers`.
            with _swapped(self.generation):
                return builtins.__import__(name, globals, locals, fromlist or (), level)
        return builtins.__import__(name, globals, locals, fromlist or (), level)

    def module(self, name: str) -> ModuleType:
        """Return the module of the classic API with this full name.

        Raises:
            ModuleNotFoundError: the API does not have the module.
        """
        module = module_of(self.generation, name)
        if module is not None:
            return module
        if name.startswith(f"{NAME}.v1"):
            raise ModuleNotFoundError(NO_V1, name=name)
        words = f"No module named {name!r} in the classic API of {VERSIONS[self.generation]}"
        raise ModuleNotFoundError(words, name=name)


class _Importlib(ModuleType):
    """The module `importlib` as classic packages see it: its `import_module` also finds the classic API."""

    def __init__(self, answer: _Import) -> None:
        super().__init__("importlib", importlib.__doc__)
        self._answer = answer

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib, name)

    def import_module(self, name: str, package: str | None = None) -> ModuleType:
        """Import a module by name, as `importlib.import_module` does; the name `verifiers` imports the classic API."""
        head = name.partition(".")[0]
        if head == NAME:
            return self._answer.module(name)
        if head and head not in sys.modules:
            with _swapped(self._answer.generation):
                return importlib.import_module(name, package)
        return importlib.import_module(name, package)


def _require(module: ModuleType, names: Sequence[str]) -> None:
    """Check that a module of the classic API has the given names; raise an ImportError that explains a missing one."""
    for name in names:
        try:
            getattr(module, "__all__" if name == "*" else name)
        except AttributeError as error:
            raise ImportError(str(error), name=module.__name__) from None


@contextmanager
def _swapped(generation: Generation) -> Generator[None]:
    """Context manager that puts the modules of the classic API into `sys.modules`, and restores the old ones on
    exit."""
    with _swapping:
        before = _taken_out()
        sys.modules.update(modules_of(generation))
        try:
            yield
        finally:
            _taken_out()
            sys.modules.update(before)


def _taken_out() -> dict[str, ModuleType]:
    """Remove `verifiers` and its submodules from `sys.modules`, and return them."""
    names = [name for name in sys.modules if name == NAME or name.startswith(f"{NAME}.")]
    return {name: sys.modules.pop(name) for name in names}


class _Finder(importlib.abc.MetaPathFinder):
    """Import finder for modules of classic packages: they run with an `__import__` that finds the classic API."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        generation = _roots.get(fullname.partition(".")[0])
        if generation is None:
            return None
        others = (finder.find_spec(fullname, path, target) for finder in sys.meta_path if finder is not self)
        spec = next((spec for spec in others if spec is not None), None)
        if spec is not None:
            _prepare(spec, generation)
        return spec

    def find_distributions(
        self, context: importlib.metadata.DistributionFinder.Context | None = None
    ) -> Iterator[importlib.metadata.Distribution]:
        """Let classic packages that query the installed version of `verifiers` find the version of their generation."""
        generation = current.get()
        if context is not None and context.name == NAME and generation is not None:
            yield _Distribution(VERSIONS[generation])


class _Distribution(importlib.metadata.Distribution):
    """Package metadata that reports a given version of `verifiers` as installed."""

    def __init__(self, version: str) -> None:
        self._version = version

    def read_text(self, filename: str) -> str | None:
        metadata = f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {self._version}\n"
        return metadata if filename in ("METADATA", "PKG-INFO") else None

    def locate_file(self, path: Any) -> Path:
        return Path(__file__).parent / str(path)


def _prepare(spec: ModuleSpec, generation: Generation) -> None:
    """Change a module's loader so that the module runs with an `__import__` that finds the classic API."""
    loader = spec.loader
    if not isinstance(loader, importlib.abc.SourceLoader) and not hasattr(loader, "get_source"):
        return  # extension modules import in other ways
    run = cast("Callable[[ModuleType], None]", loader.exec_module)  # type: ignore[union-attr]
    if generation not in _builtins:
        _builtins[generation] = {**vars(builtins), "__import__": _Import(generation)}

    def exec_module(module: ModuleType) -> None:
        vars(module)["__builtins__"] = _builtins[generation]
        run(module)

    try:
        setattr(loader, "exec_module", exec_module)  # noqa: B010  # each module has its own loader object
    except AttributeError:
        return
