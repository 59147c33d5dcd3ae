"""The guide for authors shows what really happens."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

GUIDE = (Path(__file__).parents[2] / "docs/guides/authoring.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
SCREENS = [text for language, text in BLOCKS if not language]
[SOURCE] = [text for language, text in BLOCKS if language == "python"]
TIMES = re.compile(r"[\d.]+ ms")


@pytest.mark.slow
def test_what_the_guide_shows_of_a_new_environment_is_what_one_sees(tmp_path: Path) -> None:
    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=90, check=False,
            env={**os.environ, "COLUMNS": "120"},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    created, checked = SCREENS
    assert run("-m", "harness.cli.main", "env", "init", "my-env").startswith(created)
    shown = run("-m", "harness.cli.main", "env", "check", "environments/my_env")
    assert TIMES.sub(
        "…", shown.replace("environments/my_env", "my-env").replace("my_env 0.1.0", "my-env 0.1.0")
    ) == TIMES.sub("…", checked)
    test = tmp_path / "environments/my_env/tests/test_guide.py"
    test.write_text("from my_env import load_environment\n\n" + SOURCE.replace('"my-env"', repr(str(test.parents[1]))))
    assert "2 passed" in run("-m", "pytest", "-q", str(test))
