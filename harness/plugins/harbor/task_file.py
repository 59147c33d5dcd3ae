"""Read and validate a task: its `task.toml`, its instruction, and the files that it must have. A task of strangers is
untrusted: types are checked, and links that leave its collection are refused."""

from __future__ import annotations

import json
import math
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from harness.core.errors import ConfigError, EnvironmentFault
from harness.core.redact import names_secret
from harness.core.safe_text import clean
from harness.core.types import JsonDict
from harness.sandbox.images import content_hash
from harness.sandbox.machine import LEAST_CPUS, LEAST_MEMORY_MB, VARIABLE, is_image_name
from harness.store.safe_files import read_file

MOST_BYTES = 1 << 20
"""Maximum size of `task.toml` and of an instruction."""

SECONDS = 600.0
"""Timeout of a build, and of a verifier, that the task does not set."""

MEMORY_MB = 2048

_TABLES: Mapping[str, frozenset[str]] = {
    "": frozenset(
        ["version", "schema_version", "task", "metadata", "verifier", "agent", "environment", "solution", "source"]
    ),
    "verifier": frozenset(["timeout_sec", "env", "user", "network_mode", "environment_mode"]),
    "agent": frozenset(["timeout_sec", "user", "network_mode"]),
    "solution": frozenset({"env"}),
    "environment": frozenset(
        [
            "build_timeout_sec",
            "docker_image",
            "os",
            "cpus",
            "memory",
            "memory_mb",
            "storage",
            "storage_mb",
            "gpus",
            "gpu_types",
            "network_mode",
            "allow_internet",
            "env",
            "workdir",
        ]
    ),
}
"""Keys of each table that are known; `task` and `metadata` describe the task and are not read."""

_UNSUPPORTED: Mapping[str, str] = {
    "steps": "several steps",
    "environment.gpus": "GPUs",
    "environment.tpu": "TPUs",
    "environment.mcp_servers": "MCP servers",
    "environment.skills_dir": "skills",
    "environment.healthcheck": "health checks",
    "environment.allowed_hosts": "lists of allowed hosts",
    "agent.allowed_hosts": "lists of allowed hosts",
    "verifier.allowed_hosts": "lists of allowed hosts",
    "verifier.environment": "a verifier in an environment of its own",
    "verifier.collect": "commands before the verifier",
    "verifier.continuous": "verification while the agent works",
}
"""Keys that change the measurement and are refused, unless they are empty, with their meaning."""

_SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*([KMG])B?", re.IGNORECASE)

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?\}", re.DOTALL)
"""A value that is taken from this computer's environment: `${NAME}` or `${NAME:-default}`."""


class UnsupportedTask(ConfigError):
    """The task needs a part of the format that this environment does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HarborTask:
    """A validated task."""

    name: str
    """Path of its folder in the collection."""
    folder: Path
    instruction: str
    digest: str
    """Hash of all of its files."""
    docker_image: str | None
    network: bool
    cpus: float | None
    memory_mb: int
    storage_mb: int | None
    workdir: str | None
    build_seconds: float
    agent_seconds: float | None
    verifier_seconds: float
    agent_user: str | None
    verifier_user: str | None
    env: dict[str, str]
    """Environment variables of all programs, as written, like the next two."""
    verifier_env: dict[str, str]
    solution_env: dict[str, str]
    unknown_keys: tuple[str, ...]

    @property
    def file(self) -> Path:
        """The task's `task.toml`, for messages."""
        return self.folder / "task.toml"

    @property
    def build_folder(self) -> Path | None:
        """Folder with a Dockerfile, if there is one."""
        folder = self.folder / "environment"
        return folder if (folder / "Dockerfile").is_file() else None

    @property
    def has_solution(self) -> bool:
        """Whether there is a reference solution."""
        return (self.folder / "solution" / "solve.sh").is_file()

    def variables(self, table: str, allowed: frozenset[str]) -> dict[str, str]:
        """Environment variables of a table, with values of this computer for those that are written as `${NAME}`.

        Args:
            table: `environment`, `verifier` or `solution`.
            allowed: Names of variables of this computer that tasks may have.

        Raises:
            ConfigError: a variable of this computer is not set or not allowed, and the task has no default.
        """
        written = {"environment": self.env, "verifier": self.verifier_env, "solution": self.solution_env}[table]
        found: dict[str, str] = {}
        for key, text in written.items():
            reference = _VARIABLE.fullmatch(text)
            value = text if reference is None else reference[2]
            if reference is not None and reference[1] in allowed:
                value = os.environ.get(reference[1], value)
            if value is None:
                why = "is not set" if reference is not None and reference[1] in allowed else "is not given to tasks"
                name = reference[1] if reference is not None else key
                if names_secret(name):
                    why += " (in a process of its own, only with --worker-vars)"
                raise ConfigError(
                    f"{self.file}: {table}.env.{key} needs the variable {name} of this computer, which {why}; to give "
                    f'it to the task, set it and name it: pass_env = ["{name}"] in env_args'
                )
            found[key] = value
        return found

    def require_unchanged(self) -> None:
        """Raise an error if a file of the task is not as it was when the run began. Blocks.

        Raises:
            EnvironmentFault: a file has changed, or cannot be read.
        """
        try:
            is_unchanged = _digest(self.folder, self.instruction) == self.digest
        except OSError:
            is_unchanged = False
        if not is_unchanged:
            raise EnvironmentFault(f"{self.folder}: files of the task have changed since the run began")


def read_task(name: str, folder: Path, root: Path) -> HarborTask:
    """Read a task. Blocks.

    Args:
        name: Path of its folder in the collection.
        folder: Its folder.
        root: Folder that the files of the task must not leave through links.

    Raises:
        UnsupportedTask: the task needs something that is not supported.
        ConfigError: a file is missing or invalid; the message names it and the key.
    """
    try:
        return _read_task(name, folder, root)
    except (OSError, RuntimeError) as error:  # no rights, or links in a circle
        raise ConfigError(f"{folder} cannot be read: {error}") from error


def _read_task(name: str, folder: Path, root: Path) -> HarborTask:
    _check_files(folder, root)
    task = _TaskReader(folder / "task.toml", _table_of(folder / "task.toml"))
    task.refuse()
    try:
        instruction = read_file(folder / "instruction.md", MOST_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{folder / 'instruction.md'} cannot be read: {error}") from error
    if not instruction.strip():
        raise ConfigError(f"{folder / 'instruction.md'} is empty")
    made = task.read(name, folder, instruction)
    if made.docker_image is None and made.build_folder is None:
        raise ConfigError(f"{made.file}: the task has neither environment.docker_image nor environment/Dockerfile")
    return made


def _check_files(folder: Path, root: Path) -> None:
    """Refuse links that leave `root`, missing files, and files of features that are not supported."""
    parts = ("", "task.toml", "instruction.md", "environment", "environment/Dockerfile", "tests", "tests/test.sh",
             "solution", "solution/solve.sh")  # fmt: skip
    for part in parts:
        path = folder / part
        if not path.resolve().is_relative_to(root):
            raise ConfigError(f"{path} is a link to a place outside of {root}, which is not followed")
    for part, words in {"steps": "several steps", "tests/docker-compose.yaml": "several containers"}.items():
        if (folder / part).exists():
            raise UnsupportedTask(f"{folder / part}: {words} are not supported")
    _check_links(folder)
    for path in sorted((folder / "environment").glob("*compose*.y*ml")):
        raise UnsupportedTask(f"{path}: several containers (compose) are not supported")
    if not (folder / "tests" / "test.sh").is_file():
        if (folder / "tests" / "test.bat").exists():
            raise UnsupportedTask(f"{folder / 'tests' / 'test.bat'}: tasks for Windows are not supported")
        raise ConfigError(f"{folder / 'tests' / 'test.sh'} is missing: the task has no tests")


def _check_links(folder: Path) -> None:
    """Refuse links to files that exist outside of the folder that is copied into the container, where they are missing.
    Absolute links, and those to files that do not exist here, may be meant for the container."""
    for part in ("environment", "tests", "solution"):
        whole = (folder / part).resolve()
        for parent, folders, files in os.walk(whole):
            for path in (Path(parent, name) for name in (*folders, *files)):
                if not path.is_symlink() or os.path.isabs(os.readlink(path)) or path == whole / "Dockerfile":
                    continue
                if path.exists() and not path.resolve().is_relative_to(whole):
                    raise UnsupportedTask(f"{path}: links to a place outside of the folder {part} are not supported")


def _digest(folder: Path, instruction: str) -> str:
    """Hash of all files of a task, also of those that it has by links, apart from rights to read and write."""
    linked = [folder / part for part in ("environment", "tests", "solution") if (folder / part).is_symlink()]
    files = [path for path in (folder / "task.toml", folder / "environment" / "Dockerfile") if path.is_symlink()]
    texts = [instruction, *(path.read_text("utf-8", "replace") for path in files)]
    return content_hash(folder, json.dumps([*texts, *(content_hash(each, "", 0o111) for each in linked)]), 0o111)


def _table_of(file: Path) -> JsonDict:
    try:
        return tomllib.loads(read_file(file, MOST_BYTES).decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from error


class _TaskReader:
    """Reads values of a `task.toml`.

    Args:
        file: Its path, for messages.
        document: Its contents.

    Raises:
        ConfigError: `agent`, `verifier`, … is not a table.
    """

    def __init__(self, file: Path, document: JsonDict) -> None:
        self._file = file
        self._tables: dict[str, JsonDict] = {"": document}
        for name in filter(None, _TABLES):
            table = document.get(name, {})
            if not isinstance(table, dict):
                raise self._wrong(name, "a table", table)
            self._tables[name] = cast(JsonDict, table)

    def read(self, name: str, folder: Path, instruction: str) -> HarborTask:
        """Read all values."""
        environment = self._tables["environment"]
        return HarborTask(
            name=name,
            folder=folder,
            instruction=instruction,
            digest=_digest(folder, instruction),
            docker_image=self._text("environment.docker_image"),
            network=self._network(),
            cpus=self._number("environment.cpus", LEAST_CPUS),
            memory_mb=self._megabytes("environment.memory", LEAST_MEMORY_MB) or MEMORY_MB,
            storage_mb=self._megabytes("environment.storage"),
            workdir=self._text("environment.workdir"),
            build_seconds=self._number("environment.build_timeout_sec") or SECONDS,
            agent_seconds=self._number("agent.timeout_sec"),
            verifier_seconds=self._number("verifier.timeout_sec") or SECONDS,
            agent_user=self._user("agent.user"),
            verifier_user=self._user("verifier.user"),
            env=self._env("environment", environment),
            verifier_env=self._env("verifier", self._tables["verifier"]),
            solution_env=self._env("solution", self._tables["solution"]),
            unknown_keys=tuple(
                f"{table}.{key}".lstrip(".")
                for table, known in _TABLES.items()
                for key, value in self._tables[table].items()
                if value not in ([], {}) and key not in known and f"{table}.{key}".lstrip(".") not in _UNSUPPORTED
            ),
        )

    def refuse(self) -> None:
        """Refuse parts of the format that are not supported and change the measurement."""
        for key, words in _UNSUPPORTED.items():
            if self._value(key):
                raise UnsupportedTask(f"{self._file}: {key}: {words} are not supported")
        for key in ("version", "schema_version"):
            if str(self._value(key) or "1").partition(".")[0] != "1":
                raise UnsupportedTask(f"{self._file}: {key}: only version 1 of the format is supported")
        if str(self._value("environment.os") or "linux").lower() != "linux":
            raise UnsupportedTask(f"{self._file}: environment.os: only linux is supported")
        if self._value("verifier.environment_mode") not in (None, "shared"):
            raise UnsupportedTask(f"{self._file}: verifier.environment_mode: only 'shared' is supported")

    def _network(self) -> bool:
        modes = {"public": True, "no-network": False}
        allowed = self._value("environment.allow_internet")
        if not isinstance(allowed, bool | None):
            raise self._wrong("environment.allow_internet", "true or false", allowed)
        mode = self._value("environment.network_mode")
        found = allowed is not False
        for key in ("environment.network_mode", "agent.network_mode", "verifier.network_mode"):
            value = self._value(key)
            if value == "allowlist":
                raise UnsupportedTask(f"{self._file}: {key}: lists of allowed hosts are not supported")
            if value is not None and (not isinstance(value, str) or value not in modes):
                raise self._wrong(key, "'public' or 'no-network'", value)
            if key == "environment.network_mode" and mode is not None:
                found = modes[str(mode)]
            elif value is not None and modes[str(value)] != found:
                raise UnsupportedTask(f"{self._file}: {key}: a network that changes during the task is not supported")
        return found

    def _value(self, key: str) -> object:
        table, _, name = key.rpartition(".")
        return self._tables[table].get(name)

    def _number(self, key: str, least: float = 0.0) -> float | None:
        value = self._value(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf or value > 1e9:
            raise self._wrong(key, "a number above 0", value)
        if value < least:
            raise self._wrong(key, f"at least {least:g}", value)
        return float(value)

    def _megabytes(self, key: str, least: int = 0) -> int | None:
        """Read `memory_mb`, or `memory` such as "2G"."""
        whole = self._number(f"{key}_mb", least)
        if whole is not None:
            return math.ceil(whole)
        value = self._value(key)
        if value is None:
            return None
        match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
        if match is None or not float(match[1]):
            raise self._wrong(key, "a size such as '2G' or '512M'", value)
        found = math.ceil(float(match[1]) * {"K": 1 / 1024, "M": 1, "G": 1024}[match[2].upper()])
        if found < least:
            raise self._wrong(key, f"at least {least}M", value)
        return found

    def _text(self, key: str) -> str | None:
        value = self._value(key)
        if value is not None and (not isinstance(value, str) or not value.strip() or "\0" in value):
            raise self._wrong(key, "a text", value)
        if key == "environment.workdir" and value is not None and not value.startswith("/"):
            raise self._wrong(key, "an absolute path", value)
        if key == "environment.docker_image" and value is not None and not is_image_name(value):
            raise self._wrong(key, "the name of an image", value)
        return value

    def _user(self, key: str) -> str | None:
        value = self._value(key)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31:
            return str(value)
        return self._text(key)

    def _env(self, table: str, values: JsonDict) -> dict[str, str]:
        env = values.get("env", {})
        if not isinstance(env, dict):
            raise self._wrong(f"{table}.env", "a table", env)
        for name, text in cast("dict[str, object]", env).items():
            if not VARIABLE.fullmatch(name):
                raise self._wrong(f"{table}.env", "a table of names of letters, digits and underscores", name)
            if not isinstance(text, str) or "\0" in text:
                raise self._wrong(f"{table}.env.{name}", "a text", text)
        return cast("dict[str, str]", env)

    def _wrong(self, key: str, wanted: str, value: object) -> ConfigError:
        return ConfigError(f"{self._file}: {clean(key, 80)} must be {wanted}, not {clean(repr(value), 80)}")
