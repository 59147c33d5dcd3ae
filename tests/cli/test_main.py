from __future__ import annotations

import importlib.metadata
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.cli.log_handlers import harmless_logs
from harness.cli.main import COMMANDS


def child(code: str, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False, cwd=cwd
    )


def test_help_lists_the_commands_and_imports_none(bench: Any) -> None:
    done = bench("--help")
    assert done.code == 0
    for name, entry in COMMANDS.items():
        assert name in done.out
        assert entry.help in done.out
    code = (
        "import sys\nfrom harness.cli.main import main\nassert main(['--help']) == 0\n"
        "heavy = {'pydantic', 'rich', 'aiohttp', 'datasets', 'pandas', 'numpy', 'openai', 'huggingface_hub', 'orjson',"
        " 'harness.cli.run', 'harness.settings.schema', 'importlib.metadata'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    assert child(code).stderr.strip() == "[]"


def test_dry_run_imports_nothing_heavy(here: Path) -> None:
    code = (
        "import sys\nfrom harness.cli.main import main\n"
        "assert main(['run', 'toy-env', '-m', 'reference/oracle', '--dry-run', '--json']) == 0\n"
        "heavy = {'aiohttp', 'datasets', 'pandas', 'numpy', 'openai', 'huggingface_hub', 'scipy', 'toy_env'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = child(code, cwd=here)
    assert done.stderr.strip() == "[]", done.stderr


def test_version(bench: Any) -> None:
    done = bench("--version")
    assert (done.code, done.out) == (0, f"bench {importlib.metadata.version('bench-harness')}\n")


def test_no_arguments_is_help_and_wrong_usage(bench: Any) -> None:
    done = bench()
    assert done.code == 2
    assert "Usage: bench" in done.out + done.err


def test_an_unknown_command_suggests_the_nearest(bench: Any) -> None:
    done = bench("rnu")
    assert done.code == 2
    assert "'run'" in done.err


def test_run_help_shows_every_setting(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.settings.schema import SETTINGS

    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERMINAL_WIDTH", "200")
    done = bench("run", "--help")
    assert done.code == 0
    for flag in [flag for setting in SETTINGS for flag in (*setting.door.flags, *setting.door.off)]:
        assert flag in done.out
    for flag in ("--set", "--dry-run", "--json", "--resume", "--resume-from", "--retry-failed", "--quiet", "--verbose"):
        assert flag in done.out


@pytest.mark.parametrize("flag", ["--num", "--num-example", "--dry", "--mod", "--js"])
def test_no_option_matches_by_its_beginning(bench: Any, flag: str) -> None:
    done = bench("run", "toy-env", flag, "3")
    assert done.code == 2
    assert f"No such option: {flag}" in done.err


def test_errors_are_one_message_and_with_verbose_a_traceback(bench: Any) -> None:
    done = bench("run", "nope.toml")
    assert (done.code, done.out, done.err) == (2, "", "error: nope.toml: no such file\n")
    done = bench("run", "nope.toml", "-v")
    assert done.code == 2
    assert "Traceback" in done.err
    assert "nope.toml: no such file" in done.err


def test_the_console_script_is_this_function(here: Path) -> None:
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="bench")
    assert script.value == "harness.cli.main:main"
    done = subprocess.run(
        [sys.executable, "-m", "harness.cli.main", "run", "toy-env", "-n", "0"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == "error: -n 0: num_examples must be -1 (all of them) or at least 1\n"


def test_an_interrupt_is_130(here: Path) -> None:
    # reading the suite blocks on a pipe that nobody writes, so that the interrupt comes while `bench` is at work
    os.mkfifo(here / "suite.toml")
    process = subprocess.Popen(
        [sys.executable, "-m", "harness.cli.main", "run", "suite.toml"], stderr=subprocess.PIPE, text=True
    )
    with open(here / "suite.toml", "w") as opened:  # returns when the child has opened its end, and keeps it waiting
        process.send_signal(signal.SIGINT)
        try:
            _, err = process.communicate(timeout=60)
        finally:
            process.kill()
        assert not opened.closed
    assert process.returncode == 130, err
    assert "Traceback" not in err


def test_what_looks_like_a_key_is_on_no_line_of_a_library_s_log(capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody named it a secret, and no command shows logs in a way of its own."""
    library = logging.Logger("a library")  # without handlers, and without parents
    with harmless_logs():
        library.warning("sent \x1b[2J%s", "Authorization: Bearer sk-proj-0123456789abcdefghij")
    assert capsys.readouterr().err == "sent Authorization: [redacted]\n"


def test_what_looks_like_a_key_is_in_no_error(bench: Any) -> None:
    done = bench("run", "sk-proj-0123456789abcdefghij", "-m", "reference/oracle")
    assert done.code != 0 and "error: " in done.err
    assert "[redacted]" in done.err and "0123456789" not in done.err


def test_a_working_directory_that_was_removed_is_one_message(tmp_path: Path) -> None:
    code = "import os, sys\nos.rmdir(os.getcwd())\nfrom harness.cli.main import main\nsys.exit(main(['runs', 'list']))"
    gone = tmp_path / "gone"
    gone.mkdir()
    done = child(code, cwd=gone)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: the working directory was removed; change to one that exists, and try again\n"
