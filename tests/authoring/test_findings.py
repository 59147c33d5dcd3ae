from __future__ import annotations

from harness.authoring.findings import Report, count, fail, finding_lines, first_few, ok, skipped


def test_a_finding_is_a_line_and_advice_stands_below_it() -> None:
    finding = fail("oracle", "one two three four five six seven", "do this and then do that, at last")
    assert finding_lines(finding, 46) == [
        "FAIL     oracle       one two three four five",
        "                      six seven",
        "                      → do this and then do",
        "                        that, at last",
    ]
    assert finding_lines(ok("rows", "3 rows"), 80) == ["ok       rows         3 rows"]
    assert finding_lines(skipped("README", ""), 80) == ["skipped  README"]


def test_a_report_counts_what_was_found() -> None:
    report = Report("x")
    report.add(ok("a", ""), fail("b", "", ""), skipped("c", ""))
    assert report.counts() == "1 ok, 1 failed, 1 skipped"
    assert [each.name for each in report.failed] == ["b"]
    report = Report("x", findings=[ok("a", "")])
    assert report.counts() == "1 ok, 0 failed"


def test_many_things_are_named_in_part() -> None:
    assert first_few(["a", "b", "c"]) == "a; b; c"
    assert first_few(["a", "b", "c", "d", "e"]) == "a; b; c; and 2 more"
    assert (count(1, "row"), count(1200, "row")) == ("1 row", "1,200 rows")
