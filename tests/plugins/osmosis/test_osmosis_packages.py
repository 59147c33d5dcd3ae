"""A project written for osmosis_ai (`osmosis_packages`), run unmodified and without that SDK: by `bench eval`, and its
documents' programs by `bench exec`.

Scores are worked out by hand from the documented rules: the real SDK of that time (0.2.17) is in no package index any
more."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from documented import ROOT
from sums_model import SumsModel

from harness.cli.main import main

PACKAGES = Path(__file__).with_name("osmosis_packages")
SPEC = ROOT.parent / "shared" / "spec"

FAILED_ALL = 1


@dataclass(frozen=True)
class Done:
    """What `bench` left behind."""

    code: int
    out: str
    err: str
    document: dict[str, Any]

    @property
    def runs(self) -> list[dict[str, Any]]:
        """All runs, in order."""
        return [run for row in self.document["rows"] for run in row["runs"]]

    def mean(self, eval_fn: str) -> float | None:
        return self.document["summary"]["eval_fns"][f"rewards:{eval_fn}"]["mean"]


Bench = Callable[..., Done]


@pytest.fixture
def model() -> Iterator[SumsModel]:
    with SumsModel() as served:
        yield served


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The project in a folder of its own, which is the working directory. Its modules are forgotten afterwards."""
    folder = tmp_path / "project"
    shutil.copytree(PACKAGES, folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(folder)
    yield folder
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(folder)):
            del sys.modules[name]


@pytest.fixture
def evaluate(project: Path, model: SumsModel, capsys: pytest.CaptureFixture[str]) -> Bench:
    """`bench eval` on the project's rows."""

    def evaluate(*arguments: str, name: str = "sums") -> Done:
        common = ("-d", "data.jsonl", "--model", name, "--base-url", model.url, "-o", "out.json")
        code = main(["eval", *arguments, *common])
        said = capsys.readouterr()
        path = project / "out.json"
        return Done(code, said.out, said.err, json.loads(path.read_text()) if path.exists() else {})

    return evaluate


def eval_fns(*names: str) -> list[str]:
    return [word for name in names for word in ("--eval-fn", f"rewards:{name}")]


# Agents and MCP folders


def test_a_server_file_with_its_tools_and_rewards(evaluate: Bench, model: SumsModel) -> None:
    names = ("compute_reward", "partial_match", "semantic_similarity", "conversation_quality", "llm_judge")
    done = evaluate("-m", "server:agent_loop", *eval_fns(*names), "--temperature", "0.5")
    assert done.code == 0, done.err
    assert "  Agent name: calculator\n" in done.out
    assert {name: done.mean(name) for name in names} == {
        "compute_reward": 1.0,
        "partial_match": 1.0,
        "semantic_similarity": 1.0,
        "conversation_quality": 0.5,  # two assistant messages of four
        "llm_judge": 0.75,
    }
    assert [run["tokens"] for run in done.runs] == [30, 30, 30]
    first, second = model.asked[:2]
    assert first["temperature"] == 0.5
    assert first["messages"] == [{"role": "system", "content": "Add."}, {"role": "user", "content": "2 + 2"}]
    properties = {
        "expression": {"type": "string", "description": "Numbers with + between them"},
        "style": {"type": "string", "enum": ["short", "long"]},
    }
    parameters = {"type": "object", "properties": properties, "required": ["expression"]}
    function = {"name": "calculate", "description": "Add whole numbers", "parameters": parameters, "strict": False}
    assert first["tools"] == [{"type": "function", "function": function}]
    assert second["messages"][-1] == {"role": "tool", "content": "4", "tool_call_id": "call_2"}


def test_a_folder_of_mcp_tools(evaluate: Bench, model: SumsModel) -> None:
    before = set(sys.modules)
    done = evaluate("--mcp", "./mcp", *eval_fns("compute_reward", "llm_judge"))
    assert done.code == 0, done.err
    assert "Loading MCP tools: ./mcp\n  Discovered 1 tool(s): calculate\n" in done.out
    assert (done.mean("compute_reward"), done.mean("llm_judge")) == (1.0, 0.75)
    [tool] = model.asked[0]["tools"]
    assert tool["function"]["parameters"]["properties"]["style"]["default"] == "short"
    assert not {"main", "server", "tools"} & (set(sys.modules) - before)


def test_a_smallest_agent_by_class_and_by_instance(evaluate: Bench) -> None:
    by_class = evaluate("-m", "my_agent:MyAgentLoop", *eval_fns("exact_match"))
    by_instance = evaluate("-m", "my_agent:agent_loop", *eval_fns("exact_match"))
    assert (by_class.code, by_instance.code) == (0, 0)
    assert by_class.document["summary"]["eval_fns"] == by_instance.document["summary"]["eval_fns"]
    assert by_class.mean("exact_match") == 1.0


def test_an_agent_that_runs_out_of_turns_has_completed(evaluate: Bench, model: SumsModel) -> None:
    done = evaluate("-m", "my_agent:MyAgentLoop", "--max-turns", "2", *eval_fns("exact_match"), name="looping")
    assert done.code == 0
    assert [(run["success"], run["scores"]) for run in done.runs] == [(True, {"rewards:exact_match": 0.0})] * 3
    assert len(model.asked) == 6


def test_agents_that_fail_say_why(evaluate: Bench) -> None:
    crashed = evaluate("-m", "my_agent:CrashingAgent", *eval_fns("exact_match"))
    wrong = evaluate("-m", "my_agent:WrongToolAgent", *eval_fns("exact_match"))
    assert (crashed.code, wrong.code) == (FAILED_ALL, FAILED_ALL)
    for run in crashed.runs:
        assert (run["success"], run["tokens"], run["scores"]) == (False, 15, {})
        assert "Invalid JSON arguments" in run["error"]
    for run in wrong.runs:
        assert (run["success"], run["tokens"]) == (False, 0)
        assert run["error"].startswith(
            "Tool validation error: Tool 'two words': name must start with letter/underscore"
        )
    assert crashed.mean("exact_match") is None and wrong.mean("exact_match") is None


def test_a_reward_that_breaks_is_seen_and_counts_nothing(evaluate: Bench) -> None:
    done = evaluate("-m", "my_agent:MyAgentLoop", *eval_fns("broken", "exact_match"))
    assert done.code == 0
    assert [run["scores"].get("rewards:broken") for run in done.runs] == [None, 5.0, 1.5]  # the first divides by 0
    assert "ZeroDivisionError" in done.out
    assert done.mean("broken") == pytest.approx(6.5 / 3)
    assert done.mean("exact_match") == 1.0


def test_a_trace_holds_the_events_of_the_agent(evaluate: Bench, project: Path) -> None:
    done = evaluate("-m", "server:agent_loop", "--limit", "1", "--debug", *eval_fns("exact_match"))
    assert done.code == 0
    [path] = project.rglob("eval-0-run-0.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    own = [line for line in lines if line["event"] in ("pre_llm", "llm_response", "rollout_complete")]
    assert [line["event"] for line in own] == ["pre_llm", "llm_response"] * 2 + ["rollout_complete"]
    assert own[-1] == {
        "event": "rollout_complete", "rollout_id": "eval-0-run-0", "finish_reason": "stop", "reward": 1.0,
        "total_turns": 2, **{key: own[-1][key] for key in own[-1] if key == "time"},
    }  # fmt: skip


# The documents' programs

PROGRAMS = ("eval-mode.md", "bench-mode.md")

DEFINITIONS = "from my_agent import MyAgentLoop\n"
"""What the printed programs take for granted."""

ONE_MODEL = """\
rewards:exact_match: mean=1.000, std=0.000
  pass@1: 100.0%
  pass@3: 100.0%
  pass@5: 100.0%
rewards:partial_match: mean=1.000, std=0.000
  pass@1: 100.0%
  pass@3: 100.0%
  pass@5: 100.0%
"""

PRINTED = {
    "eval-mode.md": ONE_MODEL
    + """
[primary] my-finetuned-model
  rewards:exact_match: mean=1.000, std=0.000
  rewards:partial_match: mean=1.000, std=0.000

[baseline] weak
  rewards:exact_match: mean=0.333, std=0.471
  rewards:partial_match: mean=0.533, std=0.340
""",
    "bench-mode.md": ONE_MODEL,
}


def programs(page: str) -> list[str]:
    """The Python blocks of a document that are programs or parts of one."""
    path = SPEC / page
    if not path.exists():
        pytest.skip("the documents are not part of the repository")
    text = path.read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def adapt(program: str, model: SumsModel) -> str:
    """A program with our address in place of the documents', and a second local model in place of a paid one."""
    program = program.replace("http://localhost:8000/v1", model.url).replace("./test_data.jsonl", "data.jsonl")
    return program.replace(
        'ExternalLLMClient("openai/gpt-5-mini")', f'ExternalLLMClient("weak", api_base="{model.url}")'
    )


@pytest.mark.parametrize("page", PROGRAMS)
def test_the_program_of_a_document_runs_as_printed(
    page: str, project: Path, model: SumsModel, capsys: pytest.CaptureFixture[str]
) -> None:
    [program] = [text for text in programs(page) if "# Load dataset" in text]
    (project / "program.py").write_text(DEFINITIONS + adapt(program, model))
    assert main(["exec", "program.py"]) == 0
    assert capsys.readouterr().out == PRINTED[page]
    assert {body["temperature"] for body in model.asked} == {0.7}


@pytest.mark.parametrize("page", [*PROGRAMS, "eval-mode-short.md"])
def test_the_reference_of_a_document_runs_as_printed(
    page: str, project: Path, model: SumsModel, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = ("EvalRunner(", "BenchRunner(", "EvalFnWrapper(fn", "load_eval_fns([", "import (")
    parts = [text for text in programs(page) if any(word in text for word in wanted) and "# Load dataset" not in text]
    assert len(parts) == (2 if "short" in page else 4)
    given = f"""
from my_agent import MyAgentLoop
from rewards import llm_judge as my_eval_function
from osmosis_ai.rollout.eval.common import DatasetReader, ExternalLLMClient
from osmosis_ai.rollout.eval.bench import load_eval_fns
rows = DatasetReader("data.jsonl").read()
row = rows[0]
agent = MyAgentLoop()
client = ExternalLLMClient("my-model", api_base="{model.url}")
baseline_client = ExternalLLMClient("weak", api_base="{model.url}")
eval_fns = load_eval_fns(["rewards:exact_match"])
messages, ground_truth, metadata = [{{"role": "assistant", "content": "4"}}], "4", dict(row)
"""
    shown = """
found = globals()
print(found.get("score"), result.success if "score" in found else result.total_runs)
for name in ("eval_result", "bench_result"):
    if name in found:
        print(name, found[name].total_runs, found[name].eval_summaries["rewards:exact_match"].pass_at_k)
"""
    (project / "reference.py").write_text(given + "\n".join(parts) + shown)
    assert main(["exec", "reference.py"]) == 0
    out = capsys.readouterr().out
    if "short" in page:
        assert out == "None 15\n"  # of either model
        return
    name = "bench_result" if "bench" in page else "eval_result"
    progress = "".join(f"[{number}/15]\n" for number in range(1, 16))
    assert out == f"{progress}0.25 True\n{name} 15 {{1: 1.0, 3: 1.0, 5: 1.0}}\n"


def test_a_client_of_ones_own_and_an_agent_that_reports_its_failure(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "program.py").write_text("""
from my_agent import RobustAgent
from osmosis_ai.rollout.client import CompletionsResult
from osmosis_ai.rollout.eval.common import DatasetReader, ProviderError
from osmosis_ai.rollout.eval.evaluation import EvalRunner, load_eval_fns

class Client:
    async def chat_completions(self, messages, **kwargs):
        if messages[-1]["content"] == "2 + 3":
            raise ProviderError("out of words")
        return CompletionsResult({"role": "assistant", "content": "4"}, [], [], {"prompt_tokens": 3}, "stop")

runner = EvalRunner(RobustAgent(), Client(), load_eval_fns(["rewards:exact_match"]))
result = await runner.run_eval(DatasetReader("data.jsonl").read())
for row in result.rows:
    print(row.row_index, row.runs[0].success, row.runs[0].scores, row.runs[0].error)
print(result.eval_summaries["rewards:exact_match"].mean, result.stopped_early)
""")
    assert main(["exec", "program.py"]) == 0
    assert capsys.readouterr().out == (
        "0 True {'rewards:exact_match': 1.0} None\n"
        "1 False {} LLM call failed: out of words\n"
        "2 True {'rewards:exact_match': 0.0} None\n"
        "0.3333333333333333 False\n"
    )


# With an SDK installed

THEIRS = '''
"""A stand-in for an SDK that has the agent API: classes of its own, none of bench's."""
import abc, json
from dataclasses import dataclass, field
from typing import Any, Optional
from pydantic import BaseModel

class OpenAIFunctionPropertySchema(BaseModel):
    type: str
    description: Optional[str] = None

class OpenAIFunctionParametersSchema(BaseModel):
    type: str
    properties: dict[str, OpenAIFunctionPropertySchema]
    required: list[str]

class OpenAIFunctionSchema(BaseModel):
    name: str
    description: str
    parameters: OpenAIFunctionParametersSchema
    strict: bool = False

class OpenAIFunctionToolSchema(BaseModel):
    type: str
    function: OpenAIFunctionSchema

class RolloutAgentLoop(abc.ABC):
    name = None

class OsmosisRolloutError(Exception):
    pass

@dataclass
class RolloutResult:
    status: str
    final_messages: list
    finish_reason: str
    error_message: Optional[str] = None
    metrics: Any = None
    reward: Optional[float] = None

class RolloutContext: ...
class RolloutRequest: ...

def create_tool_result(i, content): return {"role": "tool", "content": content, "tool_call_id": i}
def serialize_tool_result(value): return str(value)
def get_tool_call_info(call): return call["id"], call["function"]["name"], json.loads(call["function"]["arguments"])
'''


@pytest.mark.slow
def test_agents_made_of_an_installed_sdks_classes_run_by_what_they_do(project: Path, model: SumsModel) -> None:
    theirs = project / "site" / "osmosis_ai" / "rollout" / "core"
    theirs.mkdir(parents=True)
    (theirs.parent.parent / "__init__.py").write_text("def osmosis_reward(func): return func\n")
    (theirs / "__init__.py").touch()
    (theirs / "base.py").write_text(THEIRS)
    (theirs.parent / "__init__.py").write_text("from osmosis_ai.rollout.core.base import *\n")
    (project / "their_agent.py").write_text(
        "import sys\nfrom my_agent import MyAgentLoop\nfrom osmosis_ai.rollout import RolloutResult\n\n"
        "class Theirs(MyAgentLoop):\n    async def run(self, ctx):\n        result = await super().run(ctx)\n"
        "        assert not [name for name in type(self).__mro__ if name.__module__.startswith('harness')]\n"
        "        return RolloutResult(result.status, result.final_messages, result.finish_reason)\n"
    )
    command = [sys.executable, "-m", "harness.cli.main", "eval", "-m", "their_agent:Theirs", "-d", "data.jsonl"]
    command += ["--model", "sums", "--base-url", model.url, "-o", "out.json", *eval_fns("compute_reward")]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={"PYTHONPATH": "site", "PATH": "/usr/bin:/bin"}
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads((project / "out.json").read_text())["summary"]
    assert summary["eval_fns"]["rewards:compute_reward"]["mean"] == 1.0
    assert model.asked[0]["tools"][0]["function"]["name"] == "calculate"
