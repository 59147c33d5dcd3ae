"""A folder of MCP tools, `--mcp DIR`: imports its `main.py` and finds its FastMCP server, keeping the folder's modules
separate from all others. `mcp_agent` runs the server. The folder becomes a package whose name is derived from its path
and contents, and each of its modules is imported as a part of that package, with both `from .tools import x` and `from
tools import x`, at the top of a file or later in a function. So `sys.path` stays unchanged, two folders with a
`tools.py` each do not conflict, and a module that is imported in both ways is loaded only once."""

from __future__ import annotations

import builtins
import hashlib
import importlib
import logging
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import BuiltinImporter, FrozenImporter, ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.agents.loading import LoadedAgent, describe, staying
from harness.agents.mcp_agent import MCPAgentLoop
from harness.core.errors import MCPLoadError
from harness.tools.mcp import INSTALL

logger = logging.getLogger(__name__)

_PREFIX = "_bench_mcp_"

_MAIN = "main.py"

_NOT_SOURCES = {"__pycache__", "site-packages", "node_modules"}

_EXAMPLE = 'from fastmcp import FastMCP\nmcp = FastMCP("my_tools")'

_agents: dict[str, MCPAgentLoop] = {}
"""Loaded agents, by the name of the folder's package."""

_lock = threading.RLock()


def load_mcp(directory: str | Path) -> LoadedAgent:
    """Load a folder of MCP tools as an agent that offers them to the model.

    Loading a folder with unchanged files again returns the same agent and server.

    Args:
        directory: A folder with a `main.py` that creates a FastMCP server.

    Raises:
        MCPLoadError: there is no such folder or server, `fastmcp` is not installed, the import failed, or the server
            does not start or offers no tool.
    """
    folder = Path(directory).expanduser().resolve()
    if not folder.is_dir():
        what = "is not a directory" if folder.exists() else "does not exist"
        raise MCPLoadError(f"MCP directory {what}: {folder}")
    main = folder / _MAIN
    if not main.is_file():
        raise MCPLoadError(
            f"No main.py found in MCP directory: {folder}\n"
            "The --mcp directory must contain a main.py with a FastMCP instance."
        )
    files = _sources(folder)
    package = _PREFIX + _digest(folder, files)
    with _lock:
        agent = _agents.get(package)
        if agent is None:
            fastmcp = _fastmcp_class(folder)
            with _not_running(fastmcp), staying(Path.cwd()):
                module = _import_main(package, folder)
            agent = MCPAgentLoop(_find_server(module, main, fastmcp))
            if not agent.has_tools:
                raise MCPLoadError(f"The MCP server in {main} offers no tool: mark its functions with @mcp.tool()")
            _agents[package] = agent
    return LoadedAgent(agent, agent.name, files)


def _sources(folder: Path) -> tuple[Path, ...]:
    """The folder's Python files, except those in hidden folders and virtual environments."""
    return tuple(
        file
        for file in sorted(folder.rglob("*.py"))
        if not any(part in _NOT_SOURCES or part.startswith(".") for part in file.relative_to(folder).parts)
    )


def _fastmcp_class(folder: Path) -> type:
    """The `FastMCP` class. It is imported without the folder's parent on the path: a folder that is itself called `mcp`
    must not be mistaken for the library of that name."""
    with _without_on_path(folder.parent, folder):
        try:
            from fastmcp import FastMCP
        except ImportError as error:
            missing = isinstance(error, ModuleNotFoundError) and error.name == "fastmcp"
            how = "is not installed" if missing else f"cannot be imported ({error})"
            raise MCPLoadError(f"fastmcp {how}. Install it with: {INSTALL}") from error
    return FastMCP


@contextmanager
def _without_on_path(*folders: Path) -> Generator[None]:
    before = list(sys.path)
    sys.path[:] = [entry for entry in before if Path(entry).resolve() not in folders]
    try:
        yield
    finally:
        sys.path[:] = before


@contextmanager
def _not_running(fastmcp: type) -> Generator[None]:
    """Disable `mcp.run()` during the import: a main.py that calls it without `if __name__ == "__main__":` would block
    on stdin or serve a port for ever."""

    def run(server: object, *_arguments: object, **_settings: object) -> None:
        logger.info("main.py runs its server when it is imported; bench does that itself")

    async def run_async(server: object, *arguments: object, **settings: object) -> None:
        run(server, *arguments, **settings)

    standing = {"run": run, **dict.fromkeys(("run_async", "run_stdio_async", "run_http_async"), run_async)}
    before = [(kind, name, vars(kind).get(name)) for kind in (fastmcp, *_other_kinds()) for name in standing]
    for kind, name, _ in before:
        setattr(kind, name, standing[name])
    try:
        yield
    finally:
        for kind, name, own in before:
            if own is None:
                delattr(kind, name)  # inherited from a base class, so restore that
            else:
                setattr(kind, name, own)


def _import_main(package: str, folder: Path) -> ModuleType:
    _neighbours.add(package, folder)
    importlib.invalidate_caches()
    try:
        with _on_path(folder):
            return importlib.import_module(f"{package}.main")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # boundary around the user's modules
        for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
            del sys.modules[name]
        raise MCPLoadError(f"Error importing {folder / _MAIN}: {describe(error, folder)}") from error


def _digest(folder: Path, files: Sequence[Path]) -> str:
    whole = hashlib.sha256(str(folder).encode())
    for file in files:
        whole.update(b"\0%s\0%s" % (str(file).encode(), hashlib.sha256(file.read_bytes()).digest()))
    return whole.hexdigest()[:16]


@contextmanager
def _on_path(folder: Path) -> Generator[None]:
    """Let `importlib.import_module("tools")` find the folder's modules, and undo the changes to the import system
    afterwards."""
    path, known = list(sys.path), set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path[:] = path
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            is_beside = file is not None and Path(file).is_relative_to(folder)
            if is_beside and name not in known and not name.startswith(_PREFIX):
                del sys.modules[name]


def _find_server(module: ModuleType, main: Path, fastmcp: type) -> object:
    found = {name: getattr(module, name) for name in dir(module)}
    kinds = (fastmcp, *_other_kinds())
    servers = {name: value for name, value in found.items() if isinstance(value, kinds)}
    if not servers:
        raise MCPLoadError(
            f"No FastMCP instance found in {main}. Make sure your main.py creates a FastMCP instance, e.g.:\n{_EXAMPLE}"
        )
    name, server = next(iter(servers.items()))
    if any(other is not server for other in servers.values()):
        logger.warning("%s makes several FastMCP instances (%s); %s is used", main, ", ".join(servers), name)
    return server


def _other_kinds() -> Generator[type]:
    """The server class of the SDK below fastmcp, by its old and new name, if main.py has imported it."""
    for module, name in (("mcp.server.fastmcp", "FastMCP"), ("mcp.server.mcpserver", "MCPServer")):
        kind = getattr(sys.modules.get(module), name, None)
        if isinstance(kind, type):
            yield kind


class _Loader(SourceFileLoader):
    """A loader whose modules use an `import` that finds the other modules of their folder."""

    def __init__(self, spec: ModuleSpec, names: Mapping[str, Any]) -> None:
        super().__init__(spec.name, str(spec.origin))
        self._names = names

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module's code."""
        module.__dict__["__builtins__"] = self._names
        super().exec_module(module)


class _Neighbours(MetaPathFinder):
    """A finder for the modules of MCP folders, by the names of their packages."""

    def __init__(self) -> None:
        self._names: dict[str, Mapping[str, Any]] = {}
        self._folders: dict[str, Path] = {}

    def add(self, package: str, folder: Path) -> None:
        """Register a folder as a package."""
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)
        self._folders[package] = folder
        self._names[package] = {**vars(builtins), "__import__": _importer(package, folder)}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The package of a folder, or a module in it; None for any other name."""
        package = fullname.partition(".")[0]
        folder = self._folders.get(package)
        if folder is None:
            return None
        if fullname == package:
            spec = ModuleSpec(fullname, None, is_package=True)
            spec.submodule_search_locations = [str(folder)]
            return spec
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec, self._names[package])
        return spec


def _importer(package: str, folder: Path) -> Any:
    """The `__import__` for modules of a folder: the standard one, except that the folder's own modules come first."""

    def find(
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        top = name.partition(".")[0]
        if level or not _is_beside(folder, top):
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        module = builtins.__import__(f"{package}.{name}", globals, locals, fromlist or (), 0)
        return module if fromlist else sys.modules[f"{package}.{top}"]

    return find


def _is_beside(folder: Path, top: str) -> bool:
    """Whether a name means a module of the folder, by the rules for a script: the folder's modules hide all but those
    built into the interpreter, and a folder without `__init__.py` counts only if no other module has the name."""
    if BuiltinImporter.find_spec(top) is not None or FrozenImporter.find_spec(top) is not None:
        return False
    if (folder / f"{top}.py").is_file() or (folder / top / "__init__.py").is_file():
        return True
    elsewhere = [entry for entry in sys.path if Path(entry) != folder]
    return (folder / top).is_dir() and top not in sys.modules and PathFinder.find_spec(top, elsewhere) is None


_neighbours = _Neighbours()
