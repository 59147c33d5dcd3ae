"""Load an environment by its id: entry point, module name or path. The module is imported and its function
`load_environment` is called; every error is reported. Settings are not read here. `agent-eval` and `multi-eval` are
built in. Any other id is looked up in this order: a path that exists (`./my_env.py`, `environments/my-env`), an
environment source for its prefix, an entry point of the group `harness.environments`, a module of that name (dashes to
underscores, `org/` dropped). Import hooks of plugins load packages that were written for another SDK."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import logging
import os
import signal
import sys
import threading
import zlib
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.metadata import packages_distributions
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from harness.core.errors import EnvironmentFault, EnvironmentLoadError, EnvironmentNotFound, HarnessError
from harness.core.keys import hash_files
from harness.core.messages import COMMANDS
from harness.core.redact import names_secret
from harness.core.types import JsonDict
from harness.envs import hub, import_hooks
from harness.envs.environment import Environment
from harness.envs.import_hooks import PrepareModule
from harness.settings.built_in import AGENT_EVAL, BUILT_INS, as_built_in
from harness.settings.environment_sources import FoundEnvironment, find_in_source, source_of
from harness.settings.packages import declared_environment, find_environment, installed_environments
from harness.settings.paths import beside_cwd, environment_path, local_modules, main_file, path_name
from harness.usercode import exceptions

logger = logging.getLogger(__name__)

_FUNCTION = "load_environment"
_IMPORT_FAILED = "importing it failed"

_roots: dict[Path, str] = {}
"""Folders from which environments were loaded by path, each with the id of the environment that was loaded last."""


def load_environment(env_id: str, **env_args: Any) -> Environment:
    """Import an environment and build it.

    Args:
        env_id: Its name, or a path to its folder or file.
        **env_args: Arguments for the environment's function `load_environment`.

    Raises:
        EnvironmentNotFound: no environment has this id; the message says how to install it.
        EnvironmentLoadError: importing or building it failed; the cause is chained.
    """
    with _left_as_found(env_id), _hooked(env_id) as prepare_module:
        load = _find(env_id, prepare_module)
        _check_arguments(env_id, load, env_args)
        try:
            made = load(**env_args)
            environment = _as_environment(env_id, made)
            for hook in import_hooks.import_hooks():
                hook.settle(environment)
        except BaseException as error:  # the boundary around the author's constructor
            _failed(env_id, f"{_FUNCTION}() failed", error)
    found = find_environment(env_id)
    environment.source_files = environment.source_files or (found.source_files if found is not None else ())
    path = environment_path(env_id, Path())
    environment.env_id = environment.env_id or (env_id if path is None else path_name(path))
    environment.env_args = environment.env_args or dict(env_args)
    return environment


def source_identity(found: FoundEnvironment) -> JsonDict:
    """Version and hashes of an environment's code, which are part of a run's identity."""
    return {
        "distribution": f"{found.dist_name} {found.dist_version}", "source": hash_files(found.source_files),
        **({"code": found.code} if found.code else {}),
    }  # fmt: skip


def inner_source(environment: Environment, found: FoundEnvironment | None) -> JsonDict:
    """Hash of the source of nested environments, for a run's identity; empty without any.

    Args:
        environment: The environment.
        found: Facts about it that need no import; None for one that is built in.
    """
    inner = set(environment.source_files).difference(() if found is None else found.source_files)
    return {"inner_source": hash_files(inner)} if inner else {}


def find_function(env_id: str) -> Callable[..., object]:
    """Import an environment without building it.

    Args:
        env_id: Its name, or a path to its folder or file.

    Returns:
        The environment's function `load_environment`.

    Raises:
        EnvironmentNotFound: no environment has this id; the message says how to install it.
        EnvironmentLoadError: the import failed, or the environment has no such function.
    """
    with _left_as_found(env_id), _hooked(env_id) as prepare_module:
        return _find(env_id, prepare_module)


def module_name(env_id: str) -> str:
    """Module name for an environment's id: `org/my-env` → `my_env`."""
    return env_id.rstrip("/").split("/")[-1].replace("-", "_")


def _hooked(env_id: str) -> AbstractContextManager[PrepareModule]:
    """While an environment loads, activate plugins' import hooks, since it may have been written for another SDK."""
    try:
        path = environment_path(env_id, Path())
        if path is None and source_of(env_id) is not None:
            return nullcontext(lambda _: None)
        entry = None if path is not None else declared_environment(env_id)
        name = env_id if entry is None else entry.module
        source = main_file(path) if path is not None else _source_of(module_name(name))
    except EnvironmentNotFound:
        name, source = env_id, None  # `_find` raises this error again
    return import_hooks.loading(source, lambda: find_environment(name))


def _source_of(module: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(module) if module.isidentifier() else None
    except (ImportError, ValueError):
        return None
    return Path(spec.origin) if spec is not None and spec.origin is not None and spec.has_location else None


def _as_environment(env_id: str, made: object) -> Environment:
    """Return the result of `load_environment` if it is an environment; otherwise raise an error."""
    if isinstance(made, Environment):
        return made
    if inspect.iscoroutine(made):
        made.close()
        raise EnvironmentLoadError(f"environment {env_id!r}: {_FUNCTION}() must be a plain def, not async")
    modules = {kind.__module__.partition(".")[0] for kind in type(made).__mro__}
    known = next((hook for hook in import_hooks.import_hooks() if hook.unsupported and hook.module in modules), None)
    raise EnvironmentLoadError(
        f"environment {env_id!r}: {_FUNCTION}() returned {type(made).__name__}, "
        + (f"an object of the installed {known.module} package; {known.unsupported}" if known else "not an Environment")
    )


def _find(env_id: str, prepare_module: PrepareModule) -> Callable[..., object]:
    path = environment_path(env_id, Path())
    if path is not None:
        return _function_of(env_id, _import_path(env_id, main_file(path), prepare_module))
    if (sourced := source_of(env_id)) is not None:
        source, name = sourced
        find_in_source(source, name, env_id)
        try:
            return source.function(name)
        except EnvironmentLoadError as error:  # the message needs no location
            raise EnvironmentLoadError(f"environment {env_id!r}: {error}") from error
        except BaseException as error:  # the boundary around the plugin's code
            _failed(env_id, _IMPORT_FAILED, error)
    if env_id in BUILT_INS:
        if env_id == AGENT_EVAL:
            import_hooks.answer_agents(in_command=True)
        return _function_of(env_id, _import(env_id, BUILT_INS[env_id].found.module))
    entry = declared_environment(env_id)
    if entry is not None:
        return _function_of(env_id, _import(env_id, entry.module), entry.attribute or _FUNCTION)
    name = module_name(env_id)
    if not name.isidentifier() or importlib.util.find_spec(name) is None:
        raise EnvironmentNotFound(_how_to_find(env_id, name))
    return _function_of(env_id, _import(env_id, name))


def _import_path(env_id: str, source: Path, prepare_module: PrepareModule) -> ModuleType:
    is_package = source.name == "__init__.py"
    name = source.parent.name if is_package else source.stem
    root = source.parent.parent if is_package else source.parent
    _refuse_namesakes(env_id, root, source)
    if str(root) not in sys.path:
        sys.path.append(str(root))  # for sibling modules; last, so that it shadows nothing
    _roots[root] = env_id
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded, "__file__", None) == str(source):
        return loaded
    if loaded is not None or not name.isidentifier():
        name = f"_bench_{zlib.crc32(str(source).encode()):08x}_{name.replace('-', '_')}"
    places = [str(source.parent)] if is_package else None
    spec = importlib.util.spec_from_file_location(name, source, submodule_search_locations=places)
    assert spec is not None and spec.loader is not None, source
    prepare_module(spec)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:  # the boundary around the author's module
        del sys.modules[name]
        _failed(env_id, _IMPORT_FAILED, error)
    return module


def _refuse_namesakes(env_id: str, root: Path, source: Path) -> None:
    """Refuse an environment if a module in its folder has the same name as a module in the folder of another loaded
    environment. Python imports only one module per name, so one environment would run the other's code."""
    others = {other: other_id for other, other_id in _roots.items() if other != root}
    if not others or source.name == "__init__.py":  # modules of a package have distinct full names
        return
    for file in local_modules(source):
        name = file.relative_to(root).parts[0]
        for other, other_id in others.items():
            if file != source and (other / name).exists():
                raise EnvironmentLoadError(
                    f"environment {env_id!r}: {file} and {other / name} (of {other_id}) have the same module name, so "
                    "Python can import only one of them; rename one, or run the environments separately"
                )


def _import(env_id: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except BaseException as error:  # the boundary around the author's module
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise EnvironmentNotFound(_how_to_find(env_id, name)) from error
        _failed(env_id, _IMPORT_FAILED, error)


def _function_of(env_id: str, module: ModuleType, name: str = _FUNCTION) -> Callable[..., object]:
    function = getattr(module, name, None)
    if callable(function):
        return function
    where = getattr(module, "__file__", None) or "a folder without an __init__.py"
    raise EnvironmentLoadError(
        f"environment {env_id!r}: module {module.__name__!r} ({where}) has no {name}(); define it. If this is not the "
        "environment's file, another package of the same name hides the environment: uninstall or rename one"
    )


def _check_arguments(env_id: str, load: Callable[..., object], env_args: dict[str, Any]) -> None:
    """Raise an error if `load_environment` does not accept the arguments."""
    signature = inspect.signature(load)
    try:
        signature.bind(**env_args)
    except TypeError as error:
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        names = [name for name, parameter in signature.parameters.items() if parameter.kind in kinds]
        unknown = [name for name in env_args if name not in names]
        near = difflib.get_close_matches(unknown[0], names, 1) if unknown else []
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        takes = f"it takes {', '.join(names)}" if names else "it takes no arguments"
        wrong = EnvironmentLoadError(f"environment {env_id!r}: env_args: {error}{hint}; {takes}")
        wrong.exit_code = 2  # invalid arguments of the caller, not an environment error
        raise wrong from error


def _failed(env_id: str, what: str, error: BaseException) -> NoReturn:
    if exceptions.should_propagate(error) and not isinstance(error, GeneratorExit):  # no generator is closed here
        raise error  # propagate the user's Ctrl-C
    ours = isinstance(error, HarnessError)
    if ours and (env_id in BUILT_INS or str(error).startswith(f"environment {env_id!r}: ")):
        raise error  # the message is complete
    if what == _IMPORT_FAILED and isinstance(error, ModuleNotFoundError) and error.name:
        head = error.name.partition(".")[0]
        words = (
            f"it needs the module {error.name!r}, which is not installed; install the environment with its dependencies"
        )
        if any(hook.module == head and hook.unsupported for hook in import_hooks.import_hooks()):
            words = str(error)  # the hook's message is sufficient: the module does not exist in that API
        raise EnvironmentLoadError(f"environment {env_id!r}: {words}") from error
    words = str(error) if ours and not isinstance(error, EnvironmentFault) else exceptions.describe(error)
    if (why := hub.refusal()) and why not in words:
        words = f"{words}: {why}"
    failure = EnvironmentLoadError(f"environment {env_id!r}: {what}: {words}")
    if ours:
        failure.exit_code = error.exit_code  # a ConfigError concerns the caller's arguments
    raise failure from error


def _how_to_find(env_id: str, name: str) -> str:
    if (meant := as_built_in(env_id)) is not None:
        return f"no environment {env_id!r} exists; the built-in environment is called {meant.env_id!r}"
    if (beside := beside_cwd(env_id, Path.cwd())) is not None:
        return f"no environment {env_id!r} is installed; to run the one in {beside}, use that path as its name"
    near = difflib.get_close_matches(env_id, installed_environments(), 1, 0.6)
    near = near or difflib.get_close_matches(name, sorted(packages_distributions()), 1, 0.75)
    local = next(
        (path for path in (Path("environments", name), Path("environments", name.replace("_", "-"))) if path.exists()),
        None,
    )
    install = COMMANDS["install_command"]
    if local is not None:
        return f"no environment {env_id!r}: {local} is not installed; install it: {install} ./{local}"
    hint = (
        f"; did you mean {near[0]!r}, which is installed?"
        if near
        else f"; `{install} PATH` installs one from its folder"
    )
    return f"no environment {env_id!r}: no module {name!r} is installed{hint}"


@contextmanager
def _left_as_found(env_id: str) -> Generator[None]:
    """Context manager that restores the process state that loading an environment may change: stdout and stderr, the
    handlers of SIGINT and SIGTERM, the environment variables with API keys, and the working directory."""
    streams, home = (sys.stdout, sys.stderr), os.getcwd()
    keys = {name: value for name, value in os.environ.items() if names_secret(name)}
    in_main = threading.current_thread() is threading.main_thread()  # only the main thread can set handlers
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM) if in_main}
    try:
        with hub.failing_fast():
            yield
    finally:
        sys.stdout, sys.stderr = streams
        for number, handler in handlers.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        changed = {name: value for name, value in keys.items() if os.environ.get(name) != value}
        if changed:
            os.environ.update(changed)
            words = "environment %r changed the environment variables %s while loading; their values were restored"
            logger.warning(words, env_id, ", ".join(changed))
        try:
            left = os.getcwd()
        except FileNotFoundError:
            left = "a deleted folder"
        if left != home:
            os.chdir(home)
            words = "environment %r changed the working directory to %s while loading; it was changed back to %s"
            logger.warning(words, env_id, left, home)
