"""Find the folders of tasks below a path, and clone git repositories that the path names."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from harness.core.errors import ConfigError, EnvironmentLoadError
from harness.core.safe_text import clean

GIT_SECONDS = 600.0
"""Timeout of a call of git."""

_DEPTH = 4
"""Levels of folders below the path in which tasks are searched."""

_MOST = 100_000
"""Maximum number of folders that are searched."""

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")

_KEPT = ("GIT_ASKPASS", "GIT_CONFIG_", "GIT_HTTP_", "GIT_LFS_", "GIT_PROXY_", "GIT_SSH", "GIT_SSL_")
"""Beginnings of git's variables that it gets. Others, such as GIT_INDEX_FILE in a hook, name files of another
repository."""

_OPTIONS = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.autocrlf": "false",
    "core.eol": "lf",
    "core.attributesFile": "/dev/null",
    "protocol.ext.allow": "never",
}
"""Nothing is run, and files are the same for all users."""

_SCHEMES = ("https", "http", "ssh", "file")


@dataclass(frozen=True, slots=True)
class Place:
    """A folder with tasks."""

    folder: Path
    root: Path
    """Folder that links must not leave: `folder`, or the repository that contains it."""
    commit: str | None = None
    """The commit of the repository."""


def place_of(path: str) -> Place:
    """Find the folder that a path or git URL names; clone the repository if this commit is not in the cache. Blocks.

    Args:
        path: A folder, `file:///PATH[@REF][#FOLDER]`, or `git+https://HOST/PATH[@REF][#FOLDER]`.

    Raises:
        ConfigError: there is no such folder, or the URL is invalid.
        EnvironmentLoadError: git failed.
    """
    if not path.startswith(("git+", "file://")):
        folder = Path(os.path.expanduser(path))
        if not folder.is_dir():
            raise ConfigError(f"path={path!r}: there is no such folder")
        return Place(folder.resolve(), folder.resolve())
    url, ref, inside = split_url(path)
    commit = ref if _COMMIT.fullmatch(ref) else _commit_of(url, ref)
    root = _clone(url, commit).resolve()
    folder = (root / inside).resolve()
    if not folder.is_relative_to(root) or not folder.is_dir():
        raise ConfigError(f"path={path!r}: the repository has no folder {inside!r}")
    return Place(folder, root, commit)


def split_url(path: str) -> tuple[str, str, str]:
    """Split a git URL into the address of the repository, the branch, tag or commit, and the folder in it.

    Raises:
        ConfigError: the URL is invalid.
    """
    address, _, inside = path.removeprefix("git+").partition("#")
    try:
        parts = urlsplit(address)
    except ValueError as error:
        raise ConfigError(f"path={path!r}: {error}") from error
    location, at, ref = parts.path.rpartition("@")
    location = location if at else parts.path
    ref = ref if at else ""
    if parts.scheme not in _SCHEMES or not location.strip("/"):
        raise ConfigError(f"path={path!r}: git repositories are named as git+https://HOST/PATH@REF#FOLDER")
    if parts.password or (parts.username and parts.scheme in ("https", "http")):
        raise ConfigError("path: the URL contains a user; store it in git's credential helper instead")
    if ref.startswith("-") or ".." in inside.split("/"):
        raise ConfigError(f"path={path!r}: invalid branch or folder")
    return f"{parts.scheme}://{parts.netloc}{location}", ref or "HEAD", inside.strip("/")


def cache_folder() -> Path:
    """Folder of cloned repositories: `bench/harbor` in `XDG_CACHE_HOME`, by default in `~/.cache`."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(given) if os.path.isabs(given) else Path(os.path.expanduser("~"), ".cache")
    return root / "bench" / "harbor"


def _commit_of(url: str, ref: str) -> str:
    lines = _git("ls-remote", "--", url, ref, f"refs/tags/{ref}^{{}}").splitlines()
    found = {name: commit for commit, _, name in (line.partition("\t") for line in lines)}
    names = (ref, f"refs/tags/{ref}^{{}}", f"refs/tags/{ref}", f"refs/heads/{ref}")
    commit = next((found[name] for name in names if name in found), "")
    if not _COMMIT.fullmatch(commit):
        advice = "; a commit is named by all of its digits" if re.fullmatch(r"[0-9a-f]{4,63}", ref) else ""
        raise ConfigError(f"path: {url} has no branch or tag {ref!r}{advice}")
    return commit


def _clone(url: str, commit: str) -> Path:
    target = cache_folder() / hashlib.sha256(url.encode()).hexdigest()[:16] / commit
    if target.is_dir():
        return target
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = tempfile.mkdtemp(prefix="clone-", dir=target.parent)
    try:
        _git("init", "--quiet", folder=made)
        try:
            _git("fetch", "--quiet", "--depth", "1", "--", url, commit, folder=made)
        except EnvironmentLoadError:  # some servers give only branches and tags
            _git("fetch", "--quiet", "--tags", "--", url, "+refs/heads/*:refs/remotes/origin/*", folder=made)
        _git("checkout", "--quiet", "--detach", commit, folder=made)
        os.chmod(made, 0o755)
        try:
            os.rename(made, target)
        except OSError:  # another process was faster
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return target


def _git(*arguments: str, folder: str | None = None) -> str:
    """Run git without hooks and without questions, and return its output."""
    options = [part for name, value in _OPTIONS.items() for part in ("-c", f"{name}={value}")]
    where = ["-C", folder] if folder else []
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or (name.startswith(_KEPT) and name != "GIT_CONFIG_PARAMETERS")
    }
    try:
        done = subprocess.run(
            ["git", *options, *where, *arguments], stdin=subprocess.DEVNULL, capture_output=True, timeout=GIT_SECONDS,
            env={**kept, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}, umask=0o022, check=False,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise EnvironmentLoadError("tasks in a git repository need the program git, which is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise EnvironmentLoadError(f"git {arguments[0]} took longer than {GIT_SECONDS:g} s") from error
    if done.returncode:
        words = clean(done.stderr.decode("utf-8", "replace")) or f"exit code {done.returncode}"
        raise EnvironmentLoadError(f"git {arguments[0]} failed: {words}")
    return done.stdout.decode("utf-8", "replace")


def task_folders(place: Place) -> Mapping[str, Path]:
    """Find all tasks: folders with a `task.toml`, by their path below the place.

    Raises:
        ConfigError: there are no tasks, a folder cannot be read, or a name cannot be used.
    """
    try:
        return _task_folders(place)
    except OSError as error:
        raise ConfigError(f"{error.filename} cannot be read: {error.strerror}") from error


def _task_folders(place: Place) -> Mapping[str, Path]:
    if (place.folder / "task.toml").exists():
        return {_name(place.folder.name): place.folder}
    found: dict[str, Path] = {}
    queue, searched = [(place.folder, 0)], 0
    for folder, level in queue:
        for each in sorted(folder.iterdir()):
            searched += 1
            if searched > _MOST:
                raise ConfigError(f"{place.folder} has more than {_MOST:,} files and folders: name a smaller folder")
            if each.name.startswith(".") or not each.is_dir():
                continue
            if (each / "task.toml").exists():
                found[_name(each.relative_to(place.folder).as_posix())] = each
            elif level < _DEPTH and not each.is_symlink():
                queue.append((each, level + 1))
    if not found:
        raise ConfigError(f"{place.folder} has no tasks: no folder in it has a task.toml")
    return dict(sorted(found.items()))


def _name(name: str) -> str:
    if not name.isprintable() or len(name) > 200:
        raise ConfigError(f"the folder {name!r} of a task has a name that cannot be used: rename it")
    return name
