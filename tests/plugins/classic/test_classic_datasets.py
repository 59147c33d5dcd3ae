"""`load_example_dataset`: each of its named sets gives the rows that the real release makes of the same files."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from classic_hub import CALLS, EXPECTED, NAMES, load

pytestmark = pytest.mark.slow

OURS = "import harness; harness.load_environment('examples_of_old')"


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> list[list[Any]]:
    return load(sys.executable, OURS, tmp_path_factory.mktemp("first"))


def test_rows_are_those_of_the_release(loaded: list[list[Any]]) -> None:
    expected = [json.loads(line) for line in EXPECTED.read_text(encoding="utf-8").splitlines()]
    assert [(name, options) for name, options, _ in expected] == CALLS
    for want, have in zip(expected, loaded, strict=True):
        shuffled = str(want[0]).startswith("gpqa")
        assert read(have[2], shuffled) == read(want[2], shuffled), want[:2]
        assert have[:2] == want[:2]


def read(rows: list[dict[str, str]], shuffled: bool) -> list[Any]:
    """Rows; of GPQA, whose letters the release shuffles anew each time, the question, the options and the answer."""
    if not shuffled:
        return rows
    found: list[Any] = []
    for row in rows:
        options = dict(re.findall(r"^([A-D]): (.*)$", row["question"], re.MULTILINE))
        found.append(
            (row["question"].split("\n")[0], sorted(options), sorted(options.values()), options[row["answer"]])
        )
    return found


def test_letters_are_shuffled_alike_each_time(loaded: list[list[Any]], tmp_path: Path) -> None:
    """A run can only be resumed if its questions stay what they are; the release draws them from an unseeded source."""
    again = load(sys.executable, OURS, tmp_path)
    assert again == loaded
    answers = {row["answer"] for name, _, rows in loaded if name.startswith("gpqa") for row in rows}
    assert len(answers) > 1, "they are shuffled at all"


def test_every_named_set_is_measured() -> None:
    assert {name for name, _ in CALLS} == set(NAMES)
