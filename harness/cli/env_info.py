"""Implement `bench env info NAME`: print the description of an environment from `authoring.describe`."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import cast

import typer

from harness.authoring.describe import Description, EnvironmentDetails, describe
from harness.cli.grouped import flag, positional
from harness.cli.output import ENV_ARGS_HELP, env_args, shown, table, write, write_fitted
from harness.cli.stdout import own_stdout
from harness.core.types import JsonDict, Message
from harness.report.text import clean, clean_block, make_console, plain_json

_INDENT = "  "

_SAMPLE_LINES = 12
"""Maximum lines of a sample message."""

_WIDEST = 120
"""Maximum line width in cells."""


def info(
    name: str = positional("NAME", "The environment's name or path.", ...),
    args: list[str] | None = flag("--env-args -a JSON|KEY=VALUE", ENV_ARGS_HELP),
    example: int = flag("--example", "The row that is shown, from 0.", 0),
    as_json: bool = flag("--json", "Print everything as JSON on stdout.", False),
) -> None:
    """Show prompts, arguments, rewards and tools of an environment.

    Loads the environment, to show its dataset and rubric. If that fails, the rest is shown with the reason, and the
    exit code is 1, or 2 if the environment needs other arguments.
    """
    given = env_args(args)
    with own_stdout():
        description = describe(name, given, index=example)
    if as_json:
        typer.echo(plain_json(description.to_json()))
    else:
        write_fitted(lambda width: _screen(description, example, width))
    if description.problem:
        write([f"error: {clean(description.problem, 2000)}"], make_console(file=sys.stderr))
        raise typer.Exit(description.exit_code)


def _screen(description: Description, example: int, width: int) -> Iterator[str]:
    yield from _head(description, width)
    yield from _section("Arguments (-a)", _arguments(description), width)
    yield from _section("Settings", _settings(description), width)
    content = description.content
    if content is None:
        return
    partial = {name: count for name, count in content.columns.items() if count < content.looked_at}
    names = [f"{name} ({count} of the first {content.looked_at})" if name in partial else name
             for name, count in content.columns.items()]  # fmt: skip
    yield from _section("Dataset", [("rows", f"{content.rows:,}"), ("columns", ", ".join(names))], width)
    yield from _section("Rewards", _rewards(content), width)
    yield from _section("Rollouts", _rollouts(content), width)
    yield ""
    yield f"Example {example} of {content.rows:,}, as the model sees it"
    yield from _sample(content, min(width, _WIDEST))


def _head(description: Description, width: int) -> Iterator[str]:
    package = description.package
    yield f"{clean(description.env_id)} {clean(package.version)}".rstrip()
    yield from textwrap.wrap(clean(package.summary, 1000), min(width, _WIDEST))
    points = ", ".join(f"{name} = {value}" for name, value in package.entry_points.items())
    origin = {
        "bundled": f"{package.name} {package.version}, part of bench",
        "installed": f"{package.name} {package.version}, installed",
        "editable": f"{package.name} {package.version}, editable from {shown(package.project or '')}",
        "folder": f"{shown(package.project or '')}, not installed",
        "file": "a single file",
    }[package.kind]
    files = f"{shown(description.path)} ({len(description.files)} {'file' if len(description.files) == 1 else 'files'})"
    rows = [("from", origin + (", classic" if package.is_classic else "")), ("source", files)]
    if points:
        rows.append(("entry point", points))
    yield from table(rows, width, indent=_INDENT, wrap=True)


def _section(title: str, rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    yield ""
    yield title
    yield from table(rows, min(width, _WIDEST), indent=_INDENT, wrap=True)


def _arguments(description: Description) -> list[tuple[str, ...]]:
    loader = description.loader
    if loader is None:
        return [(f"the source of {description.function}() cannot be read",)]
    if not loader.arguments:
        return [("none",)]
    return [
        (each.name, each.type or "–", "required" if each.default is None else each.default, each.description)
        for each in loader.arguments
    ]


def _settings(description: Description) -> list[tuple[str, ...]]:
    return [
        (path, _value(line["value"]), "pyproject.toml" if line["origin"] == "package" else str(line["source"]))
        for path, line in description.settings.items()
    ]


def _value(value: object) -> str:
    if value is None:
        return "none"
    if value in ({}, [], ()):
        return "–"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _rewards(content: EnvironmentDetails) -> list[tuple[str, ...]]:
    low, high = content.reward_range
    weights = [(name, "–" if weight is None else f"weight {weight:g}" if weight else "metric")
               for name, weight in content.rewards]  # fmt: skip
    rows = [*weights, ("reward", f"from {low:g} to {high:g}")]
    if content.judges:
        rows.append(("judge", ", ".join(dict.fromkeys(content.judges))))
    return rows


def _rollouts(content: EnvironmentDetails) -> list[tuple[str, ...]]:
    rows = [("class", content.kind), ("turns", content.turns)]
    functions = [tool.get("function", tool) for tool in content.tools]
    rows += [
        ("tool" if number == 0 else "", f"{_call(function)}  {_first_line(function.get('description'))}".rstrip())
        for number, function in enumerate(functions)
    ]
    reference = "yes, as -m reference/oracle" if content.has_reference else "none: only a model can play it"
    rows.append(("reference policy", reference))
    if content.needs_live_state:
        rows.append(("state", "scored immediately after generation, since it cannot be stored in a journal"))
    return rows


def _call(function: JsonDict) -> str:
    parameters = function.get("parameters")
    properties = cast(JsonDict, parameters).get("properties") if isinstance(parameters, dict) else None
    names = list(cast(JsonDict, properties)) if isinstance(properties, dict) else []
    return f"{function.get('name', '?')}({', '.join(names)})"


def _first_line(text: object) -> str:
    return str(text or "").strip().partition("\n")[0]


def _sample(content: EnvironmentDetails, width: int) -> Iterator[str]:
    sample = content.sample
    if isinstance(sample.prompt, str):
        yield from _block("prompt", sample.prompt, width)
    else:
        for message in sample.prompt:
            yield from _block(str(message.get("role", "?")), _text_of(message), width)
    yield from _block("answer", sample.answer or "–", width)
    if sample.task:
        yield from _block("task", sample.task, width)
    if sample.info:
        yield from _block("info", json.dumps(sample.info, ensure_ascii=False, default=str), width)


def _text_of(message: Message) -> str:
    content = message.get("content")
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, default=str)
    calls = message.get("tool_calls")
    return f"{text if content else ''}\n{json.dumps(calls, ensure_ascii=False, default=str)}".strip() if calls else text


def _block(label: str, text: str, width: int) -> Iterator[str]:
    """Format a labelled text as lines: wrapped, without control characters, and truncated if long."""
    head = f"{_INDENT}{clean(label, 12):<10}│ "
    below = f"{_INDENT}{'':<10}│ "
    room = max(20, width - len(head))
    lines = [
        part for line in clean_block(text).expandtabs(4).splitlines() for part in textwrap.wrap(line, room) or [""]
    ]
    cut = lines[:_SAMPLE_LINES]
    if len(lines) > len(cut):
        cut[-1] = f"… and {len(lines) - len(cut) + 1} more lines"
    for number, line in enumerate(cut or ["–"]):
        yield f"{head if number == 0 else below}{line}".rstrip()
