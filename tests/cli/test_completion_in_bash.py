"""Completion in a real interactive bash, on a terminal, as `bench --install-completion` sets it up."""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import pytest

BASH = shutil.which("bash")

PATIENCE = 60.0
"""Seconds to wait for the terminal; longer than any answer takes."""

pytestmark = [pytest.mark.slow, pytest.mark.skipif(BASH is None, reason="needs bash: apt-get install bash")]


class Bash:
    """An interactive bash on a terminal."""

    def __init__(self, home: Path) -> None:
        self.master, slave = os.openpty()
        names = {"HOME": str(home), "PS1": "", "TERM": "dumb", "INPUTRC": "/dev/null"}
        commands = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.process = subprocess.Popen(
            [BASH or "bash", "-i"],
            stdin=slave, stdout=slave, stderr=slave, cwd=home, env={**os.environ, **names, "PATH": commands},
            start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        self.type("bind 'set enable-bracketed-paste off'; bind 'set bell-style none'; echo rea''dy\n")
        self.wait_for("ready\r\n")

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def wait_for(self, words: str) -> str:
        """The output up to these words."""
        seen, deadline = "", time.monotonic() + PATIENCE
        while words not in seen:
            left = deadline - time.monotonic()
            assert select.select([self.master], [], [], max(0.0, left))[0], f"no {words!r} after {seen!r}"
            seen += os.read(self.master, 65536).decode()
        return seen

    def completed(self, line: str) -> list[str]:
        """The words of a line after Tab is pressed at its end, as a command gets them."""
        self.type(f"{line}\t\x01printf '<%s>' \x05; echo ' en''d'\n")  # ^A, ^E: the line's start and end
        seen = self.wait_for(" end\r\n")
        return re.findall(r"<([^<>%]*)>", seen)


@pytest.fixture
def bash(tmp_path: Path) -> Generator[Bash]:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "endpoints.toml").write_text(
        '[[endpoint]]\nendpoint_id = "refined:8b"\nmodel = "m"\nurl = "http://127.0.0.1:9/v1"\n'
    )
    (tmp_path / "my suite.toml").write_text('[[eval]]\nenv_id = "gsm8k"\n')
    bench = Path(sys.executable).parent / "bench"
    done = subprocess.run(
        [bench, "--install-completion", "bash"],
        cwd=tmp_path, env={**os.environ, "HOME": str(tmp_path)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "bash completion installed in" in done.stdout
    made = Bash(tmp_path)
    yield made
    os.close(made.master)  # hangs up
    made.process.wait(PATIENCE)


def test_tab_completes_commands_options_and_names(bash: Bash) -> None:
    for line, words in {
        "bench resc": ["rescore"],
        "bench run gsm8k,wordl": ["run", "gsm8k,wordle"],
        "bench run gsm8k --max-concurrent-g": ["run", "gsm8k", "--max-concurrent-generation"],
        "bench run gsm8k -m refi": ["run", "gsm8k", "-m", "refined:8b"],
        "bench run gsm8k -m refined:": ["run", "gsm8k", "-m", "refined:8b"],
        "bench run gsm8k --model=refined:8": ["run", "gsm8k", "--model=refined:8b"],
        "bench run gsm8k --model=": ["run", "gsm8k", "--model=ref"],  # what all of them begin with
        "bench run -a n=1 gsm8k -a a:b --model=refi": ["run", "-a", "n=1", "gsm8k", "-a", "a:b", "--model=refined:8b"],
        "bench run my": ["run", "my suite.toml"],  # bash completes file names with quotes
        "bench runs show lat": ["runs", "show", "latest"],
    }.items():  # fmt: skip
        assert bash.completed(line) == ["bench", *words], line
