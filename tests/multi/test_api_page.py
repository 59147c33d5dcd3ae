"""docs/reference/multi-api.md: its example prints what it says, and it names all that can be imported, every field and
every option."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from documented import ROOT, blocks, steps

import harness.multi
from harness.multi.fields import camel
from harness.multi.models import Model
from harness.multi.options import Options, Persist

PAGE = ROOT / "docs" / "reference" / "multi-api.md"


@pytest.mark.slow
def test_the_example_prints_what_the_page_shows(workplace: Path) -> None:
    [script] = [step for step in steps(PAGE) if step.kind == "file"]
    [shown] = [block.text for block in blocks(PAGE) if block.language == "text"]
    (workplace / script.name).write_text(script.text)
    done = subprocess.run(
        [sys.executable, "-W", "error", script.name], capture_output=True, text=True, timeout=90, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.rstrip() == shown
    assert sorted(path.name for path in workplace.iterdir()) == [".memory", script.name]


def test_every_public_name_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in harness.multi.__all__ if not re.search(rf"\b{name}\b", text)] == []


def test_every_field_and_option_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    names = [each.name for kind in (Model, Options, Persist) for each in fields(kind) if each.name not in HIDDEN]
    assert [name for name in names if not re.search(rf"\b{camel(name)}\b", text)] == []


HIDDEN = {"place", "given"}
