"""docs/reference/agent-api.md: its example prints what it says, and it names all that can be imported."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from documented import ROOT, blocks, steps

import harness.agents

PAGE = ROOT / "docs" / "reference" / "agent-api.md"


def test_the_example_prints_what_the_page_shows(tmp_path: Path) -> None:
    [script] = [step for step in steps(PAGE) if step.kind == "file"]
    [shown] = [block.text for block in blocks(PAGE) if block.language == "text"]
    (tmp_path / script.name).write_text(script.text)
    done = subprocess.run(
        [sys.executable, "-W", "error", script.name], cwd=tmp_path, capture_output=True, text=True, timeout=90,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.rstrip() == shown
    assert [path.name for path in tmp_path.iterdir()] == [script.name]


def test_every_public_name_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    results = (ROOT / "docs" / "reference" / "agent-evals.md").read_text(encoding="utf-8")
    missing = [name for name in harness.agents.__all__ if not re.search(rf"\b{name}\b", text + results)]
    assert [name for name in missing if not re.fullmatch(r"Bench(Run|Row)Result|BenchEvalSummary", name)] == []
