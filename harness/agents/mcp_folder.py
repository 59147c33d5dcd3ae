"""Import of a folder of MCP tools (`--mcp DIR`), whose `main.py` creates a FastMCP server. The module `mcp_agent` runs
the server. The folder is imported as a package whose name is derived from the folder's path and contents. Both `from
.tools import x` and `from tools import x` import the folder's `tools.py` as a module of that package, so that
`sys.path` does not change, and the `tools.py` of two folders do not conflict."""

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

_agents: dict[str, MCPAgentLoop] = {}
"""Loaded agents, by the name of the folder's package."""

_lock = threading.RLock()


def load_mcp(directory: str | Path) -> LoadedAgent:
    """Load a folder of MCP tools as an agent that offers them to the model.

    Loading a folder with unchanged files again returns the same agent and server.

    Args:
        directory: A folder with a `main.py` that creates a FastMCP server.

    Raises:
        MCPLoadError: the folder or the server does not exist, `fastmcp` is not installed, the import failed, or the
            server does not start or has no tools.
    """
    folder = _checked(directory)
    package, files = _package(folder)
    with _lock:
        agent = _agents.get(package)
        if agent is None:
            agent = MCPAgentLoop(_import_server(package, folder))
            if not agent.has_tools:
                main = folder / _MAIN
                raise MCPLoadError(f"The MCP server in {main} has no tools: decorate its functions with @mcp.tool()")
            _agents[package] = agent
    return LoadedAgent(agent, agent.name, files)


def load_server(directory: str | Path) -> object:
    """Import a folder of MCP tools and return its FastMCP server, which is not started.

    Args:
        directory: A folder with a `main.py` that creates a FastMCP server.

    Raises:
        MCPLoadError: the folder or the server does not exist, `fastmcp` is not installed, or the import failed.
    """
    folder = _checked(directory)
    with _lock:
        return _import_server(_package(folder)[0], folder)


def _checked(directory: str | Path) -> Path:
    """Return the absolute path of an MCP folder.

    Raises:
        MCPLoadError: the folder or its main.py does not exist.
    """
    folder = Path(directory).expanduser().resolve()
    if not folder.is_dir():
        what = "is not a directory" if folder.exists() else "does not exist"
        raise MCPLoadError(f"MCP directory {what}: {folder}")
    if not (folder / _MAIN).is_file():
        raise MCPLoadError(
            f"No main.py found in MCP directory: {folder}\n"
            "The --mcp directory must contain a main.py with a FastMCP instance."
        )
    return folder


def _package(folder: Path) -> tuple[str, tuple[Path, ...]]:
    """Return the name of an MCP folder's package, which depends on the files' contents, and the files."""
    files = tuple(
        file
        for file in sorted(folder.rglob("*.py"))
        if not any(part in _NOT_SOURCES or part.startswith(".") for part in file.relative_to(folder).parts)
    )
    digest = hashlib.sha256(str(folder).encode())
    for file in files:
        digest.update(b"\0%s\0%s" % (str(file).encode(), hashlib.sha256(file.read_bytes()).digest()))
    return _PREFIX + digest.hexdigest()[:16], files


def _import_server(package: str, folder: Path) -> object:
    """Import the main.py of an MCP folder, or take it from the imported modules, and return its server."""
    fastmcp = _fastmcp_class(folder)
    with _run_disabled(fastmcp), staying(Path.cwd()):
        module = _import_main(package, folder)
    return _find_server(module, folder / _MAIN, fastmcp)


def _fastmcp_class(folder: Path) -> type:
    """Import and return the class `FastMCP`. During the import, the MCP folder's parent is not on `sys.path`;
    otherwise, an MCP folder named `mcp` would be imported instead of the library."""
    before = list(sys.path)
    sys.path[:] = [entry for entry in before if Path(entry).resolve() not in (folder, folder.parent)]
    try:
        from fastmcp import FastMCP
    except ImportError as error:
        is_missing = isinstance(error, ModuleNotFoundError) and error.name == "fastmcp"
        fault = "is not installed" if is_missing else f"cannot be imported ({error})"
        raise MCPLoadError(f"fastmcp {fault}. Install it with: {INSTALL}") from error
    finally:
        sys.path[:] = before
    return FastMCP


@contextmanager
def _run_disabled(fastmcp: type) -> Generator[None]:
    """Disable `mcp.run()` in the `with` block. A main.py that calls it without `if __name__ == "__main__":` would block
    on stdin or serve a port endlessly."""

    def run(server: object, *_arguments: object, **_settings: object) -> None:
        logger.info("the call to run() in main.py is ignored, since the server is started without it")

    async def run_async(server: object, *arguments: object, **settings: object) -> None:
        run(server, *arguments, **settings)

    replacements = {"run": run, **dict.fromkeys(("run_async", "run_stdio_async", "run_http_async"), run_async)}
    before = [(kind, name, vars(kind).get(name)) for kind in (fastmcp, *_sdk_classes()) for name in replacements]
    for kind, name, _ in before:
        setattr(kind, name, replacements[name])
    try:
        yield
    finally:
        for kind, name, own in before:
            if own is None:
                delattr(kind, name)  # inherited from a base class, so restore that
            else:
                setattr(kind, name, own)


def _import_main(package: str, folder: Path) -> ModuleType:
    """Import the main.py of an MCP folder as a module of the folder's package, and undo its changes to the import
    system."""
    _finder.add(package, folder)
    importlib.invalidate_caches()
    path, known = list(sys.path), set(sys.modules)
    sys.path.insert(0, str(folder))  # so that `importlib.import_module("tools")` finds the folder's modules
    try:
        return importlib.import_module(f"{package}.main")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # boundary around the user's modules
        for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
            del sys.modules[name]
        raise MCPLoadError(f"Error importing {folder / _MAIN}: {describe(error, folder)}") from error
    finally:
        sys.path[:] = path
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            is_beside = file is not None and Path(file).is_relative_to(folder)
            if is_beside and name not in known and not name.startswith(_PREFIX):
                del sys.modules[name]


def _find_server(module: ModuleType, main: Path, fastmcp: type) -> object:
    kinds = (fastmcp, *_sdk_classes())
    servers = {name: value for name in dir(module) if isinstance(value := getattr(module, name), kinds)}
    if not servers:
        raise MCPLoadError(
            f"No FastMCP instance found in {main}. Make sure your main.py creates a FastMCP instance, e.g.:\n"
            'from fastmcp import FastMCP\nmcp = FastMCP("my_tools")'
        )
    name, server = next(iter(servers.items()))
    if any(other is not server for other in servers.values()):
        logger.warning("%s creates several FastMCP instances (%s); using %s", main, ", ".join(servers), name)
    return server


def _sdk_classes() -> Generator[type]:
    """Return the server classes of the package `mcp` (under an older and a newer name), if main.py imported them."""
    for module, name in (("mcp.server.fastmcp", "FastMCP"), ("mcp.server.mcpserver", "MCPServer")):
        kind = getattr(sys.modules.get(module), name, None)
        if isinstance(kind, type):
            yield kind


class _Loader(SourceFileLoader):
    """Loader for the modules of an MCP folder. It lets their import statements find the other modules of the folder."""

    def __init__(self, spec: ModuleSpec, names: Mapping[str, Any]) -> None:
        super().__init__(spec.name, str(spec.origin))
        self._names = names

    def exec_module(self, module: ModuleType) -> None:
        """Execute the code of a module in an MCP folder."""
        module.__dict__["__builtins__"] = self._names
        super().exec_module(module)


class _FolderFinder(MetaPathFinder):
    """Import finder for the packages of MCP folders and for their modules."""

    def __init__(self) -> None:
        self._names: dict[str, Mapping[str, Any]] = {}
        self._folders: dict[str, Path] = {}

    def add(self, package: str, folder: Path) -> None:
        """Register an MCP folder as a package."""
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)
        self._folders[package] = folder
        self._names[package] = {**vars(builtins), "__import__": _importer(package, folder)}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of an MCP folder's package or of a module in it; None for any other name."""
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
    """Return the `__import__` function for the modules of an MCP folder, which finds the folder's own modules first."""

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
    """Return whether an import in an MCP folder refers to a module of that folder, by Python's rules for scripts.

    The folder's modules take precedence over all others except those built into the interpreter. A subfolder without
    `__init__.py` is imported only if no other module has its name."""
    if BuiltinImporter.find_spec(top) is not None or FrozenImporter.find_spec(top) is not None:
        return False
    if (folder / f"{top}.py").is_file() or (folder / top / "__init__.py").is_file():
        return True
    elsewhere = [entry for entry in sys.path if Path(entry) != folder]
    return (folder / top).is_dir() and top not in sys.modules and PathFinder.find_spec(top, elsewhere) is None


_finder = _FolderFinder()
