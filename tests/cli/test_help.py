"""The help of every command: groups, examples, pages of the documentation, and letters that mean one thing."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nursery
import pytest
import typer
from tables import for_each_row

from harness.cli.examples import EXAMPLES
from harness.cli.grouped import LETTERS
from harness.cli.main import app, main

ROOT = Path(__file__).parents[2]


def context_of(words: list[str]) -> Any:
    """The context in which the command of a command line would run."""
    context: Any = typer.main.get_command(app).make_context("bench", words, resilient_parsing=False)
    while (found := getattr(context.command, "commands", None)) and context._protected_args:
        name, _, rest = context.command.resolve_command(context, context._protected_args + context.args)
        context = found[name].make_context(name, rest, parent=context)
    return context


def commands() -> Iterator[tuple[str, Any]]:
    """All commands, with the words that call them."""

    def below(path: str, context: Any) -> Iterator[tuple[str, Any]]:
        command = context.command
        yield path, context
        names = command.list_commands(context) if hasattr(command, "list_commands") else ()
        for name in names:
            inner = command.get_command(context, name).make_context(name, [], parent=context, resilient_parsing=True)
            yield from below(f"{path} {name}", inner)

    root = typer.main.get_command(app)
    yield from below("bench", root.make_context("bench", [], resilient_parsing=True))


def test_every_command_has_two_examples_and_a_page() -> None:
    found = {path: context.command.get_help(context) for path, context in commands()}
    assert len(found) > 25
    for path, text in found.items():
        page, examples = EXAMPLES[path]
        assert all(len(example) <= 76 for example in examples)
        assert len(examples) == 2 and (ROOT / page).is_file(), path
        assert all(f"    {example}\n" in text for example in examples), text
        assert text.endswith(f"Documentation: {page}"), text


@for_each_row("example", sorted({each for _, examples in EXAMPLES.values() for each in examples}))
def test_an_example_names_options_that_exist(example: str) -> None:
    words = shlex.split(example)[1:]
    if "--help" in words:
        assert main(words) == 0
        return
    assert context_of(words).command is not None


def test_a_letter_means_one_thing_or_the_help_says_what_else() -> None:
    meanings: dict[str, set[str]] = {}
    for path, context in commands():
        for parameter in context.command.get_params(context):
            names = [*parameter.opts, *parameter.secondary_opts]
            letters = [name for name in names if len(name) == 2 and name[1].isalpha()]
            for letter in letters:
                help_text = getattr(parameter, "help", "") or ""
                if f"(Elsewhere {letter} is {LETTERS.get(letter)}.)" not in help_text:
                    long = {name for name in names if name.startswith("--")}
                    known = meanings.setdefault(letter, set())
                    assert not known or known & long, (path, letter, known, long)
                    known.update(long)
    assert len(meanings) > 15


# Completion


def test_completion_is_installed_for_the_shell_that_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for arguments, file in (
        (["--install-completion", "zsh"], ".zfunc/_bench"),
        (["--install-completion=fish"], ".config/fish/completions/bench.fish"),
        (["--install-completion", "bash"], ".bash_completions/bench.sh"),
    ):
        before = {path for path in tmp_path.rglob("*") if path.is_file()}
        assert main(arguments) == 0
        shell = arguments[-1].rpartition("=")[2]
        assert f"{shell} completion installed in {tmp_path / file}" in capsys.readouterr().out
        made = {path for path in tmp_path.rglob("*") if path.is_file()} - before
        assert made <= {tmp_path / file, tmp_path / f".{shell}rc"}
        assert main(["--show-completion", shell]) == 0
        assert capsys.readouterr().out.strip() == (tmp_path / file).read_text().strip()
    for wrong in (["zssh"], ["zsh", "bash"], [""], ["run"]):
        assert main(["--install-completion", *wrong]) == 2
        assert "not a known shell; name one of bash, zsh, fish" in capsys.readouterr().err
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["--install-completion", "pwsh"]) == 2
    assert "pwsh is not installed; bench --show-completion pwsh prints the script" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    assert main(["--install-completion", "fish"]) == 1
    assert "cannot write" in capsys.readouterr().err


def completed(shell: str, line: str, folder: Path, *, split: str = " ") -> list[str]:
    """The words that a shell offers after a line, whose words are separated by `split`."""
    words = line.split(split)
    asked = {
        "bash": {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)},
        "zsh": {"_TYPER_COMPLETE_ARGS": line},
        "fish": {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    done = nursery.run(["bench"], cwd=folder, environ={**os.environ, **asked, "_BENCH_COMPLETE": f"complete_{shell}"})
    assert done.stderr == ""
    if shell == "zsh":
        return re.findall(r'(?:\(\(|^)"([^"]+)"', done.stdout, re.MULTILINE)
    return [line.split("\t")[0] for line in done.stdout.split("\n") if line]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands_options_environments_runs_and_models(shell: str, tmp_path: Path) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "endpoints.toml").write_text(
        '[[endpoint]]\nendpoint_id = "refined"\nmodel = "m"\nurl = "http://127.0.0.1:9/v1"\n'
    )
    (tmp_path / "suite.toml").write_text('[[eval]]\nenv_id = "gsm8k"\n')
    run = tmp_path / "outputs" / "evals" / "sums--m" / "20261124T120000Z-ab12"
    run.mkdir(parents=True)
    (run / "run.json").write_text("{}")
    for line, words in {
        "bench resc": ["rescore"],
        "bench run gsm8k --max-con": ["--max-concurrent", "--max-concurrent-generation", "--max-concurrent-scoring"],
        "bench run gsm8k,wordl": ["gsm8k,wordle"],
        "bench run suit": ["suite.toml"],
        "bench run gsm8k -m ref": [
            "refined", "reference/oracle", "reference/noisy", "reference/null", "reference/echo",
        ],
        "bench runs show 2026": ["20261124T120000Z-ab12"],
        "bench compare lat": ["latest"],
        "bench env info wordl": ["wordle"],
    }.items():  # fmt: skip
        assert completed(shell, line, tmp_path) == words, line


@pytest.mark.parametrize(
    ("line", "words"),
    [  # bash splits words at `:` and `=`, and replaces the last part
        (["bench", "run", "gsm8k", "-m", "refined", ":"], ["8b"]),
        (["bench", "run", "-a", "x", "=", "1", "gsm8k", "--model", "=", "refined", ":", "8"], ["8b"]),
        (["bench", "run", "gsm8k", "--model", "=", "reference/o"], ["reference/oracle"]),
        (["bench", "run", "gsm8k", "-a", "x", ":", ""], []),
    ],
)
def test_words_that_bash_splits_are_completed(line: list[str], words: list[str], tmp_path: Path) -> None:
    registry = '[[endpoint]]\nendpoint_id = "refined:8b"\nmodel = "m"\nurl = "http://127.0.0.1:9/v1"\n'
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "endpoints.toml").write_text(registry)
    assert completed("bash", "\n".join(line), tmp_path, split="\n") == words


def test_a_broken_registry_completes_nothing_and_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "endpoints.toml").write_text("[[[")
    assert completed("bash", "bench run gsm8k -m reference/o", tmp_path) == ["reference/oracle"]
    assert completed("bash", "bench runs show x", tmp_path) == []


# A mistyped suite file


@for_each_row(
    ("target", "words"),
    [
        ("key.tml", "key.tml: no such file; a suite file ends in .toml"),
        ("suit.tml", "suit.tml: no such file; a suite file ends in .toml; did you mean suite.toml?"),
        ("./x.yaml", "./x.yaml: no such file; a suite file ends in .toml"),
    ],
)
def test_a_mistyped_suite_file_is_a_missing_file(
    target: str, words: str, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path_factory.mktemp("suite")
    (folder / "suite.toml").write_text('[[eval]]\nenv_id = "gsm8k"\n')
    before = Path.cwd()
    os.chdir(folder)
    try:
        assert main(["run", target]) == 2
    finally:
        os.chdir(before)
    assert capsys.readouterr().err == f"error: {words}\n"


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="Linux has a device that is always full")
@for_each_row("words", ["--help", "run --help", "env list --json"])
def test_a_full_disk_below_the_output_is_an_error(words: str) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-m", "harness.cli.main", *words.split()], stdout=full, stderr=subprocess.PIPE, text=True,
            check=False,
        )  # fmt: skip
    assert done.returncode != 0
    assert done.stderr == (
        "error: cannot write to the terminal or file that shows the results: No space left on device; free some space\n"
    )
