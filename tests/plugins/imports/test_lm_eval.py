"""`bench import` of samples of lm-evaluation-harness: those that 0.4.13 wrote, older lines, and hostile files."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from import_results import golden, imported, refused
from tables import for_each_row

from harness.core.records import Generated
from harness.store.outcomes import Outcome, outcomes, read_journal
from harness.store.rundir import RunDir

Bench = Callable[..., Any]

LINE: dict[str, Any] = {
    "doc_id": 0, "doc": {"q": "2 + 2 ="}, "target": "4", "arguments": {"gen_args_0": {"arg_0": "2 + 2 =", "arg_1": {}}},
    "resps": [["4"]], "filtered_resps": ["4"], "filter": "none", "metrics": ["exact_match"], "exact_match": 1.0,
}  # fmt: skip
OLD = {name: value for name, value in LINE.items() if name not in ("filter", "metrics")}


def sample(name: str) -> Path:
    [path] = golden("lm_eval").glob(f"*/samples_{name}_*.jsonl")
    return path


def written(folder: Path, *lines: Any) -> Path:
    folder.mkdir()
    path = folder / "samples_sums_2026-11-28T03-22-43.574167.jsonl"
    path.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines))
    return path


def rollouts(run: RunDir) -> list[Outcome]:
    return list(outcomes(read_journal(run)))


def base(outcome: Outcome) -> Generated:
    assert isinstance(outcome.base, Generated)
    return outcome.base


def test_chats_with_two_filters_are_read(bench: Bench) -> None:
    said = refused(bench, golden("lm_eval/chat"))
    assert 'several metrics ("exact_match,strict", "exact_match,flexible")' in said
    run = imported(bench, golden("lm_eval/chat"), "--reward", "exact_match,flexible")
    manifest, found = run.read_manifest(), rollouts(run)
    assert (manifest.env_id, manifest.model) == ("spoken", "reference/echo")
    assert manifest.versions == {"lm_eval": "0.4.13", "spoken": "2.0"}
    assert manifest.settings["model.api_base_url"] == "http://localhost:8461/v1"
    assert manifest.settings["model.sampling_args"] == {"until": ["\n\n"], "max_gen_toks": 32}
    assert manifest.planned == {"num_examples": 3, "rollouts_per_example": 1}
    assert [each.reward for each in found] == [0.0, 0.0, 1.0]
    last = found[2]
    assert last.score is not None and last.score.metrics == {"exact_match,strict": 0.0, "exact_match,flexible": 1.0}
    assert last.example.prompt == [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say Oslo"},
    ]  # fmt: skip
    assert (last.example.answer, last.example.info) == ("Oslo", {})
    assert last.base.completion == [{"role": "assistant", "content": "Say Oslo"}]
    assert base(last).state["resps"] == [["Say Oslo", "Say Oslo"]] and base(last).state["doc"]["answer"] == "Oslo"


def test_multiple_choice_has_the_likeliest_choice_as_reply(bench: Bench) -> None:
    run = imported(bench, sample("chosen"), "--reward", "acc,none")
    lines = [json.loads(line) for line in sample("chosen").read_text().splitlines()]
    assert [each.reward for each in rollouts(run)] == [line["acc"] for line in lines]
    for line, each in zip(lines, rollouts(run), strict=True):
        assert each.score is not None and each.score.metrics == {"acc": line["acc"], "acc_norm": line["acc_norm"]}
        likelihoods = [float(resp[0][0]) for resp in line["resps"]]
        best = line["doc"]["choices"][likelihoods.index(max(likelihoods))]
        assert each.base.completion == f" {best}"
        assert [choice["log_likelihood"] for choice in base(each).state["choices"]] == likelihoods


def test_a_likelihood_is_no_reply_and_not_an_empty_one(bench: Bench) -> None:
    run = imported(bench, sample("ending"))  # of its two metrics, perplexity is better if it is lower
    summary = run.read_summary()
    assert run.read_manifest().derived["reward"] == "acc" and summary is not None
    assert (summary["empty"], summary["usage"]["input_tokens"]) == (0, None)
    assert not any(base(each).is_empty or base(each).completion for each in rollouts(run))
    example = str(rollouts(run)[0].example.example_id)
    for shown in (["runs", "show"], ["runs", "show", "--worst", "1"], ["runs", "show", "--example", example]):
        told = bench(shown[0], shown[1], str(run.path), *shown[2:])
        assert told.code == 0 and "(not recorded)" in told.out and "(empty)" not in told.out
    assert "lower values are better" in refused_after(bench, sample("ending"), "perplexity")


def refused_after(bench: Bench, path: Path, reward: str) -> str:
    told = bench("import", str(path), "--reward", reward)
    assert told.code == 2
    return told.err


def test_metrics_of_a_whole_corpus_are_no_scores(bench: Bench) -> None:
    assert "has no metric with a number for each example" in refused(bench, sample("fluent"))


def test_a_folder_of_models_and_tasks_gives_a_run_each(bench: Bench, tmp_path: Path) -> None:
    for model in ("a__one", "b__two"):
        shutil.copytree(golden("lm_eval/dummy"), tmp_path / "results" / model)
        next((tmp_path / "results" / model).glob("samples_fluent_*")).unlink()
    made = bench("import", str(tmp_path / "results"), "--reward", "acc", "--json")
    assert sorted(run["env_id"] for run in json.loads(made.out)["runs"]) == ["chosen", "chosen", "ending", "ending"]


def test_lines_of_older_releases_are_read(bench: Bench, tmp_path: Path) -> None:
    older = {**OLD, "doc_id": 1, "arguments": [["1 + 1 =", {"until": []}]], "target": 2, "exact_match": False}
    run = imported(bench, written(tmp_path / "old", OLD, older), "--model", "lab/m-1", "--env", "arithmetic")
    manifest, [first, second] = run.read_manifest(), rollouts(run)
    assert (manifest.env_id, manifest.model) == ("arithmetic", "lab/m-1")
    assert (first.reward, second.reward, second.example.answer, second.example.prompt) == (1.0, 0.0, "2", "1 + 1 =")
    assert (first.base.completion, first.base.usage.unreported) == ("4", 1)


def test_a_missing_score_is_unknown(bench: Bench, tmp_path: Path) -> None:
    lines = [
        LINE, {**LINE, "doc_id": 1, "exact_match": float("nan")}, {**LINE, "doc_id": 2, "exact_match": None},
        {**LINE, "doc_id": 3, "exact_match": 10**400}, {**LINE, "doc_id": 4, "metrics": []},
    ]  # fmt: skip
    run = imported(bench, written(tmp_path / "gaps", *lines))
    assert [each.reward for each in rollouts(run)] == [1.0, None, None, None, None]
    assert "no number for exact_match" in (rollouts(run)[1].error or "")


@for_each_row(
    ("lines", "problem"),
    [
        ([""], "no metric with a number"),
        (["{\n"], "line 1 is not JSON"),
        ([LINE, "[1]\n"], "line 2: the value: "),
        ([LINE, {**LINE, "doc_id": "x"}], "line 2: doc_id: "),
        ([LINE, LINE], "line 2: document 0 with the filter 'none' is there twice"),
        ([LINE, {**LINE, "doc_id": 1, "resps": 3}], "line 2: resps: "),
        ([{**LINE, "arguments": {}, "doc": "DEEP"}], "line 1 is nested too deeply"),
        (["9" * 5000 + "\n"], "line 1 is not JSON"),
    ],
)
def test_hostile_samples_are_refused_and_leave_nothing(
    bench: Bench, tmp_path: Path, lines: list[Any], problem: str
) -> None:
    deep = "[" * 9999 + "]" * 9999
    texts = [line if isinstance(line, str) else json.dumps(line).replace('"DEEP"', deep) + "\n" for line in lines]
    path = written(tmp_path / str(len(list(tmp_path.iterdir()))), *texts)
    assert problem in refused(bench, path, "-f", "lm-eval")


def test_links_and_fifos_are_not_followed(bench: Bench, tmp_path: Path) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / sample("chosen").name).symlink_to(sample("chosen"))
    os.mkfifo(folder / "samples_fifo_2026-11-28T03-22-43.574167.jsonl")
    assert "has no file samples_TASK_TIME.jsonl" in refused(bench, folder, "-f", "lm-eval")
    assert "is in no known format" in refused(bench, folder)


def test_damaged_totals_are_named(bench: Bench, tmp_path: Path) -> None:
    path = written(tmp_path / "one", LINE)
    (path.parent / "results_2026-11-28T03-22-43.574167.json").write_text('{"versions": 3}')
    assert "results_2026-11-28T03-22-43.574167.json: versions: " in refused(bench, path)


def test_options_that_the_format_does_not_take_are_refused(bench: Bench) -> None:
    said = refused(bench, sample("chosen"), "--map", "reward=acc", "-f", "lm-eval")
    assert "--map: the format lm-eval does not take it" in said
