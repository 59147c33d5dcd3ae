"""Another virtual environment that has bench, as a user's or an author's has."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

PATIENCE = 90


class Author:
    """Somebody with a shell in a folder, and a virtual environment that has bench."""

    def __init__(self, folder: Path, name: str) -> None:
        self.cwd = folder / "work"
        self.cwd.mkdir(parents=True)
        self.venv = folder / name
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(self.venv)], check=True, timeout=PATIENCE)
        # bench and what it needs, as a dependency installed there would be; what is installed goes to the new place.
        [packages] = self.venv.glob("lib/python*/site-packages")
        (packages / "bench.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
        self.packages = packages

    def lose(self, *prefixes: str) -> None:
        """Let the environment have all packages but those of these names: links to the others."""
        rest = self.venv / "rest"
        rest.mkdir()
        for path in Path(sysconfig.get_path("purelib")).iterdir():
            if not path.name.startswith(prefixes):
                (rest / path.name).symlink_to(path)
        (self.packages / "bench.pth").write_text(f"import site; site.addsitedir({str(rest)!r})\n")

    def run(self, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """`python …` of that environment, with nothing of this test run's on the path."""
        keep = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PYTHON"))}
        return subprocess.run(
            [str(self.venv / "bin/python"), *arguments], cwd=self.cwd, capture_output=True, text=True, check=False,
            timeout=PATIENCE, env={**keep, "NO_COLOR": "1", "COLUMNS": "120", **(env or {})},
        )  # fmt: skip

    def bench(self, *arguments: str, code: int = 0) -> str:
        """What `bench …` prints."""
        done = self.run("-m", "harness.cli.main", *arguments)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout
