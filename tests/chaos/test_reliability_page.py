"""docs/reliability.md and SECURITY.md name tests that there are; the former all of the catalogue, and every group of
rounds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from chaos_catalogue import drawn, named
from chaos_others import others
from chaos_reader import CLOCK

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("page", "least"), [("docs/reliability.md", 30), ("SECURITY.md", 20)])
def test_every_test_that_is_named_is_there(page: str, least: int) -> None:
    mentions = set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", (ROOT / page).read_text(encoding="utf-8")))
    assert len(mentions) > least
    for path, name in mentions:
        source = (ROOT / path).read_text(encoding="utf-8")
        assert f"def {name}(" in source if name else source, f"{path}::{name}"


def test_the_whole_catalogue_is_answered() -> None:
    numbers = [int(number) for number in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)]
    assert numbers == list(range(1, 21))


def test_the_quoted_report_is_one_of_these_rounds() -> None:
    quoted = PAGE.split("```")[3].strip("\n").split("\n")
    assert quoted[0].startswith("chaos, seed 1: ")
    rule = quoted[3]
    table = [re.split(r"  +", line) for line in quoted[4:] if line != rule]
    rounds = [*named(), *(other.round for other in others()), *drawn(1, 12)]
    groups = list(dict.fromkeys(each.group for each in rounds))
    assert [row[0] for row in table] == [*groups, "all"]
    assert [int(row[1]) for row in table[:-1]] == [sum(each.group == group for each in rounds) for group in groups]
    assert {tuple(row[3:]) for row in table} == {("0", "0", "0", "0")}


def test_the_keys_that_are_not_compared_are_named() -> None:
    [words] = re.findall(r"\((`wall_s`[^)]+)\)", PAGE)
    assert set(re.findall(r"`(\w+)`", words)) == CLOCK
