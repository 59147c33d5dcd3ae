"""`BenchRunner`, and the programmatic examples of the documents, run as they are printed."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from eval_api import EXACT, Adder, Asker, OwnClient, rows_of
from eval_samples import blocks
from sums_model import SumsModel

from harness.agents import (
    BenchEvalSummary,
    BenchResult,
    BenchRowResult,
    BenchRunner,
    BenchRunResult,
    EvalFnWrapper,
    EvalRunner,
)


def test_signatures_are_the_documented_ones() -> None:
    assert [*inspect.signature(BenchRunner).parameters] == [
        "agent_loop", "llm_client", "eval_fns", "debug", "debug_dir", "llm_client_factory",
    ]  # fmt: skip
    bench, whole = (inspect.signature(method).parameters for method in (BenchRunner.run_bench, EvalRunner.run_eval))
    assert [*bench.items()] == [*whole.items()]


def test_a_benchmark() -> None:
    agent = Adder()
    told: list[tuple[int, int, bool]] = []
    runner = BenchRunner(agent, OwnClient(), [EXACT])
    result = asyncio.run(
        runner.run_bench(
            rows_of(2), 2, 3, {"temperature": 0.0}, 0.5, lambda *words: told.append((*words[:2], words[2].success)), 4
        )
    )
    assert not runner.has_baseline
    assert isinstance(result, BenchResult) and isinstance(result.rows[0], BenchRowResult)
    assert isinstance(result.rows[0].runs[0], BenchRunResult)
    assert isinstance(result.eval_summaries["rewards:exact"], BenchEvalSummary)
    assert [(row.row_index, [run.run_index for run in row.runs]) for row in result.rows] == [(4, [0, 1]), (5, [0, 1])]
    assert {run.model_tag for row in result.rows for run in row.runs} == {None} and result.model_summaries is None
    assert told == [(number, 4, True) for number in (1, 2, 3, 4)]
    assert {each.rollout_id for each in agent.requests} == {
        f"bench-{row}-run-{run}" for row in (4, 5) for run in (0, 1)
    }
    assert {each.metadata["execution_mode"] for each in agent.requests} == {"bench"}
    single = asyncio.run(runner.run_single(rows_of(1)[0], row_index=0, run_index=1))
    assert (single.run_index, single.scores) == (1, {"rewards:exact": 1.0})


REWARDS = """
def exact_match(solution_str: str, ground_truth: str, extra_info: dict = None, **kwargs) -> float:
    return 1.0 if solution_str.strip() == ground_truth.strip() else 0.0

def partial_match(messages: list, ground_truth: str, metadata: dict, **kwargs) -> float:
    return min(1.0, len([m for m in messages if m["role"] == "assistant"]) / 3)
"""

ROWS = "".join(
    f'{{"user_prompt": "{n} + {n}", "ground_truth": "{2 * n}", "system_prompt": "Add."}}\n' for n in range(12)
)


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory with the files that the documents' examples name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rewards.py").write_text(REWARDS)
    (tmp_path / "test_data.jsonl").write_text(ROWS)


def execute(program: str, names: dict[str, Any]) -> None:
    """Run a document's block as a notebook does: `await` and `async with` stand at the top."""
    code = compile(program, "<document>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

    async def main() -> None:
        returned = eval(code, names)
        if inspect.isawaitable(returned):
            await returned

    asyncio.run(main())


def ours(program: str) -> str:
    """The block with its names taken from here."""
    changed = re.sub(r"from osmosis_ai[\w.]* import", "from harness.agents import", program)
    assert "osmosis" not in changed and changed != program
    return changed


@pytest.mark.parametrize(
    ("page", "models", "requests"),
    [("eval-mode.md", ["primary", "baseline"], 2 * 10 * 5 * 2), ("bench-mode.md", [], 10 * 5 * 2)],
)
@pytest.mark.usefixtures("stranger")
def test_the_documented_program_runs_as_printed(
    page: str, models: list[str], requests: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    [program] = [block for block in blocks(page, "python") if "DatasetReader(" in block and "batch_size=5" in block]
    with SumsModel() as model:
        monkeypatch.setenv("OPENAI_BASE_URL", model.url)  # of the baseline
        monkeypatch.setenv("OPENAI_API_KEY", "key-canary-0006")
        names: dict[str, Any] = {"MyAgentLoop": Adder}
        execute(ours(program).replace("http://localhost:8000/v1", model.url), names)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:5] == [
        "rewards:exact_match: mean=1.000, std=0.000",
        "  pass@1: 100.0%",
        "  pass@3: 100.0%",
        "  pass@5: 100.0%",
        "rewards:partial_match: mean=0.667, std=0.000",
    ]
    assert [line.split("]")[0].strip("[") for line in lines if line.startswith("[")] == models
    assert len(model.requests) == requests
    assert {body["temperature"] for body in model.requests} == {0.7}


@pytest.mark.parametrize(("page", "run"), [("eval-mode.md", "eval_result"), ("bench-mode.md", "bench_result")])
@pytest.mark.usefixtures("stranger")
def test_the_reference_program_runs_as_printed(page: str, run: str, capsys: pytest.CaptureFixture[str]) -> None:
    [program] = [block for block in blocks(page, "python") if "# Single run" in block]
    names: dict[str, Any] = {
        "MyAgentLoop": Asker, "client": OwnClient(), "eval_fns": [EXACT], "rows": rows_of(2), "row": rows_of(1)[0],
    }  # fmt: skip
    execute(ours(program), names)
    assert names["result"].scores == {"rewards:exact": 1.0}
    assert names[run].total_runs == 10
    assert capsys.readouterr().out.splitlines() == [f"[{number}/10]" for number in range(1, 11)]
    assert len(list(Path("local_debug").iterdir())) == 10


@pytest.mark.parametrize("page", ["eval-mode.md", "bench-mode.md"])
@pytest.mark.usefixtures("stranger")
def test_the_other_documented_blocks_run_as_printed(page: str) -> None:
    def my_eval_function(solution_str: str, ground_truth: str, extra_info: Any) -> float:
        return float(solution_str == ground_truth)

    chosen = [block for block in blocks(page, "python") if "EvalFnWrapper(fn=" in block or "Error,\n" in block]
    chosen += [
        block for block in blocks(page, "python") if block.lstrip().startswith("from") and "load_eval_fns(" in block
    ]
    assert len(chosen) == 4
    names: dict[str, Any] = {
        "my_eval_function": my_eval_function, "messages": [{"role": "assistant", "content": "4"}], "ground_truth": "4",
        "metadata": {}, "MyAgentLoop": Asker,
    }  # fmt: skip
    for block in chosen:
        if "DatasetReader(" not in block:
            execute(ours(block), names)
    assert names["score"] == 1.0
    assert [function.name for function in names["eval_fns"]] == ["rewards:exact_match", "rewards:partial_match"]
    assert all(isinstance(function, EvalFnWrapper) for function in names["eval_fns"])
    assert issubclass(names["EvalFnError"], Exception) and issubclass(names["ProviderError"], Exception)
