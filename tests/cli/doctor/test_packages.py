"""Packages as their metadata tells of them: none of these is ever imported."""

from __future__ import annotations

import importlib.metadata
import sys

from shelf import Shelf

from harness.cli.doctor.findings import Diagnosis
from harness.cli.doctor.packages import GIVES, check_packages, extra_that_brings

PIP = f"{sys.executable} -m pip install"


def said(findings: list[Diagnosis]) -> list[tuple[str, str, str]]:
    return [(each.status, each.name, each.says) for each in findings]


def bench(shelf: Shelf, *requires: str) -> None:
    shelf.put("bench-harness", "0.1.0", requires, [*GIVES, "dev"])


def test_this_installation_is_sound_and_every_extra_is_explained() -> None:
    findings = check_packages()
    assert [each for each in findings if each.status == "problem"] == []
    extras = set(importlib.metadata.metadata("bench-harness").get_all("Provides-Extra") or ())
    assert set(GIVES) == extras - {"dev"}
    words = " ".join(each.says for each in findings if each.name == "extras")
    assert all(extra in words for extra in GIVES)


def test_what_is_missing_or_too_old_is_a_problem_with_the_command_that_mends_it(shelf: Shelf) -> None:
    bench(shelf, "orjson>=3.10", "rich>=13.9", "uvloop", 'colorama; sys_platform == "win32"')
    shelf.put("rich", "12.0")
    shelf.put("uvloop", "0.21")
    found = [each for each in check_packages(shelf.installed) if each.status == "problem"]
    assert [(each.name, each.says, each.fix) for each in found] == [
        ("orjson", "bench needs orjson>=3.10, but it is not installed", f"{PIP} -U 'orjson>=3.10'"),
        ("rich", "bench needs rich>=13.9, but 12.0 is installed", f"{PIP} -U 'rich>=13.9'"),
    ]


def test_a_folder_that_nothing_has_installed_is_a_problem(shelf: Shelf) -> None:
    [found] = check_packages(shelf.installed)
    assert (found.status, found.name) == ("problem", "bench-harness")


def test_extras_are_told_apart_and_one_that_is_too_old_is_noted(shelf: Shelf) -> None:
    bench(
        shelf, 'polars>=1.30; extra == "polars"', 'fastmcp>=2.14; extra == "mcp"', 'openai>=1.108; extra == "classic"'
    )
    shelf.put("polars", "1.31")
    shelf.put("openai", "1.0")
    found = check_packages(shelf.installed)
    noted = [("note", "openai", f"1.0 is installed, but the extra classic ({GIVES['classic']}) needs >=1.108")]
    assert [each for each in said(found) if each[0] != "ok"] == noted
    there, absent = (each.says for each in found if each.name == "extras")
    assert "polars" in there and "mcp" not in there
    assert "mcp (tools from MCP servers)" in absent and "polars" not in absent
    assert absent.endswith(f"to install one: {PIP} 'bench-harness[NAME]'")


def test_packages_that_do_not_go_together_are_noted_however_deep_they_are(shelf: Shelf) -> None:
    bench(shelf, "aiohttp>=3")
    shelf.put("aiohttp", "3.12", ["yarl>=1", 'brotli; extra == "speedups"'])
    shelf.put("yarl", "1.2", ["idna<3", "multidict"])
    shelf.put("idna", "3.1")
    found = [each for each in check_packages(shelf.installed) if each.status != "ok"]
    assert said(found) == [
        ("note", "yarl", "1.2 needs idna<3, but 3.1 is installed"),
        ("note", "yarl", "1.2 needs multidict, but it is not installed"),
    ]


def test_an_extra_is_known_by_what_it_brings(shelf: Shelf) -> None:
    bench(shelf, "rich", 'fastmcp>=2.14; extra == "mcp"', 'Math_Verify>=0.9; extra == "math"')
    assert extra_that_brings("fastmcp", shelf.installed) == "mcp"
    assert extra_that_brings("math-verify", shelf.installed) == "math"
    assert extra_that_brings("rich", shelf.installed) == ""
    assert extra_that_brings("numpy", shelf.installed) == ""
