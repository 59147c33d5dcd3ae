"""The pages about data frames: the notebook of the guide shows what it says, the reference has every column."""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import re
import shlex
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from bench_runs import Workshop
from documented import ROOT, blocks, steps
from store_samples import make_run, rollouts, write

from harness.report.frames import messages_df, rollouts_df, runs_df

GUIDE = ROOT / "docs" / "guides" / "notebooks.md"
REFERENCE = ROOT / "docs" / "reference" / "results-api.md"

PANDAS = {"number": "float64", "integer": "Int64", "flag": "boolean", "time": "datetime64[us, UTC]"}


def shown_by(cell: str, notebook: dict[str, Any]) -> str:
    """What a notebook shows under a cell: all that it prints, and the value of its last line."""
    body = ast.parse(cell).body
    value: CodeType | None = None
    if isinstance(body[-1], ast.Expr):
        value = compile(ast.Expression(body.pop().value), "cell", "eval")  # pyright: ignore[reportAttributeAccessIssue, reportArgumentType]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body, []), "cell", "exec"), notebook)
        result = None if value is None else eval(value, notebook)
        if result is not None:
            print(result)
    return "\n".join(line.rstrip() for line in printed.getvalue().rstrip().splitlines())


def test_the_notebook_of_the_guide_shows_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workshop = Workshop(tmp_path)
    for step in steps(GUIDE):
        if step.kind == "file":
            workshop.write(step.name, step.text + "\n")
        elif step.kind == "command":
            command, *words = shlex.split(step.text)
            done = workshop.bench(*words)
            assert (command, done.code) == ("bench", 0), done.err
    monkeypatch.chdir(workshop.cwd)
    notebook: dict[str, Any] = {"__name__": "__main__"}
    shown, cells = "", 0
    for block in blocks(GUIDE):
        if block.language == "python" and "Save this as" not in block.before:
            assert shown == "", f"{GUIDE.name}:{block.line}: the cell before shows something, the page does not"
            shown = shown_by(block.text, notebook)
            cells += 1
        elif not block.language:
            assert shown == block.text, f"{GUIDE.name}:{block.line}"
            shown = ""
    assert shown == "" and cells == 9


def documented(heading: str) -> list[tuple[str, str]]:
    """(column, type) of the table under a heading; a line without names is left out."""
    [section] = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", REFERENCE.read_text(encoding="utf-8"), re.M | re.S)
    rows = re.findall(r"^\| (`.*?) \| (\w+) \|", section, re.M)
    return [(name, kind) for names, kind in rows for name in re.findall(r"`([^`]+)`", names)]


def test_the_reference_has_every_column_in_its_order(tmp_path: Path) -> None:
    run = make_run(tmp_path, metric_names=(), state_columns=())
    write(run.journal_path, rollouts(1))
    for heading, frame in (
        ("runs_df", runs_df(tmp_path)), ("rollouts_df", rollouts_df(run)), ("messages_df", messages_df(run)),
    ):  # fmt: skip
        text = str(frame["model"].dtype)
        kinds = [(name, PANDAS.get(kind, text)) for name, kind in documented(heading)]
        assert kinds == [(name, str(kind)) for name, kind in frame.dtypes.items()], heading


def test_the_reference_has_the_signatures() -> None:
    page = REFERENCE.read_text(encoding="utf-8")
    for function in (runs_df, rollouts_df, messages_df):
        [said] = re.findall(rf"^\| `{function.__name__}\((.*?)\)` \|", page, re.M)
        names = [part.split("=")[0] for part in said.replace("*, ", "").split(", ")]
        assert names == list(inspect.signature(function).parameters)
