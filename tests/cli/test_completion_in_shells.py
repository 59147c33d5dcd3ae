"""Completion in real interactive shells, on a terminal, as `bench --install-completion` sets it up."""

from __future__ import annotations

import fcntl
import os
import re
import select
import shutil
import subprocess
import sys
import termios
import time
from collections.abc import Generator
from pathlib import Path

import pytest

PATIENCE = 60.0
"""Seconds to wait for the terminal; longer than any answer takes."""

pytestmark = pytest.mark.slow


class Shell:
    """An interactive shell on a terminal."""

    def __init__(self, name: str, home: Path) -> None:
        self.master, slave = os.openpty()
        termios.tcsetwinsize(slave, (50, 200))
        names = {**environ(home), "PS1": "", "TERM": "xterm" if name == "fish" else "dumb", "INPUTRC": "/dev/null"}
        self.process = subprocess.Popen(
            [name, "-i"],
            stdin=slave, stdout=slave, stderr=slave, cwd=home, env=names,
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # fish needs its terminal
        )  # fmt: skip
        os.close(slave)
        quiet = {"bash": "bind 'set enable-bracketed-paste off'; bind 'set bell-style none'; ",
                 "zsh": "unset zle_bracketed_paste; setopt no_beep no_prompt_cr no_prompt_sp; "}  # fmt: skip
        self.type(f"{quiet.get(name, '')}echo rea''dy\r")
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
        self.type(f"{line}\t\x01printf '<%s>' \x05; echo ' en''d'\r")  # ^A, ^E: the line's start and end
        seen = self.wait_for(" end\r\n")
        return re.findall(r"<([^<>%]*)>", seen)


def environ(home: Path) -> dict[str, str]:
    commands = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {
        **os.environ,
        "HOME": str(home),
        "ZDOTDIR": str(home),
        "XDG_CONFIG_HOME": f"{home}/.config",
        "PATH": commands,
    }


@pytest.fixture(params=["bash", "zsh", "fish"])
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Shell]:
    name = str(request.param)
    if shutil.which(name) is None:
        pytest.skip(f"needs {name}: apt-get install {name}")
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "endpoints.toml").write_text(
        '[[endpoint]]\nendpoint_id = "refined:8b"\nmodel = "m"\nurl = "http://127.0.0.1:9/v1"\n'
    )
    (tmp_path / "my suite.toml").write_text('[[eval]]\nenv_id = "gsm8k"\n')
    (tmp_path / "outputs" / "evals" / "a--b" / r"zz\$(touch entered)").mkdir(parents=True)  # of a stranger
    (tmp_path / "outputs" / "evals" / "a--b" / r"zz\$(touch entered)" / "run.json").write_text("{}")
    done = subprocess.run(
        [name, "-c", "bench --install-completion; true"],  # without `true`, the shell would not be the parent process
        cwd=tmp_path, env=environ(tmp_path), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert f"{name} completion installed in" in done.stdout
    made = Shell(name, tmp_path)
    yield made
    os.close(made.master)  # hangs up
    made.process.wait(PATIENCE)


def test_tab_completes_commands_options_and_names(shell: Shell, tmp_path: Path) -> None:
    for line, words in {
        "bench resc": ["rescore"],
        "bench run gsm8k,wordl": ["run", "gsm8k,wordle"],
        "bench run gsm8k --max-concurrent-g": ["run", "gsm8k", "--max-concurrent-generation"],
        "bench run gsm8k -m refi": ["run", "gsm8k", "-m", "refined:8b"],
        "bench run gsm8k -m refined:": ["run", "gsm8k", "-m", "refined:8b"],
        "bench run gsm8k --model=refined:8": ["run", "gsm8k", "--model=refined:8b"],
        "bench run -a n=1 gsm8k -a a:b --model=refi": ["run", "-a", "n=1", "gsm8k", "-a", "a:b", "--model=refined:8b"],
        "bench run my": ["run", "my suite.toml"],  # shells complete file names with quotes
        "bench runs show lat": ["runs", "show", "latest"],
        "bench report latest --format m": ["report", "latest", "--format", "md"],
        "bench multi --match-mode=e": ["multi", "--match-mode=exact"],
        "bench schema e": ["schema", "endpoints"],
        "bench runs show zz": ["runs", "show", "zz"],
    }.items():  # fmt: skip
        assert shell.completed(line) == ["bench", *words], line
    assert not (tmp_path / "entered").exists()
