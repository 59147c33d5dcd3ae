"""What `bench multi` asks, says, writes and answers; scores and statistics are tested with what computes them."""

from __future__ import annotations

import ast
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from multi_evals import Multi
from sums_model import SumsModel

from harness.stats.paired import paired_difference

STRONG, WEAK = 0.7 + 2 / 400 * 0.2, 0.3 + 10 / 400 * 0.2
"""Of `46` and of `about five`: base, match and length bonus."""


def events_of(path: Path) -> list[tuple[str, dict[str, Any]]]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [(line["event"], line["payload"]) for line in lines]


def test_the_screen_says_who_is_better_and_by_how_much(multi: Multi) -> None:
    multi.models("strong", "weak", price={"input": 1.0, "output": 2.0})
    done = multi.multi()
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert re.fullmatch(r"2 models on 6 tasks: 12 done, in \d\.\d s", lines[0])
    table = [re.sub(r"\d+ ms", "# ms", line).split() for line in lines[2:6]]
    assert " ".join(table[0]) == "model score 95 % interval success p50 p95 tokens in tokens out cost"
    assert " ".join(table[2][-11:]).endswith("100 % # ms # ms 60 30 $0.00012")
    assert " ".join(table[3]).startswith("weak 0.503 [") and " 50 % # ms # ms 60 30 $0.00012" in " ".join(table[3])
    assert "Difference from strong, task by task; + is better:" in lines
    [difference] = [line.split() for line in lines if line.startswith("weak   ") and line.endswith("0       3     3")]
    assert difference[1].startswith("-0.198")
    assert "strong has the highest score. Against weak that may be noise." in lines
    for model, folder in zip(("strong", "weak"), multi.runs(), strict=True):
        assert f"  {model}: {folder.relative_to(multi.cwd)}" in lines
    assert "go on" not in done.out and "Not run" not in done.out and "Tasks without" not in done.out


def test_the_result_has_the_documented_keys_and_numbers(multi: Multi) -> None:
    result = multi.json()
    assert list(result) == [
        "runId", "startedAt", "finishedAt", "durationMs", "totals", "summary", "models", "persist", "meta",
    ]  # fmt: skip
    assert re.fullmatch(r"mmeval_[0-9a-z]+_[0-9a-z]{8}", result["runId"])
    assert result["totals"] == {"tasks": 6, "models": 2, "totalRuns": 12}
    assert result["persist"] == {"enabled": False}
    strong, weak = result["summary"]
    documented = ["modelId", "total", "successRate", "avgScore", "avgLatencyMs", "avgTokens", "errorCount", "aborted"]
    assert list(strong)[:8] == documented
    assert (strong["modelId"], strong["total"], strong["successRate"]) == ("strong", 6, 1.0)
    assert (weak["successRate"], weak["errorCount"], weak["aborted"]) == (0.5, 0, False)
    results = result["models"][1]["results"]
    assert [each["taskId"] for each in results] == [f"sum-{n}" for n in range(6)]
    assert results[1]["output"] == "about five" and results[1]["errors"] == ["Expected output mismatch"]
    assert results[1]["score"] == pytest.approx(WEAK)
    assert result["models"][0]["results"][2] | {"durationMs": 0} == {
        "taskId": "sum-2", "modelId": "strong", "output": "46", "score": pytest.approx(STRONG), "valid": True,
        "errors": [], "durationMs": 0, "tokens": 2, "cost": None,
        "usage": {"inputTokens": 10, "outputTokens": 5, "reasoningTokens": 0, "cachedTokens": 0, "requests": 1,
                  "unreported": 0},
    }  # fmt: skip
    meta = result["meta"]
    assert meta["command"] == "bench multi sums.json models.toml --json" and meta["tasks"] == "sums.json"
    scores = [[each["score"] for each in model["results"]] for model in result["models"]]
    [pair] = meta["paired"]
    assert pair["scored"]["difference"] == pytest.approx(paired_difference(scores[1], scores[0]).estimate.mean)


def test_with_json_stdout_holds_nothing_else(multi: Multi) -> None:
    done = multi.multi("--json", "--score-output", "scoring:words")
    assert done.code == 0
    assert set(json.loads(done.out)) >= {"runId", "summary"}
    assert "2 models on 6 tasks" in done.err and "printed by the scoring module" in done.err


def test_each_model_is_asked_its_tasks_in_order_and_two_models_at_once(multi: Multi) -> None:
    multi.model.latency = 0.02
    multi.models("a", "b", "c")
    assert multi.multi().code == 0
    for model in "abc":
        asked = [question for name, question in multi.asked() if name == model]
        assert asked == ["03 + 03", "12 + 12", "23 + 23", "32 + 32", "43 + 43", "52 + 52"]
    assert multi.model.peak == 2, "models are two at a time, although they share an endpoint"
    assert [name for name, _ in multi.asked()[-6:]].count("c") >= 4, "the third begins when one has ended"


@pytest.mark.parametrize(
    ("options", "peak"),
    [(("--model-concurrency", "1"), 1), (("--model-concurrency", "3"), 3), (("--task-concurrency", "3"), 6)],
)
def test_concurrency_is_what_was_asked_for(multi: Multi, options: tuple[str, ...], peak: int) -> None:
    multi.model.latency = 0.05
    multi.models("a", "b", "c")
    assert multi.multi(*options).code == 0
    assert multi.model.peak == peak


def test_models_are_named_in_many_ways(multi: Multi) -> None:
    (multi.cwd / "configs").mkdir()
    registry = f'[[endpoint]]\nendpoint_id = "alias"\nmodel = "strong"\nurl = "{multi.model.url}"\n'
    (multi.cwd / "configs" / "endpoints.toml").write_text(registry)
    done = multi.bench("multi", "sums.json", "-m", "alias", "-m", "reference/oracle", "-q")
    assert done.code == 0, done.err
    assert {name for name, _ in multi.asked()} == {"strong"}
    assert [line.split()[0] for line in done.out.splitlines()[4:6]] == ["alias", "reference/oracle"]


def test_models_of_the_command_line_come_after_those_of_the_file(multi: Multi) -> None:
    result = json.loads(multi.multi("--json", "-m", "org/extra", "-b", multi.model.url).out)
    assert [model["modelId"] for model in result["models"]] == ["strong", "weak", "org/extra"]
    assert [name for name, _ in multi.asked()].count("org/extra") == 6


def test_an_endpoint_registry_stands_for_all_of_its_aliases(multi: Multi) -> None:
    table = '[[endpoint]]\nendpoint_id = "{0}"\nmodel = "{0}"\nurl = "{1}"\nprice = {{input = 1.0, output = 1.0}}\n'
    names = ("one", "two")
    (multi.cwd / "mine.toml").write_text("".join(table.format(name, multi.model.url) for name in names))
    result = json.loads(multi.bench("multi", "sums.json", "mine.toml", "--json").out)
    assert [(each["modelId"], each["cost"]) for each in result["summary"]] == [
        (name, pytest.approx(90e-6)) for name in names
    ]
    (multi.cwd / "mine.py").write_text(f'ENDPOINTS = {{"three": {{"model": "m", "url": "{multi.model.url}"}}}}\n')
    result = json.loads(multi.bench("multi", "sums.json", "mine.py", "--json").out)
    assert [each["modelId"] for each in result["summary"]] == ["three"]
    named = multi.bench("multi", "sums.json", "-m", "two", "-e", "mine.toml", "--json")
    assert [each["modelId"] for each in json.loads(named.out)["summary"]] == ["two"]


def test_the_key_of_a_named_model_is_the_one_that_k_names(multi: Multi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-somebody-else")
    monkeypatch.setenv("MINE", "sk-canary-of-mine")
    named = ("multi", "sums.json", "-m", "strong", "-b", multi.model.url)
    assert multi.bench(*named).code == 0
    assert set(multi.model.keys) == {None}
    assert multi.bench(*named, "-k", "MINE", "--persist").code == 0
    assert multi.model.keys[-1] == "Bearer sk-canary-of-mine"
    kept = [path for path in multi.cwd.rglob("*") if path.is_file() and path.suffix != ".py"]
    assert kept and not any(b"canary" in path.read_bytes() for path in kept)


def test_named_models_may_be_at_different_hosts_each_with_its_own_key(
    multi: Multi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONE", "sk-canary-one")
    monkeypatch.setenv("TWO", "sk-canary-two")
    with SumsModel() as other:
        named = ("-m", "strong", "-b", multi.model.url, "-k", "ONE", "-m", "weak", "-b", other.url, "-k", "TWO")
        result = json.loads(multi.bench("multi", "sums.json", *named, "--json").out)
        assert [(each["modelId"], each["baseUrl"]) for each in result["meta"]["models"]] == [
            ("strong", multi.model.url), ("weak", other.url)
        ]  # fmt: skip
        assert ({body["model"] for body in multi.model.requests}, set(multi.model.keys)) == (
            {"strong"}, {"Bearer sk-canary-one"}
        )  # fmt: skip
        assert ({body["model"] for body in other.requests}, set(other.keys)) == ({"weak"}, {"Bearer sk-canary-two"})


def test_scoring_options_reach_the_scores(multi: Multi) -> None:
    multi.tasks("say hello", expected="hell")
    multi.models("strong")
    loose = multi.json()["models"][0]["results"][0]
    assert (loose["output"], loose["valid"]) == ("hello", True)
    exact = multi.json("--match-mode", "exact")["models"][0]["results"][0]
    assert (exact["valid"], exact["score"]) == (False, pytest.approx(0.3 + 5 / 400 * 0.2))
    assert multi.json("--length-target", "5")["models"][0]["results"][0]["score"] == pytest.approx(0.9)
    assert multi.json("--length-target", "-1")["models"][0]["results"][0]["score"] == pytest.approx(0.7)


def test_a_schema_may_be_checked_by_all_of_the_standard(multi: Multi) -> None:
    multi.tasks("2 + 2", schema={"type": "integer", "minimum": 4}, matchMode=None)
    multi.models("strong")
    subset, whole = multi.json(), multi.json("--schema-mode", "jsonschema")
    assert subset["models"][0]["results"][0]["errors"] != []
    assert whole["models"][0]["results"][0]["valid"] is True
    assert [each["summary"][0]["meta"]["schemaCompliance"]["mean"] for each in (subset, whole)] == [0.0, 1.0]
    assert "schema" in multi.multi().out.splitlines()[2]


def test_a_scoring_function_comes_from_the_working_directory(multi: Multi) -> None:
    result = multi.json("--score-output", "scoring:words")
    assert [each["score"] for each in result["models"][1]["results"]] == [1.0, 2.0, 1.0, 2.0, 1.0, 2.0]


def test_a_scoring_function_that_raises_gives_no_score(multi: Multi) -> None:
    done = multi.multi("--score-output", "scoring:strict", "--json")
    assert done.code == 0
    weak = json.loads(done.out)["models"][1]["results"][1]
    assert (weak["score"], weak["output"], weak["timeout"]) == (0.0, "", False)
    assert "KeyError" in weak["error"]
    assert "  weak: scoring:strict raised KeyError 1 of 6; e.g. sum-1: raised KeyError: 'colour'" in done.err
    assert "one without a score counts 0" in done.err
    again = [line for line in done.err.splitlines() if "retry failed rollouts" in line]
    assert [line.strip() for line in again] == [
        "retry failed rollouts: bench multi sums.json models.toml --score-output scoring:strict --json --retry-failed"
    ]


def test_a_task_that_takes_too_long_is_stopped_and_told(multi: Multi) -> None:
    multi.model.latency = 0.4
    multi.tasks("2 + 2")
    multi.models("slow")
    done = multi.multi("--timeout-ms", "50", "--json")
    assert done.code == 1, "nothing has a score"
    [result] = json.loads(done.out)["models"][0]["results"]
    assert (result["error"], result["timeout"]) == ("MultiModelEvaluator timeout after 50ms", True)
    assert "  slow: timeout 1 of 1; e.g. sum-0: MultiModelEvaluator timeout after 50ms" in done.err


def test_a_model_stops_at_its_first_error_if_asked_to_and_the_others_go_on(multi: Multi) -> None:
    multi.models("weak", "strong")
    done = multi.multi("--score-output", "scoring:strict", "--abort-on-error", "--json")
    assert done.code == 1
    weak, strong = json.loads(done.out)["summary"]
    assert (weak["total"], weak["aborted"], weak["notRun"], weak["errorCount"]) == (2, True, 4, 1)
    assert (strong["total"], strong["aborted"]) == (6, False)
    assert "Not run:" in done.err and "  weak: 4 of 6 tasks: " in done.err
    assert "weak has a score on too few tasks to be ranked." in done.err


def test_a_dead_endpoint_stops_its_model_alone_and_the_shown_command_goes_on(multi: Multi) -> None:
    multi.models("strong", "turning")
    multi.tasks(*(f"{n} + {n}" for n in range(10, 16)))
    done = multi.multi()
    assert done.code == 1
    strong, turning = [line.split() for line in done.out.splitlines() if re.match(r"(strong|turning) +\d.* of ", line)][
        :2
    ]
    assert strong[0] == "strong" and " ".join(strong).count("6 of 6") == 1
    assert turning[0] == "turning"
    assert re.search(r"  turning: \d of 6 tasks: .*key", done.out), done.out
    shown = [line.strip() for line in done.out.splitlines() if "bench multi" in line]
    assert shown[0] == "go on: bench multi sums.json models.toml --resume"
    multi.model.forgive()
    before = multi.asked()
    again = multi.multi("--retry-failed")
    assert again.code == 0, again.err
    asked = multi.asked()[len(before) :]
    assert {name for name, _ in asked} == {"turning"}, "what is there is not asked again"
    assert re.match(r"2 models on 6 tasks: 12 done, \d+ of them earlier, in ", again.out)
    assert len(multi.runs()) == 2


def test_resuming_a_whole_evaluation_shows_it_again_and_asks_nothing(multi: Multi) -> None:
    first = multi.json()
    before = len(multi.asked())
    second = multi.json("--resume")
    assert len(multi.asked()) == before and len(multi.runs()) == 2
    assert [model["results"] for model in second["models"]] == [model["results"] for model in first["models"]]


def test_other_scoring_is_another_evaluation_and_no_way_to_resume_this_one(multi: Multi) -> None:
    multi.json()
    refused = multi.multi("--resume", "--length-target", "10")
    assert (refused.code, refused.out) == (2, "")
    assert "cannot be resumed: --length-target was not set, now 10" in refused.err
    assert len(multi.runs()) == 2


def test_other_tasks_under_the_same_name_are_refused_by_a_resume(multi: Multi) -> None:
    multi.json()
    multi.tasks("7 + 7")
    refused = multi.multi("--resume")
    assert refused.code == 2 and "cannot be resumed" in refused.err


def test_nothing_is_kept_if_nothing_is_to_be(multi: Multi) -> None:
    done = multi.multi("--no-save")
    assert done.code == 0
    assert not (multi.cwd / "outputs").exists() and "Run folder" not in done.out and "go on" not in done.out


def test_run_folders_are_those_of_the_house(multi: Multi) -> None:
    assert multi.multi("-o", "elsewhere").code == 0
    folders = sorted((multi.cwd / "elsewhere" / "evals").iterdir())
    assert [folder.name for folder in folders] == ["sums--strong", "sums--weak"]
    [run] = [path for path in folders[0].iterdir() if (path / "run.json").exists()]
    manifest = json.loads((run / "run.json").read_text())
    assert (manifest["kind"], manifest["name"], manifest["status"]) == ("multi", "strong", "done")
    assert {path.name for path in run.iterdir()} >= {"config.toml", "journal.jsonl", "summary.json", "data"}
    assert multi.bench("run", str(run / "config.toml"), "-q").code == 0, "a run's own settings repeat it"


def test_events_are_written_as_they_happen(multi: Multi) -> None:
    result = multi.json("--events", "deep/er/events.jsonl")
    seen = events_of(multi.cwd / "deep" / "er" / "events.jsonl")
    assert [name.rpartition(":")[2] for name, _ in seen] == ["start", *["progress"] * 12, "complete"]
    assert {payload["runId"] for _, payload in seen} == {result["runId"]}
    assert seen[0][1] == {"runId": result["runId"], "tasks": 6, "models": 2, "totalRuns": 12}
    assert [payload["completed"] for _, payload in seen[1:-1]] == list(range(1, 13))
    assert {(payload["modelId"], payload["taskId"]) for _, payload in seen[1:-1]} == {
        (model, f"sum-{n}") for model in ("strong", "weak") for n in range(6)
    }
    assert seen[-1][1]["summary"] == result["summary"]


def test_settings_may_be_set_for_all_models_or_for_one(multi: Multi) -> None:
    result = multi.json("--set", "model.sampling_args.temperature=0.5", "--set", "weak:model.sampling_args.seed=7")
    assert [each["samplingArgs"] for each in result["meta"]["models"]] == [
        {"temperature": 0.5}, {"temperature": 0.5, "seed": 7},
    ]  # fmt: skip
    assert {body["temperature"] for body in multi.model.requests} == {0.5}
    assert {body.get("seed") for body in multi.model.requests} == {None, 7}


@pytest.mark.parametrize("label", ["qwen2.5:7b", "reference/noisy?accuracy=0.7", "a:b=c:d", "model.rpm"])
def test_a_setting_may_be_set_for_a_model_of_any_name(multi: Multi, label: str) -> None:
    url = multi.model.url
    (multi.cwd / "models.toml").write_text(
        f'[[model]]\nid = "{label}"\nmodelId = "m"\nbaseUrl = "{url}"\n[[model]]\nid = "qwen2.5"\nbaseUrl = "{url}"\n'
    )
    sets = ("--set", f"{label}:model.sampling_args.seed=7", "--set", "model.sampling_args.top_k=3")
    asked = multi.json(*sets)["meta"]["models"]
    assert [each["samplingArgs"] for each in asked] == [{"seed": 7, "top_k": 3}, {"top_k": 3}]
    refused = multi.multi("--set", f"{label}:model.model=x")
    assert refused.code == 2 and "set the name, address and key of a model in its definition" in refused.err


def test_sampling_options_are_for_all_models_and_a_models_own_win(multi: Multi) -> None:
    (multi.cwd / "models.toml").write_text(
        f'[[model]]\nid = "a"\nbaseUrl = "{multi.model.url}"\n'
        f'[[model]]\nid = "b"\nbaseUrl = "{multi.model.url}"\ntemperature = 0.9\n'
    )
    assert multi.multi("-T", "0.1", "-t", "64", "-S", "top_p=0.5").code == 0
    sent = {(body["model"], body["temperature"], body["max_tokens"], body["top_p"]) for body in multi.model.requests}
    assert sent == {("a", 0.1, 64, 0.5), ("b", 0.9, 64, 0.5)}


def test_a_dry_run_shows_where_each_setting_comes_from_and_asks_nothing(multi: Multi) -> None:
    done = multi.multi("--dry-run", "--json", "--task-concurrency", "4", "--length-target", "50")
    assert done.code == 0 and multi.asked() == [] and not (multi.cwd / "outputs").exists()
    first, _ = json.loads(done.out)["runs"]
    told = {path: (line["value"], line["source"]) for path, line in first["settings"].items()}
    assert told["env.env_args.tasks"] == ("sums.json", "TASKS")
    assert told["env.env_args.length_target"] == (50, "--length-target")
    assert told["model.max_concurrent"] == (4, "--task-concurrency")
    assert told["env.name"] == ("strong", "models.toml: model[0] (strong)")
    assert told["model.api_base_url"] == (multi.model.url, "models.toml: model[0].baseUrl")
    assert told["model.api_key_var"] == ("", "none was given")
    assert multi.multi("--dry-run").out.splitlines()[-1] == "2 runs; no model was called."


def test_a_dry_run_calls_what_a_model_says_as_its_file_does(multi: Multi) -> None:
    more = {"temperature": 0.5, "rpm": 30, "apiKeyVar": "HOME", "headers": {"X-Team": "a"}}
    multi.models("strong", samplingArgs={"top_p": 0.9, "extra_body": "x"}, **more)
    done = multi.multi("--dry-run", "--json", "-S", "top_k=4", "-m", "extra", "-b", multi.model.url, "-k", "HOME")
    first, named = json.loads(done.out)["runs"]
    sources = {path: line["source"] for path, line in first["settings"].items()}
    at = "models.toml: model[0]"
    assert {path: sources[path] for path in sources if path.startswith("model.") and at in sources[path]} == {
        "model.model": f"{at} (strong)", "model.api_base_url": f"{at}.baseUrl", "model.api_key_var": f"{at}.apiKeyVar",
        "model.extra_headers": f"{at}.headers", "model.extra_headers.X-Team": f"{at}.headers", "model.rpm": f"{at}.rpm",
        "model.sampling_args.temperature": f"{at}.temperature", "model.sampling_args.top_p": f"{at}.samplingArgs",
        "model.sampling_args.extra_body": f"{at}.samplingArgs",
    }  # fmt: skip
    assert sources["model.sampling_args.top_k"] == "-S top_k"
    assert [named["settings"][f"model.{key}"]["source"] for key in ("api_base_url", "api_key_var")] == ["-b", "-k"]


def test_a_file_that_is_called_like_a_sub_command_is_reached_by_its_path(multi: Multi) -> None:
    (multi.cwd / "runs.json").write_text((multi.cwd / "sums.json").read_text())
    assert multi.bench("multi", "runs.json", "models.toml").code == 0
    (multi.cwd / "runs").write_text("[]")
    listed = multi.bench("multi", "runs")
    assert (listed.code, listed.out) == (0, "") and "no records in" in listed.err
    refused = multi.bench("multi", "./runs", "models.toml")
    assert refused.code == 2 and "./runs" in refused.err, "it is taken for tasks, which must end with .json"


def test_options_may_stand_before_the_files(multi: Multi) -> None:
    assert multi.bench("multi", "-q", "--no-save", "sums.json", "models.toml").code == 0


def test_two_models_of_one_name_stay_apart(multi: Multi) -> None:
    multi.models("strong", "strong")
    result = multi.json()
    assert [model["modelId"] for model in result["models"]] == ["strong", "strong"]
    assert [len(model["results"]) for model in result["models"]] == [6, 6]
    assert len(multi.runs()) == 2
    assert [line.split()[0] for line in multi.multi("--resume").out.splitlines()[4:6]] == ["strong", "strong[2]"]


def test_the_next_steps_are_about_all_models_and_work_as_they_stand(multi: Multi) -> None:
    from harness.report import frames

    multi.models("strong", "weak", "weak")
    done = multi.multi()
    steps = dict(line.strip().split(": ", 1) for line in done.out.split("Next\n")[1].splitlines())
    assert list(steps) == ["read", "load", "publish"]
    read = multi.bench(*shlex.split(steps["read"])[1:])
    assert read.code == 0 and "52 + 52" in read.out and "about five" in read.out, "what the worse model said"
    assert steps["load"].startswith("harness.report.frames.rollouts_df([")
    folders = ast.literal_eval(steps["load"].removeprefix("harness.report.frames.rollouts_df"))
    frame = frames.rollouts_df(folders)
    assert frame.groupby("run_id").size().tolist() == [6, 6, 6]
    assert steps["publish"] == "bench multi sums.json models.toml --resume -H"
    refused = multi.bench(*shlex.split(steps["publish"])[1:])
    assert "HF_TOKEN" in refused.err, "the words are right, only the login is missing"


def test_the_help_lists_options_by_what_they_are_about(multi: Multi) -> None:
    text = multi.bench("multi", "--help").out
    heads = [line[:-1] for line in text.splitlines() if re.fullmatch(r"[A-Z][\w, ]+:", line)]
    assert heads == [
        "Arguments", "Models", "Scoring", "Execution", "Output", "Record, in the documented form",
        "Run folders and resuming", "Other",
    ]  # fmt: skip
    for name in (
        "--model-concurrency", "--task-concurrency", "--match-mode", "--length-target", "--score-output",
        "--schema-mode", "--timeout-ms", "--abort-on-error", "--persist ", "--persist-dir", "--no-include-inputs",
        "--no-include-outputs", "--no-include-options", "--events", "bench multi replay RUN",
    ):  # fmt: skip
        assert name in text, name


def test_tasks_that_resemble_each_other_are_clusters(multi: Multi) -> None:
    multi.models("strong", "weak")
    path = multi.cwd / "sums.json"
    tasks = [{**task, "metadata": {"sheet": n // 2}} for n, task in enumerate(json.loads(path.read_text()))]
    path.write_text(json.dumps(tasks))
    result = multi.json("--cluster-key", "task.metadata.sheet")

    strong, weak = ([each["score"] for each in model["results"]] for model in result["models"])
    slow = paired_difference(weak, strong, clusters=[0, 0, 1, 1, 2, 2], limits=(0.0, 1.0))
    assert [each["cluster"] for each in result["models"][0]["results"]] == ["0", "0", "1", "1", "2", "2"]
    assert result["meta"]["paired"][0]["scored"]["ci95"] == pytest.approx(slow.estimate.ends)
    assert [each["meta"]["score"]["clusters"] for each in result["summary"]] == [3, 3]
    wrong = multi.multi("--cluster-key", "sheet")
    assert wrong.code == 2 and "has 'sheet' in its info; its examples have task" in wrong.err
