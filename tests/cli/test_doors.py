"""The same answers through `bench run`, `multi` and `eval`: those, `compare`, `gate` and `report` say the same of
them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from agent_evals import Done
from loopback_model import LoopbackModel

from harness.cli.main import main

Answers = Sequence[float | None]

FILES = {
    "points.py": """
from harness import Rubric, SingleTurnEnv

def point(completion):
    return float(completion[-1]["content"])

def load_environment(size=1):
    return SingleTurnEnv(dataset=[{"question": f"q{n}"} for n in range(size)], rubric=Rubric([point]))
""",
    "hook.py": 'def point(task, output):\n    return {"score": float(output), "valid": True}\n',
    "fns.py": """
def point(solution_str, ground_truth, extra_info=None):
    return float(solution_str)

def half(solution_str, ground_truth, extra_info=None):
    return float(solution_str) / 2
""",
    "agent.py": """
from harness.agents import RolloutAgentLoop

class Agent(RolloutAgentLoop):
    name = "plain"

    def get_tools(self, request):
        return []

    async def run(self, ctx):
        reply = await ctx.chat(list(ctx.request.messages))
        return ctx.complete([*ctx.request.messages, reply.message])
""",
}


class Player(LoopbackModel):
    """Answers question `qN` with the N-th value of its model; a missing value is no number, which no function takes."""

    def __init__(self, answers: dict[str, Answers]) -> None:
        super().__init__()
        self._answers = answers

    def reply(self, body: dict[str, Any], key: str | None) -> tuple[int, dict[str, Any]]:
        asked = body["messages"][-1]["content"]
        known = self._answers[body["model"]]
        value = known[int(asked[1:])] if asked[:1] == "q" else None
        message = {"role": "assistant", "content": "no number" if value is None else str(value)}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        return 200, {"id": "x", "object": "chat.completion", "created": 1, "model": body["model"], "choices": [choice],
                     "usage": usage}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with an environment, a scoring hook, functions and an agent."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
        monkeypatch.delitem(sys.modules, name.removesuffix(".py"), raising=False)
    yield tmp_path


CASES: dict[str, tuple[Answers, Answers]] = {
    "passes and failures": ([1.0] * 9 + [0.0], [1.0, 0.0] * 5),
    "all 1": ([1.0] * 8, [1.0] * 8),
    "all 0 against all 1": ([0.0] * 8, [1.0] * 8),
    "one example": ([1.0], [0.0]),
    "two pairs": ([0.5, 0.25], [0.25, 0.5]),
    "two values": ([0.25, 0.75] * 6, [0.75, 0.75, 0.25] * 4),
    "graded": ([n / 12 for n in range(12)], [(n * 5 % 12) / 12 for n in range(12)]),
    "missing halves": ([1.0, None] * 4, [1.0, 0.0, 1.0, None] * 2),
    "missing on one side": ([None] * 6 + [1.0] * 6, [0.0] * 12),
}


def bench(capsys: pytest.CaptureFixture[str], *arguments: str) -> Done:
    capsys.readouterr()
    code = main(list(arguments))
    captured = capsys.readouterr()
    return Done(code, captured.out, captured.err)


def newest(pattern: str) -> list[str]:
    """The folders of the first model's run and of the second's."""
    return [str(next(Path().glob(f"{pattern}--{model}/*/run.json")).parent) for model in ("a", "b")]


def numbers(pair: dict[str, Any]) -> list[Any]:
    """What a comparison says."""
    names = ("difference", "stderr", "ci95", "p_value", "pairs", "wins", "losses", "ties", "means")
    return [_rounded(pair[name]) for name in names]


def _rounded(value: Any) -> Any:
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return None if value is None else round(value, 9)


def play(folder: Path, capsys: pytest.CaptureFixture[str], first: Answers, second: Answers) -> tuple[Any, Any]:
    """Ask models `a` and `b` through each command; returns what `multi` and `eval` say of the difference."""
    size = len(first)
    (folder / "tasks.json").write_text(json.dumps([{"id": f"q{n}", "prompt": f"q{n}"} for n in range(size)]))
    rows = [{"system_prompt": "s", "user_prompt": f"q{n}", "ground_truth": "-"} for n in range(size)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with Player({"a": first, "b": second}) as player:
        url = player.url
        for model in ("a", "b"):
            args = f'{{"size": {size}}}'
            bench(capsys, *f"run ./points.py -n -1 -r 1 -m {model} -b {url} -o env --quiet -a".split(), args)
        asked = f"multi tasks.json -m b -m a -b {url} --score-output hook:point -o multi --json"
        multi = bench(capsys, *asked.split())
        asked = "eval -m agent:Agent -d rows.jsonl --eval-fn fns:point --eval-fn fns:half --model a --baseline-model b "
        rest = f"--base-url {url} --baseline-base-url {url} --output-dir eval -o eval.json --quiet"
        bench(capsys, *(asked + rest).split())
    [of_multi] = [each["scored"] for each in json.loads(multi.out)["meta"]["paired"]]
    return of_multi, json.loads((folder / "eval.json").read_text())["summary"]["paired"]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_every_command_says_the_same(case: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    of_multi, of_eval = play(folder, capsys, *CASES[case])
    said: dict[str, dict[str, Any]] = {}
    for door in ("env", "multi", "eval"):
        runs = newest(f"{door}/evals/*")
        found = json.loads(bench(capsys, "compare", runs[1], runs[0], "--json").out)["comparisons"]
        said |= {f"{door} {each['measure']}": each for each in found}
        ruled = json.loads(bench(capsys, "gate", runs[0], "--baseline", runs[1], "--margin", "0.1", "--json").out)
        assert [numbers(each) for each in ruled["environments"]] == [numbers(each) for each in found]
        bench(capsys, "report", *runs, "-f", "json", "-o", f"{door}-page.json", "--no-plots")
        page = json.loads((folder / f"{door}-page.json").read_text())
        for environment, each in zip(page["environments"], found, strict=True):
            [beside] = environment["differences"]
            sign = 1.0 if beside["first"] == Path(runs[0]).name else -1.0
            assert sign * beside["difference"] == pytest.approx(each["difference"])
            assert beside["p_value"] == pytest.approx(each["p_value"])
            assert _rounded(sorted(sign * end for end in beside["ci95"] or [])) == _rounded(each["ci95"] or [])
            assert (beside["verdict"] in ("better", "worse")) == (each["verdict"] in ("better", "worse"))
    assert numbers(said["multi reward"]) == numbers(of_multi)
    for name in ("point", "half"):
        assert numbers(said[f"eval fns:{name}"]) == numbers(of_eval[f"fns:{name}"]["scored"])
    assert numbers(said["env reward"]) == numbers(said["eval fns:point"])
    assert {name: each["verdict"] for name, each in said.items()}["env reward"] == said["multi reward"]["verdict"]
