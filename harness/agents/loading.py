"""Import of user code given as `module:attribute`. Modules are looked up in the working directory first; modules of the
same name in different working directories do not conflict. `mcp_folder` loads folders of MCP tools."""

from __future__ import annotations

import importlib
import inspect
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from harness.agents.loop import AgentLike, RolloutAgentLoop
from harness.core.errors import AgentLoadError, EvalFnError, HarnessError
from harness.settings.paths import local_modules
from harness.settings.wording import nearest, shown_path

logger = logging.getLogger(__name__)

_THIS_PACKAGE = __name__.partition(".")[0]

_MISSING = object()


@dataclass(frozen=True, slots=True)
class LoadedAgent:
    """An agent ready for evaluation, with its source files."""

    agent: AgentLike
    name: str
    files: tuple[Path, ...]
    """The source files of the agent's code. A run can be resumed only if these files are unchanged."""


def load_agent(path: str) -> LoadedAgent:
    """Load an agent given as `module:attribute`.

    Args:
        path: The agent as `module:attribute`. Modules are looked up in the working directory first. A class is
            instantiated without arguments.

    Raises:
        AgentLoadError: the path does not name an agent, or its import or instantiation failed.
    """
    module, _, name = path.rpartition(":")
    if not module or not name:
        raise AgentLoadError(
            f"Invalid module path {path!r}. Expected format: 'module.path:attribute_name' "
            "(e.g., 'my_agent:MyAgentLoop')"
        )
    found, files = import_object(path, AgentLoadError, "Available attributes")
    agent = _instance(name, found) if isinstance(found, type) else found
    if missing := missing_members(agent):
        raise AgentLoadError(
            f"{name!r} must be a RolloutAgentLoop instance or subclass, got {type(agent).__name__} "
            f"(it lacks {' and '.join(missing)})"
        )
    with reported(AgentLoadError, f"cannot read the name of {name!r}", Path.cwd()):
        label: object = getattr(agent, "name", None)
    if not isinstance(label, str) or not label.strip():
        raise AgentLoadError(f"the attribute 'name' of {name!r} must be a non-empty string, not {label!r}")
    if inspect.iscoroutinefunction(getattr(agent, "get_tools", None)):
        raise AgentLoadError(f"{name!r}: get_tools must be a plain function, not an async one")
    if inspect.isasyncgenfunction(getattr(agent, "run", None)):
        raise AgentLoadError(f"{name!r}: run must return one result, but it is a generator, since it contains a yield")
    return LoadedAgent(cast(AgentLike, agent), label, files)


def missing_members(agent: object) -> list[str]:
    """Return the names of the methods that an agent needs and `agent` lacks."""
    return [name for name in ("get_tools", "run") if not callable(getattr(agent, name, None))]


def import_function(path: str, kind: str, example: str) -> tuple[Callable[..., Any], tuple[Path, ...]]:
    """Import the function that `module:function` names, and return it with the source files of its code.

    Args:
        path: The path as the user gave it.
        kind: Description of the path for error messages, such as `eval function path`.
        example: A valid path, for error messages.

    Raises:
        EvalFnError: the path does not have this form, cannot be imported, or does not name a function.
    """
    module, _, name = path.rpartition(":")
    if not module or not name:
        raise EvalFnError(f"Invalid {kind} {path!r}. Expected format: 'module:function' (e.g., {example!r})")
    found, files = import_object(path, EvalFnError)
    if not callable(found):
        raise EvalFnError(f"{name!r} in {module!r} is not callable")
    return found, files


def import_object(path: str, error: type[HarnessError], listing: str = "Available") -> tuple[object, tuple[Path, ...]]:
    """Import the object that `module:attribute` names. Modules are looked up in the working directory first.

    Modules of the same name in different working directories do not conflict, even within one process.

    Args:
        path: The path, with text before and after its last colon.
        error: The type of error to raise.
        listing: Label for the list of the module's attributes in an error message.

    Returns:
        The object and its source files: the file of its module, and those of the modules in the same folder that it
        imports directly or indirectly.

    Raises:
        HarnessError: (of the type `error`) the module does not exist, its import failed, or it lacks the attribute.
    """
    name, _, attribute = path.rpartition(":")
    root = Path.cwd()
    with _working.directory(root), staying(root):
        module = _import_module(name, attribute, root, error)
        with reported(error, f"Cannot read {attribute!r} from module {name!r}", root):
            found = cast(object, getattr(module, attribute, _MISSING))
        if found is _MISSING:
            public = [each for each in dir(module) if not each.startswith("_")]
            near = nearest(attribute, public)
            hint = f"Did you mean {near!r}? " if near else ""
            raise error(f"Module {name!r} has no attribute {attribute!r}. {hint}{listing}: {public}")
        return found, _source_files(name.partition(".")[0], root)


@contextmanager
def staying(root: Path) -> Generator[None]:
    """Restore the working directory after the `with` block, since other paths of the command are relative to it."""
    try:
        yield
    finally:
        try:
            has_changed = os.getcwd() != str(root)
        except OSError:  # the directory has been removed
            has_changed = True
        if has_changed:
            os.chdir(root)
            logger.warning("loading the user's code changed the working directory; it was changed back to %s", root)


@contextmanager
def reported(error: type[HarnessError], words: str, root: Path) -> Generator[None]:
    """Convert an exception of the user's code in the `with` block, except Ctrl-C, to an error with its file and line.

    Args:
        error: The type of error to raise.
        words: Beginning of the error message.
        root: The folder of the user's files.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as failed:
        raise error(f"{words}: {describe(failed, root)}") from failed


def describe(error: BaseException, root: Path) -> str:
    """Describe an exception of the user's code in one line, with file and line number.

    Args:
        error: The exception.
        root: The folder of the user's files. The reported line is in one of these files.
    """
    if isinstance(error, SyntaxError):
        words, file, line = f"{type(error).__name__}: {error.msg}", error.filename, error.lineno
    else:
        text = str(error)
        kind = type(error).__name__
        words = text if isinstance(error, ImportError) and text else f"{kind}: {text}" if text else kind
        file = line = None
        for frame, number in reversed(list(traceback.walk_tb(error.__traceback__))):
            path = Path(frame.f_code.co_filename)
            parts = path.relative_to(root).parts if path.is_relative_to(root) else ()
            # The innermost frame in the user's own files, not in a library or this package below the folder.
            if parts and path.suffix == ".py" and "site-packages" not in parts and parts[0] != _THIS_PACKAGE:
                file, line = str(path), number
                break
    return words if file is None else f"{words} ({shown_path(Path(file), root)}, line {line})"


def _import_module(name: str, attribute: str, root: Path, error: type[HarnessError]) -> ModuleType:
    start = f"Cannot import module {name!r}"
    if name.endswith(".py") or "/" in name or name.startswith("."):
        dotted = name.removesuffix(".py").strip("./").replace("/", ".")
        raise error(f"{start}: it is a path, not the name of a module; write {f'{dotted}:{attribute}'!r}")
    try:
        module = importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as failed:  # boundary around the user's module
        missing = (failed.name or "") if isinstance(failed, ModuleNotFoundError) else None
        if missing is None or not f"{name}.".startswith(f"{missing}."):
            raise error(f"{start}: {describe(failed, root)}") from failed
        names = [file.stem for file in sorted(root.glob("*.py"))]
        names += [file.parent.name for file in sorted(root.glob("*/__init__.py"))]
        near = nearest(missing, names) if missing == name.partition(".")[0] else None
        hint = f"; did you mean {near!r}?" if near else ""
        raise error(f"{start}: {failed} (looked in {root} and where packages are installed){hint}") from failed
    top = name.partition(".")[0]
    own = next((path for path in (root / f"{top}.py", root / top / "__init__.py") if path.is_file()), None)
    if own is not None and top != _THIS_PACKAGE and not _is_from(sys.modules.get(top), root, top):
        other = getattr(sys.modules.get(top), "__file__", None) or "a built-in module"
        raise error(f"{start}: {shown_path(own, root)} is hidden by another module of that name ({other}); rename it")
    return module


def _source_files(top: str, root: Path) -> tuple[Path, ...]:
    """Return the source files of a loaded module, given the name of its top-level package."""
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
    """Return whether a loaded module is `root/top.py` or the package `root/top`."""
    places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
    own = (root / f"{top}.py", root / top)
    return any(place is not None and any(Path(place).is_relative_to(each) for each in own) for place in places)


class _WorkingDirectories:
    """Manager of the modules of several working directories. Only the modules of one directory at a time are in
    `sys.modules`. Modules of other directories are stored here until code from their directory is requested again."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._root: Path | None = None
        self._is_on_path = False
        self._known: frozenset[str] = frozenset()
        self._waiting: dict[Path, dict[str, ModuleType]] = {}

    @contextmanager
    def directory(self, root: Path) -> Generator[None]:
        """In the `with` block, let imports find the modules in `root`."""
        with self._lock:
            if root != self._root:
                self._set_aside()
                self._root, self._known = root, frozenset(sys.modules)
                sys.modules.update(self._waiting.pop(root, {}))
            if sys.path[:1] != [str(root)]:
                sys.path.insert(0, str(root))
                self._is_on_path = True
            importlib.invalidate_caches()
            yield

    def _set_aside(self) -> None:
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
    missing = missing_members(found)
    if missing and not issubclass(found, RolloutAgentLoop):
        raise AgentLoadError(
            f"{name!r} is a class but not a RolloutAgentLoop subclass, and lacks {' and '.join(missing)}, which an "
            "agent needs"
        )
    with reported(AgentLoadError, f"Cannot instantiate {name!r}", Path.cwd()), staying(Path.cwd()):
        return cast(object, found())
