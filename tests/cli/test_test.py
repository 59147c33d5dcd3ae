"""What `bench test` says, writes and answers, and a session of `bench test -i` from what is typed to what is shown."""

from __future__ import annotations

import io
import re
import sys

import pytest
from agent_evals import Done, Evals

pytestmark = pytest.mark.plugins


def steady(text: str) -> str:
    return re.sub(r"(?<![\d.])\d+ms|\d\.\ds", "#ms", text)


def test_a_line_a_row_and_totals(evals: Evals) -> None:
    evals.rows("2 + 2", "give up", "3 + 3")
    done = evals.test("--offset", "1", "-o", "out/results.json")
    assert (done.code, done.err) == (1, "printed by the agent's module\n"), "a row has failed"
    said = [steady(line) for line in done.lines]
    assert said[0].startswith("bench test ")
    assert "  Total rows: 3 (evaluating 2)" in said
    assert said[said.index("Running tests (2 rows)...") :] == [
        "Running tests (2 rows)...",
        "[1/2] Row 1: FAILED (#ms, 0 tokens) - gave up",
        "[2/2] Row 2: OK (#ms, 30 tokens)",
        "",
        "Test Results:",
        "  Rows: 2",
        "  Passed: 1",
        "  Failed: 1",
        "  Duration: #ms",
        "  Total tokens: 30",
        "",
        "Failed rows:",
        "  Row 1: gave up",
        "Results written to: out/results.json",
    ]
    assert not (evals.cwd / "outputs").exists()


def test_the_results_file_has_the_documented_keys(evals: Evals) -> None:
    evals.rows("2 + 2", "give up")
    evals.test("-q", "-o", "results.json")
    document = evals.results()
    summary = document["summary"]
    assert [summary[name] for name in ("total", "passed", "failed", "total_tokens")] == [2, 1, 1, 30]
    first, second = document["results"]
    assert 0 <= first.pop("duration_ms") <= summary["total_duration_ms"]
    assert first == {
        "row_index": 0, "success": True, "error": None, "reward": 0.25, "finish_reason": "stop",
        "token_usage": {"prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 30, "num_llm_calls": 2},
    }  # fmt: skip
    assert [second[name] for name in ("row_index", "success", "error", "finish_reason")] == [1, False, "gave up", None]


def test_it_is_one_row_after_the_other_and_says_what_it_is_for(evals: Evals) -> None:
    evals.rows(*(f"{n} + {n}" for n in range(6)))
    evals.model.latency = 0.01
    done = evals.test("--max-turns", "1", "--temperature", "0", "--debug-dir", "traces", model="looping")
    assert done.code == 0, done.err
    assert evals.model.peak == 1
    assert [body["messages"][1]["content"] for body in evals.model.asked] == [f"{n} + {n}" for n in range(6)]
    assert {body["temperature"] for body in evals.model.asked} == {0.0}
    assert "[6/6] Row 5: OK (#ms, 15 tokens) [max_turns]" in steady(done.out)
    assert sorted(path.name for path in (evals.cwd / "traces").iterdir()) == [f"test-{n}.jsonl" for n in range(6)]


def test_the_model_is_a_small_one_of_openai_s_unless_one_says_otherwise(
    evals: Evals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", evals.model.url)
    done = evals.bench("test", "--mcp", "mcp", "-d", "data.jsonl", "--limit", "1", "-q")
    assert done.code == 0, done.err
    assert {body["model"] for body in evals.model.requests} == {"gpt-5-mini"}


def test_an_endpoint_that_goes_away_stops_it(evals: Evals) -> None:
    evals.rows("2 + 2", "13 + 13", "3 + 3", "4 + 4", "5 + 5")
    done = evals.test("-o", "results.json", model="turning")
    assert done.code == 1
    assert "  Stopped early. Reason: " in done.out
    summary = evals.results()["summary"]
    assert (summary["total"], summary["passed"], summary["stopped_early"]) == (3, 1, True)
    assert "Results written to: results.json (incomplete)" in done.lines


# Step by step


def step(evals: Evals, typed: str, *args: str, model: str = "my-model") -> Done:
    """A session with these lines typed."""
    before, sys.stdin = sys.stdin, io.StringIO(typed)
    try:
        return evals.test("-i", "-q", *args, model=model)
    finally:
        sys.stdin = before


ROW_0 = """Row 0 of 0 to 2
  system: Add.
  user: 2 + 2
Turn 1: 2 messages, 1 tool for my-model
"""


def test_commands_may_be_shouted(evals: Evals) -> None:
    assert "unknown" not in step(evals, "N\nNEXT\nROW 2\nQ\n").out


def test_a_session(evals: Evals) -> None:
    done = step(evals, "?\nm\nt\nwhat\nn\nm\nnext\nm\nt\nq\n")
    assert (done.code, done.err) == (0, "printed by the agent's module\n")
    conversation = "  system: Add.\n  user: 2 + 2\n"
    call = '  assistant calls calculate({"expression": "2 + 2"})\n'
    assert steady(done.out) == (
        ROW_0 + "> ?\n"
        "n, next      make this model call; after the end of a row, go to the next one\n"
        "c, continue  make all further calls of this row without asking\n"
        "m, messages  show the conversation as it will be sent\n"
        "t, tools     show the tools that the model is offered\n"
        "r N, row N   leave this row and go to row N\n"
        "q, quit      leave\n"
        "?, help      this list\n"
        f"> m\n{conversation}"
        "> t\n  calculate(expression): Add numbers.\n"
        "> what\nunknown command 'what'; ? lists them\n"
        f"> n\n{call}"
        "Turn 2: 4 messages, 1 tool for my-model\n"
        f"> m\n{conversation}{call}  tool call_2: 4\n"
        "> next\n  assistant: 4\n"
        "Row 0: OK (#ms, 30 tokens)\n"
        "  reward: 0.25\n"
        f"> m\n{conversation}{call}  tool call_2: 4\n  assistant: 4\n"
        "> t\nthe row has ended: n goes to the next row, r N to another row\n"
        "> q\n"
    )


def test_continue_runs_to_the_end_of_the_row_and_no_further(evals: Evals) -> None:
    done = step(evals, "c\nn\n")
    assert done.code == 0
    assert done.out.count("> ") == 2, "the end of input is a q"
    assert "Row 0: OK" in done.out and "Row 1 of 0 to 2" in done.out and "Row 1: OK" not in done.out
    assert len(evals.model.asked) == 2


def test_rows_in_any_order(evals: Evals) -> None:
    done = step(evals, "r 9\nr\nr 0\nc\nrow 2\nc\nn\n", "--row", "1")
    assert done.code == 0
    assert done.out.count("r requires the number of a row, 0 to 2") == 2
    assert re.findall(r"^Row (\d) of", done.out, re.MULTILINE) == ["1", "0", "2"]
    assert re.findall(r"^Row (\d): OK", done.out, re.MULTILINE) == ["0", "2"]
    assert done.lines[-1] == "that was the last row"
    assert [body["messages"][1]["content"] for body in evals.model.asked] == ["2 + 2"] * 2 + ["5 + 7"] * 2


def test_leaving_in_the_middle_of_a_row_asks_nothing_more(evals: Evals) -> None:
    done = step(evals, "n\nq\n")
    assert (done.code, len(evals.model.asked)) == (0, 1)
    assert "FAILED" not in done.out


def test_leaving_works_on_an_agent_that_catches_everything(evals: Evals) -> None:
    (evals.cwd / "my_agent.py").write_text(
        "class MyAgentLoop:\n"
        "    name = 'stubborn'\n"
        "    def get_tools(self, request):\n"
        "        return []\n"
        "    async def run(self, ctx):\n"
        "        for _ in range(5):\n"
        "            try:\n"
        "                await ctx.chat(ctx.request.messages)\n"
        "            except BaseException:\n"
        "                pass\n"
        "        return ctx.complete(ctx.request.messages)\n"
    )
    done = step(evals, "n\nr 1\nq\n")
    assert done.code == 0, done.out
    assert re.findall(r"^Row (\d)", done.out, re.MULTILINE) == ["0", "1"]
    assert len(evals.model.asked) == 1


def test_a_row_that_fails_is_said_and_the_session_goes_on(evals: Evals) -> None:
    evals.rows("raise", "2 + 2")
    done = step(evals, "n\nc\nq\n")
    assert done.code == 1
    assert "Row 0: FAILED (#ms, 0 tokens) - ValueError: the agent cannot do this row" in steady(done.out)
    assert "Row 1: OK" in done.out


def test_offset_and_limit_bound_the_rows(evals: Evals) -> None:
    done = step(evals, "r 0\nr 2\nc\nn\n", "--offset", "1", "--limit", "1")
    assert re.findall(r"^Row (\d) of 1 to 1", done.out, re.MULTILINE) == ["1"]
    assert done.out.count("r requires the number of a row, 1 to 1") == 2


def test_what_a_model_says_cannot_steer_the_terminal(evals: Evals) -> None:
    (evals.cwd / "my_agent.py").write_text(
        "class MyAgentLoop:\n"
        "    name = 'plain'\n"
        "    def get_tools(self, request):\n"
        "        return []\n"
        "    async def run(self, ctx):\n"
        "        messages = [{'role': 'user', 'content': 'one\\n\\x1b[2Jtwo'}]\n"
        "        return ctx.complete([*messages, (await ctx.chat(messages)).message])\n"
    )
    done = step(evals, "m\nn\nq\n")
    assert "\x1b" not in done.out
    assert "  user: one\n    two\n" in done.out
