"""Debug files: one a rollout, one line an event, no secrets."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from agent_parts import ADD, PROMPT, ROW, Agent, answer, attempt, played, tool_call
from scripted_chat import ScriptedChat

from harness.agents.environment import AgentEnv
from harness.agents.loop import RolloutContext
from harness.agents.run import AgentOptions
from harness.agents.tool_calls import create_tool_result
from harness.agents.trace import Trace
from harness.core.errors import ModelError, SystemicError
from harness.core.records import Generated
from harness.core.redact import redactor
from harness.core.types import ModelResponse, Usage


def lines(path: Path) -> list[dict[str, Any]]:
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    assert all(entry.pop("time") > 1.7e9 for entry in entries)
    return entries


async def work(ctx: RolloutContext) -> object:
    messages = list(ctx.request.messages)
    ctx.log_event("begin", enabled=ctx.debug_enabled)
    messages.append((await ctx.chat(messages)).message)
    messages.append(create_tool_result("call_1", "4"))
    messages.append((await ctx.chat(messages, temperature=0.0)).message)
    ctx.log_event("end", path=Path("a"))
    return ctx.complete(messages)


def test_a_trace_holds_all_that_happened(tmp_path: Path) -> None:
    replies = [
        ModelResponse(message, finish, Usage(10, 2, requests=1), seconds=0.25)
        for message, finish in ((tool_call(), "tool_calls"), ({"role": "assistant", "content": "4"}, "stop"))
    ]
    folder = tmp_path / "debug" / "here"
    options = AgentOptions(debug_dir=str(folder))
    played(work, ScriptedChat(replies), tools=[ADD], options=options, sampling_args={"max_tokens": 9})
    [file] = folder.iterdir()
    assert file.name == "eval-0-run-0.jsonl"
    called = {name: value for name, value in tool_call().items() if value is not None}
    tokens = {"prompt_tokens": 10, "completion_tokens": 2, "seconds": 0.25}
    answered = [called, {"role": "tool", "content": "4", "tool_call_id": "call_1"}]
    metadata = {"ground_truth": "4", "row_index": 0, "topic": "sums", "execution_mode": "eval", "run_index": 0}
    expected: list[dict[str, Any]] = [
        {"event": "rollout_started", "model": "scripted", "messages": PROMPT, "completion_params": {"max_tokens": 9},
         "max_turns": 10, "metadata": metadata},
        {"event": "begin", "enabled": True},
        {"event": "model_request", "turn": 1, "messages": 2, "new_messages": PROMPT},
        {"event": "model_reply", "turn": 1, "message": called, "finish_reason": "tool_calls", **tokens},
        {"event": "model_request", "turn": 2, "messages": 4, "new_messages": answered[1:],
         "arguments": {"temperature": 0.0}},
        {"event": "model_reply", "turn": 2, "message": {"role": "assistant", "content": "4"}, "finish_reason": "stop",
         **tokens},
        {"event": "end", "path": "a"},
        {"event": "rollout_completed", "finish_reason": "stop", "messages": 5, "num_llm_calls": 2,
         "llm_latency_ms": 500.0, "prompt_tokens": 20, "response_tokens": 4, "max_context_tokens": 10},
    ]  # fmt: skip
    assert lines(file) == [{"rollout_id": "eval-0-run-0", **entry} for entry in expected]


def test_without_a_folder_there_is_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    played(work, ScriptedChat(["4"]))
    assert list(tmp_path.iterdir()) == []


def test_a_conversation_that_was_begun_anew_is_written_again(tmp_path: Path) -> None:
    async def anew(ctx: RolloutContext) -> object:
        messages = list(ctx.request.messages)
        messages.append((await ctx.chat(messages)).message)
        await ctx.chat(PROMPT[1:])
        return ctx.complete(messages)

    played(anew, ScriptedChat(["4"]), options=AgentOptions(debug_dir=str(tmp_path)))
    asked = [entry for entry in lines(tmp_path / "eval-0-run-0.jsonl") if entry["event"] == "model_request"]
    assert [entry["new_messages"] for entry in asked] == [PROMPT, PROMPT[1:]]


def test_how_a_run_failed_is_in_its_trace(tmp_path: Path) -> None:
    options = AgentOptions(debug_dir=str(tmp_path))
    busy = ModelError("429 after 7 attempts", retryable=True, reason="rate_limit")
    played(answer, ScriptedChat([busy]), options=options, retries=1)
    events = lines(tmp_path / "eval-0-run-0.jsonl")
    assert [entry["event"] for entry in events] == [
        "rollout_started",
        "model_request",
        "model_error",
        "rollout_failed",
    ] * 2
    assert {name: events[2][name] for name in ("turn", "error", "reason", "retryable")} == {
        "turn": 1, "error": "429 after 7 attempts", "reason": "rate_limit", "retryable": True,
    }  # fmt: skip
    assert events[3]["error"] == "ModelError: 429 after 7 attempts"

    with pytest.raises(SystemicError):
        played(answer, ScriptedChat([SystemicError("dead")]), options=AgentOptions(1, debug_dir=str(tmp_path)))
    assert lines(tmp_path / "eval-1-run-0.jsonl")[-1]["error"] == "SystemicError: dead"

    played(lambda ctx: 1 / 0, options=AgentOptions(2, debug_dir=str(tmp_path)))
    assert lines(tmp_path / "eval-2-run-0.jsonl")[-1]["error"] == "AgentFailed: ZeroDivisionError: division by zero"


def test_a_run_that_fails_before_it_begins_leaves_a_trace(tmp_path: Path) -> None:
    played(tools=lambda request: 1 / 0, options=AgentOptions(debug_dir=str(tmp_path)))
    events = lines(tmp_path / "eval-0-run-0.jsonl")
    assert [entry["event"] for entry in events] == ["rollout_started", "rollout_failed"]


def test_both_models_of_a_comparison_have_their_own_files_and_a_later_run_appends(tmp_path: Path) -> None:
    async def main() -> None:
        for tag in ("primary", "baseline", "primary"):
            env = AgentEnv([ROW], Agent(), options=AgentOptions(model_tag=tag, debug_dir=str(tmp_path)))
            await attempt(env, ScriptedChat(["4"]))

    asyncio.run(main())
    counts = {file.name: len(lines(file)) for file in tmp_path.iterdir()}
    assert counts == {"eval-0-run-0-primary.jsonl": 8, "eval-0-run-0-baseline.jsonl": 4}


def test_an_agent_of_mcp_tools_has_a_trace_too(tmp_path: Path) -> None:
    pytest.importorskip("fastmcp")
    from fastmcp import FastMCP

    from harness.agents.mcp_agent import MCPAgentLoop

    server = FastMCP("sums")

    @server.tool()
    def add(a: float, b: float) -> float:
        """Add two numbers."""
        return a + b

    env = AgentEnv([ROW], MCPAgentLoop(server), options=AgentOptions(debug_dir=str(tmp_path)))
    record = asyncio.run(attempt(env, ScriptedChat([tool_call(a=2, b=2), "4"]))).record
    assert isinstance(record, Generated), record
    assert (record.state["num_llm_calls"], record.state["num_tool_calls"]) == (2, 1)
    asked = [entry for entry in lines(tmp_path / "eval-0-run-0.jsonl") if entry["event"] == "model_request"]
    assert asked[1]["new_messages"] == [{"role": "tool", "content": "4.0", "tool_call_id": "call_1"}]


def test_secrets_are_not_in_it(tmp_path: Path) -> None:
    redactor.add("open-sesame-42")

    async def tells(ctx: RolloutContext) -> object:
        ctx.log_event("headers", headers={"Authorization": "Basic abc", "X-Api-Key": "k", "other": "Bearer abcdefghij"})
        ctx.log_event("text", text="the key is open-sesame-42", key="sk-abcdef1234567890abcdef", numbers=[1, 0.5])
        return await answer(ctx)

    played(tells, ScriptedChat(["open-sesame-42"]), options=AgentOptions(debug_dir=str(tmp_path)))
    path = tmp_path / "eval-0-run-0.jsonl"
    events = lines(path)
    assert events[1]["headers"] == {
        "Authorization": "[redacted]",
        "X-Api-Key": "[redacted]",
        "other": "Bearer [redacted]",
    }
    assert (events[2]["text"], events[2]["key"]) == ("the key is [redacted]", "[redacted]")
    assert events[2]["numbers"] == [1, 0.5]
    assert events[4]["message"]["content"] == "[redacted]"
    assert "sesame" not in path.read_text()


def test_what_is_no_json_is_written_all_the_same(tmp_path: Path) -> None:
    trace = Trace(tmp_path, "a/b c")
    loop: dict[str, Any] = {}
    loop["self"] = loop
    trace.write("odd", {"keys": {1: {2}}, "lone": "\ud800", "nan": float("nan"), "many": (1, None)})
    trace.write("loop", loop)
    trace.close()
    trace.close()
    trace.write("more", {})
    trace.close()
    assert trace.path == tmp_path / "a_b_c.jsonl"
    text = trace.path.read_text()
    odd, looped, more = (json.loads(line) for line in text.splitlines())
    assert (odd["keys"], odd["many"], odd["lone"], odd["nan"]) == ({"1": "{2}"}, [1, None], "\ud800", "nan")
    assert looped["data"] == "{'self': {...}}"
    assert (more["event"], more["rollout_id"]) == ("more", "a/b c")


def test_a_trace_that_cannot_be_written_costs_no_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING):
        attempted = played(work, ScriptedChat(["4"]), options=AgentOptions(debug_dir=str(tmp_path / "file")))
    assert attempted.record.kind == "generated"
    [warning] = [record.getMessage() for record in caplog.records]
    assert warning.startswith(f"the trace {tmp_path / 'file' / 'eval-0-run-0.jsonl'} cannot be written: ")
