"""The arguments of `harbor`, and the environment of the tasks that they choose."""

from __future__ import annotations

import fnmatch
import logging
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from harness.agents.loading import load_agent
from harness.core.errors import ConfigError, EnvironmentNotFound
from harness.core.safe_text import clean
from harness.plugins.harbor.environment import HarborEnv, HarborOptions
from harness.plugins.harbor.places import Place, place_of, task_folders
from harness.plugins.harbor.source import OWN_TASKS
from harness.plugins.harbor.task_file import HarborTask, UnsupportedTask, read_task
from harness.settings.wording import suggestion

logger = logging.getLogger(__name__)

_SHOWN = 5


def load_environment(
    path: str | None = None,
    tasks: Sequence[str] | str | None = None,
    skip_unsupported: bool = False,
    images: Mapping[str, str] | None = None,
    build: bool = False,
    sandbox: str = "auto",
    network: bool = True,
    limit_storage: bool = True,
    pass_env: Sequence[str] = (),
    agent: str | None = None,
    max_turns: int = 100,
    command_timeout: float = 300.0,
    containers: int = 4,
    logs: str | None = None,
) -> HarborEnv:
    """Load tasks in the Harbor format.

    Args:
        path: Folder of a task or of tasks, or git URL: `git+https://HOST/PATH@REF#FOLDER` or `file:///PATH@REF#FOLDER`.
            By default the tasks that are part of bench.
        tasks: Names of tasks to run, or patterns such as `fix-*`; all by default.
        skip_unsupported: Leave out tasks that need something that is not supported, instead of refusing all.
        images: Names of images, with the image of this computer to use instead of each.
        build: Build the image from the task's Dockerfile even if the task names a finished one.
        sandbox: `docker` or `podman`; `auto` takes the first that works.
        network: False to take the network from all tasks.
        limit_storage: False to leave out the tasks' limits of disk space, which need an engine on xfs, btrfs or zfs.
        pass_env: Names of environment variables of this computer that tasks may have.
        agent: An agent as `module:attribute`; by default bench's own, with the tools bash, edit and submit.
        max_turns: Maximum number of model replies; −1 for no limit.
        command_timeout: Timeout in seconds of a command of bench's own agent.
        containers: Maximum number of containers at a time.
        logs: Folder on this computer for the logs of each rollout; by default they are not kept.

    Raises:
        ConfigError: an argument or a task is invalid, or a task is not supported.
        EnvironmentLoadError: the git repository cannot be cloned.
        SandboxMissing: neither docker nor podman works here.
    """
    _check_texts(path=path, agent=agent, logs=logs)
    options = HarborOptions(
        sandbox=sandbox,
        images=images or {},
        build=build,
        network=network,
        limit_storage=limit_storage,
        pass_env=frozenset(_texts("pass_env", pass_env)),
        max_turns=max_turns,
        command_timeout=command_timeout,
        containers=containers,
        agent=None if agent is None else load_agent(agent),
        logs=None if logs is None else _made(logs),
    )
    place = Place(OWN_TASKS, OWN_TASKS.resolve()) if path is None else place_of(path)
    folders = _chosen(task_folders(place), _texts("tasks", tasks or ()))
    read = _read(folders, place, skip=skip_unsupported)
    _warn(read)
    return HarborEnv(read, options, place.commit)


def load_task(name: str, arguments: Mapping[str, Any]) -> HarborEnv:
    """Load a single task.

    Args:
        name: The path of its folder below `path`.
        arguments: Arguments of `load_environment`, without `tasks`.

    Raises:
        ConfigError: as for `load_environment`; or `tasks` is given.
        EnvironmentNotFound: there is no task of this name.
    """
    if "tasks" in arguments:
        raise ConfigError(f"tasks: harbor/{name} is a single task; to choose several, run harbor")
    return load_environment(**arguments, tasks=["=" + name])


def _check_texts(**values: object) -> None:
    for name, text in values.items():
        if text is not None and (not isinstance(text, str) or not text):
            raise ConfigError(f"{name} must be a text, not {text!r}")


def _made(logs: str) -> Path:
    """Make the folder for logs, since a run whose logs are lost would say so only after it was paid for."""
    folder = Path(os.path.expanduser(logs)).resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise ConfigError(f"logs={logs!r}: the folder cannot be made: {error}") from error
    return folder


def _texts(name: str, values: object) -> list[str]:
    found = [values] if isinstance(values, str) else values
    if not isinstance(found, list | tuple) or not all(isinstance(each, str) for each in cast("list[object]", found)):
        raise ConfigError(f"{name} must be a list of texts, not {values!r}")
    return list(cast("list[str]", found))


def _chosen(folders: Mapping[str, Path], patterns: Sequence[str]) -> Mapping[str, Path]:
    """The tasks whose names match a pattern; `=NAME` matches only this name."""
    if not patterns:
        return folders
    chosen: set[str] = set()
    for pattern in patterns:
        name = pattern.removeprefix("=")
        found = [name] if name in folders else []
        if not pattern.startswith("="):
            found += fnmatch.filter(folders, pattern)
        if not found:
            raise EnvironmentNotFound(f"there is no task {name!r}; {suggestion(name, sorted(folders)[:200])}")
        chosen.update(found)
    return {name: folder for name, folder in folders.items() if name in chosen}


def _read(folders: Mapping[str, Path], place: Place, *, skip: bool) -> list[HarborTask]:
    if skip not in (True, False):
        raise ConfigError(f"skip_unsupported must be true or false, not {skip!r}")
    tasks: list[HarborTask] = []
    refused: list[str] = []
    for name, folder in folders.items():
        try:
            tasks.append(read_task(name, folder, place.root))
        except UnsupportedTask as error:
            refused.append(clean(error))
    words = "; ".join(refused[:_SHOWN]) + (f"; and {len(refused) - _SHOWN} more" if len(refused) > _SHOWN else "")
    if refused and not (skip and tasks):
        advice = "" if not tasks else ". To run the others, set skip_unsupported = true in env_args"
        raise ConfigError(f"{len(refused)} of {len(folders)} tasks are not supported: {words}{advice}")
    if refused:
        logger.warning("%d of %d tasks are left out: %s", len(refused), len(folders), words)
    return tasks


def _warn(tasks: Sequence[HarborTask]) -> None:
    """Warn of keys that have no effect."""
    users: dict[str, list[str]] = defaultdict(list)
    for task in tasks:
        for key in task.unknown_keys:
            users[key].append(task.name)
    for key, names in list(users.items())[:20]:
        words = "task.toml: the key %s is not known and has no effect (%d of %d tasks, such as %s)"
        logger.warning(words, clean(key, 80), len(names), len(tasks), names[0])
