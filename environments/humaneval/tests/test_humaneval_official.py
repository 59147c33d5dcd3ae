"""The measure of the grader: over HumanEval itself, all canonical solutions pass, and as many wrong programs all fail.

A wrong program is a canonical solution with one change. Whether a change makes it wrong is found out by another judge
than the grader: program and tests run plainly, in one process of their own (in the sandbox, too: nobody has read them).
"""

from __future__ import annotations

import ast
import asyncio
import copy
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandboxes import sandbox

from harness.sandbox import Limits
from humaneval.extraction import Program, program_of
from humaneval.grading import Grader, Verdict
from humaneval.source import read_rows

OFFICIAL = Path(__file__).parents[4] / "shared" / "data" / "humaneval" / "HumanEval.jsonl.gz"
"""The official problems, where the checkout lies beside a folder that has them."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not OFFICIAL.is_file(), reason=f"{OFFICIAL} is not there"),
]

COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
}  # fmt: skip


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in the place of one node."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARED:
        yield ast.Compare(node.left, [COMPARED[type(node.ops[0])](), *node.ops[1:]], node.comparators)
    elif isinstance(node, ast.BinOp) and type(node.op) in COMPUTED:
        yield ast.BinOp(node.left, COMPUTED[type(node.op)](), node.right)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield ast.Constant(node.value + 1)
    elif isinstance(node, ast.Return) and node.value is not None:
        yield ast.Return(ast.Tuple([node.value], ast.Load()))
        yield ast.Return(ast.Constant(None))


def mutants(prompt: str, solution: str, entry_point: str) -> Iterator[str]:
    """The programs with one change to the function that is asked for, in the order of its code."""
    tree = ast.parse(prompt + solution)
    (function,) = (n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == entry_point)
    inner = ast.Module(function.body[1:] if ast.get_docstring(function) is not None else function.body, [])
    for at, node in enumerate(ast.walk(inner)):
        for number in range(len(list(changes(node)))):
            copied = copy.deepcopy(tree)
            (function,) = (n for n in copied.body if isinstance(n, ast.FunctionDef) and n.name == entry_point)
            body = function.body[1:] if ast.get_docstring(function) is not None else function.body
            target = list(ast.walk(ast.Module(body, [])))[at]
            replacement = list(changes(target))[number]
            for parent in ast.walk(function):
                for name, value in ast.iter_fields(parent):
                    if value is target:
                        setattr(parent, name, replacement)
                    elif isinstance(value, list) and any(one is target for one in value):
                        value[:] = [replacement if one is target else one for one in value]
            yield ast.unparse(ast.fix_missing_locations(copied))


JUDGE = """
import json, os, signal, sys

def verdict(program, test, entry_point):
    signal.setitimer(signal.ITIMER_VIRTUAL, 1.0)
    namespace = {"__name__": "plain"}
    try:
        exec(program, namespace)
        exec(test, namespace)
        namespace["check"](namespace[entry_point])
    except Exception:
        return "wrong"
    return "right"

def judge(*task):
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
        os.write(write_end, verdict(*task).encode())
        os._exit(0)
    os.close(write_end)
    said = os.read(read_end, 10)
    os.close(read_end)
    os.waitpid(pid, 0)
    return said.decode() or "endless"

sys.stdout = open(os.devnull, "w")
for line in sys.stdin:
    os.write(1, json.dumps(judge(*json.loads(line))).encode() + b"\\n")
"""


async def wrong_programs(problems: list[dict[str, str]]) -> list[str]:
    """One for each problem: the first change after which the plain judge finds it wrong, and not merely endless."""
    limits = Limits(wall_seconds=600, cpu_seconds=400)
    async with sandbox().session({}, ["python", "-c", JUDGE], limits) as judge:

        async def ask(program: str, problem: dict[str, str]) -> str:
            await judge.send(json.dumps([program, problem["test"], problem["entry_point"]]).encode() + b"\n")
            return json.loads(await judge.read_line(60))

        async def first_wrong(problem: dict[str, str]) -> str:
            for one in mutants(problem["prompt"], problem["canonical_solution"], problem["entry_point"]):
                if await ask(one, problem) == "wrong":
                    return one
            raise AssertionError(f"no change makes {problem['task_id']} wrong")

        for problem in problems:
            assert await ask(problem["prompt"] + problem["canonical_solution"], problem) == "right", problem["task_id"]
        return [await first_wrong(problem) for problem in problems]


async def grade(programs: list[tuple[Program, dict[str, str]]]) -> list[Verdict]:
    grader = Grader(sandbox(), 10.0)
    async with asyncio.TaskGroup() as tasks:
        under_way = [tasks.create_task(grader.grade(program, problem)) for program, problem in programs]
    return [task.result() for task in under_way]


def test_all_164_canonical_solutions_pass() -> None:
    problems = read_rows(str(OFFICIAL), "test")
    programs: list[tuple[Program, dict[str, str]]] = []
    for problem in problems:
        reply = f"```python\n{problem['prompt']}{problem['canonical_solution']}```"
        program = program_of(reply, {**problem, "form": "chat"})
        assert program is not None
        programs.append((program, problem))
    verdicts = asyncio.run(grade(programs))
    assert len(verdicts) == 164
    assert [p["task_id"] for p, verdict in zip(problems, verdicts, strict=True) if not verdict.passed] == []


def test_164_wrong_programs_all_fail() -> None:
    problems = read_rows(str(OFFICIAL), "test")
    wrong = asyncio.run(wrong_programs(problems))
    verdicts = asyncio.run(grade([(Program("", one), p) for one, p in zip(wrong, problems, strict=True)]))
    assert len(verdicts) == 164
    assert [p["task_id"] for p, verdict in zip(problems, verdicts, strict=True) if verdict.passed] == []
    assert [p["task_id"] for p, verdict in zip(problems, verdicts, strict=True) if verdict.timed_out] == []
