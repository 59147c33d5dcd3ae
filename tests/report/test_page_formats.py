"""The page as Markdown and as JSON, and the words of the HTML page."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from report_suites import Shape, suite
from run_samples import finished, paid
from store_samples import example, failed, generated, scored
from strange_runs import strange_run

from harness.core.redact import redactor
from harness.report.page.content import content_of, page_json
from harness.report.page.document import document
from harness.report.page.gather import page_of
from harness.report.page.markdown import markdown
from harness.report.page.plots import Plots
from harness.store.outcomes import read_journal
from harness.store.rundir import RunDir
from harness.store.score_table import summary_of


def two_models(folder: Path) -> list[RunDir]:
    """Seven examples that the first gets right and the second wrong, and one that only the first has a score for."""
    good = [each for n in range(7) for each in [example(n), *paid(n, 1.0, cost=0.01)]]
    bad = [each for n in range(7) for each in [example(n), *paid(n, 0.0, cost=0.001)]]
    reasons = {"correct": "JudgeError: no | verdict"}
    return [
        finished(folder, [*good, example(7), *paid(7, 0.5)], model="lab/good", letters="aaaa"),
        finished(
            folder, [*bad, example(7), generated(7), scored(7, reward=None, reasons=reasons)], model="lab/<bad>",
            letters="bbbb",
        ),
    ]  # fmt: skip


def test_what_is_a_secret_by_now_is_in_no_form_of_the_page(tmp_path: Path) -> None:
    """The run is older than the key is known, so that it stands in its files."""
    said = failed(1, error="refused: correct-horse-battery")
    run = finished(tmp_path, [example(0), *paid(0, 1.0), example(1), said], model="lab/correct-horse-battery")
    page = page_of([run.path])
    redactor.add("correct-horse-battery")
    content = content_of(page, 60)
    forms = (markdown(page), document(page, content, plots=None), json.dumps(page_json(page, content)))
    assert ["horse" in form for form in forms] == [False] * 3
    assert all("lab/[redacted]" in form or "lab/\\[redacted" in form for form in forms)


def test_the_whole_page_as_markdown(tmp_path: Path) -> None:
    runs = two_models(tmp_path)

    written = markdown(page_of([run.path for run in runs], missing=["x: gone"]))

    assert (
        written
        == f"""\
# sums · 2 models

2 runs, 15 of 16 rollouts scored. Mean reward over examples, with 95 % intervals.

Not in this report:

- x: gone

## sums

| model | mean | 95 % interval | scored | pass@1 | tokens in | tokens out | cost | time |
| :--- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| lab/good | 0.938 | {interval(runs[0])} | 8 of 8 | 0.875 \\[0.487, 0.996\\] | 8,000 | 1,600 | \\$0.07 | 1:01 |
| lab/&lt;bad&gt; | 0.000 | {interval(runs[1])} | 7 of 8 | 0.000 \\[0.000, 0.394\\] | 7,010 | 1,405 | \\$0.007 | 1:01 |

- lab/&lt;bad&gt;: 1 unscored (correct JudgeError 1); mean 0.000 if all were worst, 0.125 if all best
- lab/&lt;bad&gt;: 1 example has no scored rollout: no part in pass@1

{difference(written)}
| model | without a score because | rollouts | first error message |
| :--- | :--- | ---: | :--- |
| lab/&lt;bad&gt; | correct JudgeError | 1 | correct: JudgeError: no \\| verdict |

## How to reproduce

- {runs[0].id} (sums · lab/good): python 3.13.1
  `bench run sums -n 4`
- {runs[1].id} (sums · lab/&lt;bad&gt;): python 3.13.1
  `bench run sums -n 4`

## Methods

- A rollout passes with a reward of at least 1.
- pass@k: at least one of k rollouts passes; pass^k: all of them do.
- p (Holm): of the test of the interval, adjusted for all pairs above; each interval is for itself.
{methods(written)}"""
    )
    assert re.search(
        r"\| lab/good \| lab/&lt;bad&gt; \| \*\*better\*\* \| \+1\.000 \| .* \| 0\.010 \| 7 / 0 / 0 \|", written
    )


def interval(run: RunDir) -> str:
    low, high = summary_of(run.read_manifest(), read_journal(run)).reward.to_json()["ci95"]
    return f"\\[{low:.3f}, {high:.3f}\\]"


def difference(written: str) -> str:
    return written[written.index("| first ") : written.index("| model | without")].rstrip("\n") + "\n"


def methods(written: str) -> str:
    return written[written.index("- Interval: ") :]


def test_the_json_has_the_figures_of_the_summary(tmp_path: Path) -> None:
    runs = two_models(tmp_path)
    page = page_of([run.path for run in runs])

    whole = json.loads(json.dumps(page_json(page, content_of(page, 60)), allow_nan=False))

    assert list(whole) == [
        "schema_version", "title", "missing", "overall", "environments", "methods", "notes", "examples", "transcripts",
    ]  # fmt: skip
    [environment] = whole["environments"]
    for shown, run in zip(environment["runs"], runs, strict=True):
        expected = summary_of(run.read_manifest(), read_journal(run), {"wall_s": 61.0}).to_json()
        assert shown["id"] == run.id
        assert shown["summary"] == json.loads(json.dumps(expected))
        assert shown["settings"]["env.env_args.size"] == {"value": 4, "origin": "cli", "source": "-a size"}
    [difference] = environment["differences"]
    assert (difference["first"], difference["second"]) == (runs[0].id, runs[1].id)
    assert (difference["difference"], difference["pairs"], difference["only_first"]) == (1.0, 7, 1)
    assert difference["p_value"] == difference["p_adjusted"] == pytest.approx(0.00994237511)
    assert whole["examples"][1]["mean"] == [0, 0, 0, 0, 0, 0, 0, None]
    assert whole["examples"][1]["reasons"] == ["correct JudgeError"]
    assert len(whole["transcripts"]) == 16


def test_the_words_of_the_page(tmp_path: Path) -> None:
    runs = two_models(tmp_path)
    page = page_of([run.path for run in runs], missing=["x: gone"])

    words = spoken(document(page, content_of(page, 60), plots=None, now=datetime(2026, 11, 22, tzinfo=UTC)))

    for said in (
        "Report made on 2026-11-22.",
        "rollouts scored 15 of 16",
        "cost $0.077",
        "measured 2026-11-21",
        "Not on this page: x: gone",
        "lab/good 0.938",
        "7 of 8",
        "-1.000 worse",
        "correct JudgeError ■ lab/<bad> correct: JudgeError: no | verdict 1 (12 %)",
        "All 16 examples are here with their transcripts.",
        "env.env_args.size 4 -a size",
        "3 more with their default",
        "Command of the run bench run sums -n 4",
        '[[eval]] env_id = "sums"',
        "python 3.13.1",
        "A rollout passes with a reward of at least 1.",
    ):
        assert said in words, said
    assert "<svg" in document(page, content_of(page, 0), plots=None)  # the marks of the leaderboard need no library


def spoken(page: str) -> str:
    """The words of a page, without markup."""
    import html

    body = re.sub(r"<(style|script)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())


def test_what_is_undefined_is_a_dash(tmp_path: Path) -> None:
    run = finished(tmp_path, [example(0), failed(0)])
    page = page_of([run.path])

    assert "| lab/m-1 | – | – | 0 of 4 | – |" in markdown(page)
    words = spoken(document(page, content_of(page, 60), plots=None))
    assert "lab/m-1 – – 0 of 4 –" in words
    assert "3 planned rollouts were not run." in words


def test_rollouts_of_every_shape_are_shown(tmp_path: Path) -> None:
    run = strange_run(tmp_path)
    page = page_of([run.path])

    content = content_of(page, 60)

    assert len(content.transcripts) == len(page.runs[0].columns.examples)
    document(page, content, plots=None)
    assert json.loads(json.dumps(page_json(page, content), allow_nan=False))["missing"] == []
    assert markdown(page).encode()


def test_metrics_and_attempts_have_their_place(tmp_path: Path) -> None:
    runs = suite(tmp_path, Shape(environments=("browse",), examples=20))
    page = page_of([run.path for run in runs])

    words = spoken(document(page, content_of(page, 3), plots=None))

    [environment] = page.environments
    for run in environment.runs:
        length = run.summary.metrics["length"]
        assert length.estimate.mean is not None
        assert f"{run.label} {length.estimate.mean:.3f}" in words
        rate = run.summary.pass_hat_k[4].value
        assert rate is not None
        assert f"{rate:.3f}" in words
    assert "An association, not an effect" in words
    assert "pass@4 pass^4" in words


def test_a_cost_that_is_known_of_some_runs_only_is_a_lower_bound(tmp_path: Path) -> None:
    priced = finished(tmp_path, [example(0), *paid(0, 1.0, cost=0.5)], model="lab/a", letters="aaaa")
    free = finished(tmp_path, [example(0), *paid(0, 1.0)], model="lab/b", letters="bbbb")

    def tile(*runs: RunDir) -> str:
        page = page_of([run.path for run in runs])
        return document(page, content_of(page, 0), plots=None).split("<dt>cost</dt><dd>")[1].split("<")[0]

    assert (tile(priced), tile(priced, free)) == ("$0.50", "≥ $0.50")


def test_a_plot_of_attempts_needs_a_pass_rate(tmp_path: Path) -> None:
    records = [example(0), generated(0, 0), scored(0, 0, None), generated(0, 1), scored(0, 1, None)]
    planned = {"num_examples": 1, "rollouts_per_example": 2}
    page = page_of([finished(tmp_path, records, planned=planned).path])

    written = document(page, content_of(page, 60), plots=Plots())

    assert "Attempts" not in written
    assert "The only example is here with its transcript." in written
    assert "1 example, 2 rollouts each" in written
