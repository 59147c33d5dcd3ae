"""Look up an environment by name, with an error message that explains how to install it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from harness.core.errors import EnvironmentNotFound
from harness.settings.built_in import as_built_in
from harness.settings.environment_sources import FoundEnvironment
from harness.settings.packages import (
    comes_with_bench,
    find_environment,
    installed_environments,
    local_environments,
    module_name,
)
from harness.settings.paths import beside_cwd
from harness.settings.wording import nearest, shown_path

LOCAL_FOLDER = "environments"


def require_environment(env_id: str, where: str, cwd: Path) -> FoundEnvironment:
    """Find the environment called `env_id`.

    Args:
        env_id: Name or path of the environment.
        where: Flag, or file with key path, that names it; for messages.
        cwd: Base of relative paths and of `./environments`.

    Raises:
        EnvironmentNotFound: no such environment can be imported, with advice on installing; or the name is that of a
            built-in environment.
    """
    if (built_in := as_built_in(env_id)) is not None:
        raise EnvironmentNotFound(f"{where}: {built_in.about}", remedy=built_in.remedy)
    try:
        found = find_environment(env_id, cwd)
    except EnvironmentNotFound as error:
        raise EnvironmentNotFound(f"{where}: {error}") from None
    module = module_name(env_id)
    local = {module_name(name): (name, path) for name, path in local_environments(cwd / LOCAL_FOLDER).items()}
    if found is not None:
        is_copied = module in local and found.path is None and comes_with_bench(found)
        if is_copied:
            path = shown_path(local[module][1], cwd)
            notice = (
                f"{env_id} is the environment bundled with bench; the copy in {path} is not used, because it is "
                "not installed"
            )
            found = replace(found, notice=notice)
        return found
    if module in local:
        path = shown_path(local[module][1], cwd)
        raise EnvironmentNotFound(
            f"{where}: environment {env_id!r} is not installed", remedy="run: {install_command} {path}", path=path
        )
    if (beside := beside_cwd(env_id, cwd)) is not None:
        raise EnvironmentNotFound(f"{where}: no environment {env_id!r} is installed; to run {beside}, give that path")
    names = list(dict.fromkeys([*installed_environments(), *(name for name, _ in local.values())]))
    close = nearest(env_id.rsplit("/", 1)[-1], names)
    meant = "did you mean {close!r}? " if close else ""
    raise EnvironmentNotFound(
        f"{where}: no environment {env_id!r} is installed" + ("" if close else "."),
        remedy=meant
        + "`{install_command} PATH` installs an environment from its folder, `{install_command} NAME` from the package "
        "index." + (" Available environments: {names}." if names else ""),
        close=close,
        names=", ".join(names),
    )
