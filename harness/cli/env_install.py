"""Implement `bench env install PATH|NAME…`: install environments for the interpreter of `bench`. `authoring.installer`
parses targets and calls pip or uv."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import typer
from packaging.utils import canonicalize_name

from harness.authoring.catalogue import ListedEnvironment
from harness.authoring.child_process import installed_now, verify
from harness.authoring.installer import InstallOptions, InstallTarget, command_for, read_target, run_installer
from harness.cli.grouped import flag, positional
from harness.cli.output import FOLDER, ask, can_ask, shown, write
from harness.core.errors import HarnessError, UsageError
from harness.core.redact import redactor
from harness.envs.import_hooks import import_hooks
from harness.report.text import clean, clean_block, make_console

_ERASE = "\r\x1b[2K"


def install(
    targets: list[str] = positional(
        "PATH|NAME…",
        "Folders of projects, .whl files, or names: of folders in ./environments, else of the package index.",
        ...,
    ),
    path: Path = flag("--path -p DIR", "Where a name is looked for before the index is asked.", FOLDER),
    editable: bool = flag(
        "--editable/--no-editable -e", "Folders: link to the code, so that edits count at once; or copy it.", True
    ),
    upgrade: bool = flag("--upgrade -U", "Take newer versions than are installed.", False),
    no_build_isolation: bool = flag(
        "--no-build-isolation", "Build with the installed packages; needs no network.", False
    ),
    yes: bool = flag("--yes -y", "Take names from the package index without asking.", False),
    verbose: bool = flag("--verbose -v", "Show the output of the installer.", False),
) -> None:
    """Install environments next to bench, with pip, or with uv where there is no pip.

    Folders are installed in editable mode, so that edits take effect at once. Before a package that is not found
    locally is installed from the package index, you are asked, unless it has an exact version (NAME==1.2). A new
    process then checks that each environment can be imported. The exit code is 1 if one cannot be installed or used.
    """
    options = InstallOptions(editable, upgrade, not no_build_isolation, path)
    wanted = [read_target(target, options) for target in dict.fromkeys(targets)]
    doubtful = [target for target in wanted if target.doubt]
    flags = [
        *(["--path", str(path)] if path != FOLDER else []),
        *(["--no-editable"] if not editable else []),
        *(["--upgrade"] if upgrade else []),
        *(["--no-build-isolation"] if no_build_isolation else []),
    ]
    if doubtful and not yes and not _is_sure(doubtful, [*flags, *targets]):
        typer.echo("nothing was installed", err=True)
        raise typer.Exit(1)
    before = installed_now()
    command = command_for(wanted, options)
    typer.echo(f"$ {redactor.text(shlex.join(command))}", err=True)
    _run(command, verbose=verbose)
    raise typer.Exit(0 if _report(wanted, before) else 1)


def _is_sure(doubtful: Sequence[InstallTarget], arguments: Sequence[str]) -> bool:
    """Ask for confirmation of packages from the package index.

    Args:
        doubtful: Targets that may be other people's packages.
        arguments: All arguments, for the command in the message.

    Raises:
        UsageError: there is no terminal for the question.
    """
    if not can_ask():
        doubts = "; ".join(f"{target.given}: {target.doubt}" for target in doubtful)
        again = shlex.join(["bench", "env", "install", "--yes", *arguments])
        named = next((target.distribution for target in doubtful if target.given == target.distribution), "")
        is_all = list(arguments) == [named]
        version = f", or with an exact version: bench env install {named}==VERSION" if is_all else ""
        raise UsageError(f"{doubts}. Nothing was installed. To install it anyway: {again}{version}")
    write((f"{target.given}: {target.doubt}" for target in doubtful), make_console(file=sys.stderr))
    names = ", ".join(target.requirement for target in doubtful)
    return ask(f"Install {names} from the package index?")


def _run(command: Sequence[str], *, verbose: bool) -> None:
    """Run the installer; show its output as one changing line, and in full if it fails."""
    console = make_console(stderr=True)
    passing = console.is_terminal and not verbose
    said: list[str] = []

    def on_line(line: str) -> None:
        line = redactor.text(line)
        said.append(line)
        if verbose:
            write([clean_block(line)], console)
        elif passing:
            sys.stderr.write(_ERASE + clean(line, max(20, console.width - 2)))
            sys.stderr.flush()

    try:
        code = run_installer(command, on_line)
    finally:
        if passing:
            sys.stderr.write(_ERASE)
            sys.stderr.flush()
    if code != 0:
        if not verbose:
            write([clean_block(line) for line in said], console)
        what = "pip" if "pip" in command[:3] and command[0] == sys.executable else "uv"
        raise HarnessError(f"{what} ended with exit code {code}; see its output above")


def _report(wanted: Sequence[InstallTarget], before: Sequence[ListedEnvironment]) -> bool:
    """Print for each installed target whether it is usable as an environment; return whether all are."""
    known = {(entry.distribution, entry.version) for entry in before}
    fresh = {each.distribution for each in installed_now() if (each.distribution, each.version) not in known}
    names = [target.distribution for target in wanted if target.distribution]
    if len(names) < len(wanted):  # a URL or an archive: only the installer knows its name
        names += sorted(fresh)
    found = verify(names) if names else []
    lines = [_installed(entry) for entry in found if not entry.problem]
    lines += [f"FAIL {entry.name}: {entry.problem}" for entry in found if entry.problem]
    have = {canonicalize_name(entry.distribution) for entry in found}
    for target in wanted:
        if target.distribution and canonicalize_name(target.distribution) not in have:
            lines.append(_no_environment(target))
    if not found and not names:
        lines.append("FAIL the installation added no environment")
    usable = [entry for entry in found if not entry.problem]
    if usable:
        lines += ["", "Next", *(f"  bench run {shlex.quote(entry.name)} -m {model_for(entry)}" for entry in usable)]
    write(lines)
    return not any(line.startswith("FAIL") for line in lines)


def model_for(entry: ListedEnvironment) -> str:
    """Return the model to suggest in an example command for an environment: a reference model, or a placeholder for
    classic environments, which have none."""
    path = Path(entry.path)
    source = path.parent if path.name == "__init__.py" else path
    files = source.rglob("*.py") if source.is_dir() else [source] if source.is_file() else []
    texts = [file.read_text(errors="replace") for file in files]
    is_foreign = any(hook.asks(text) for hook in import_hooks() for text in texts)
    return "MODEL" if is_foreign else "reference/oracle"


def _installed(entry: ListedEnvironment) -> str:
    return f"installed {entry.name} {entry.version} ({clean(shown(entry.path), 200)})"


def _no_environment(target: InstallTarget) -> str:
    return (
        f"FAIL {target.distribution} is installed, but it is not an environment: it has no entry point of the group "
        "harness.environments, and no module of its name with a load_environment()"
    )
