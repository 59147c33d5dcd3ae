"""`bench env install` and names that may be a stranger's: nothing is taken from an index that nobody has asked for."""

from __future__ import annotations

import os
import pty
import sys
from pathlib import Path

import pytest
from terminals import read_all

from harness.authoring.catalogue import ListedEnvironment
from harness.cli.env_install import model_for
from harness.cli.main import main

INDEX = "so it would be installed from the package index, where anybody can register that name"


@pytest.fixture
def no_index(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index without any package: pip ends at once, and says that it was asked."""
    index = here / "index"
    index.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    return index


def test_where_nobody_can_be_asked_a_strange_name_is_refused(
    no_index: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["env", "install", "nothing-like-it"])
    said = capsys.readouterr()
    assert (code, said.out) == (2, "")
    assert said.err == (
        f"error: nothing-like-it: no environment here is called nothing-like-it, {INDEX}. Nothing was installed. To "
        "install it anyway: bench env install --yes nothing-like-it, or with an exact version: bench env install "
        "nothing-like-it==VERSION\n"
    )


def test_a_misspelt_name_is_not_fetched_and_the_right_one_is_named(
    no_index: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path("environments/my_env")
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text('[project]\nname = "my-env"\nversion = "1"\n')
    assert main(["env", "install", "my-enw"]) == 2
    said = capsys.readouterr().err
    assert "(did you mean 'my-env'?)" in said
    assert "$ " not in said  # no installer was called


def test_the_command_that_says_so_asks_for_all_that_was_asked_for(
    no_index: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["env", "install", "-U", "--no-editable", "nothing-like-it", "other-one==1.2", "-p", "mine"]) == 2
    assert capsys.readouterr().err.endswith(
        " To install it anyway: "
        "bench env install --yes --path mine --no-editable --upgrade nothing-like-it other-one==1.2\n"
    )


@pytest.mark.slow
def test_a_password_in_an_address_is_not_shown(no_index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "install", "x @ https://somebody:canary-word@127.0.0.1:9/x.whl"]) == 1
    said = capsys.readouterr()
    assert "$ " in said.err and "127.0.0.1:9/x.whl" in said.err
    assert "canary" not in said.out + said.err


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("nothing-like-it", "--yes"), ("nothing-like-it==1.2",)], ids=str)
def test_who_says_so_or_knows_the_version_is_not_asked(
    arguments: tuple[str, ...], no_index: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["env", "install", *arguments])
    said = capsys.readouterr().err
    assert code == 1
    assert "ended with exit code 1; see its output above" in said  # it was called, and has found nothing
    assert "no environment here is called" not in said


@pytest.mark.parametrize(("answer", "called"), [("y\n", True), ("n\n", False), ("\n", False), ("\x04", False)])
def test_a_terminal_is_asked(
    answer: str, called: bool, no_index: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    master, terminal = pty.openpty()
    os.write(master, answer.encode())
    with os.fdopen(terminal, "r+b", buffering=0) as both:
        monkeypatch.setattr("sys.stdin", os.fdopen(os.dup(both.fileno()), encoding="utf-8"))
        monkeypatch.setattr("sys.stderr", os.fdopen(os.dup(both.fileno()), "w", encoding="utf-8", buffering=1))
        assert main(["env", "install", "nothing-like-it"]) == 1
        sys.stdin.close()
        sys.stderr.close()
    said = read_all(master)
    assert "Install nothing-like-it from the package index? [y/N]: " in said
    assert ("ended with exit code 1" in said) == called
    assert ("nothing was installed" in said) != called
    assert capsys.readouterr().out == ""


@pytest.mark.plugins
def test_the_model_that_is_advised_can_play_what_was_installed(here: Path) -> None:
    package, native = here / "quiz" / "__init__.py", here / "native.py"
    package.parent.mkdir()
    package.write_text("from quiz.env import load_environment\n")
    (package.parent / "env.py").write_text("import verifiers as vf\n\ndef load_environment(): ...\n")
    native.write_text('"""Like those of verifiers."""\nimport harness\n')
    advised = [model_for(ListedEnvironment("quiz", "editable", path=str(path))) for path in (package, native)]
    assert advised == ["MODEL", "reference/oracle"]
