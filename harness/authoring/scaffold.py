"""Create the project of a new environment from templates. The templates are in the folder `templates`; their
placeholders look like `@name@`."""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from harness.authoring.names import Names, read_name
from harness.core.errors import ConfigError, StoreError

Kind: TypeAlias = Literal["single-turn", "multi-turn", "tool"]

KINDS: tuple[Kind, ...] = get_args(Kind)

SUFFIX = ".in"
"""Suffix of template files, which keeps Python tools from reading them as modules of this package."""

_PLACEHOLDER = re.compile(r"@(name|module|class|bench)@")


@dataclass(frozen=True, slots=True)
class Created:
    """A project that was created."""

    names: Names
    folder: Path
    files: tuple[str, ...]
    """Paths relative to the folder, in reading order."""


def create(name: str, parent: Path, kind: Kind = "single-turn") -> Created:
    """Create the project of a new environment. On an error, nothing is left behind.

    Args:
        name: Name for `bench run`; an organisation in front is dropped.
        parent: Folder in which the project's folder is created; created if missing.
        kind: Working example to start from.

    Raises:
        ConfigError: the name is invalid, or is in use here or by an installed package.
        StoreError: the files cannot be written.
    """
    names = read_name(name)
    before, slash, _ = name.strip().partition("/")
    if slash and Path(before).is_dir() and Path(before).resolve() != parent.resolve():
        raise ConfigError(
            f"{name!r} may be a path or an organisation's",
            remedy="use {init_path} {before} for the folder {before}, or the bare name {bare}",
            before=before,
            bare=names.name,
        )
    for taken in (parent / names.module, parent / names.name):
        if os.path.lexists(taken):
            raise ConfigError(
                f"{taken} exists already", remedy="choose another name, or another folder with {init_path}"
            )
    files = _render(names, kind)
    try:
        _write(parent, names.module, files)
    except OSError as error:
        reason = error.strerror or str(error)
        raise StoreError(f"cannot create {parent / names.module}: {reason}") from error
    return Created(names, parent / names.module, tuple(files))


def _render(names: Names, kind: Kind) -> dict[str, str]:
    """File contents by relative path. The files of the kind, which an author edits, come first."""
    root = importlib.resources.files("harness.authoring") / "templates"
    values = {
        "name": names.name,
        "module": names.module,
        "class": names.class_name,
        "bench": importlib.metadata.version("bench-harness"),
    }

    def reading_order(path: str) -> tuple[bool, bool, str]:
        return path.startswith("tests/"), "/" not in path, path  # the package, then files beside it, then tests

    def filled(text: str) -> str:
        return _PLACEHOLDER.sub(lambda match: values[match[1]], text)

    return {
        filled(path.removesuffix(SUFFIX)): filled(source.read_text(encoding="utf-8"))
        for folder in (root / kind.replace("-", "_"), root / "base")
        for path, source in sorted(_walk(folder), key=lambda item: reading_order(item[0]))
    }


def _walk(folder: Traversable, prefix: str = "") -> list[tuple[str, Traversable]]:
    found: list[tuple[str, Traversable]] = []
    for entry in folder.iterdir():
        if entry.is_dir():
            found += _walk(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(SUFFIX):
            found.append((f"{prefix}{entry.name}", entry))
    return found


def _write(parent: Path, folder: str, files: dict[str, str]) -> None:
    parent.mkdir(parents=True, exist_ok=True)
    # Written to a temporary folder and renamed, so that an error leaves no incomplete project.
    scratch = Path(tempfile.mkdtemp(prefix=f".{folder}-", dir=parent))
    try:
        for path, text in files.items():
            target = scratch / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        scratch.chmod(0o755)  # mkdtemp makes it private
        scratch.rename(parent / folder)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
