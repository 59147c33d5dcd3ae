"""What `bench eval` says, writes and answers; the numbers themselves are tested with what computes them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from agent_evals import AGENT, Evals

pytestmark = pytest.mark.plugins

HEAD = """bench eval 0.1.0
Endpoint: URL
Model: my-model

Loading agent: my_agent:MyAgentLoop
  Agent name: calc
Loading dataset: data.jsonl
  Total rows: 3
Loading eval functions: rewards:exact_match, rewards:partial_match
  rewards:exact_match (simple mode)
  rewards:partial_match (full mode)

Verifying provider connectivity...
Running evaluation (3 rows, batch_size=1)...
[1/3] OK (#ms, 30 tokens) [rewards:exact_match=1.000, rewards:partial_match=0.667]
[2/3] OK (#ms, 30 tokens) [rewards:exact_match=1.000, rewards:partial_match=0.667]
[3/3] OK (#ms, 30 tokens) [rewards:exact_match=1.000, rewards:partial_match=0.667]

Evaluation Results:
  Rows: 3
  Runs per row: 1
  Total runs: 3
  Duration: #ms
  Total tokens: 90
"""


def steady(text: str, evals: Evals) -> str:
    """A screen without what differs from run to run."""
    text = text.replace(evals.model.url, "URL")
    return re.sub(r"(?<![\d.])\d+ms|\d\.\ds", "#ms", text)


def test_the_screen_is_the_documented_one(evals: Evals) -> None:
    done = evals.eval(fns=("rewards:exact_match", "rewards:partial_match"))
    assert (done.code, done.err) == (0, "printed by the agent's module\n")
    assert steady(done.out, evals).startswith(HEAD)
    rows = [line.split()[:5] for line in done.lines if line.startswith("rewards:")]
    assert ["rewards:exact_match", "1.000", "1.000", "1.000", "0.000"] in rows
    assert ["rewards:partial_match", "0.667", "0.667", "0.667", "0.000"] in rows
    [run] = evals.runs()
    assert f"  {run.relative_to(evals.cwd)}" in done.lines
    assert "go on" not in done.out and "Failed" not in done.out


def test_the_endpoint_gets_the_name_as_it_stands_and_no_key_that_it_was_not_given(
    evals: Evals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-somebody-else")
    assert evals.eval("--limit", "1", model="openai/gpt-oss-20b").code == 0
    assert {body["model"] for body in evals.model.requests} == {"openai/gpt-oss-20b"}
    assert set(evals.model.keys) == {None}
    assert evals.eval("--limit", "1", "--api-key-var", "OPENAI_API_KEY").code == 0
    assert evals.model.keys[-1] == "Bearer sk-of-somebody-else"
    unset = evals.eval("--limit", "1", "--api-key-var", "NO_SUCH_KEY")
    assert f"note: --api-key-var: NO_SUCH_KEY is not set, so no API key is sent to {evals.model.url}\n" in unset.err
    assert (unset.code, evals.model.keys[-1]) == (0, None)


def test_defaults_for_every_call_and_rows_by_their_number(evals: Evals) -> None:
    done = evals.eval("--offset", "1", "--limit", "1", "--temperature", "0.5", "--max-tokens", "64", "-S", "top_p=0.9")
    assert done.code == 0, done.err
    assert "  Total rows: 3 (evaluating 1)" in done.lines
    assert {body["messages"][1]["content"] for body in evals.model.asked} == {"3 + 3"}
    sent = [{name: body.get(name) for name in ("temperature", "max_tokens", "top_p")} for body in evals.model.asked]
    assert sent == [{"temperature": 0.5, "max_tokens": 64, "top_p": 0.9}] * 2


def test_more_rows_than_there_are_is_all_of_them(evals: Evals) -> None:
    done = evals.eval("--limit", "10", "--offset", "1")
    assert (done.code, done.err) == (0, "printed by the agent's module\n")
    assert "  Total rows: 3 (evaluating 2)" in done.lines and "  Rows: 2" in done.lines


def test_an_agent_is_told_of_its_turns(evals: Evals) -> None:
    done = evals.eval("--max-turns", "2", "--limit", "1", "-o", "results.json", model="looping")
    assert done.code == 0, done.err
    [[run]] = [row["runs"] for row in evals.results()["rows"]]
    assert (run["success"], run["finish_reason"], len(evals.model.asked)) == (True, "max_turns", 2)


def test_the_results_file_has_the_documented_keys(evals: Evals) -> None:
    done = evals.eval("--n", "3", "-o", "deep/er/results.json", fns=("rewards:exact_match", "rewards:partial_match"))
    assert done.code == 0, done.err
    assert "Results written to: deep/er/results.json" in done.lines
    document = evals.results("deep/er/results.json")
    assert document["config"] == {
        "model": "my-model", "n_runs": 3, "pass_threshold": 1.0,
        "eval_fns": ["rewards:exact_match", "rewards:partial_match"],
    }  # fmt: skip
    summary = document["summary"]
    assert (summary["total_rows"], summary["total_runs"], summary["total_tokens"]) == (3, 9, 270)
    exact = summary["eval_fns"]["rewards:exact_match"]
    documented = ["mean", "std", "min", "max", "pass_at_1", "pass_at_3"]
    assert list(exact)[:6] == documented
    assert [exact[name] for name in documented] == [1.0, 0.0, 1.0, 1.0, 1.0, 1.0]
    assert [row["row_index"] for row in document["rows"]] == [0, 1, 2]
    run = document["rows"][0]["runs"][0]
    assert (run["run_index"], run["success"], run["tokens"]) == (0, True, 30)
    assert run["scores"] == {"rewards:exact_match": 1.0, "rewards:partial_match": pytest.approx(2 / 3)}
    assert "model_tag" not in run and "model_summaries" not in document
    assert document["meta"]["dataset"]["path"] == "data.jsonl"


def test_results_to_stdout_are_all_that_stdout_holds(evals: Evals) -> None:
    done = evals.eval("-o", "-")
    assert done.code == 0, done.err
    assert json.loads(done.out)["summary"]["total_runs"] == 3
    assert "[3/3] OK" in done.err and "Evaluation Results:" in done.err


def test_quiet_leaves_the_report(evals: Evals) -> None:
    done = evals.eval("-q", "-o", "results.json")
    assert (done.code, done.lines[0]) == (0, "Evaluation Results:")
    assert done.err == "printed by the agent's module\n"
    assert "Verifying" not in done.out and "[1/3]" not in done.out


def test_a_failing_row_is_a_line_a_count_and_no_end(evals: Evals) -> None:
    evals.rows("2 + 2", "raise", "give up", "3 + 3")
    done = evals.eval("-o", "results.json")
    assert done.code == 0, done.err
    lines = [steady(line, evals) for line in done.lines if line.startswith("[")]
    assert [line[:6] for line in lines] == ["[1/4] ", "[2/4] ", "[3/4] ", "[4/4] "]
    assert sorted(line[6:] for line in lines) == [
        "FAILED (#ms, 0 tokens) - ValueError: the agent cannot do this row (in ru...",
        "FAILED (#ms, 0 tokens) - gave up",
        "OK (#ms, 30 tokens) [rewards:exact_match=1.000]",
        "OK (#ms, 30 tokens) [rewards:exact_match=1.000]",
    ]
    runs = [row["runs"][0] for row in evals.results()["rows"]]
    assert [(run["success"], run["scores"]) for run in runs] == [
        (True, {"rewards:exact_match": 1.0}),
        (False, {}),
        (False, {}),
        (True, {"rewards:exact_match": 1.0}),
    ]
    errors = [run.get("error") for run in runs]
    assert errors[1].startswith("ValueError: the agent cannot do this row") and "my_agent.py" in errors[1]
    assert (errors[0], errors[2], errors[3]) == (None, "gave up", None)
    assert evals.results()["summary"]["eval_fns"]["rewards:exact_match"]["mean"] == 0.5
    again = next(line.strip() for line in done.lines if line.strip().startswith("retry failed rollouts: "))
    assert again.endswith("-o results.json --retry-failed")


def test_a_scorer_that_raises_is_told_apart_from_a_bad_answer(evals: Evals) -> None:
    done = evals.eval("-o", "results.json", fns=("rewards:exact_match", "rewards:broken"))
    assert done.code == 0, done.err
    lines = [line for line in done.lines if line.startswith("[")]
    assert lines[0].endswith("[rewards:exact_match=1.000, rewards:broken=no score]")
    assert lines[1].endswith("[rewards:exact_match=1.000, rewards:broken=0.500]")
    assert "rewards:broken: 1 of 3 completed" in done.out and "KeyError" in done.out
    document = evals.results()
    run = document["rows"][0]["runs"][0]
    assert (run["success"], run["scores"]) == (True, {"rewards:exact_match": 1.0})
    assert "KeyError" in run["score_errors"]["rewards:broken"]
    assert document["summary"]["score_errors"] == {"rewards:broken": 1}
    assert document["summary"]["eval_fns"]["rewards:broken"]["mean"] == pytest.approx(1 / 3)


def test_nothing_but_failures_is_no_success(evals: Evals) -> None:
    evals.rows("raise", "give up")
    done = evals.eval("-o", "results.json")
    assert done.code == 1
    assert evals.results()["summary"]["failed_runs"] == 2


def test_a_function_that_scores_nothing_is_no_success(evals: Evals) -> None:
    (evals.cwd / "hopeless.py").write_text(
        "def judge(solution_str, ground_truth, extra_info):\n    raise OSError('gone')\n"
    )
    evals.rows("2 + 2", "give up")
    done = evals.eval(fns=("rewards:exact_match", "hopeless:judge"))
    assert done.code == 1
    assert "  No run has a score from hopeless:judge" in done.lines


def test_scoring_low_is_a_success(evals: Evals) -> None:
    evals.rows("2 + 2", "5 + 7")
    done = evals.eval(model="weak")
    assert done.code == 0
    assert ["rewards:exact_match", "0.500", "0.000", "1.000", "0.500"] in [line.split()[:5] for line in done.lines]


# A baseline


def baseline(evals: Evals, *args: str) -> list[str]:
    return ["--baseline-model", "weak", "--baseline-base-url", evals.model.url, *args]


def test_a_baseline_runs_on_the_same_rows(evals: Evals) -> None:
    evals.rows("2 + 2", "1 + 2", "5 + 7", "3 + 3")
    done = evals.eval(*baseline(evals), "--n", "2", "-o", "results.json", "--batch-size", "3")
    assert done.code == 0, done.err
    assert "Running evaluation (4 rows x2 runs x2 models, batch_size=3)..." in done.lines
    assert sum(line.startswith("[") and "[primary] OK" in line for line in done.lines) == 8
    assert sum(line.startswith("[") and "[baseline] OK" in line for line in done.lines) == 8
    assert {line.split("]")[0] for line in done.lines if "OK (" in line} == {f"[{n}/16" for n in range(1, 17)}
    document = evals.results()
    assert document["config"]["baseline_model"] == "weak"
    tags = [(run["run_index"], run["model_tag"]) for run in document["rows"][0]["runs"]]
    assert tags == [(0, "primary"), (0, "baseline"), (1, "primary"), (1, "baseline")]
    means = {each["model_tag"]: each["eval_fns"]["rewards:exact_match"]["mean"] for each in document["model_summaries"]}
    assert means == {"primary": 1.0, "baseline": 0.5}
    paired = document["summary"]["paired"]["rewards:exact_match"]["counted"]
    assert [paired[name] for name in ("difference", "wins", "losses", "ties")] == [0.5, 2, 0, 2]
    assert "Primary minus baseline" in done.out
    folders = {line.strip() for line in done.lines if "outputs/evals/" in line}
    assert {f"{tag}: {run.relative_to(evals.cwd)}" for tag, run in tagged(evals).items()} <= folders


def tagged(evals: Evals) -> dict[str, Path]:
    return {json.loads((run / "run.json").read_text())["name"]: run for run in evals.runs()}


def test_both_models_share_one_bound(evals: Evals) -> None:
    evals.model.latency = 0.02
    done = evals.eval(*baseline(evals), "--n", "2", "--batch-size", "3")
    assert done.code == 0, done.err
    assert evals.model.peak == 3


def test_settings_for_one_of_two_models(evals: Evals) -> None:
    done = evals.eval(*baseline(evals), "--set", "baseline:model.sampling_args.seed=7", "--limit", "1")
    assert done.code == 0, done.err
    seeds = {(body["model"], body.get("seed")) for body in evals.model.asked}
    assert seeds == {("my-model", None), ("weak", 7)}


def test_a_baseline_has_a_key_of_its_own(evals: Evals) -> None:
    done = evals.eval("--api-key", "key-of-one-model", *baseline(evals, "--baseline-api-key", "key-of-the-other"))
    assert done.code == 0, done.err
    sent = {body["model"]: key for body, key in zip(evals.model.requests, evals.model.keys, strict=True)}
    assert sent == {"my-model": "Bearer key-of-one-model", "weak": "Bearer key-of-the-other"}


def test_a_literal_key_is_nowhere_on_disk_or_screen(evals: Evals) -> None:
    evals.rows("2 + 2", "raise")
    secret, other = "canary-1-of-two", "canary-2-of-two"
    done = evals.eval(
        "--api-key", secret, *baseline(evals, f"--baseline-api-key={other}"), "-o", "results.json", "--debug", "-v",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "canary" not in done.out + done.err
    written = [path for path in evals.cwd.rglob("*") if path.is_file()]
    assert len(written) > 10
    assert [path for path in written if b"canary" in path.read_bytes()] == []
    [command] = {json.loads((run / "run.json").read_text())["command"] for run in evals.runs()}
    assert "--api-key '***'" in command


# Where a model is asked


def test_a_provider_s_model_is_asked_where_its_own_variables_say(evals: Evals, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", evals.model.url)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai-1234567890")
    done = evals.bench(
        "eval", "-m", "my_agent:agent_loop", "-d", "data.jsonl", "--eval-fn", "rewards:exact_match",
        "--model", "openai/gpt-5-mini", "-o", "results.json",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert done.lines[1:3] == [f"Endpoint: {evals.model.url}", "Model: openai/gpt-5-mini (sent as gpt-5-mini)"]
    assert {body["model"] for body in evals.model.requests} == {"gpt-5-mini"}
    assert set(evals.model.keys) == {"Bearer sk-of-openai-1234567890"}
    assert evals.results()["config"]["model"] == "openai/gpt-5-mini"


def test_a_reference_model_needs_no_endpoint(evals: Evals) -> None:
    done = evals.bench(
        "eval", "--mcp", "mcp", "-d", "data.jsonl", "--eval-fn", "rewards:exact_match", "--model", "reference/oracle",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "Endpoint: the embedded reference server" in done.lines
    assert "  Discovered 2 tool(s): calculate, lookup" in done.lines
    assert ["rewards:exact_match", "1.000", "1.000", "1.000", "0.000"] in [line.split()[:5] for line in done.lines]
    assert evals.model.requests == []


def test_an_alias_of_the_registry_is_a_model_too_unless_there_is_a_base_url(evals: Evals) -> None:
    (evals.cwd / "configs").mkdir()
    (evals.cwd / "configs" / "endpoints.toml").write_text(
        f'[[endpoint]]\nendpoint_id = "mine"\nmodel = "the-model"\nurl = "{evals.model.url}"\n'
    )
    usual = ["eval", "-m", "my_agent:agent_loop", "-d", "data.jsonl", "--eval-fn", "rewards:exact_match"]
    assert evals.bench(*usual, "--model", "mine", "--limit", "1").code == 0
    assert {body["model"] for body in evals.model.requests} == {"the-model"}
    evals.model.requests.clear()
    assert evals.eval("--limit", "1", model="mine").code == 0
    assert {body["model"] for body in evals.model.requests} == {"mine"}


def test_mcp_tools_are_called_with_our_loop(evals: Evals) -> None:
    done = evals.bench(
        "eval", "--mcp", "./mcp", "-d", "data.jsonl", "--eval-fn", "reward_fn:compute_reward", "--model", "my-model",
        "--base-url", evals.model.url, "-o", "results.json", "--debug-dir", "traces",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "Loading MCP tools: ./mcp" in done.lines
    assert [tool["function"]["name"] for tool in evals.model.asked[0]["tools"]] == ["calculate", "lookup"]
    assert evals.model.asked[1]["messages"][-1] == {"role": "tool", "content": "4", "tool_call_id": "call_2"}
    assert evals.results()["summary"]["eval_fns"]["reward_fn:compute_reward"]["mean"] == 1.0
    assert {path.name for path in (evals.cwd / "traces").iterdir()} == {
        f"eval-{row}-run-0.jsonl" for row in range(3)
    }  # fmt: skip


# The way out


@pytest.mark.parametrize(
    ("model", "words"),
    [("refusing", "Authentication failed. Check your API key"), ("absent", "Check --model and --base-url")],
)
def test_an_endpoint_that_cannot_be_used_costs_one_request_and_leaves_nothing(
    evals: Evals, model: str, words: str
) -> None:
    done = evals.eval("-o", "results.json", model=model)
    assert done.code == 1
    assert words in done.err
    assert len(evals.model.requests) == 1
    assert evals.runs() == []
    assert not (evals.cwd / "results.json").exists()


@pytest.mark.parametrize("door", ["eval", "test"])
def test_replies_to_cancelled_runs_are_said_since_the_totals_do_not_count_them(evals: Evals, door: str) -> None:
    (evals.cwd / "my_agent.py").write_text(
        AGENT.replace("messages = list", "await ctx.chat(ctx.request.messages)\n        import os, signal\n"
        "        for _ in range(2):\n            os.kill(os.getpid(), signal.SIGINT)\n"
        "        await asyncio.Event().wait()\n        messages = list")
    )  # fmt: skip
    done = evals.eval("-o", "results.json") if door == "eval" else evals.test("-o", "results.json")
    assert done.code == 130 and "Total tokens: 0" in done.out
    words = "ot counted here: 1 reply to rollouts that were cancelled, 10 + 5 tokens"
    assert sum(words in line for line in done.lines) == 1
    if door == "eval":
        [model] = evals.results()["meta"]["models"]
        assert (model["unfinished"]["requests"], model["unfinished"]["output_tokens"]) == (1, 5)
        assert words in evals.bench("runs", "show", "latest").out


def test_an_endpoint_that_goes_away_stops_the_evaluation_and_says_how_to_go_on(evals: Evals) -> None:
    evals.rows("2 + 2", "3 + 3", "13 + 13", "4 + 4", "5 + 5", "6 + 6")
    done = evals.eval("-o", "results.json", "--api-key", "key-of-one-model", "--fresh", model="turning")
    assert done.code == 1
    summary = evals.results()["summary"]
    assert (summary["stopped_early"], "401" in summary["stop_reason"]) == (True, True)
    assert (summary["total_rows"], summary["failures"]) == (4, {"auth": 2}), "the third refusal in a row is believed"
    assert "Stopped early. Reason: " in done.out
    assert "Results written to: results.json (incomplete)" in done.lines
    again = next(line.strip() for line in done.lines if line.strip().startswith("go on: "))
    assert again.endswith("-o results.json --api-key '***' --resume")
    too = next(line.strip() for line in done.lines if line.strip().startswith("resume, and retry failed rollouts: "))
    assert too.endswith("-o results.json --api-key '***' --retry-failed")


def test_resuming_goes_on_where_the_disk_says(evals: Evals) -> None:
    evals.rows("2 + 2", "3 + 3", "13 + 13", "4 + 4")
    assert evals.eval("--n", "2", model="turning").code == 1
    before = len(evals.model.asked)
    evals.model.forgive()
    done = evals.eval("--n", "2", "--resume", "-o", "results.json", model="turning")
    assert done.code == 0, done.err
    summary: dict[str, Any] = evals.results()["summary"]
    assert (summary["total_rows"], summary["total_runs"], summary["stopped_early"]) == (4, 8, False)
    assert summary["resumed_runs"] == 6
    assert re.search(r"^  Duration: \S+ \(2 new runs, 6 from earlier\)$", done.out, re.MULTILINE)
    assert summary["failures"] == {"auth": 2}, "what has failed stays so"
    lines = [line.split("]")[0] for line in done.lines if line.startswith("[")]
    assert lines == ["[7/8", "[8/8"], "six runs were there already"
    assert f"Resuming {evals.runs()[0].relative_to(evals.cwd)}: 6 of 8 runs are done" in done.lines
    assert len(evals.model.asked) == before + 4
    retried = evals.eval("--n", "2", "--retry-failed", "-o", "results.json", model="turning")
    assert (retried.code, evals.results()["summary"]["failed_runs"]) == (0, 0)
    before = len(evals.model.requests)
    whole = evals.eval("--n", "2", "--resume", model="turning")
    assert (whole.code, len(evals.model.requests)) == (0, before), "nothing is left to ask"
    assert "[1/8]" not in whole.out and "  Total runs: 8" in whole.lines
    assert "All runs are done." in whole.lines and "Running evaluation" not in whole.out
    assert len(evals.runs()) == 1


def test_an_unfinished_run_is_spoken_of_once_and_not_gone_on_with(evals: Evals) -> None:
    evals.rows("2 + 2", "13 + 13", "3 + 3", "4 + 4")
    assert evals.eval(model="turning").code == 1
    [first] = evals.runs()
    path = first.relative_to(evals.cwd)
    words = f"note: {path} is an unfinished run of the same evaluation, with 3 of 4 runs; use --resume"
    assert "unfinished" not in evals.eval("--no-save", model="turning").err
    assert words in (said := evals.eval(model="turning").err)
    assert said.count("note: ") == 1
    assert "unfinished" not in evals.eval("--fresh", model="turning").err
    evals.model.forgive()
    assert "unfinished" in evals.eval(model="turning").err, "of the newest"
    assert "unfinished" not in evals.eval(model="turning").err, "the newest is whole"
    assert len(evals.runs()) == 3, "what a refused key kept from beginning has left nothing"


def test_retrying_makes_only_failed_runs_again(evals: Evals) -> None:
    evals.rows("2 + 2", "give up")
    assert evals.eval("--n", "2").code == 0
    (evals.cwd / "my_agent.py").touch()
    done = evals.eval("--n", "2", "--retry-failed")
    assert done.code == 0, done.err
    lines = [line for line in done.lines if line.startswith("[")]
    assert [line.split(" (")[0] for line in lines] == ["[3/4] FAILED", "[4/4] FAILED"]
    assert len(evals.runs()) == 1


def test_what_may_not_shrink_is_called_by_its_option(evals: Evals) -> None:
    assert evals.eval("--n", "2").code == 0
    shorter, fewer = evals.eval("--n", "2", "--limit", "2", "--resume"), evals.eval("--resume")
    assert (shorter.code, fewer.code) == (2, 2)
    assert "error: --limit: the earlier value is 3, the new one 2" in shorter.err
    assert "Raise --limit to at least 3" in shorter.err
    assert "error: --n: the earlier value is 2, the new one 1" in fewer.err and "Raise --n to at least 2" in fewer.err


def test_a_key_that_is_missing_is_asked_for_by_this_command_s_option(evals: Evals) -> None:
    refused = evals.eval("--baseline-model", "refusing", "--baseline-base-url", evals.model.url)
    assert refused.err.endswith(
        "no key was sent: set --baseline-api-key-var to the name of the variable that contains the key\n"
    )
    assert evals.eval(model="refusing").err.endswith(
        "set --api-key-var to the name of the variable that contains the key\n"
    )
    typed = evals.eval("--api-key", "sk-typed", model="refusing").err
    assert "--api-key" in typed and "BENCH_API_KEY" not in typed and "sk-typed" not in typed


def test_what_is_wrong_with_both_models_is_told_at_once(evals: Evals) -> None:
    done = evals.eval("--baseline-model", "absent", "--baseline-base-url", evals.model.url, model="refusing")
    assert done.code == 1
    first, second = [line for line in done.err.splitlines() if "HTTP" in line]
    assert "HTTP 401" in first and "--api-key" in first
    assert "HTTP 404" in second and "--baseline-model" in second
    assert len(evals.model.requests) == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full disk to write to")
def test_results_that_cannot_be_written_do_not_hide_where_the_run_is(evals: Evals) -> None:
    done = evals.eval("-o", "/dev/full")
    assert done.code == 1
    assert done.err.endswith(
        "error: cannot write /dev/full: No space left on device (ENOSPC, errno 28); free some space\n"
    )
    [run] = evals.runs()
    assert f"  {run.relative_to(evals.cwd)}" in done.lines
    assert "Evaluation Results:" in done.lines and "Results written" not in done.out


def test_another_model_is_another_evaluation(evals: Evals) -> None:
    assert evals.eval().code == 0
    refused = evals.eval("--resume", "--temperature", "1")
    assert refused.code == 2
    assert "cannot be resumed: model.sampling_args.temperature" in refused.err
    fresh = evals.eval("--resume", model="other")
    assert fresh.code == 0
    assert "no earlier run with these settings, so a new run is started" in fresh.err


def test_a_dry_run_checks_and_shows_everything_and_asks_nobody(evals: Evals) -> None:
    done = evals.eval(*baseline(evals), "--dry-run", "--temperature", "0.5", "--limit", "2", "--api-key", "canary-key")
    assert done.code == 0, done.err
    assert evals.model.requests == [] and not (evals.cwd / "outputs").exists()
    shown = [line.split() for line in done.lines]
    assert [line for line in shown if line[:1] == ["model.api_base_url"]] == [
        ["model.api_base_url", evals.model.url, "cli", "--base-url"],
        ["model.api_base_url", evals.model.url, "cli", "--baseline-base-url"],
    ]
    assert [" ".join(line[1:]) for line in shown if line[:1] == ["model.api_key_var"]] == [
        "BENCH_API_KEY cli --api-key",
        '"" cli none, because no key was given for the base URL',
    ]
    assert ["env.num_examples", "2", "cli", "--limit"] in shown
    assert ["model.sampling_args.temperature", "0.5", "cli", "--temperature"] in shown
    assert not any(word in ("-m", "-b", "-c", "-n", "-r", "-T") for line in shown for word in line), "of `bench run`"
    assert "canary" not in done.out and done.lines[-1] == "2 runs; no model was called."
    assert evals.eval("--dry-run", fns=("rewards:exact_mtch",)).code == 2


def test_a_host_elsewhere_that_gets_no_key_is_spoken_of(evals: Evals) -> None:
    elsewhere = ["--base-url", "https://user.example/v1", "--dry-run"]
    note = "note: no API key is sent to user.example; to send one, give its environment variable with --api-key-var\n"
    assert note in evals.eval(*elsewhere).err
    assert "no API key is sent" not in evals.eval(*elsewhere, "--api-key", "canary-key").err
    assert "no API key is sent" not in evals.eval("--dry-run").err, "this machine needs none"


def test_nothing_is_kept_when_nothing_is_to_be(evals: Evals) -> None:
    before = sorted(evals.cwd.iterdir())
    done = evals.eval("--no-save")
    assert done.code == 0
    assert [path for path in evals.cwd.iterdir() if path not in before and path.name != "__pycache__"] == []
    assert "Run folder" not in done.out and "Next" not in done.out
