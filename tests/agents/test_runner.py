"""`EvalRunner`: its documented arguments and results, over the engine and a real endpoint."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import math
import os
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from eval_api import EXACT, LENGTH, Adder, Asker, OwnClient, exact, rows_of
from sums_model import SumsModel

from harness.agents import (
    AgentLoadError,
    DatasetValidationError,
    EvalFnError,
    EvalFnWrapper,
    EvalResult,
    EvalRunner,
    EvalRunResult,
    ExternalLLMClient,
    MCPAgentLoop,
    ProviderError,
    RolloutContext,
    RolloutMetrics,
    RolloutResult,
    SystemicProviderError,
)
from harness.core.errors import ConfigError, ResumeRefused
from harness.settings.resolver import resolve


def client_of(model: SumsModel, name: str = "adds", **more: Any) -> ExternalLLMClient:
    return ExternalLLMClient(name, api_base=model.url, **more)


def order(result: EvalResult) -> list[tuple[int, str | None, int]]:
    """(row, model, run) of every run, as the result lists them."""
    return [(row.row_index, run.model_tag, run.run_index) for row in result.rows for run in row.runs]


def scores(result: EvalResult) -> list[float | None]:
    return [run.scores.get("rewards:exact") for row in result.rows for run in row.runs]


def test_signatures_are_the_documented_ones() -> None:
    assert [*inspect.signature(EvalRunner).parameters] == [
        "agent_loop", "llm_client", "eval_fns", "debug", "debug_dir", "llm_client_factory",
        "baseline_llm_client", "baseline_llm_client_factory",
    ]  # fmt: skip
    single = inspect.signature(EvalRunner.run_single).parameters
    assert [*single][1:] == [
        "row", "row_index", "run_index", "max_turns", "completion_params", "runner", "model_tag",
    ]  # fmt: skip
    whole = inspect.signature(EvalRunner.run_eval).parameters
    assert [*whole][1:9] == [
        "rows", "n_runs", "max_turns", "completion_params", "pass_threshold", "on_progress", "start_index",
        "batch_size",
    ]  # fmt: skip
    defaults = {name: parameter.default for name, parameter in [*whole.items()][2:9]}
    assert defaults == {
        "n_runs": 1, "max_turns": 10, "completion_params": None, "pass_threshold": 1.0, "on_progress": None,
        "start_index": 0, "batch_size": 1,
    }  # fmt: skip
    assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in [*whole.values()][9:])


def test_an_evaluation_against_a_baseline() -> None:
    with SumsModel() as model:
        strong, weak = client_of(model), client_of(model, "weak")
        agent = Adder()
        runner = EvalRunner(
            agent_loop=agent, llm_client=strong, eval_fns=[EXACT, LENGTH], baseline_llm_client=weak
        )  # fmt: skip

        async def main() -> EvalResult:
            async with strong, weak:
                return await runner.run_eval(
                    rows=rows_of(4), n_runs=3, max_turns=7, pass_threshold=0.5,
                    completion_params={"temperature": 0.7}, batch_size=5, start_index=50,
                )  # fmt: skip

        assert runner.has_baseline
        result = asyncio.run(main())
    expected = [(row, tag, run) for row in range(50, 54) for run in range(3) for tag in ("primary", "baseline")]
    assert order(result) == expected
    assert (result.total_rows, result.total_runs, result.n_runs, result.pass_threshold) == (4, 12, 3, 0.5)
    assert result.total_tokens == 24 * 2 * 15
    assert not result.stopped_early and result.stop_reason is None
    assert result.model_summaries is not None
    assert [(each.model, each.model_tag) for each in result.model_summaries] == [
        ("adds", "primary"), ("weak", "baseline"),
    ]  # fmt: skip
    strong_sums, weak_sums = (each.eval_summaries["rewards:exact"] for each in result.model_summaries)
    assert (strong_sums.mean, strong_sums.pass_at_k) == (1.0, {1: 1.0, 3: 1.0})
    assert (weak_sums.mean, weak_sums.pass_at_k) == (0.75, {1: 0.75, 3: 0.75})  # wrong about 2 + 2
    assert result.eval_summaries["rewards:length"].mean == 0.5  # of the primary: five messages
    paired = result.paired["rewards:exact"].counted
    assert (paired.wins, paired.losses, paired.ties) == (1, 0, 3)
    assert {body["temperature"] for body in model.requests} == {0.7}
    assert [tool["function"]["name"] for body in model.requests for tool in body["tools"]] == ["calculate"] * 48
    request = next(each for each in agent.requests if each.metadata["row_index"] == 52)
    assert request.max_turns == 7 and request.completion_params == {"temperature": 0.7}
    ids = {each.rollout_id for each in agent.requests}
    assert {"eval-50-run-0-primary", "eval-53-run-2-primary", "eval-50-run-0-baseline"} <= ids and len(ids) == 24


def test_an_evaluation_takes_the_options_of_every_evaluation() -> None:
    with SumsModel() as model:
        runner = EvalRunner(Adder(), client_of(model), [EXACT])
        spent = asyncio.run(runner.run_eval(rows_of(4), settings={"max_tokens_total": 40}))
        assert spent.stopped_early and "40" in str(spent.stop_reason)
        assert 0 < spent.total_runs < 4
        asker = EvalRunner(Asker(), client_of(model), [EXACT])
        stopped = asyncio.run(asker.run_eval(rows_of(4, act="raise"), settings={"max_failures": 1}))
        assert stopped.failed_runs == 2 and "max_failures" in str(stopped.stop_reason)
        asked = len(model.requests)
        for wrong, words in (({"max_turns": 3}, "max_turns: unknown"), ({"token_limit": 0}, "settings: token_limit"),
                             ({"max_cost": "much"}, "max_cost"), (["x"], "must be a dict")):  # fmt: skip
            with pytest.raises(ConfigError, match=words):
                asyncio.run(runner.run_eval(rows_of(1), settings=wrong))  # pyright: ignore[reportArgumentType]
        assert len(model.requests) == asked


def test_batch_size_bounds_what_is_under_way_over_both_models() -> None:
    with SumsModel(latency=0.02) as model:
        runner = EvalRunner(
            Asker(), client_of(model), [EXACT], baseline_llm_client=client_of(model, "other")
        )  # fmt: skip
        asyncio.run(runner.run_eval(rows_of(6), batch_size=3))
        assert (len(model.requests), model.peak) == (12, 3)
        asyncio.run(runner.run_eval(rows_of(2), batch_size=1))
        assert model.peak == 3
        # One at a time, the models take turns.
        assert [body["model"] for body in model.requests[12:]] == ["adds", "other"] * 2


def test_progress_is_told_in_the_order_of_the_end_and_of_failures_too() -> None:
    rows = [*rows_of(2), *rows_of(1, act="raise"), *rows_of(1, act="error")]
    told: list[tuple[int, int, EvalRunResult]] = []
    with SumsModel() as model:
        runner = EvalRunner(Asker(), client_of(model), [EXACT])
        result = asyncio.run(runner.run_eval(rows, on_progress=lambda *words: told.append(words)))
    assert [(current, total) for current, total, _ in told] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    # One that fails is not scored, so it may overtake one that is.
    by_row = sorted((run for _, _, run in told), key=lambda run: run.row_index or 0)
    assert [run.row_index for run in by_row] == [0, 1, 2, 3]
    assert [run.success for run in by_row] == [True, True, False, False]
    assert by_row == [run for row in result.rows for run in row.runs]
    raised, gave_up = by_row[2:]
    assert raised.error is not None and "RuntimeError: the agent is broken" in raised.error
    assert gave_up.error == "the agent gives up"
    assert [run.tokens for run in by_row] == [15] * 4  # paid for, whatever became of it
    assert (raised.scores, gave_up.scores) == ({}, {})
    assert result.failed_runs == 2 and result.eval_summaries["rewards:exact"].mean == 0.5


def test_a_callback_that_raises_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[int] = []

    def broken(current: int, total: int, result: EvalRunResult) -> None:
        calls.append(current)
        raise ZeroDivisionError("in the callback")

    with SumsModel() as model:
        result = asyncio.run(EvalRunner(Asker(), client_of(model), [EXACT]).run_eval(rows_of(3), on_progress=broken))
    assert scores(result) == [1.0] * 3 and calls == [1, 2, 3]
    assert [record.message for record in caplog.records] == [
        "on_progress raised an exception; the evaluation continues"
    ] * 3

    async def awaited(current: int, total: int, result: EvalRunResult) -> None: ...

    def cancelled(current: int, total: int, result: EvalRunResult) -> None:
        raise asyncio.CancelledError

    for callback in (cancelled, lambda *words: awaited(*words)):  # the second would do nothing, and not say so
        caplog.clear()
        result = asyncio.run(EvalRunner(Asker(), OwnClient(), [EXACT]).run_eval(rows_of(2), on_progress=callback))
        assert scores(result) == [1.0] * 2
        assert [record.message for record in caplog.records] == [
            "on_progress raised an exception; the evaluation continues"
        ] * 2

    with pytest.raises(TypeError, match="plain function"):
        asyncio.run(EvalRunner(Asker(), OwnClient(), [EXACT]).run_eval(rows_of(1), on_progress=awaited))


def test_one_run() -> None:
    agent = Adder()
    with SumsModel() as model:
        runner = EvalRunner(agent, client_of(model), [EXACT], baseline_llm_client=client_of(model, "weak"))

        async def main() -> list[EvalRunResult]:
            row = {"USER_PROMPT": "12 + 12", "Ground_Truth": "24", "system_prompt": "Add.", "level": "easy"}
            other = EvalRunner(agent, client_of(model, "third"), [EXACT])
            return [
                await runner.run_single(row, 7, 2, 5, {"top_p": 0.5}),
                await runner.run_single(row, row_index=7, run_index=0, model_tag="baseline"),
                await runner.run_single(row, row_index=7, run_index=0, model_tag="primary"),
                await runner.run_single(row, row_index=7, run_index=0, runner=other, model_tag="probe"),
            ]

        results = asyncio.run(main())
    assert [(run.run_index, run.model_tag, run.scores["rewards:exact"]) for run in results] == [
        (2, None, 1.0), (0, "baseline", 0.0), (0, "primary", 1.0), (0, "probe", 1.0),
    ]  # fmt: skip
    first = agent.requests[0]
    assert (first.rollout_id, first.max_turns) == ("eval-7-run-2", 5)
    assert (first.metadata["level"], first.metadata["run_index"]) == ("easy", 2)
    assert first.completion_params == {"top_p": 0.5} == {"top_p": model.requests[0]["top_p"]}
    assert [body["model"] for body in model.requests[::2]] == ["adds", "weak", "adds", "third"]
    with pytest.raises(ValueError, match="requires a runner with baseline_llm_client"):
        asyncio.run(EvalRunner(agent, OwnClient(), [EXACT]).run_single(rows_of(1)[0], 0, 0, model_tag="baseline"))


def test_an_unusable_endpoint_ends_the_evaluation_and_keeps_what_is_done() -> None:
    with SumsModel() as model, SumsModel() as other:
        runner = EvalRunner(
            Asker(), client_of(model, "refusing"), [EXACT], baseline_llm_client=client_of(other)
        )  # fmt: skip
        result = asyncio.run(runner.run_eval(rows_of(3)))
        single = EvalRunner(Asker(), client_of(model, "refusing"), [EXACT])
        alone = asyncio.run(single.run_eval(rows_of(3), n_runs=2))
        with pytest.raises(SystemicProviderError, match="Incorrect API key"):
            asyncio.run(single.run_single(rows_of(1)[0], 0, 0))
    assert result.stopped_early
    assert result.stop_reason is not None and result.stop_reason.startswith("primary: ")
    assert "Incorrect API key provided" in result.stop_reason
    assert order(result) == [(row, "baseline", 0) for row in range(3)] and scores(result) == [1.0] * 3
    assert (alone.stopped_early, alone.rows, alone.total_runs) == (True, [], 0)
    assert alone.stop_reason is not None and not alone.stop_reason.startswith("primary")


def test_a_systemic_error_says_what_the_run_had_cost() -> None:
    class Dying(OwnClient):
        async def chat_completions(self, messages: list[Any], **kwargs: Any) -> Any:
            if self.calls:
                raise SystemicProviderError("the endpoint is gone")
            return await super().chat_completions(messages, **kwargs)

    class Twice(Asker):
        name = "twice"

        async def run(self, ctx: RolloutContext) -> RolloutResult:
            await ctx.chat(ctx.request.messages)
            return await super().run(ctx)

    with pytest.raises(SystemicProviderError, match=r"^the endpoint is gone$") as caught:
        asyncio.run(EvalRunner(Twice(), Dying(), [EXACT]).run_single(rows_of(1)[0], 0, 0))
    assert caught.value.tokens == 23 and caught.value.duration_ms > 0


def test_a_broken_eval_function_is_no_bad_answer() -> None:
    def broken(solution_str: str, ground_truth: str, extra_info: Any = None) -> float:
        return 1 / 0

    functions = [EXACT, EvalFnWrapper(broken, "rewards:broken")]
    with SumsModel() as model:
        result = asyncio.run(EvalRunner(Asker(), client_of(model), functions).run_eval(rows_of(2)))
    run = result.rows[0].runs[0]
    assert run.success and run.scores == {"rewards:exact": 1.0}
    assert "ZeroDivisionError" in run.score_errors["rewards:broken"]
    assert result.score_errors == {"rewards:broken": 2}
    assert math.isnan(result.eval_summaries["rewards:broken"].mean)


def test_without_eval_functions_the_agent_runs_all_the_same() -> None:
    with SumsModel() as model:
        result = asyncio.run(EvalRunner(Asker(), client_of(model), []).run_eval(rows_of(2)))
    assert [run.success for row in result.rows for run in row.runs] == [True, True]
    assert (result.eval_summaries, result.total_tokens, result.failed_runs) == ({}, 30, 0)


def test_reference_models_play_inside_a_run() -> None:
    oracle, null = ExternalLLMClient("reference/oracle"), ExternalLLMClient("reference/null")
    runner = EvalRunner(Asker(), oracle, [EXACT], baseline_llm_client=null)
    assert scores(asyncio.run(runner.run_eval(rows_of(2), batch_size=2))) == [1.0, 0.0, 1.0, 0.0]


def test_the_tools_of_an_mcp_server() -> None:
    fastmcp = pytest.importorskip("fastmcp")
    server = fastmcp.FastMCP("sums")

    @server.tool()
    def calculate(expression: str) -> str:
        """Add numbers."""
        return str(sum(map(int, expression.split("+"))))

    with SumsModel() as model:
        runner = EvalRunner(MCPAgentLoop(server), client_of(model), [EXACT])
        result = asyncio.run(runner.run_eval(rows_of(3), batch_size=3))
    assert scores(result) == [1.0] * 3
    assert [tool["function"]["name"] for body in model.requests for tool in body["tools"]] == ["calculate"] * 6


def test_rows_are_checked_before_anything_is_asked() -> None:
    with SumsModel() as model:
        runner = EvalRunner(Asker(), client_of(model), [EXACT])
        rows = rows_of(3)
        rows[2] = {"user_prompt": "1 + 1", "ground_truth": 2, "system_prompt": "Add."}
        with pytest.raises(DatasetValidationError, match=r"^Row 12: 'ground_truth' must be a string, got int$"):
            asyncio.run(runner.run_eval(rows, start_index=10))
        with pytest.raises(DatasetValidationError, match=r"^Row 0: Missing required columns: \['ground_truth'\]"):
            asyncio.run(runner.run_single({"user_prompt": "1 + 1", "system_prompt": "Add."}, 0, 0))
        assert model.requests == []


def test_without_rows_there_is_nothing_to_do() -> None:
    runner = EvalRunner(Asker(), OwnClient(), [EXACT], baseline_llm_client=OwnClient())
    result = asyncio.run(runner.run_eval([], n_runs=5))
    assert (result.rows, result.total_runs, result.total_tokens, result.stopped_early) == ([], 0, 0, False)
    assert math.isnan(result.eval_summaries["rewards:exact"].mean)
    assert result.model_summaries is not None and len(result.model_summaries) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"n_runs": 0}, "n_runs must be >= 1, not 0"),
        ({"batch_size": 0}, "batch_size must be >= 1, not 0"),
        ({"max_turns": 0}, "max_turns must be >= 1, not 0"),
        ({"start_index": -1}, r"row_index \(start_index\) must be >= 0, not -1"),
        ({"resume": True}, "pass their parent folder as output_dir"),
        ({"retry_failed": True, "output_dir": "out"}, "pass resume=True"),
        ({"pass_threshold": float("nan")}, "pass_threshold must be a finite number, not nan"),
        ({"completion_params": {"api_key": "k"}}, "completion_params: 'api_key' is not allowed"),
        ({"completion_params": {"model": "m"}}, "completion_params: 'model' is not allowed"),
        ({"completion_params": {"messages": []}}, "completion_params: 'messages' is not allowed"),
    ],
)
def test_numbers_out_of_range(arguments: dict[str, Any], words: str) -> None:
    runner = EvalRunner(Asker(), OwnClient(), [EXACT])
    with pytest.raises(ValueError, match=words):
        asyncio.run(runner.run_eval(rows_of(1), **arguments))


def test_arguments_of_the_wrong_kind() -> None:
    def fails(words: str, *arguments: Any, error: type[Exception] = TypeError, **named: Any) -> None:
        with pytest.raises(error, match=words):
            EvalRunner(*arguments, **named)

    fails("not its class; pass Asker\\(\\)", Asker, OwnClient(), [EXACT])
    fails("dict lacks get_tools and run", {}, OwnClient(), [EXACT])
    fails("llm_client must be a client with chat_completions", Asker(), "my-model", [EXACT])
    fails("eval_fns\\[1\\] must be an EvalFnWrapper, not function", Asker(), OwnClient(), [EXACT, lambda m: 1.0])
    fails("pass both", Asker(), OwnClient(), [EXACT], baseline_llm_client_factory=OwnClient)
    runner = EvalRunner(Asker(), OwnClient(), [EXACT])
    for rows in ("rows.jsonl", {"user_prompt": "1"}):
        with pytest.raises(TypeError, match="rows must be a list of rows"):
            asyncio.run(runner.run_eval(rows))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="n_runs must be an integer, not float"):
        asyncio.run(runner.run_eval(rows_of(1), n_runs=1.5))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="completion_params"):
        asyncio.run(runner.run_eval(rows_of(1), completion_params={"stop": object()}))
    fails(
        "llm_client_factory must be a function that creates a client, not 'x'",
        Asker(),
        OwnClient(),
        [],
        llm_client_factory="x",
    )
    fails("debug_dir must be a path, not int", Asker(), OwnClient(), [], debug_dir=3)
    fails("Duplicate eval function name: 'rewards:exact'", Asker(), OwnClient(), [EXACT, EXACT], error=EvalFnError)
    taken = EvalRunner(Asker(), OwnClient(), [EvalFnWrapper(exact, "reward")])
    with pytest.raises(EvalFnError, match="results already have a column with this name"):
        asyncio.run(taken.run_eval(rows_of(1)))
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("completion_params must be a dict, not str", {"completion_params": "hot"}),
        ("completion_params: 1 is not a string", {"completion_params": {1: 2}}),
        ("pass_threshold must be a number, not str", {"pass_threshold": "high"}),
        ("on_progress must be a function, not str", {"on_progress": "x"}),
        ("output_dir must be a path, not bytes", {"output_dir": b"out"}),
    ]
    for words, arguments in wrong:
        with pytest.raises(TypeError, match=words):
            asyncio.run(runner.run_eval(rows_of(1), **arguments))
    with pytest.raises(TypeError, match="runner must be an EvalRunner, not str"):
        asyncio.run(runner.run_single(rows_of(1)[0], 0, 0, runner="x"))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="for more rollouts, raise n_runs"):
        asyncio.run(runner.run_eval(rows_of(1), completion_params={"n": 3}))


def test_a_table_of_pandas_is_told_how_it_gives_rows() -> None:
    import pandas as pd

    table = pd.DataFrame(rows_of(2))
    runner = EvalRunner(Asker(), OwnClient(), [EXACT])
    with pytest.raises(TypeError, match='not DataFrame; pass its to_dict\\("records"\\)'):
        asyncio.run(runner.run_eval(table))  # type: ignore[arg-type]
    assert scores(asyncio.run(runner.run_eval(table.to_dict("records")))) == [1.0, 1.0]


# Traces


def test_debug_writes_a_trace_of_each_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with SumsModel() as model:
        asyncio.run(EvalRunner(Adder(), client_of(model), [EXACT], debug=True).run_eval(rows_of(2)))
        asyncio.run(EvalRunner(Adder(), client_of(model), [EXACT], True, "traces").run_single(rows_of(1)[0], 0, 0))
        asyncio.run(EvalRunner(Adder(), client_of(model), [EXACT]).run_eval(rows_of(1)))
    assert sorted(path.name for path in (tmp_path / "local_debug").iterdir()) == [
        "eval-0-run-0.jsonl", "eval-1-run-0.jsonl",
    ]  # fmt: skip
    events = [json.loads(line) for line in (tmp_path / "traces" / "eval-0-run-0.jsonl").read_text().splitlines()]
    [added] = [event for event in events if event["event"] == "added"]
    assert (added["rollout_id"], added["total"]) == ("eval-0-run-0", 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["local_debug", "traces"]


# What is kept


def kept(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.glob("evals/*/*/run.json"))


def test_nothing_is_left_behind_unless_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    with SumsModel() as model:
        asyncio.run(EvalRunner(Asker(), client_of(model), [EXACT]).run_eval(rows_of(1)))
    assert list(scratch.iterdir()) == [] and [path.name for path in tmp_path.iterdir()] == ["scratch"]


def test_an_evaluation_goes_on_where_it_was_ended(tmp_path: Path) -> None:
    told: list[int] = []
    with SumsModel() as model:
        key = "sk-canary-0123456789"
        client = client_of(model, "adds", api_key=key)
        runner = EvalRunner(Asker(), client, [EXACT], baseline_llm_client=client_of(model, "weak"))

        async def cut() -> None:
            stop = asyncio.Event()

            def tell(current: int, total: int, result: EvalRunResult) -> None:
                if current == 5:
                    stop.set()

            async with asyncio.TaskGroup() as tasks:
                going = tasks.create_task(
                    runner.run_eval(rows_of(6), n_runs=2, on_progress=tell, output_dir=str(tmp_path))
                )
                await stop.wait()
                going.cancel()

        asyncio.run(cut())
        before = len(model.requests)
        assert 5 <= before < 24
        folders = kept(tmp_path)
        assert {json.loads((folder / "run.json").read_text())["status"] for folder in folders} == {"interrupted"}
        result = asyncio.run(
            runner.run_eval(
                rows_of(6), n_runs=2, output_dir=str(tmp_path), resume=True,
                on_progress=lambda current, total, _: told.append(current),
            )
        )  # fmt: skip
        assert kept(tmp_path) == folders
        assert len(model.requests) <= 24 + 1  # one was under way when it was cut
        assert len(order(result)) == 24 and told[-1] == 24 and told == sorted(told)
        keys = {(body["model"], sent) for body, sent in zip(model.requests, model.keys, strict=True)}
        assert keys == {("adds", f"Bearer {key}"), ("weak", None)}
        again = asyncio.run(runner.run_eval(rows_of(6), n_runs=2, output_dir=str(tmp_path), resume=True))
        assert scores(again) == scores(result) and len(model.requests) <= 25
        assert 0 < result.resumed_runs < 24 and again.resumed_runs == result.resumed_runs
        with pytest.raises(
            ResumeRefused, match=r"rows: the earlier value is 6, the new one 5, .* Raise rows to at least 6"
        ):
            asyncio.run(runner.run_eval(rows_of(5), n_runs=2, output_dir=tmp_path, resume=True))
        with pytest.raises(
            ResumeRefused, match=r"n_runs: the earlier value is 2, the new one 1, .* Raise n_runs to at least 2"
        ):
            asyncio.run(runner.run_eval(rows_of(6), output_dir=tmp_path, resume=True))
        with pytest.raises(ResumeRefused, match="max_turns was 10, now 3"):
            asyncio.run(runner.run_eval(rows_of(6), n_runs=2, max_turns=3, output_dir=str(tmp_path), resume=True))
    # Its settings do not promise what they cannot hold, and say why if they are taken at their word.
    settings = (folders[0] / "config.toml").read_text()
    assert settings.startswith("# Settings of one run of a Python program.") and "repeats the run" not in settings
    assert "Its settings; its rows are in the program that started it" in (folders[0].parent / "README.md").read_text()
    with pytest.raises(ConfigError, match="its rows are in that program: run the program again, with resume=True"):
        resolve(str(folders[0] / "config.toml"), {})
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or key.encode() not in path.read_bytes(), path


SCRIPT = """
import asyncio, json, sys
sys.path.insert(0, sys.argv[1])
from eval_api import OwnClient, rows_of
from harness.core.errors import ResumeRefused
from harness.agents import EvalFnWrapper, EvalRunner
from own_agent import Agent

def exact(solution_str, ground_truth, extra_info=None):
    return float(solution_str == ground_truth)

client = OwnClient()
runner = EvalRunner(Agent(), client, [EvalFnWrapper(exact, "exact")])
try:
    result = asyncio.run(runner.run_eval(rows_of(ROWS), output_dir="out", resume=RESUME))
except ResumeRefused as error:
    print(json.dumps(str(error)))
else:
    print(json.dumps([len(result.rows), client.resets]))
"""

AGENT = """
from own_helper import ASIDE
class Agent:
    name = "own"
    def get_tools(self, request): return []
    async def run(self, ctx):
        reply = await ctx.chat(ctx.request.messages)
        return ctx.complete([*ctx.request.messages, reply.message])
"""


@pytest.mark.slow
def test_a_resume_compares_the_code_that_is_evaluated(tmp_path: Path) -> None:
    (tmp_path / "own_agent.py").write_text(AGENT)
    (tmp_path / "own_helper.py").write_text("ASIDE = 1")

    def run(script: str) -> Any:
        (tmp_path / "script.py").write_text(script)
        done = subprocess.run(
            [sys.executable, "script.py", str(Path(__file__).parents[1] / "support")], cwd=tmp_path,
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        return json.loads(done.stdout)

    first = SCRIPT.replace("ROWS", "2").replace("RESUME", "False")
    again = SCRIPT.replace("ROWS", "3").replace("RESUME", "True")
    assert run(first) == [2, 2]
    assert run(again) == [3, 1]  # the script itself may change, and the rows may grow
    assert "env.code.exact has changed" in run(again.replace("== ground_truth", "!= ground_truth"))
    (tmp_path / "own_helper.py").write_text("ASIDE = 2")
    assert "env.agent_source.own_helper.py has changed" in run(again)


def test_failed_runs_are_made_again_if_asked_for(tmp_path: Path) -> None:
    class Moody(Asker):
        name = "moody"
        broken = True

        async def run(self, ctx: RolloutContext) -> RolloutResult:
            if self.broken and ctx.request.metadata["row_index"] == 1:
                return ctx.error("not today")
            return await super().run(ctx)

    agent = Moody()
    runner = EvalRunner(agent, OwnClient(), [EXACT])

    def run(**more: Any) -> list[float | None]:
        return scores(asyncio.run(runner.run_eval(rows_of(3), output_dir=str(tmp_path), **more)))

    assert run() == [1.0, None, 1.0]
    agent.broken = False
    assert run(resume=True) == [1.0, None, 1.0]
    assert run(resume=True, retry_failed=True) == [1.0, 1.0, 1.0]


def test_cancelling_leaves_no_lock_and_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0

    async def main(model: SumsModel) -> None:
        client = OwnClient()
        made: list[OwnClient] = []

        def make() -> OwnClient:
            made.append(OwnClient())
            return made[-1]

        class Stuck(Asker):
            name = "stuck"
            started = asyncio.Event()

            async def run(self, ctx: RolloutContext) -> RolloutResult:
                self.started.set()
                await asyncio.Event().wait()
                raise AssertionError

        runner = EvalRunner(Stuck(), client, [EXACT], llm_client_factory=make)
        async with asyncio.TaskGroup() as tasks:
            going = tasks.create_task(runner.run_eval(rows_of(4), batch_size=2))
            await Stuck.started.wait()
            assert len(os.listdir(tmp_path)) == 1
            going.cancel()
        assert [each.closed for each in made] == [1] * len(made) and client.closed == 0

    with SumsModel() as model:
        asyncio.run(main(model))
    assert list(tmp_path.iterdir()) == []
    if before:
        assert len(os.listdir("/proc/self/fd")) <= before + 1


class SlowRow(dict[str, Any]):
    """A row that is read only when the test lets it be."""

    def __init__(self) -> None:
        super().__init__(rows_of(1)[0])
        self.reading, self.released = threading.Event(), threading.Event()

    def items(self) -> Any:
        self.reading.set()
        self.released.wait(60)
        return super().items()


@pytest.mark.parametrize("is_kept", [True, False])
def test_cancelling_before_the_first_run_leaves_nothing_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_kept: bool
) -> None:
    scratch, folder = tmp_path / "scratch", tmp_path / "out"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    client, row = OwnClient(), SlowRow()
    runner = EvalRunner(Asker(), client, [EXACT])
    more: dict[str, Any] = {"output_dir": str(folder)} if is_kept else {}

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            going = tasks.create_task(runner.run_eval([row], **more))
            await asyncio.to_thread(row.reading.wait, 20)
            going.cancel()
        row.released.set()

    asyncio.run(main())
    assert client.calls == 0 and list(scratch.iterdir()) == []
    if is_kept:
        [cut] = kept(folder)
        assert json.loads((cut / "run.json").read_text())["status"] == "interrupted"
        again = asyncio.run(runner.run_eval(rows_of(1), output_dir=str(folder), resume=True))
        assert scores(again) == [1.0] and kept(folder) == [cut]


# Event loops


def test_twice_in_one_loop_and_two_at_once() -> None:
    with SumsModel() as model, SumsModel() as other:
        client = client_of(model)
        shared = EvalRunner(Asker(), client, [EXACT])
        second = EvalRunner(Adder(), client_of(other), [EXACT], baseline_llm_client=client)

        async def main() -> list[EvalResult]:
            results = [await shared.run_eval(rows_of(2)), await shared.run_eval(rows_of(2))]
            async with asyncio.TaskGroup() as tasks:
                going = [
                    tasks.create_task(shared.run_eval(rows_of(5), batch_size=2)),
                    tasks.create_task(shared.run_eval(rows_of(4), batch_size=2)),
                    tasks.create_task(second.run_eval(rows_of(3), batch_size=2)),
                ]
            return results + [task.result() for task in going]

        first = asyncio.run(main())
        later = asyncio.run(shared.run_eval(rows_of(1)))
    assert [len(order(result)) for result in [*first, later]] == [2, 2, 5, 4, 6, 1]
    assert {score for result in [*first, later] for score in scores(result)} == {1.0}


# Clients of the caller's


def test_a_client_of_ones_own_is_used_by_one_run_at_a_time(caplog: pytest.LogCaptureFixture) -> None:
    client = OwnClient()
    runner = EvalRunner(Adder(), client, [EXACT])
    result = asyncio.run(runner.run_eval(rows_of(4), completion_params={"temperature": 0.1}))
    assert scores(result) == [1.0] * 4 and result.total_tokens == 4 * 23
    assert (client.resets, client.set, client.closed, client.tools) == (4, [1] * 4, 0, None)
    assert client.asked == [{"temperature": 0.1}] * 4
    assert not caplog.records
    asyncio.run(runner.run_eval(rows_of(4), batch_size=3))
    assert [record.message for record in caplog.records] == [
        "OwnClient: a client serves one rollout at a time, so batch_size=3 has no effect; pass llm_client_factory"
    ]


def test_two_evaluations_never_have_one_client_at_once() -> None:
    """`OwnClient` refuses a second conversation while one is going on."""
    client = OwnClient()
    runner = EvalRunner(Asker(), client, [EXACT])

    async def both() -> list[EvalResult]:
        async with asyncio.TaskGroup() as tasks:
            made = [tasks.create_task(runner.run_eval(rows_of(6))) for _ in range(3)]
        return [task.result() for task in made]

    assert [scores(result) for result in asyncio.run(both())] == [[1.0] * 6] * 3
    found: list[list[float | None]] = []
    threads = [
        threading.Thread(target=lambda: found.append(scores(asyncio.run(runner.run_eval(rows_of(6))))))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[1.0] * 6] * 3
    assert client.resets == 36
    same = EvalRunner(Asker(), client, [EXACT], llm_client_factory=lambda: client)
    assert scores(asyncio.run(same.run_eval(rows_of(6), batch_size=3))) == [1.0] * 6


def test_an_agent_may_evaluate_with_the_client_that_it_is_run_with() -> None:
    client = OwnClient()

    class Nested(Asker):
        name = "nested"

        async def run(self, ctx: RolloutContext) -> RolloutResult:
            inner = await EvalRunner(Asker(), client, [EXACT]).run_single(rows_of(1)[0], 0, 0)
            return ctx.complete([*ctx.request.messages, {"role": "assistant", "content": str(inner.scores)}])

    async def main() -> EvalResult:
        async with asyncio.timeout(60):
            return await EvalRunner(Nested(), client, [EXACT]).run_eval(rows_of(1))

    [run] = asyncio.run(main()).rows[0].runs
    assert run.success and client.calls == 1


def test_a_client_that_cannot_be_closed_costs_no_result(caplog: pytest.LogCaptureFixture) -> None:
    made: list[OwnClient] = []

    class Unclosable(OwnClient):
        async def close(self) -> None:
            await super().close()
            raise OSError("already gone")

    def make() -> OwnClient:
        made.append(Unclosable())
        return made[-1]

    runner = EvalRunner(Asker(), OwnClient(), [EXACT], llm_client_factory=make)
    assert scores(asyncio.run(runner.run_eval(rows_of(6), batch_size=3))) == [1.0] * 6
    assert len(made) > 1 and [client.closed for client in made] == [1] * len(made)
    assert [record.getMessage() for record in caplog.records] == [
        "Unclosable.close() failed; the results are not affected"
    ] * len(made)


def test_methods_of_a_client_may_be_async() -> None:
    class Async(OwnClient):
        async def set_tools(self, tools: list[Any]) -> None:  # type: ignore[override]
            super().set_tools(tools)

        async def clear_tools(self) -> None:  # type: ignore[override]
            super().clear_tools()

        async def reset_metrics(self) -> None:  # type: ignore[override]
            super().reset_metrics()

        async def get_metrics(self) -> RolloutMetrics:  # type: ignore[override]
            return super().get_metrics()

    client = Async(reports=False)
    result = asyncio.run(EvalRunner(Adder(), client, [EXACT]).run_eval(rows_of(3)))
    assert scores(result) == [1.0] * 3 and result.total_tokens == 3 * 8
    assert (client.resets, client.set, client.tools) == (3, [1] * 3, None)


def test_a_factory_makes_one_client_for_each_run_under_way() -> None:
    made: list[OwnClient] = []

    def make() -> OwnClient:
        made.append(OwnClient())
        return made[-1]

    async def make_other() -> OwnClient:
        other.append(OwnClient(says="no idea"))
        return other[-1]

    other: list[OwnClient] = []
    primary, baseline = OwnClient(), OwnClient()
    runner = EvalRunner(
        Asker(), primary, [EXACT], llm_client_factory=make, baseline_llm_client=baseline,
        baseline_llm_client_factory=make_other,
    )  # fmt: skip
    result = asyncio.run(runner.run_eval(rows_of(10), batch_size=4))
    assert [run.scores["rewards:exact"] for row in result.rows for run in row.runs] == [1.0, 0.0] * 10
    assert 1 <= len(made) <= 4 and 1 <= len(other) <= 4
    assert sum(each.resets for each in made) == sum(each.resets for each in other) == 10
    assert [each.closed for each in made + other] == [1] * len(made + other)
    assert (primary.resets, primary.closed, baseline.resets, baseline.closed) == (0, 0, 0, 0)
    made.clear()
    asyncio.run(runner.run_eval(rows_of(2), n_runs=1, batch_size=50))
    assert len(made) <= 2
    asyncio.run(runner.run_eval(rows_of(2)))  # one at a time needs no other
    assert (len(made), primary.resets) == (len(made), 2)


def test_a_factory_may_give_clients_of_several_endpoints() -> None:
    with SumsModel(latency=0.01) as one, SumsModel(latency=0.01) as two:
        urls = [one, two]
        given: list[ExternalLLMClient] = []

        def make() -> ExternalLLMClient:
            key = f"key-{len(given)}-0123456789"
            given.append(client_of(urls[len(given) % 2], f"adds-{len(given)}", api_key=key))
            return given[-1]

        runner = EvalRunner(Asker(), client_of(one, "never"), [EXACT], llm_client_factory=make)
        result = asyncio.run(runner.run_eval(rows_of(8), batch_size=2))
        assert scores(result) == [1.0] * 8 and len(given) == 2
        assert {body["model"] for body in one.requests} == {"adds-0"}
        assert {body["model"] for body in two.requests} == {"adds-1"}
        assert {*one.keys} == {"Bearer key-0-0123456789"} and {*two.keys} == {"Bearer key-1-0123456789"}


def test_a_factory_that_fails_ends_the_evaluation() -> None:
    def broken() -> OwnClient:
        raise OSError("no more connections")

    runner = EvalRunner(Asker(), OwnClient(), [EXACT], llm_client_factory=broken)
    result = asyncio.run(runner.run_eval(rows_of(3), batch_size=2))
    assert result.stopped_early and result.stop_reason == "the client factory raised OSError: no more connections"
    runner = EvalRunner(Asker(), OwnClient(), [EXACT], llm_client_factory=dict)  # type: ignore[arg-type]
    result = asyncio.run(runner.run_eval(rows_of(3), batch_size=2))
    assert result.stop_reason == "the client factory returned dict, which has no method chat_completions"


def test_what_a_client_of_ones_own_raises_or_returns() -> None:
    class Raises(OwnClient):
        error: Exception = RuntimeError("boom")

        async def chat_completions(self, messages: list[Any], **kwargs: Any) -> Any:
            await super().chat_completions(messages, **kwargs)
            raise self.error

    client = Raises()
    runner = EvalRunner(Asker(), client, [EXACT])
    failed = asyncio.run(runner.run_eval(rows_of(2)))
    assert [run.error is not None and "RuntimeError: boom" in run.error for run in failed.rows[0].runs] == [True]
    assert not failed.stopped_early and failed.failed_runs == 2
    client.error = ProviderError("no answer today")
    passing = asyncio.run(runner.run_eval(rows_of(1)))
    assert not passing.stopped_early and str(passing.rows[0].runs[0].error).startswith("no answer today")
    client.error = SystemicProviderError("gone for good")
    stopped = asyncio.run(runner.run_eval(rows_of(2)))
    assert (stopped.stopped_early, stopped.stop_reason) == (True, "gone for good")

    class Wrong(OwnClient):
        async def chat_completions(self, messages: list[Any], **kwargs: Any) -> Any:
            return {"content": "42"}

    wrong = asyncio.run(EvalRunner(Asker(), Wrong(), [EXACT]).run_eval(rows_of(1)))
    assert "must return a CompletionsResult" in str(wrong.rows[0].runs[0].error)


class FromThread(Asker):
    """Asks from a thread that knows nothing of the run it belongs to."""

    name = "from_thread"

    def __init__(self, parties: int) -> None:
        self.together = asyncio.Barrier(parties)

    async def run(self, ctx: RolloutContext) -> RolloutResult:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()

        def ask() -> None:
            asking = asyncio.run_coroutine_threadsafe(ctx.chat(ctx.request.messages), loop)
            asking.add_done_callback(lambda done: loop.call_soon_threadsafe(answer.set_result, done))

        await self.together.wait()
        threading.Thread(target=ask).start()
        done = await answer
        await self.together.wait()
        return ctx.complete([*ctx.request.messages, done.result().message])


def test_a_call_from_elsewhere_is_never_given_to_the_wrong_client() -> None:
    alone = EvalRunner(FromThread(1), OwnClient(), [EXACT])
    assert scores(asyncio.run(alone.run_eval(rows_of(2)))) == [1.0, 1.0]
    both = EvalRunner(FromThread(2), OwnClient(), [EXACT], llm_client_factory=OwnClient)
    result = asyncio.run(both.run_eval(rows_of(2), batch_size=2))
    errors = [str(run.error) for row in result.rows for run in row.runs]
    assert len(errors) == 2 and all("the model was called from a thread without a client" in error for error in errors)


def test_one_client_may_be_both_models() -> None:
    client = OwnClient()
    runner = EvalRunner(Asker(), client, [EXACT], baseline_llm_client=client)
    result = asyncio.run(runner.run_eval(rows_of(4), batch_size=4))
    assert [run.model_tag for run in result.rows[0].runs] == ["primary", "baseline"]
    assert result.model_summaries is not None
    assert [summary.model for summary in result.model_summaries] == ["OwnClient"] * 2
    assert scores(result) == [1.0] * 8 and client.resets == 8


def test_tokens_come_from_metrics_where_replies_do_not_say() -> None:
    class Twice(Asker):
        name = "twice"

        async def run(self, ctx: RolloutContext) -> RolloutResult:
            await ctx.chat(ctx.request.messages)
            return await super().run(ctx)

    client = OwnClient(reports=False)
    result = asyncio.run(EvalRunner(Twice(), client, [EXACT]).run_eval(rows_of(3)))
    assert [run.tokens for row in result.rows for run in row.runs] == [16] * 3


def test_tools_of_one_call_reach_a_client_of_ones_own() -> None:
    class Chooses(Adder):
        name = "chooses"

        async def run(self, ctx: RolloutContext) -> RolloutResult:
            await ctx.chat(ctx.request.messages, tools=None)
            return await super().run(ctx)

    client = OwnClient()
    result = asyncio.run(EvalRunner(Chooses(), client, [EXACT]).run_eval(rows_of(1)))
    assert scores(result) == [1.0] and client.asked == [{"tools": None}, {}]


def test_a_subclass_that_changes_calls_is_asked_itself() -> None:
    class Shouting(ExternalLLMClient):
        async def chat_completions(self, messages: list[Any], **kwargs: Any) -> Any:
            shouted = [{**message, "content": message["content"].upper()} for message in messages]
            return await super().chat_completions(shouted, **kwargs)

    class Plain(ExternalLLMClient):
        """Changes nothing, so the engine asks in its place."""

    with SumsModel() as model:

        async def main() -> list[EvalResult]:
            async with Shouting("loud", api_base=model.url) as loud:
                first = await EvalRunner(Asker(), loud, [EXACT]).run_eval(rows_of(2))
                assert loud.get_metrics().num_llm_calls == 1  # of the newest run
            plain = Plain("plain", api_base=model.url)
            second = await EvalRunner(Asker(), plain, [EXACT]).run_eval(rows_of(2), batch_size=2)
            assert plain.get_metrics().num_llm_calls == 0
            return [first, second]

        results = asyncio.run(main())
    assert [scores(result) for result in results] == [[1.0, 1.0], [1.0, 1.0]]
    assert [body["messages"][0]["content"] for body in model.requests] == ["ADD."] * 2 + ["Add."] * 2


@pytest.mark.plugins
def test_a_loaded_agent_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.agents import load_agent

    monkeypatch.chdir(tmp_path)
    (tmp_path / "sdk_agent.py").write_text(
        "from osmosis_ai.rollout import RolloutAgentLoop\n"
        "class Loop(RolloutAgentLoop):\n"
        "    name = 'loop'\n"
        "    def get_tools(self, request): return []\n"
        "    async def run(self, ctx):\n"
        "        reply = await ctx.chat(ctx.request.messages)\n"
        "        return ctx.complete([*ctx.request.messages, reply.message])\n"
    )
    agent = load_agent("sdk_agent:Loop")
    assert scores(asyncio.run(EvalRunner(agent, OwnClient(), [EXACT]).run_eval(rows_of(2)))) == [1.0, 1.0]
    with pytest.raises(AgentLoadError, match="Loop"):
        load_agent("sdk_agent:Lop")


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)


def test_a_dead_endpoint_measures_nothing() -> None:
    """A mean of 0.000 would say that the model is bad."""
    with socket.socket() as taken:  # bound, and nothing listens
        taken.bind(("127.0.0.1", 0))
        client = ExternalLLMClient("m", api_base=f"http://127.0.0.1:{taken.getsockname()[1]}/v1", api_key="k")
        result = asyncio.run(EvalRunner(Asker(), client, [EXACT]).run_eval(rows_of(2), n_runs=3))
    summary = result.eval_summaries["rewards:exact"]
    assert result.stopped_early and summary.scored.count == 0
    assert f"{summary.mean:.3f}" == "nan" and all(map(math.isnan, summary.pass_at_k.values()))
