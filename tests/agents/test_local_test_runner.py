"""`LocalTestRunner`: the agent alone."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path

import pytest
from eval_api import Adder, Asker, OwnClient, rows_of
from sums_model import SumsModel

from harness.agents import (
    DatasetValidationError,
    ExternalLLMClient,
    LocalTestBatchResult,
    LocalTestRunner,
    LocalTestRunResult,
    SystemicProviderError,
)
from harness.core.errors import ConfigError


def test_signatures_are_the_documented_ones() -> None:
    assert [*inspect.signature(LocalTestRunner).parameters] == ["agent_loop", "llm_client", "debug", "debug_dir"]
    assert [*inspect.signature(LocalTestRunner.run_single).parameters][1:] == [
        "row", "row_index", "max_turns", "completion_params",
    ]  # fmt: skip
    batch = inspect.signature(LocalTestRunner.run_batch).parameters
    assert [*batch][1:6] == ["rows", "max_turns", "completion_params", "on_progress", "start_index"]
    assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in [*batch.values()][6:])


def test_a_batch_takes_the_options_of_every_evaluation() -> None:
    with SumsModel() as model:
        runner = LocalTestRunner(Adder(), ExternalLLMClient("adds", api_base=model.url))
        batch = asyncio.run(runner.run_batch(rows_of(2), settings={"message_limit": 1}))
        assert [result.finish_reason for result in batch.results] == ["message_limit"] * 2
        assert len(model.requests) == 2
        with pytest.raises(ConfigError, match=r"cost_limit.*the price of adds .*is unknown"):
            asyncio.run(runner.run_batch(rows_of(2), settings={"cost_limit": 0.1}))
        assert len(model.requests) == 2


def test_a_batch() -> None:
    agent = Adder()
    told: list[tuple[int, int, LocalTestRunResult]] = []
    with SumsModel() as model:
        runner = LocalTestRunner(agent, ExternalLLMClient("adds", api_base=model.url))
        batch = asyncio.run(
            runner.run_batch(rows_of(3), 4, {"temperature": 0.2}, lambda *words: told.append(words), start_index=8)
        )
        assert model.peak == 1
        assert {body["temperature"] for body in model.requests} == {0.2}
    assert isinstance(batch, LocalTestBatchResult)
    assert (batch.total, batch.passed, batch.failed, batch.total_tokens) == (3, 3, 0, 90)
    assert not batch.stopped_early and batch.stop_reason is None and batch.total_duration_ms > 0
    assert [result.row_index for result in batch.results] == [8, 9, 10]
    assert [(current, total) for current, total, _ in told] == [(1, 3), (2, 3), (3, 3)]
    assert [result for _, _, result in told] == batch.results
    second = batch.results[1]
    assert second.success and second.error is None and second.duration_ms > 0
    assert second.token_usage == {
        "prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 30, "num_llm_calls": 2,
    }  # fmt: skip
    assert (second.reward, second.finish_reason) == (0.5, "stop")
    assert [message["role"] for message in second.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert second.result is not None and second.result.final_messages == second.messages
    assert second.result.metrics is not None and second.result.metrics.num_tool_calls == 1
    assert [each.rollout_id for each in agent.requests] == ["test-8", "test-9", "test-10"]
    assert agent.requests[0].metadata["test_mode"] is True and agent.requests[0].max_turns == 4


def test_failures_say_why_and_what_they_cost() -> None:
    rows = [*rows_of(1, act="raise"), *rows_of(1, act="error"), *rows_of(1)]
    batch = asyncio.run(LocalTestRunner(Asker(), OwnClient()).run_batch(rows))
    assert (batch.passed, batch.failed, batch.total_tokens) == (1, 2, 69)
    raised, gave_up, fine = batch.results
    assert raised.error is not None and "RuntimeError: the agent is broken" in raised.error
    assert (gave_up.error, gave_up.success, gave_up.result) == ("the agent gives up", False, None)
    assert (raised.reward, raised.finish_reason) == (None, None)
    assert [message["role"] for message in raised.messages] == ["system", "user", "assistant"]
    assert (fine.success, fine.finish_reason, fine.reward) == (True, "stop", None)


def test_the_end_of_an_endpoint_ends_the_batch() -> None:
    with SumsModel() as model:
        runner = LocalTestRunner(Asker(), ExternalLLMClient("refusing", api_base=model.url))
        batch = asyncio.run(runner.run_batch(rows_of(2)))
        with pytest.raises(SystemicProviderError, match="Incorrect API key"):
            asyncio.run(runner.run_single(rows_of(1)[0], 0))
    assert (batch.stopped_early, batch.total, batch.results) == (True, 0, [])
    assert batch.stop_reason is not None and "Incorrect API key" in batch.stop_reason


def test_one_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    client = OwnClient()
    runner = LocalTestRunner(Asker(), client, debug=True)
    result = asyncio.run(runner.run_single(rows_of(3)[2], 5))
    assert (result.row_index, result.messages[-1]["content"]) == (5, "4")
    assert [path.name for path in (tmp_path / "test_debug").iterdir()] == ["test-5.jsonl"]
    assert client.closed == 0
    with pytest.raises(DatasetValidationError, match=r"^Row 5: "):
        asyncio.run(runner.run_single({}, 5))
    empty = asyncio.run(runner.run_batch([]))
    assert (empty.total, empty.results, empty.stopped_early) == (0, [], False)
