"""Packages that only look installed: a folder with their metadata, and nothing that could be imported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.cli.doctor.packages import Installed


@dataclass(frozen=True)
class Shelf:
    folder: Path

    def put(self, name: str, version: str, requires: Sequence[str] = (), extras: Sequence[str] = ()) -> None:
        """Add a distribution, or another release of one."""
        info = self.folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        lines += [f"Requires-Dist: {each}" for each in requires] + [f"Provides-Extra: {each}" for each in extras]
        (info / "METADATA").write_text("\n".join(lines) + "\n")

    @property
    def installed(self) -> Installed:
        """What stands there now."""
        return Installed([str(self.folder)])
