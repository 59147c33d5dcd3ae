"""The agent contract itself: agent classes, the context of a run, its results, metrics and events."""

from __future__ import annotations

import asyncio
import json
import time
from abc import abstractmethod
from dataclasses import FrozenInstanceError, dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tables import for_each_row

from harness.agents.loop import CompletionsResult, RolloutAgentLoop, RolloutContext, RolloutResult
from harness.agents.schemas import RolloutMetrics, RolloutRequest


class Calc(RolloutAgentLoop):
    name = "calc"

    def get_tools(self, request: RolloutRequest) -> Any:
        return [request.rollout_id, request.server_url, request.messages, request.completion_params]

    async def run(self, ctx: RolloutContext) -> RolloutResult:
        return ctx.complete([])


@dataclass
class Model:
    """Answers with its one reply, and keeps what it was asked."""

    reply: CompletionsResult
    asked: list[tuple[Any, Any]] = field(default_factory=list[tuple[Any, Any]])

    async def chat_completions(self, messages: Any, **kwargs: Any) -> CompletionsResult:
        self.asked.append((list(messages), kwargs))
        return self.reply


class MeteredModel(Model):
    def get_metrics(self) -> RolloutMetrics:
        return RolloutMetrics(
            llm_latency_ms=12.5, num_llm_calls=2, prompt_tokens=30, response_tokens=7, max_context_tokens=20
        )


def reply(**message: Any) -> CompletionsResult:
    return CompletionsResult({"role": "assistant", **message}, [], [], {}, "stop")


def context(llm: Any = None, **fields: Any) -> RolloutContext:
    request = RolloutRequest(
        rollout_id="eval-3-run-0", server_url="http://local", messages=[{"role": "user"}], completion_params={}
    )
    return RolloutContext(request=request, tools=[], llm=llm or Model(reply(content="4")), **fields)


@for_each_row("fields", [{}, {"name": ""}])
def test_a_class_that_can_run_needs_a_name(fields: dict[str, Any]) -> None:
    methods = {"get_tools": Calc.get_tools, "run": Calc.run}
    with pytest.raises(TypeError) as caught:
        type("Nameless", (RolloutAgentLoop,), {**methods, **fields})
    assert str(caught.value) == "Agent loop class Nameless must define a 'name' class attribute"


def test_an_abstract_class_needs_no_name_and_its_heirs_do() -> None:
    class Base(RolloutAgentLoop):
        def get_tools(self, request: RolloutRequest) -> Any:
            return [self.solve()]

        @abstractmethod
        def solve(self) -> str: ...

    class Heir(Base):
        name = "heir"

        def solve(self) -> str:
            return "solved"

        async def run(self, ctx: RolloutContext) -> RolloutResult:
            return ctx.complete([])

    assert Heir().get_default_tools() == ["solved"]
    with pytest.raises(TypeError, match="Agent loop class Orphan must define a 'name' class attribute"):
        type("Orphan", (Base,), {"solve": Heir.solve, "run": Heir.run})


def test_a_name_is_inherited() -> None:
    class Better(Calc):
        pass

    assert Better().name == "calc"


def test_default_tools_are_those_of_a_request_about_nothing() -> None:
    assert Calc().get_default_tools() == ["discovery", "http://localhost", [], {}]


def test_chat_hands_messages_and_keywords_on() -> None:
    model = Model(reply(content="4"))
    messages = [{"role": "user", "content": "2+2"}]
    answered = asyncio.run(context(model).chat(messages, temperature=0.5, stop=["\n"]))
    assert answered is model.reply
    assert model.asked == [(messages, {"temperature": 0.5, "stop": ["\n"]})]


def test_a_reply_with_tool_calls() -> None:
    answered = reply(tool_calls=[{"id": "1"}])
    assert (answered.has_tool_calls, answered.tool_calls, answered.content) == (True, [{"id": "1"}], None)


@for_each_row("message", [{}, {"tool_calls": None}, {"tool_calls": []}])
def test_a_reply_without_tool_calls(message: dict[str, Any]) -> None:
    answered = reply(content="4", **message)
    assert (answered.has_tool_calls, answered.tool_calls, answered.content) == (False, [], "4")


def test_a_reply_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        reply().finish_reason = "length"  # type: ignore[misc]  # that is the test


def test_complete_says_how_it_ended() -> None:
    messages = [{"role": "user"}]
    result = context().complete(messages)
    assert (result.status, result.finish_reason, result.error_message, result.reward) == (
        "COMPLETED", "stop", None, None,
    )  # fmt: skip
    assert result.final_messages is messages
    ended = context().complete([], finish_reason="max_turns", reward=0.5)
    assert (ended.finish_reason, ended.reward) == ("max_turns", 0.5)


def test_error_keeps_its_message() -> None:
    result = context().error("no tool")
    assert (result.status, result.finish_reason, result.error_message, result.final_messages) == (
        "ERROR", "error", "no tool", [],
    )  # fmt: skip
    assert context().error("x", [{"role": "user"}]).final_messages == [{"role": "user"}]


def test_metrics_are_those_of_the_model_and_of_the_tools() -> None:
    ctx = context(MeteredModel(reply()), _start_time=time.monotonic() - 2)
    ctx.record_tool_call(latency_ms=3.5)
    ctx.record_tool_call()
    for result in (ctx.complete([]), ctx.error("no")):
        metrics = result.metrics
        assert metrics is not None
        assert 2000 <= metrics.total_latency_ms < 60_000
        assert metrics.model_dump(exclude={"total_latency_ms"}) == {
            "llm_latency_ms": 12.5, "tool_latency_ms": 3.5, "num_llm_calls": 2, "num_tool_calls": 2,
            "prompt_tokens": 30, "response_tokens": 7, "max_context_tokens": 20,
        }  # fmt: skip


def test_a_model_without_metrics_and_a_run_without_a_start_count_as_zero() -> None:
    ctx = context()
    ctx.record_tool_call(latency_ms=1.0)
    assert ctx.complete([]).metrics == RolloutMetrics(num_tool_calls=1, tool_latency_ms=1.0)


def test_without_a_debug_directory_no_event_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ctx = context()
    ctx.log_event("turn", number=1)
    assert not ctx.debug_enabled
    assert list(tmp_path.iterdir()) == []


def test_events_are_appended_as_lines_of_json(tmp_path: Path) -> None:
    ctx = context(_debug_dir=str(tmp_path / "deep" / "traces"))
    assert ctx.debug_enabled
    ctx.log_event("turn", number=1)
    ctx.log_event("odd", value=Path("a"))
    [file] = (tmp_path / "deep" / "traces").iterdir()
    assert file.name == "eval-3-run-0.jsonl"
    first, second = [json.loads(line) for line in file.read_text().splitlines()]
    assert (first["event"], first["rollout_id"], first["number"]) == ("turn", "eval-3-run-0", 1)
    assert (second["event"], second["value"]) == ("odd", "a")


def test_a_trace_that_cannot_be_written_costs_no_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "taken").write_text("a file")
    context(_debug_dir=str(tmp_path / "taken")).log_event("turn")
    [record] = caplog.records
    assert str(tmp_path / "taken" / "eval-3-run-0.jsonl") in record.getMessage()
