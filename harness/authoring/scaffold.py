"""A new environment: from a name and a kind to a project's folder. Owns what is written and where; the files themselves
are templates beside this module, whose placeholders look like `@name@`."""

from __future__ import annotations

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
"""Of a template's file: what has it is not taken for a part of this package."""

_PLACEHOLDER = re.compile(r"@(name|module|class|bench)@")


@dataclass(frozen=True, slots=True)
class Created:
    """A project that was made."""

    names: Names
    folder: Path
    files: tuple[str, ...]
    """Relative to the folder, in the order in which one reads them."""


def create(name: str, parent: Path, kind: Kind = "single-turn") -> Created:
    """Make the project of a new environment, whole or not at all.

    Args:
        name: What `bench run` will call it; an organisation in front is dropped.
        parent: The folder that gets the project's folder; made if it is missing.
        kind: Which of the working examples it begins as.

    Raises:
        ConfigError: a bad name, or one that is taken, here or among what is installed.
        StoreError: the files cannot be written.
    """
    names = read_name(name)
    before, slash, _ = name.strip().partition("/")
    if slash and Path(before).is_dir() and Path(before).resolve() != parent.resolve():
        use = f"use --path {before} for the folder {before}, or the bare name {names.name}"
        raise ConfigError(f"{name!r} may be a path or an organisation's: {use}")
    for taken in (parent / names.module, parent / names.name):
        if os.path.lexists(taken):
            raise ConfigError(f"{taken} exists already; choose another name, or another folder with --path")
    files = _render(names, kind)
    try:
        _write(parent, names.module, files)
    except OSError as error:
        reason = error.strerror or str(error)
        raise StoreError(f"cannot create {parent / names.module}: {reason}") from error
    return Created(names, parent / names.module, tuple(files))


def _render(names: Names, kind: Kind) -> dict[str, str]:
    """The files by relative path. Those of the kind come first: they are what an author reads and changes."""
    root = importlib.resources.files("harness.authoring") / "templates"
    values = {"name": names.name, "module": names.module, "class": names.class_name, "bench": _bench_version()}

    def filled(text: str) -> str:
        return _PLACEHOLDER.sub(lambda match: values[match[1]], text)

    found = {
        filled(path.removesuffix(SUFFIX)): filled(source.read_text(encoding="utf-8"))
        for folder in (root / kind.replace("-", "_"), root / "base")
        for path, source in sorted(_walk(folder), key=lambda item: _reading_order(item[0]))
    }
    return found


def _walk(folder: Traversable, prefix: str = "") -> list[tuple[str, Traversable]]:
    found: list[tuple[str, Traversable]] = []
    for entry in folder.iterdir():
        if entry.is_dir():
            found += _walk(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(SUFFIX):
            found.append((f"{prefix}{entry.name}", entry))
    return found


def _reading_order(path: str) -> tuple[bool, bool, str]:
    """The package, then what is beside it, then its tests."""
    return path.startswith("tests/"), "/" not in path, path


def _write(parent: Path, folder: str, files: dict[str, str]) -> None:
    parent.mkdir(parents=True, exist_ok=True)
    # Written beside and moved into place, so that a full disk leaves no half project behind.
    scratch = Path(tempfile.mkdtemp(prefix=f".{folder}-", dir=parent))
    try:
        for path, text in files.items():
            target = scratch / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        scratch.chmod(0o755)  # mkdtemp keeps others out
        scratch.rename(parent / folder)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def _bench_version() -> str:
    """The version that the new environment asks for: this one."""
    import importlib.metadata

    try:
        return importlib.metadata.version("bench-harness")
    except importlib.metadata.PackageNotFoundError:
        return "0.1.0"
