"""Implement `bench schema`: print the JSON Schema of a file that bench reads, for editors."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from harness.cli.grouped import flag, positional
from harness.cli.output import check_target
from harness.core.errors import UsageError
from harness.settings.json_schema import endpoints_schema, suite_schema
from harness.store.atomic import atomic_write

_SCHEMAS = {"suite": suite_schema, "endpoints": endpoints_schema}


def schema(
    kind: str = positional(
        "KIND", "`suite`, the file of `bench run`, or `endpoints`, the endpoint registry.", ..., _SCHEMAS
    ),
    output: Path | None = flag("-o --output FILE", "File to write; default stdout."),
    force: bool = flag("--force", "Replace an existing file.", False),
) -> None:
    """Print the JSON Schema of suite files or endpoint registries.

    Editors with TOML support use it to complete and check a file whose first line is `#:schema FILE`.
    """
    if kind not in _SCHEMAS:
        raise UsageError(f"{kind}: unknown kind of file; use {' or '.join(_SCHEMAS)}")
    text = json.dumps(_SCHEMAS[kind](), indent=2, ensure_ascii=False)
    if output is None:
        typer.echo(text)
        return
    check_target(output, force=force)
    atomic_write(output, text + "\n")
    typer.echo(f"Wrote {output}. Begin a file with `#:schema {output}` to use it.")
