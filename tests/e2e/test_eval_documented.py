"""Every example command of the three documents about agent evaluations runs as printed, with `bench eval` in the place
of the other tool's name and an endpoint on this machine in the place of each other one."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from agent_evals import Evals

SPEC = Path(__file__).resolve().parents[3] / "shared" / "spec"
DOCUMENTS = {"eval-mode.md": 22, "eval-mode-short.md": 4, "bench-mode.md": 16}
"""Each with how many commands it shows: one that is not found would not be missed."""

_BLOCK = re.compile(r"^```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"osmosis (?:eval|bench) (?P<words>.*)")
_ENDPOINT = re.compile(r"https?://(?:localhost:80\d\d|inference\.osmosis\.ai)/v1")


@dataclass(frozen=True)
class Example:
    """One command of a document."""

    document: str
    number: int
    words: str

    def __str__(self) -> str:
        return f"{self.document}-{self.number}"


def examples(document: str) -> list[Example]:
    """The commands of a document, lines that go on joined."""
    if not (SPEC / document).exists():
        return []
    blocks = _BLOCK.findall((SPEC / document).read_text(encoding="utf-8"))
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    found = [match["words"] for line in lines if (match := _COMMAND.match(line.strip()))]
    return [Example(document, number, words) for number, words in enumerate(found, 1)]


@pytest.mark.skipif(not SPEC.exists(), reason="the three documents are not part of the repository")
@pytest.mark.parametrize(("document", "count"), DOCUMENTS.items())
def test_no_example_is_missed(document: str, count: int) -> None:
    assert len(examples(document)) == count
    # What is left of the other tool's name is the synopsis, and the hint at its other command.
    text = (SPEC / document).read_text(encoding="utf-8")
    rest = [line for line in text.splitlines() if re.match(r"osmosis (eval|bench)\b", line.strip())]
    assert len(rest) == count + 1 and "[OPTIONS]" in rest[-1] + "".join(rest)


@pytest.mark.skipif(not SPEC.exists(), reason="the three documents are not part of the repository")
@pytest.mark.parametrize("example", [each for name in DOCUMENTS for each in examples(name)], ids=str)
def test_an_example_runs_as_printed(evals: Evals, example: Example, monkeypatch: pytest.MonkeyPatch) -> None:
    root = evals.model.url.removesuffix("/v1")
    for name, text in {
        "OPENAI_BASE_URL": f"{root}/v1", "OPENAI_API_KEY": "key-of-openai",
        "ANTHROPIC_BASE_URL": root, "ANTHROPIC_API_KEY": "key-of-anthropic", "OSMOSIS_API_KEY": "key-of-osmosis",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, text)
    rows = 53 if "--offset" in example.words else 2
    evals.rows(*(f"{number} + {number}" for number in range(rows)))
    words = shlex.split(os.path.expandvars(_ENDPOINT.sub(evals.model.url, example.words)))
    done = evals.bench("eval", *words)
    assert done.code == 0, done.err
    asked = min(rows - int(value(words, "--offset", "0")), int(value(words, "--limit", "2")))
    runs = asked * int(value(words, "--n", "1"))
    models = 2 if "--baseline-model" in words else 1
    assert f"  Rows: {asked}" in done.lines
    total = next(line for line in done.lines if line.startswith("  Total runs: "))
    assert total.split()[2] == str(runs * models)
    assert sum("] OK (" in line or " OK (" in line for line in done.lines if line.startswith("[")) == runs * models
    functions = [word for before, word in pairwise(words) if before == "--eval-fn"]
    start = next(number for number, line in enumerate(done.lines) if line.startswith("Eval Function ")) + 2
    table = [line.split()[0] for line in done.lines[start : start + len(functions) * models : models]]
    # In 80 columns a table with pass@10 has room for the functions' own names only.
    assert table in (functions, [name.partition(":")[2] for name in functions])
    assert ("Primary minus baseline" in done.out) == (models == 2)
    assert (evals.cwd / "results.json").exists() == ("-o" in words)
    named = {value(words, "--model", ""), value(words, "--baseline-model", "")} - {""}
    at_provider = {
        "openai/gpt-5-mini",
        "openai/gpt-4o",
        "anthropic/claude-sonnet-4-5",
        "anthropic/claude-sonnet-4-20250514",
    }
    sent = {name.rpartition("/")[2] if name in at_provider else name for name in named}
    assert {body["model"] for body in evals.model.requests} == sent


def value(words: list[str], option: str, default: str) -> str:
    return words[words.index(option) + 1] if option in words else default
