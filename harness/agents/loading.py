"""Import of the user's own code by `module:attribute` from the working directory, with its error messages, and
separation of equally named modules of several directories. `mcp_folder` loads folders of MCP tools."""

from __future__ import annotations

import importlib
import inspect
import logging
import os
import sys
import threading
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import cast

from harness.agents.loop import AgentLike, RolloutAgentLoop
from harness.core.errors import AgentLoadError, HarnessError
from harness.settings.paths import local_modules
from harness.settings.wording import nearest, shown_path

logger = logging.getLogger(__name__)

_MEMBERS = ("get_tools", "run")

_THIS_PACKAGE = __name__.partition(".")[0]

_MISSING = object()


@dataclass(frozen=True, slots=True)
class LoadedAgent:
    """An agent ready for evaluation."""

    agent: AgentLike
    name: str
    files: tuple[Path, ...]
    """The source files of its code; they must be unchanged for a run to be resumed."""


def load_agent(path: str) -> LoadedAgent:
    """Load an agent.

    Args:
        path: `module:attribute`; the working directory is on the path. A class is instantiated without arguments.

    Raises:
        AgentLoadError: the path leads to nothing or to no agent, or import or instantiation failed.
    """
    module, _, name = path.rpartition(":")
    if not module or not name:
        raise AgentLoadError(
            f"Invalid module path {path!r}. Expected format: 'module.path:attribute_name' "
            "(e.g., 'my_agent:MyAgentLoop')"
        )
    found, files = import_object(path, AgentLoadError, "Available attributes")
    agent = _instance(name, found) if isinstance(found, type) else found
    _check_agent(name, agent)
    checked = cast(AgentLike, agent)
    return LoadedAgent(checked, checked.name, files)


def import_object(path: str, error: type[HarnessError], listing: str = "Available") -> tuple[object, tuple[Path, ...]]:
    """Import the object that `module:attribute` names. Modules are looked up in the working directory first.

    Within one process, equally named modules of different working directories are kept apart.

    Args:
        path: With at least one character on both sides of the last colon.
        error: The type of error to raise.
        listing: Introduces the list of the module's attributes in an error message.

    Returns:
        The object, and the source files of its code: those of its module, and of modules beside it that are imported
        directly or indirectly.

    Raises:
        HarnessError: of the type `error`: there is no such module, its import failed, or it lacks the attribute.
    """
    name, _, attribute = path.rpartition(":")
    root = Path.cwd()
    with _working.directory(root), staying(root):
        module = _import_module(name, attribute, root, error)
        try:
            found = cast(object, getattr(module, attribute, _MISSING))
        except KeyboardInterrupt:
            raise
        except BaseException as failed:  # boundary around a `__getattr__` of the user's module
            raise error(f"Cannot get {attribute!r} of module {name!r}: {describe(failed, root)}") from failed
        if found is _MISSING:
            public = [each for each in dir(module) if not each.startswith("_")]
            near = nearest(attribute, public)
            hint = f"Did you mean {near!r}? " if near else ""
            raise error(f"Module {name!r} has no attribute {attribute!r}. {hint}{listing}: {public}")
        return found, _source_files(name.partition(".")[0], root)


@contextmanager
def staying(root: Path) -> Generator[None]:
    """Restore the working directory if the user's code changes it, since a command's other paths are relative to it."""
    try:
        yield
    finally:
        try:
            left = os.getcwd() != str(root)
        except OSError:  # the directory has been removed
            left = True
        if left:
            os.chdir(root)
            logger.warning("the user's code changed the working directory as it was loaded; it is %s again", root)


def describe(error: BaseException, root: Path) -> str:
    """Describe an exception of the user's code, with file and line.

    Args:
        error: The exception.
        root: The folder of the user's files.
    """
    if isinstance(error, SyntaxError):
        words, file, line = f"{type(error).__name__}: {error.msg}", error.filename, error.lineno
    else:
        said = str(error)
        named = f"{type(error).__name__}: {said}" if said else type(error).__name__
        words = said if isinstance(error, ImportError) and said else named
        file, line = _place(error, root)
    return words if file is None else f"{words} ({shown_path(Path(file), root)}, line {line})"


def _place(error: BaseException, root: Path) -> tuple[str | None, int | None]:
    """File and line of the innermost frame in the user's own code; (None, None) if there is no such frame."""
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        file = Path(frame.f_code.co_filename)
        if file.is_relative_to(root) and _is_own(file.relative_to(root)):
            return str(file), line
    return None, None


def _is_own(file: Path) -> bool:
    """Whether a file below the user's folder may be the user's own, rather than a library's or this package's."""
    return file.suffix == ".py" and "site-packages" not in file.parts and file.parts[0] != _THIS_PACKAGE


def _import_module(name: str, attribute: str, root: Path, error: type[HarnessError]) -> ModuleType:
    start = f"Cannot import module {name!r}"
    if name.endswith(".py") or "/" in name or name.startswith("."):
        dotted = name.removesuffix(".py").strip("./").replace("/", ".")
        raise error(f"{start}: it must be a module's name and not a path; write {f'{dotted}:{attribute}'!r}")
    try:
        module = importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except ModuleNotFoundError as failed:
        missing = failed.name or ""
        if not f"{name}.".startswith(f"{missing}."):
            raise error(f"{start}: {describe(failed, root)}") from failed
        near = nearest(name.partition(".")[0], _modules_in(root)) if missing == name.partition(".")[0] else None
        hint = f"; did you mean {near!r}?" if near else ""
        raise error(f"{start}: {failed} (looked in {root} and where packages are installed){hint}") from failed
    except BaseException as failed:  # boundary around the user's module
        raise error(f"{start}: {describe(failed, root)}") from failed
    _refuse_namesake(name.partition(".")[0], root, f"{start}: ", error)
    return module


def _refuse_namesake(top: str, root: Path, start: str, error: type[HarnessError]) -> None:
    """Refuse a module that hides one of the same name in the working directory."""
    own = next((path for path in (root / f"{top}.py", root / top / "__init__.py") if path.is_file()), None)
    other = getattr(sys.modules.get(top), "__file__", None) or "one that is built in"
    if own is not None and top != _THIS_PACKAGE and not _is_from(sys.modules.get(top), root, top):
        raise error(f"{start}{shown_path(own, root)} is hidden by another module of that name ({other}); rename it")


def _modules_in(root: Path) -> list[str]:
    files = [file.stem for file in sorted(root.glob("*.py"))]
    return files + [file.parent.name for file in sorted(root.glob("*/__init__.py"))]


def _source_files(top: str, root: Path) -> tuple[Path, ...]:
    """The source files of a loaded module, found by the name of its top-level package."""
    module = sys.modules.get(top)
    if not _is_from(module, root, top):
        file = getattr(module, "__file__", None)
        if file is None:
            return ()
        return tuple(sorted(Path(file).parent.rglob("*.py"))) if hasattr(module, "__path__") else (Path(file),)
    whole = sorted((root / top).rglob("*.py")) if hasattr(module, "__path__") else [root / f"{top}.py"]
    found: set[Path] = set()
    for file in whole:
        if file not in found:
            found.update(local_modules(file, root))
    return tuple(sorted(found))


def _is_from(module: ModuleType | None, root: Path, top: str) -> bool:
    """Whether a loaded module is `root/top.py` or the package `root/top`."""
    places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
    own = (root / f"{top}.py", root / top)
    return any(place is not None and any(Path(place).is_relative_to(each) for each in own) for place in places)


class _WorkingDirectories:
    """The working directory whose modules are loaded under their plain names. Modules of other directories are set
    aside and restored when code of their directory is requested again."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._root: Path | None = None
        self._is_on_path = False
        self._known: frozenset[str] = frozenset()
        self._waiting: dict[Path, dict[str, ModuleType]] = {}

    @contextmanager
    def directory(self, root: Path) -> Generator[None]:
        """Make imports find the modules in `root` from now on."""
        with self._lock:
            if root != self._root:
                self._leave()
                self._root, self._known = root, frozenset(sys.modules)
                sys.modules.update(self._waiting.pop(root, {}))
            if sys.path[:1] != [str(root)]:
                sys.path.insert(0, str(root))
                self._is_on_path = True
            importlib.invalidate_caches()
            yield

    def _leave(self) -> None:
        root = self._root
        if root is None:
            return
        if self._is_on_path and str(root) in sys.path:
            sys.path.remove(str(root))
        self._is_on_path = False
        tops = {name for name in sys.modules if "." not in name and name not in self._known and name != _THIS_PACKAGE}
        own = {top for top in tops if _is_from(sys.modules[top], root, top)}
        names = [name for name in sys.modules if name.partition(".")[0] in own]
        self._waiting[root] = {name: sys.modules.pop(name) for name in names}


_working = _WorkingDirectories()


def _instance(name: str, found: type) -> object:
    missing = [member for member in _MEMBERS if not callable(getattr(found, member, None))]
    if missing and not issubclass(found, RolloutAgentLoop):
        raise AgentLoadError(
            f"{name!r} is a class but not a RolloutAgentLoop subclass, nor has it what an agent needs: "
            f"it lacks {' and '.join(missing)}"
        )
    try:
        with staying(Path.cwd()):
            return cast(object, found())
    except KeyboardInterrupt:
        raise
    except BaseException as failed:  # boundary around the user's constructor
        raise AgentLoadError(f"Cannot instantiate {name!r}: {describe(failed, Path.cwd())}") from failed


def _check_agent(name: str, agent: object) -> None:
    missing = [member for member in _MEMBERS if not callable(getattr(agent, member, None))]
    if missing:
        raise AgentLoadError(
            f"{name!r} must be a RolloutAgentLoop instance or subclass, got {type(agent).__name__} "
            f"(it lacks {' and '.join(missing)})"
        )
    try:
        called: object = getattr(agent, "name", None)
    except Exception as failed:  # a property of the user's code
        raise AgentLoadError(f"{name!r} has no name: {describe(failed, Path.cwd())}") from failed
    if not isinstance(called, str) or not called.strip():
        raise AgentLoadError(f"{name!r} has no name: an agent needs a 'name' attribute that is a text, not {called!r}")
    if inspect.iscoroutinefunction(getattr(agent, "get_tools", None)):
        raise AgentLoadError(f"{name!r}: get_tools must be a plain def, not async")
    if inspect.isasyncgenfunction(getattr(agent, "run", None)):
        raise AgentLoadError(f"{name!r}: run must return one result; it yields")
