"""Import handling of `import verifiers` for packages written for its classic API. `modules` provides the API;
`packages` determines the generation that a package gets. The modules of a classic package run with their own
`__builtins__`, whose `__import__` resolves the name for them alone, at any time, also inside functions during rollouts;
packages of different generations can run together. While a package is loaded, the name is in `sys.modules` as well, for
`importlib.import_module` and for libraries; the previous entry is restored afterwards. An installed `verifiers` makes
no difference: classic packages always get this API."""

from __future__ import annotations

import builtins
import importlib
import importlib.abc
import importlib.metadata
import importlib.util
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from email.message import Message as Metadata
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from harness.envs.environment import Environment
from harness.plugins.classic.context import current
from harness.plugins.classic.generation import VERSIONS, Generation
from harness.plugins.classic.packages import Package, read_package
from harness.settings.packages import FoundEnvironment

NAME = "verifiers"

NO_V1 = (
    "verifiers.v1 is not supported, whether verifiers is installed or not: bench runs environments of the classic API, "
    "`import verifiers as vf` as in releases 0.1.8 to 0.3"
)

_roots: dict[str, Generation] = {}
"""Top-level modules that run as classic ones."""

_builtins: dict[Generation, dict[str, Any]] = {}
_aside: dict[Generation, dict[str, ModuleType]] = {"B": {}, "C": {}}
"""Modules used by packages of both generations: those of the generation that was not loaded last. Packages of that
generation still find them in late imports."""

_swapping = threading.RLock()


@contextmanager
def answering(found: FoundEnvironment) -> Generator[Generation | None]:
    """Answer the classic imports of an environment while its module is imported and its environment is built.

    Args:
        found: The environment.

    Yields:
        The generation for its package; None for a package that does not use the API.
    """
    package = read_package(found)
    if package is None:
        yield None
        return
    _claim(package)
    hidden = _hide_foreign(package.roots | package.libraries.keys())
    token = current.set(package.generation)
    try:
        with _swapped(package.generation):
            yield package.generation
    except BaseException:
        for name, module in hidden.items():
            sys.modules.setdefault(name, module)
        raise
    finally:
        current.reset(token)


def may_ask(source: Path) -> bool:
    """Whether an environment might use the classic API: its source contains `verifiers`, or never `harness`.

    Args:
        source: The package's `__init__.py`, or the single file.
    """
    files = sorted(source.parent.rglob("*.py")) if source.name == "__init__.py" else [source]
    texts = [path.read_bytes() for path in files if path.is_file()]
    return any(NAME.encode() in text for text in texts) or not any(b"harness" in text for text in texts)


def settle(environment: Environment) -> None:
    """Validate the parts of a classic environment that can be checked only after it is built.

    Raises:
        EnvironmentFault: a reward function has a parameter that cannot be supplied.
    """
    check = getattr(environment, "settle", None)
    if callable(check) and _is_classic(environment):
        check()


def _is_classic(environment: Environment) -> bool:
    return any(base.__module__.startswith("harness.plugins.classic") for base in type(environment).__mro__)


def adopt(spec: ModuleSpec, generation: Generation) -> None:
    """Run the module of `spec` as a classic one; for modules that are imported by their path."""
    _roots[spec.name.partition(".")[0]] = generation
    _prepare(spec, generation)


def _claim(package: Package) -> None:
    _roots.update(package.libraries)
    _roots.update({name: package.generation for name in package.roots})
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _hide_foreign(roots: Iterable[str]) -> dict[str, ModuleType]:
    """Remove modules of the package from `sys.modules` that were imported without this hook or for the other
    generation. Those that this generation had before are restored; the others are imported again."""
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
    theirs = _generation_of(module)
    return _asks(module) if theirs is None else theirs != _roots[name.partition(".")[0]]


def _generation_of(module: ModuleType) -> Generation | None:
    """The generation that a module was imported for; None for one imported without this hook."""
    found = vars(module).get("__builtins__")
    for kind, each in _builtins.items():
        if found is each:
            return kind
    return None


def _asks(module: ModuleType) -> bool:
    """Whether a module has a global from `verifiers`; namespace packages and plain helpers have none."""
    file = getattr(module, "__file__", None)
    try:
        return bool(file) and NAME in Path(str(file)).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


# Imports


def _builtins_of(generation: Generation) -> dict[str, Any]:
    if generation not in _builtins:
        _builtins[generation] = {**vars(builtins), "__import__": _Import(generation)}
    return _builtins[generation]


class _Import:
    """`__import__` of classic modules."""

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
            found = _module(self.generation, name)
            if fromlist:
                _require(found, fromlist, self.generation)
            return found if fromlist else _module(self.generation, NAME)
        if level == 0 and head == "importlib" and (name == head or not fromlist):
            builtins.__import__(name, globals, locals, (), level)
            return self._importlib
        if level == 0 and name in _aside[self.generation]:
            return _aside[self.generation][name if fromlist else head]
        if level == 0 and head not in sys.modules:
            # A library that is imported late may import the API itself.
            with _swapped(self.generation):
                return builtins.__import__(name, globals, locals, fromlist or (), level)
        return builtins.__import__(name, globals, locals, fromlist or (), level)


class _Importlib(ModuleType):
    """`importlib` of classic modules: its `import_module` resolves the API, too."""

    def __init__(self, answer: _Import) -> None:
        super().__init__("importlib", importlib.__doc__)
        self._answer = answer

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib, name)

    def import_module(self, name: str, package: str | None = None) -> ModuleType:
        """As `importlib.import_module`."""
        head = name.partition(".")[0]
        if head == NAME:
            return _module(self._answer.generation, name)
        if head and head not in sys.modules:
            with _swapped(self._answer.generation):
                return importlib.import_module(name, package)
        return importlib.import_module(name, package)


def _module(generation: Generation, name: str) -> ModuleType:
    from harness.plugins.classic.modules import module_of

    module = module_of(generation, name)
    if module is None and name.partition(".")[2].partition(".")[0] == "v1":
        raise ModuleNotFoundError(NO_V1, name=name)
    if module is None:
        raise ModuleNotFoundError(f"No module named {name!r} in the classic API of {VERSIONS[generation]}", name=name)
    return module


def _require(module: ModuleType, names: Sequence[str], generation: Generation) -> None:
    """Raise an ImportError with the API's own message if a module lacks a name."""
    from harness.plugins.classic.modules import module_of

    for name in names:
        if name != "*" and module_of(generation, f"{module.__name__}.{name}") is None:
            try:
                getattr(module, name)
            except AttributeError as error:
                raise ImportError(str(error), name=module.__name__) from None


@contextmanager
def _swapped(generation: Generation) -> Generator[None]:
    """Put `verifiers` into `sys.modules`, and restore the previous entries afterwards."""
    with _swapping:
        before = {name: module for name, module in list(sys.modules.items()) if _is_named(name)}
        for name in before:
            del sys.modules[name]
        sys.modules[NAME] = _module(generation, NAME)
        try:
            yield
        finally:
            for name in [name for name in sys.modules if _is_named(name)]:
                del sys.modules[name]
            sys.modules.update(before)


def _is_named(name: str) -> bool:
    return name == NAME or name.startswith(f"{NAME}.")


class _Finder(importlib.abc.MetaPathFinder):
    """Finder that runs modules of classic packages with our builtins, and finds submodules of `verifiers` while that
    name is ours."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        root = fullname.partition(".")[0]
        if root == NAME:
            return self._answer(fullname)
        generation = _roots.get(root)
        if generation is None:
            return None
        for finder in sys.meta_path:
            if finder is self:
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                _prepare(spec, generation)
                return spec
        return None

    def _answer(self, fullname: str) -> ModuleSpec | None:
        top = sys.modules.get(NAME)
        generation = current.get()
        if generation is None or top is None or top is not _module(generation, NAME) or fullname == NAME:
            return None
        return importlib.util.spec_from_loader(fullname, _Loader(_module(generation, fullname)))

    def find_distributions(
        self, context: importlib.metadata.DistributionFinder.Context | None = None
    ) -> Iterator[importlib.metadata.Distribution]:
        """Report the generation's version to classic packages that ask for the version of `verifiers`."""
        generation = current.get()
        if context is not None and context.name == NAME and generation is not None:
            yield _Distribution(generation)


class _Loader(importlib.abc.Loader):
    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._spec = module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the module exists already; importing it changes nothing


class _Distribution(importlib.metadata.Distribution):
    def __init__(self, generation: Generation) -> None:
        self._generation: Generation = generation

    def read_text(self, filename: str) -> str | None:
        if filename in ("METADATA", "PKG-INFO"):
            fields = Metadata()
            fields["Metadata-Version"], fields["Name"] = "2.1", NAME
            fields["Version"] = VERSIONS[self._generation]
            return str(fields)
        return None

    def locate_file(self, path: Any) -> Path:
        return Path(__file__).parent / str(path)


def _prepare(spec: ModuleSpec, generation: Generation) -> None:
    """Give a module our `__import__` before it runs."""
    loader = spec.loader
    if not isinstance(loader, importlib.abc.SourceLoader) and not hasattr(loader, "get_source"):
        return  # extension modules import in other ways
    run = cast("Callable[[ModuleType], None]", loader.exec_module)  # type: ignore[union-attr]

    def exec_module(module: ModuleType) -> None:
        vars(module)["__builtins__"] = _builtins_of(generation)
        run(module)

    try:
        setattr(loader, "exec_module", exec_module)  # noqa: B010  # of this module alone: loaders are made one a module
    except AttributeError:
        return
