"""Implement `bench run`: resolve a command line into runs and execute them. Settings are resolved in `config`, runs are
executed by `cli.execute`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import typer

from harness.cli.options import RunOptions, setting_keys, with_run_options
from harness.cli.stdout import print_notices
from harness.cli.trust import check_trust, recorded_in
from harness.core.errors import ConfigError, UsageError
from harness.core.redact import hidden_words
from harness.settings.resolver import Resolution, missing_keys, resolve
from harness.settings.wording import MASK, is_secret_header


@with_run_options
def run(ctx: typer.Context, *, target: str, **options: object) -> None:
    """Evaluate environments with a model, many at once, and keep the results as a dataset.

    A suite file beats the flags that it also sets; --set beats both. --dry-run shows what would happen.
    """
    state = cast("dict[str, object]", ctx.find_root().obj)
    state["verbose"] = bool(options["verbose"])
    chosen = _run_options(options, cast("list[str]", state["argv"]))
    flags = {key: options[key] for key in setting_keys()}
    recorded = recorded_in(target)
    resolution = resolve(target, flags, _texts(options["set"]))
    print_notices(resolution.notices)
    if options["dry_run"]:
        raise typer.Exit(_dry_run(resolution, chosen))
    if recorded is not None:
        is_ours = check_trust(recorded, resolution, trusted=bool(options["trust"]), asks_model=True, file=Path(target))
        chosen = replace(chosen, is_ours=is_ours)
    raise typer.Exit(_execute(resolution, chosen))


def _run_options(options: dict[str, object], argv: Sequence[str]) -> RunOptions:
    resume_from = options["resume_from"]
    chosen = RunOptions(
        resume=bool(options["resume"]),
        resume_from=str(resume_from) if resume_from is not None else None,
        retry_failed=bool(options["retry_failed"]),
        json=bool(options["json"]),
        quiet=bool(options["quiet"]),
        verbose=bool(options["verbose"]),
        command=command_text(argv),
    )
    resuming = chosen.resume or chosen.resume_from is not None
    if chosen.resume and chosen.resume_from is not None:
        raise UsageError("--resume finds the run, --resume-from names it: give one of them")
    if chosen.retry_failed and not resuming:
        raise UsageError("--retry-failed goes with --resume or --resume-from")
    if options["dry_run"] and resuming:
        raise UsageError("--dry-run shows settings and looks at no recorded run: leave --resume and --resume-from out")
    return chosen


def _texts(value: object) -> list[str]:
    return [str(each) for each in cast("list[object]", value or [])]


def _dry_run(resolution: Resolution, options: RunOptions) -> int:
    from harness.cli.dry_run import as_json, show

    try:
        missing_keys(resolution, os.environ)
    except ConfigError as exc:
        typer.echo(f"note: a run would stop: {exc}", err=True)
    if options.json:
        typer.echo(as_json(resolution))
    else:
        show(resolution, sys.stdout)
    return 0


def _execute(resolution: Resolution, options: RunOptions) -> int:
    from harness.cli.execute import execute

    return execute(resolution, options)


def command_text(argv: Sequence[str]) -> str:
    """Format the command line for the record, with masked values of headers and settings that may be credentials.

    Args:
        argv: Arguments after `bench`.
    """
    words = ["bench"]
    for index, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if index and argv[index - 1] == "--header":
            word = _masked(word)
        elif name == "--header" and equals:
            word = f"{name}={_masked(value)}"
        elif "extra_headers." in name and is_secret_header(name.rpartition("extra_headers.")[2]):
            word = f"{name}={MASK}"
        words.append(word)
    return shlex.join(hidden_words(words))


def _masked(header: str) -> str:
    name, colon, _ = header.partition(":")
    return f"{name}: {MASK}" if not colon or is_secret_header(name) else header
