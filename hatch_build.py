"""Build hook of the wheel: adds the environments of this repository in the form in which pip would install them."""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.builders.wheel import WheelBuilder

BUNDLED = "harness/bundled"
"""Folder of the wheel that `harness.settings.packages` appends to the import path."""


class BundledEnvironments(BuildHookInterface[Any]):
    """Builds the wheel of each project in `environments/` and adds its files, metadata included. So a bundled
    environment has the distribution name, version and source files of an installed one, and their runs match."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files; an editable install has none, since the checkout's environments are installed on their own."""
        if version == "editable":
            return
        self._folder = tempfile.TemporaryDirectory(prefix="bundled-")
        for project in sorted(Path(self.root, "environments").glob("*/pyproject.toml")):
            wheels = Path(self._folder.name, "wheels")
            for wheel in WheelBuilder(str(project.parent)).build(directory=str(wheels), versions=["standard"]):
                with zipfile.ZipFile(wheel) as archive:
                    archive.extractall(Path(self._folder.name, "files"))
        build_data["force_include"][str(Path(self._folder.name, "files"))] = BUNDLED

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Delete the unpacked files."""
        if version != "editable":
            self._folder.cleanup()
