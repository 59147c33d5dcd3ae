"""Shell completion of environments, runs, models and fixed choices, and of words with `:` or `=`. Only names are read;
no code of environments is run. Names with characters that a shell interprets are never suggested: run folders may come
from others, and shells insert or even evaluate the suggestions."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from typing import Any

import typer
from typer import _completion_shared  # pyright: ignore[reportPrivateUsage]

from harness.core.errors import HarnessError, StoreError, UsageError

_MOST_RUNS = 100
"""Number of runs to suggest, newest first."""


def environments(ctx: Any, args: Sequence[str], incomplete: str) -> list[str]:
    """Suggest environment names, also after a comma, suite files and modules."""
    before, comma, last = incomplete.rpartition(",")
    from harness.settings.packages import installed_environments, local_environments

    names = set[str]()
    if "/" not in last:
        local = local_environments(Path("environments"))
        names = {name.replace("_", "-") for name in (*installed_environments(), *local)}
    return [f"{before}{comma}{name}" for name in _matching([*sorted(names), *_files(last, (".toml", ".py"))], last)]


def runs(ctx: Any, args: Sequence[str], incomplete: str) -> list[str]:
    """Suggest the ids of the newest runs in the output folder, the ids of their suites, and `latest`."""
    from harness.store.find_runs import all_runs, newest
    from harness.store.invocations import suite_files

    folder = str(ctx.params.get("output_dir") or "outputs")
    with contextlib.suppress(HarnessError, OSError):
        ids = [run.name for run in newest(all_runs(folder), _MOST_RUNS)]
        suites = [file.stem for file in suite_files(folder)]
        return _matching(["latest", *ids, *reversed(suites)], incomplete)
    return []


def models(ctx: Any, args: Sequence[str], incomplete: str) -> list[str]:
    """Suggest the aliases of the endpoint registry, and the reference models."""
    from harness.settings.endpoints import load_registry

    known = [f"reference/{name}" for name in policies()]
    with contextlib.suppress(HarnessError, OSError):
        known = [*load_registry(None, Path.cwd()).entries, *known]
    return _matching(known, incomplete)


def policies() -> list[str]:
    """Return the names of the reference models that can play an environment."""
    from harness.reference.policies import NAMES

    return [name for name in NAMES if name != "judge"]


_completion_shared._completion_scripts["zsh"] += '\n[[ "$funcstack[1]" = _%(prog_name)s ]] && %(complete_func)s\n'  # pyright: ignore[reportPrivateUsage]
"""Without this line of typer's script for zsh, the first Tab in a new shell would only load the script."""

_COMPLETION_OPTIONS = ("--install-completion", "--show-completion")


def completion_asked(arguments: Sequence[str]) -> bool:
    """Install or print the completion script if the arguments ask for it, and return whether they do. Typer's own
    options ignore the name of a shell after them, and set up the shell in use instead.

    Args:
        arguments: The arguments after `bench`.

    Raises:
        UsageError: the named shell is unknown or not installed, or none is named and the one in use is unknown.
        StoreError: a file cannot be written.
    """
    option, equals, value = arguments[0].partition("=") if arguments else ("", "", "")
    if option not in _COMPLETION_OPTIONS:
        return False
    words = [*([value] if equals else []), *arguments[1:]]
    shell = words[0] if words else _completion_shared._get_shell_name()  # pyright: ignore[reportPrivateUsage]
    known = _completion_shared._completion_scripts  # pyright: ignore[reportPrivateUsage]
    if len(words) > 1 or shell not in known:
        given = " ".join(words) if words else "the shell in use" if shell is None else shell
        raise UsageError(f"{option}: {given}: not a known shell; name one of {', '.join(known)}: bench {option} zsh")
    names = {"prog_name": "bench", "complete_var": "_BENCH_COMPLETE", "shell": shell}
    if option == "--show-completion":
        typer.echo(_completion_shared.get_completion_script(**names))
        return True
    if shell in ("powershell", "pwsh") and shutil.which(shell) is None:
        raise UsageError(f"{option}: {shell} is not installed; bench --show-completion {shell} prints the script")
    try:
        _, path = _completion_shared.install(**names)
    except OSError as error:
        raise StoreError(f"{option}: cannot write {error.filename}: {error.strerror}") from None
    typer.secho(f"{shell} completion installed in {path}", fg="green")
    typer.echo("Completion will take effect once you restart the terminal")
    return True


Complete = Callable[[Any, Sequence[str], str], list[str]]

Choices = Iterable[str] | Callable[[], Iterable[str]]
"""The values of an option, or a function that returns them, for values that plugins add."""


def completer(metavar: str | None, choices: Choices = (), *, is_flag: bool = False) -> Complete | None:
    """Return the completion function of an option or argument; None to complete file names.

    Args:
        metavar: Placeholder of the value in the help.
        choices: Values to suggest.
        is_flag: Whether it is an option. There, `NAME` can be the name of anything.
    """
    if choices:
        return lambda ctx, args, incomplete: _matching(choices() if callable(choices) else choices, incomplete)
    return None if is_flag and metavar == "NAME" else BY_PLACEHOLDER.get(metavar or "")


BY_PLACEHOLDER: dict[str, Complete] = {
    "RUN": runs, "RUNS": runs, "RUN|SUITE": runs, "RUN|SUITE...": runs, "CANDIDATE": runs, "NAME": environments,
    "ID,ID…": environments, "TARGET": environments, "MODEL": models,
}  # fmt: skip
"""Completion functions for arguments, by the argument's placeholder in the help."""


def _executors() -> list[str]:
    from harness.core.plugins import entries_of
    from harness.engine.executors import EXECUTORS

    return [entry.name for entry in entries_of(EXECUTORS)]


BY_SETTING: dict[str, Complete | None] = {"model": models, "executor": completer(None, _executors)}
"""Completion functions for options that are settings, by key."""


@contextlib.contextmanager
def whole_words() -> Generator[None]:
    """Complete words with `:` or `=` in the `with` block if a shell asks for completions.

    bash splits a word at these characters (`COMP_WORDBREAKS`) and replaces only the part after the last one. So join
    the parts for the completion, and print only the ends of the suggestions. zsh and fish replace the whole word, so
    suggestions for `--option=` begin with it."""
    if os.environ.get("_BENCH_COMPLETE") in ("complete_zsh", "complete_fish"):
        with _whole_suggestions():
            yield
        return
    words = os.environ.get("COMP_WORDS", "").split("\n")
    if os.environ.get("_BENCH_COMPLETE") != "complete_bash" or len(words) == 1:
        yield
        return
    last, joined = int(os.environ.get("COMP_CWORD", "0")), list[str]()
    for before, word in zip(["", *words], words[: last + 1], strict=False):
        if joined and word and (_is_break(word) or _is_break(before)):
            joined[-1] += word
        else:
            joined.append(word)
    os.environ |= {"COMP_WORDS": "\n".join(joined), "COMP_CWORD": str(len(joined) - 1)}
    incomplete = joined[-1].partition("=")[2] if joined[-1].startswith("--") else joined[-1]
    kept = max(incomplete.rfind(mark) for mark in ":=") + 1
    shown = io.StringIO()
    try:
        with contextlib.redirect_stdout(shown):
            yield
    finally:
        for line in shown.getvalue().splitlines():
            typer.echo(line[kept:] if line.startswith(incomplete[:kept]) else line)


@contextlib.contextmanager
def _whole_suggestions() -> Generator[None]:
    """Print suggestions for `--option=` with these characters in front, in the `with` block."""
    line = os.environ.get("_TYPER_COMPLETE_ARGS", "")
    option, equals, _ = line.split(" ")[-1].partition("=")
    if not (equals and option.startswith("--")):
        yield
        return
    shown = io.StringIO()
    try:
        with contextlib.redirect_stdout(shown):
            yield
    finally:
        text, before = shown.getvalue(), f"{option}="
        if os.environ["_BENCH_COMPLETE"] == "complete_fish":
            text = "".join(f"{before}{line}\n" for line in text.splitlines())
        else:
            text = re.sub(r'^(_arguments .*?\(\()?"', rf"\g<0>{before}", text, flags=re.MULTILINE)
        typer.echo(text, nl=False)


def _is_break(word: str) -> bool:
    return bool(word) and not word.strip(":=")


def _matching(words: Iterable[str], incomplete: str) -> list[str]:
    return [word for word in words if word.startswith(incomplete) and shlex.quote(word) == word]


def _files(start: str, suffixes: Sequence[str]) -> list[str]:
    """Return the paths that begin with `start`: folders, and files with one of the suffixes; relative as typed. Names
    that a shell must quote are left to the completion of the shell itself, which quotes them."""
    folder, _, name = start.rpartition("/")
    base = Path(folder or ("/" if start.startswith("/") else "."))
    shown = f"{folder}/" if "/" in start else ""
    try:
        found = sorted(each for each in base.iterdir() if each.name.startswith(name) and not each.name.startswith("."))
    except OSError:
        return []
    return [
        f"{shown}{each.name}{'/' if each.is_dir() else ''}"
        for each in found
        if ((each.is_dir() and "/" in start) or each.suffix in suffixes) and shlex.quote(each.name) == each.name
    ]
