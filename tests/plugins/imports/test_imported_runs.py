"""Imported runs of several tools beside each other, as `compare`, `gate`, `report`, `export` and `view` read them."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from chromium import Tab, browser
from import_results import facts, golden, imported
from view_pages import go, opened, shows
from view_server import own_cache, viewing

from harness.store.rundir import RunDir

Bench = Callable[..., Any]

QUESTIONS = {f"What is {n} + {n}?": str(2 * n) for n in range(8)}
"""Questions of both tools, with their answers."""


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with own_cache(tmp_path_factory.mktemp("cache")):
        yield


@pytest.fixture
def of_lm_eval(bench: Bench, tmp_path: Path) -> RunDir:
    """A run of lm-eval over chats: right up to 5."""
    path = tmp_path / "samples_sums_2026-11-28T03-22-43.574167.jsonl"
    lines: list[Any] = []
    for number, (question, answer) in enumerate(QUESTIONS.items()):
        chat = json.dumps([{"role": "user", "content": question}])
        lines.append({
            "doc_id": number, "doc": {"q": question}, "target": answer, "filter": "none", "metrics": ["exact_match"],
            "arguments": {"gen_args_0": {"arg_0": [chat], "arg_1": {}}}, "resps": [[answer if number < 6 else "0"]],
            "filtered_resps": [answer], "exact_match": float(number < 6),
        })  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return imported(bench, path, "-m", "model-a")


@pytest.fixture
def of_inspect(bench: Bench, tmp_path: Path) -> RunDir:
    """A run of Inspect over the same questions under other ids: always right."""
    path = tmp_path / "sums.eval"
    with zipfile.ZipFile(path, "w") as archive:
        header = {"version": 2, "status": "success", "eval": {"task": "sums", "model": "model-b"}}
        archive.writestr("header.json", json.dumps(header))
        for number, (question, answer) in enumerate(QUESTIONS.items(), 1):
            messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
            sample = {
                "id": number, "epoch": 1, "input": question, "target": answer, "messages": messages,
                "scores": {"match": {"value": "C"}},
            }  # fmt: skip
            archive.writestr(f"samples/{number}_epoch_1.json", json.dumps(sample))
    return imported(bench, path)


def test_runs_of_two_tools_are_compared_by_content(bench: Bench, of_lm_eval: RunDir, of_inspect: RunDir) -> None:
    told = bench("compare", of_lm_eval.id, of_inspect.id, "--json")
    [only] = json.loads(told.out)["comparisons"]
    assert (told.code, only["pairs"], only["wins"], only["losses"]) == (0, 8, 2, 0)
    gated = bench("gate", of_inspect.id, "--baseline", of_lm_eval.id, "--margin", "0.5")
    assert gated.code in (0, 1) and "Traceback" not in gated.err


def test_golden_files_of_two_tools_share_an_example(bench: Bench) -> None:
    lm_eval = imported(bench, golden("lm_eval/chat"), "--reward", "exact_match,flexible", "--env", "capitals")
    inspect = imported(bench, golden("inspect/capitals.eval"))
    told = bench("compare", lm_eval.id, inspect.id, "--json")
    assert json.loads(told.out)["comparisons"][0]["pairs"] == 1  # Kenya, with the same system prompt


def test_runs_whose_prompts_differ_are_paired_by_id(bench: Bench, tmp_path: Path) -> None:
    rows = [{"id": number, "s": number % 2, "q": f"{number}?"} for number in range(8)]
    runs: list[RunDir] = []
    for name, words in (("one", "id=0"), ("two", "")):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps({**row, "q": f"{words} {row['q']}"}) + "\n" for row in rows))
        mapping = ("--map", "reward=s,example=id,prompt=q", "--env", "sums", "--model", name)
        runs.append(imported(bench, path, *mapping, "--pair-by", "id"))
    told = bench("compare", runs[0].id, runs[1].id, "--json")
    assert json.loads(told.out)["comparisons"][0]["pairs"] == 8
    # A run of one's own takes part by way of an export.
    assert bench("export", runs[0].id, "-f", "parquet", "-o", "rows.parquet").code == 0
    third = imported(bench, Path("rows.parquet"), "--pair-by", "id")
    told = bench("compare", third.id, runs[1].id, "--json")
    assert json.loads(told.out)["comparisons"][0]["pairs"] == 8
    assert [each[1] for each in facts(third)] == [each[1] for each in facts(runs[0])]
    wrong = bench("import", "rows.parquet", "--pair-by", "name")
    assert wrong.code == 2 and "--pair-by 'name': must be content or id" in wrong.err


def test_numbers_that_no_run_can_have_become_unknown_or_are_refused(bench: Bench, tmp_path: Path) -> None:
    huge = tmp_path / "huge.jsonl"
    row = {"s": 1, "i": 10**30, "o": 1, "c": 1e308, "t": 1e999, "id": "a"}
    huge.write_text(json.dumps(row) + "\n")
    words = "reward=s,input_tokens=i,output_tokens=o,cost=c,seconds=t,example=id"
    run = imported(bench, huge, "--map", words)
    summary = run.read_summary()
    assert summary is not None and summary["usage"]["input_tokens"] is None
    for words in (("runs", "show", run.id), ("report", run.id, "-o", "x.html"), ("export", run.id, "-f", "csv")):
        assert bench(*words).code == 0
    far = tmp_path / "far.jsonl"
    rows = [{"s": 1, "id": n, "t": 99_999 if n == 0 else 0} for n in range(12)]
    far.write_text("".join(json.dumps(row) + "\n" for row in rows))
    told = bench("import", str(far), "--map", "reward=s,example=id,rollout=t")
    assert told.code == 2 and "12 rollouts are numbered up to 99999, with too many gaps" in told.err
    plan = {"samples": 10**9}
    header = {"status": "success", "eval": {"task": "sums", "model": "m", "dataset": plan, "config": {"epochs": 10**9}}}
    with zipfile.ZipFile(tmp_path / "plan.eval", "w") as archive:
        archive.writestr("header.json", json.dumps(header))
        sample = {"id": 1, "epoch": 1, "input": "x", "scores": {"match": {"value": "C"}}}
        archive.writestr("samples/1_epoch_1.json", json.dumps(sample))
    planned = imported(bench, tmp_path / "plan.eval").read_manifest().planned
    assert planned == {"num_examples": 1, "rollouts_per_example": 1}


def test_reports_and_lists_show_imported_runs(bench: Bench, of_lm_eval: RunDir, of_inspect: RunDir) -> None:
    for ending in ("html", "md", "tex", "csv"):
        told = bench("report", of_lm_eval.id, of_inspect.id, "-o", f"report.{ending}")
        assert told.code == 0, told.err
        assert "model-a" in Path(f"report.{ending}").read_text()
    assert "It was imported and has no settings" in Path("report.html").read_text()
    shown = bench("runs", "show", of_lm_eval.id, "--where", 'reward<1 state.doc.q:"7 + 7"')
    assert "--example 7" in shown.out and "1 of 8 rollouts" in shown.out
    assert "unknown" in bench("runs", "show", of_lm_eval.id).out


@pytest.mark.parametrize("name", ["csv", "jsonl", "parquet", "verifiers", "inspect", "every-eval-ever"])
def test_imported_runs_are_exported_in_every_format(bench: Bench, of_lm_eval: RunDir, name: str) -> None:
    told = bench("export", of_lm_eval.id, "-f", name, "--json")
    assert (told.code, json.loads(told.out)["rollouts"]) == (0, 8)


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet", "log.eval", "log.json", "results"])
def test_an_export_of_an_import_is_the_same_when_imported_again(bench: Bench, of_inspect: RunDir, name: str) -> None:
    form = {"rows": name.rpartition(".")[2], "log": "inspect", "results": "verifiers"}[name.partition(".")[0]]
    assert bench("export", of_inspect.id, "-f", form, "-o", name).code == 0
    again = imported(bench, Path(name))
    assert [each[1:] for each in facts(again)] == [each[1:] for each in facts(of_inspect)]
    told = bench("compare", of_inspect.id, again.id, "--json")
    [only] = json.loads(told.out)["comparisons"]
    assert (only["pairs"], only["ties"]) == (8, 8)


def test_the_pages_of_view_show_imported_runs(bench: Bench, of_lm_eval: RunDir) -> None:
    runs = [of_lm_eval, imported(bench, golden("inspect/tools.eval")), imported(bench, golden("verifiers"))]
    with viewing(Path("outputs")) as client:
        client.open_link()
        assert {run["id"] for run in client.get("/api/runs")["runs"]} == {run.id for run in runs}
        for run in runs:
            assert "imported from" in json.dumps(client.get(f"/api/runs/{run.id}"))
            page = client.send(f"/api/runs/{run.id}/rollouts/0/0")
            assert page.status == 200, page.body


def test_a_browser_shows_an_import_without_prompts_replies_and_times(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "res.json"
    run = {"run_index": 0, "success": True, "scores": {"f": 1.0}}
    document = {"config": {"model": "m", "n_runs": 1}, "summary": {}, "rows": [{"row_index": 0, "runs": [run]}]}
    path.write_text(json.dumps(document))
    made = imported(bench, path)

    async def visit(tab: Tab) -> None:
        await opened(tab, client)
        await shows(tab, "res")
        await go(tab, f"#/run/{made.id}")
        await shows(tab, "mean reward")
        await go(tab, f"#/run/{made.id}/ex/0/0")
        await shows(tab, "row_index")
        assert tab.complaints == []

    with viewing(Path("outputs")) as client, browser() as started:
        started(visit)
