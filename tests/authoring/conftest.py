"""Distributions as installers leave them, on an import path of the test's own."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Install = Callable[..., Path]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the import path; what is imported from it is forgotten afterwards."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    before = set(sys.modules)
    yield folder
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def install(site: Path) -> Install:
    """Put a distribution into the site folder: its metadata, and its files by relative path."""

    def install(
        name: str, files: dict[str, str], *, version: str = "1.0", summary: str = "", entry: str = "",
        requires: tuple[str, ...] = (), direct_url: str = "",
    ) -> Path:  # fmt: skip
        info = site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        head = [f"Name: {name}", f"Version: {version}", f"Summary: {summary}"]
        head += [f"Requires-Dist: {each}" for each in requires]
        (info / "METADATA").write_text("Metadata-Version: 2.1\n" + "\n".join(head) + f"\n\n# {name}\n\nA text.\n")
        if entry:
            (info / "entry_points.txt").write_text(f"[harness.environments]\n{entry}\n")
        if direct_url:
            (info / "direct_url.json").write_text(direct_url)
        for path, text in files.items():
            target = site / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(textwrap.dedent(text))
        (info / "RECORD").write_text("".join(f"{path},,\n" for path in [*files, f"{info.name}/METADATA"]))
        return site

    return install
