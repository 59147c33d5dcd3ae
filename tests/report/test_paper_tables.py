"""The table models × environments: marks, rows, footnotes, and its formats."""

from __future__ import annotations

import csv
import io
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from compared_runs import Scores, scored_run
from report_suites import Shape, suite

from harness.report.compare.sides import read_side
from harness.report.page.gather import page_of
from harness.report.paper_tables.cells import ResultTable, table_of_page, table_of_sides
from harness.report.paper_tables.footnotes import cell_notes, footnotes
from harness.report.paper_tables.latex import latex_table, latex_text
from harness.report.paper_tables.layout import layout_of
from harness.report.paper_tables.plain import csv_table, markdown_table
from harness.store.outcomes import read_journal
from harness.store.rundir import RunDir
from harness.store.score_table import summary_of

GOOD: Scores = {n: [1.0, float(n % 4 > 0)] for n in range(16)}
FAIR: Scores = {n: [float(n % 2), 0.0] for n in range(16)}
"""Worse in every example."""
LIKE: Scores = {n: [1.0, float(n % 4 > 1)] for n in range(16)}

NAMES = (
    r"50%_off & #1 {$x^2~\} <b> | \input{/etc/passwd}",
    "[redacted]*",
    "通义/qwen-模型",
    "Ærøskøbing–é ğ ŝ µ α → 😀",
    "--long---dash `tick` 'quote' \"double\"",
    "% comment",
    "=HYPERLINK(1)",
)
"""Names of models that LaTeX, Markdown or a spreadsheet would take for something else."""


def table_of(runs: Sequence[RunDir | tuple[RunDir, str]], **options: Any) -> ResultTable:
    named = [each if isinstance(each, tuple) else (each, "") for each in runs]
    return table_of_sides([(read_side(run, **options), origin) for run, origin in named])


def marks(table: ResultTable) -> dict[tuple[str, str], str]:
    return {place: cell.mark for place, cell in table.cells.items()}


def strange(folder: Path) -> ResultTable:
    """A table of models, and environments, with the names of `NAMES`."""
    runs = [scored_run(folder, GOOD, n, model=name, env_id="a_b & c") for n, name in enumerate(NAMES)]
    return table_of([*runs, *(scored_run(folder, LIKE, 20 + n, model=name) for n, name in enumerate(NAMES[1:]))])


def test_best_tied_and_worse_are_the_verdicts_of_compare(tmp_path: Path) -> None:
    runs = [scored_run(tmp_path, scores, n, model=f"m-{n}") for n, scores in enumerate((FAIR, LIKE, GOOD))]

    table = table_of(runs)

    assert table.rows == ["m-2", "m-1", "m-0"]
    assert marks(table) == {("m-2", "sums"): "best", ("m-1", "sums"): "tied", ("m-0", "sums"): "worse"}
    like = table.cells["m-1", "sums"].against
    assert like is not None
    assert like.adjusted == pytest.approx(0.097, abs=0.001)
    assert table.comparisons == 2
    text = markdown_table(table)
    assert "| m-2 | **0.875** \\[0.688, 0.978\\] |" in text
    assert "| m-1 | 0.750† \\[0.612, 0.888\\] |" in text
    assert "| m-0 | 0.250 \\[0.112, 0.388\\] |" in text
    assert "(p of at least 0.05; Student's t on the pairs, adjusted for 2 comparisons (Holm))" in text
    assert "n = 16, r = 2 (n examples with a score, r rollouts of each)." in text


def test_equal_means_are_both_best_and_a_single_run_has_no_mark(tmp_path: Path) -> None:
    runs = [scored_run(tmp_path, GOOD, n, model=f"m-{n}") for n in range(2)]

    assert set(marks(table_of(runs)).values()) == {"best"}
    alone = table_of(runs[:1])
    assert set(marks(alone).values()) == {""}
    assert "Bold" not in " ".join(footnotes(alone))


def test_too_few_examples_are_not_called_a_tie(tmp_path: Path) -> None:
    runs = [
        scored_run(tmp_path, {n: [value] for n in range(4)}, m, model=f"m-{m}") for m, value in enumerate((1.0, 0.0))
    ]

    table = table_of(runs)

    assert marks(table) == {("m-0", "sums"): "best", ("m-1", "sums"): "unknown"}
    assert "?: too few examples or clusters with a score to tell it from the best." in footnotes(table)
    assert "0.000?" in markdown_table(table)


def test_a_run_without_any_score_is_a_dash_with_its_reason(tmp_path: Path) -> None:
    runs = [
        scored_run(tmp_path, GOOD, 0, model="m-0"),
        scored_run(tmp_path, {n: [None] for n in range(4)}, 1, model="m-1"),
    ]

    table = table_of(runs)

    [(letter, words)] = cell_notes(table).values()
    assert (letter, words) == ("a", "m-1, sums: 0 of 4 rollouts scored (without a score: timeout 4).")
    assert "| m-1 | –<sup>a</sup> |" in markdown_table(table)


def test_an_unfinished_run_and_a_missing_one_are_named(tmp_path: Path) -> None:
    part: Scores = {n: GOOD[n] for n in range(10)}
    planned = {"num_examples": 16, "rollouts_per_example": 2}
    runs = [
        scored_run(tmp_path, GOOD, 0, model="m-0"),
        scored_run(tmp_path, part, 1, model="m-1", status="interrupted", planned=planned),
        scored_run(tmp_path, GOOD, 2, model="m-0", env_id="other"),
    ]

    table = table_of(runs)

    [(_, words)] = cell_notes(table).values()
    assert words == "m-1, sums: 20 of 32 rollouts scored; state of the run: interrupted."
    assert "–: no run." in footnotes(table)
    assert [*table.averages] == ["m-0"]
    assert "n examples with a score, r rollouts of each. sums: n = 10 to 16, r = 2; other: n = 16, r = 2." in footnotes(
        table
    )


def test_several_runs_of_a_model_have_rows_of_their_own(tmp_path: Path) -> None:
    def run(minute: int, env_id: str, suite_id: str, name: str = "") -> RunDir:
        return scored_run(tmp_path, GOOD, minute, model="m", env_id=env_id, suite=suite_id, name=name or env_id)

    twice = [run(0, "sums", "s-1"), run(1, "other", "s-1"), run(2, "sums", "s-2"), run(3, "other", "s-2")]
    table = table_of(twice)
    assert table.rows == ["m · run 1", "m · run 2"]
    assert len(table.cells) == 4
    assert f"m · run 1: {twice[0].id}, {twice[1].id}." in footnotes(table)

    assert table_of([(each, "s-1" if n < 2 else "s-2") for n, each in enumerate(twice)]).rows == ["m · s-1", "m · s-2"]
    swept = [run(4 + n, "sums", "s-3", f"sums[temperature={n}]") for n in range(2)]
    assert table_of(swept).rows == ["m · temperature=0", "m · temperature=1"]


def test_settings_that_differ_are_named_below(tmp_path: Path) -> None:
    def identity(temperature: float, source: str) -> dict[str, Any]:
        model = {"names": [f"m-{source}"], "urls": [], "sampling_args": {"temperature": temperature}}
        headers = {"X-Key": f"secret-{source}"}
        return {
            "env": {"env_id": "sums", "env_args": {}, "source": source * 20},
            "model": model,
            "extra_headers": headers,
        }

    runs = [scored_run(tmp_path, GOOD, n, model=f"m-{n}", identity=identity(0.5 * n, "ab"[n])) for n in range(2)]

    [words] = [each for each in footnotes(table_of(runs)) if "differ in more than the model" in each]
    assert "sampling_args.temperature 0 (m-0), 0.5 (m-1)" in words.replace("0.0 ", "0 ")
    assert "source aaaaaaaaaaaa (m-0), bbbbbbbbbbbb (m-1)" in words
    assert "extra_headers" in words
    assert "secret" not in words
    same = [scored_run(tmp_path, GOOD, 5 + n, model=f"m-{n}", identity=identity(0.5, "a")) for n in range(2)]
    assert not [each for each in footnotes(table_of(same)) if "differ in more" in each]


def test_the_average_is_compared_by_paired_differences(tmp_path: Path) -> None:
    runs = [
        scored_run(tmp_path, scores, 10 * place + n, model=f"m-{n}", env_id=env_id)
        for place, env_id in enumerate(("sums", "other"))
        for n, scores in enumerate((GOOD, LIKE, FAIR))
    ]

    table = table_of(runs)

    assert {row: each.mark for row, each in table.averages.items()} == {"m-0": "best", "m-1": "worse", "m-2": "worse"}
    difference = table.averages["m-1"].difference
    assert difference is not None
    assert difference.mean == pytest.approx(0.125)
    [average] = [each for each in footnotes(table) if each.startswith("Average")]
    assert average.endswith("by the mean of the paired differences, adjusted for 2 comparisons (Holm).")


def test_a_page_and_its_table_have_the_same_verdicts(tmp_path: Path) -> None:
    page = page_of([run.path for run in suite(tmp_path, Shape(examples=24))])

    table = table_of_page(page)

    assert table.comparisons == len(page.differences) == 9
    for environment in page.environments:
        best = environment.differences[0].first
        for each in environment.differences:
            if each.first == best:
                cell = table.cells[environment.runs[each.second].model, environment.name]
                assert cell.mark == {"better": "worse", "tied": "tied"}[each.verdict]
    assert [table.averages[each.model].estimate for each in page.overall] == [each.estimate for each in page.overall]


def test_many_environments_become_rows(tmp_path: Path) -> None:
    runs = suite(tmp_path, Shape(environments=tuple(f"e{n}" for n in range(6)), models=("m-1", "m-2"), examples=8))

    layout = layout_of(table_of_page(page_of([run.path for run in runs])))

    assert layout.corner == "environment"
    assert layout.columns == ["m-1", "m-2"] or layout.columns == ["m-2", "m-1"]
    assert [name for name, _ in layout.rows] == ["e0", "e1", "e2", "e3", "e4", "e5", "average"]


def test_evaluation_functions_are_columns_without_an_average(tmp_path: Path) -> None:
    run = scored_run(tmp_path, GOOD, 0, kind="eval", metric_names=["exact", "close"])

    table = table_of_sides([(read_side(run, measure=name), "") for name in run.read_manifest().functions])

    assert table.environments == ["sums · exact", "sums · close"]
    assert table.averages == {}


def test_csv_has_every_digit_and_no_formula(tmp_path: Path) -> None:
    table = strange(tmp_path)

    rows = list(csv.DictReader(io.StringIO(csv_table(table))))

    runs = [row for row in rows if row["kind"] == "run"]
    assert len(runs) == len(table.cells) == 2 * len(NAMES) - 1
    for row, cell in zip(runs, table.ordered, strict=True):
        estimate = summary_of(cell.manifest, read_journal(cell.entry.run)).reward.estimate
        assert [float(row[name]) for name in ("mean", "low", "high")] == [estimate.mean, estimate.low, estimate.high]
        assert (row["n"], row["rollouts_per_example"], row["scored"]) == ("16", "2", "32")
    assert len([row for row in rows if row["kind"] == "average"]) == len(NAMES) - 1
    assert not [cell for row in rows for cell in row.values() if cell.startswith(("=", "+", "@")) or cell[:2] == "--"]
    assert "'=HYPERLINK(1)" in {row["model"] for row in runs}


def test_markdown_shows_names_as_they_are(tmp_path: Path) -> None:
    text = markdown_table(strange(tmp_path))

    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {5}
    assert "<b>" not in text


def test_latex_is_well_formed_whatever_the_names(tmp_path: Path) -> None:
    text = latex_table(strange(tmp_path))

    check_latex(text)
    assert r"\textbackslash{}input\{/etc/passwd\}" in text
    assert r"\benchchar{模}{U+6A21}" in text
    assert text.count(r"\providecommand{\benchchar}") == 1
    assert r"% Made by bench. Needs \usepackage{booktabs}; include it with \input." in text


def check_latex(text: str) -> None:
    """Check what a compiler would stumble over: groups, environments, cells of each row, special characters."""
    code = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    plain = re.sub(r"\\[\\{}%&#$_]", "", code)
    depth = 0
    for character in plain:
        depth += (character == "{") - (character == "}")
        assert depth >= 0
    assert depth == 0
    assert "%" not in plain
    assert plain.count("$") % 2 == 0
    names = r"\\%s\{(\w+)\}"
    assert re.findall(names % "begin", code) == ["table", "tabular", "minipage"]
    assert re.findall(names % "end", code) == ["tabular", "minipage", "table"]
    [spec] = re.findall(r"\\begin\{tabular\}\{(\w+)\}", code)
    rows = [line for line in code.splitlines() if line.endswith(r" \\")]
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {len(spec) - 1}
    assert not [row for row in rows if row.lstrip().startswith(("[", "*"))], "would be an argument of the row before"
    assert re.sub(r"\\benchchar\{.\}", "", code).isascii()
    sentences = "\n".join(line for line in code.splitlines() if line.endswith(r"\par"))
    assert not set("#_&%") & set(re.sub(r"\$[^$]*\$|\\[#_&%]", "", sentences))


@pytest.mark.parametrize(
    ("words", "written"),
    [
        ("a_b%c&d#e$f", r"a\_b\%c\&d\#e\$f"),
        (r"^~\{}", r"\textasciicircum{}\textasciitilde{}\textbackslash{}\{\}"),
        ("é ñ ğ i\u0301 ß", r"\'{e} \~{n} \u{g} \'{\i} \ss{}"),
        ("a--b---c", "a-{}-b-{}-{}-c"),
        ("two\nlines\x1b[31m", "two lines"),
        ("😀", r"\benchchar{😀}{U+1F600}"),
    ],
)
def test_text_for_latex(words: str, written: str) -> None:
    assert latex_text(words) == written


@pytest.mark.parametrize("engine", ["pdflatex", "xelatex", "lualatex", "tectonic"])
def test_latex_compiles(engine: str, tmp_path: Path) -> None:
    program = shutil.which(engine)
    if program is None:
        pytest.skip(f"{engine} is not installed")
    (tmp_path / "table.tex").write_text(latex_table(strange(tmp_path / "outputs")))
    document = r"\documentclass{article}\usepackage{booktabs}\begin{document}\input{table.tex}\end{document}"
    (tmp_path / "paper.tex").write_text(document)
    flags = [] if engine == "tectonic" else ["-halt-on-error", "-interaction=nonstopmode", "-no-shell-escape"]
    done = subprocess.run([program, *flags, "paper.tex"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:]
    assert (tmp_path / "paper.pdf").stat().st_size > 1000
