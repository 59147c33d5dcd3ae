"""The shape of the house: who may import whom, how large things may get, and what may not be written at all."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tables import for_each_row

ROOT = Path(__file__).resolve().parent.parent
HOUSE = ROOT / "harness"
MODULES = sorted(HOUSE.rglob("*.py"))

RANKS = {
    "types": 0.0, "deadline": 0.0, "loopback": 0.0, "caps": 0.0, "syntax": 0.0, "harmless": 0.0, "errors": 0.05,
    "boundary": 0.07, "guarded": 0.08, "loops": 0.08, "keyindex": 0.1, "redact": 0.1, "records": 0.1, "offload": 0.1,
    "keys": 0.2, "state": 0.2, "replies": 0.3,
    "config": 1, "stats": 1, "tools": 1,
    "parsers": 2, "rubrics": 2, "envs": 2, "clients": 2, "reference": 2, "sandbox": 2, "store": 2,
    "agents": 2.2, "tasks": 2.3,
    "compat": 2.4, "loader": 2.5,
    "engine": 3,
    "report": 4, "authoring": 4, "export": 4, "results": 4, "doctor": 4,
    "eval": 4.5, "multi": 4.5,
    "cli": 5, "__init__": 5,
}  # fmt: skip
"""Rank 0 is the ground that all stand on; its decimals say that even there the arrows point one way."""

SIBLINGS = {("rubrics", "parsers"), ("envs", "rubrics"), ("envs", "parsers")}
"""Rank-2 packages that may use one another."""

RUNS_CODE = {
    # The interpreter that a model talks to: it only ever runs inside a sandbox.
    "harness/sandbox/repl.py": {"eval", "exec"},
    # `bench exec`: the user's own program, which `python` would run as well.
    "harness/cli/exec.py": {"eval"},
}
"""Who may run code that is given as text."""

MODULE_LINES = 400
FUNCTION_LINES = 50
PARAMETERS = 7

LONG_SIGNATURES = {
    # The classic API's own arguments, which packages also pass by position.
    "harness/compat/verifiers/gym_env.py:__init__",
    "harness/compat/verifiers/text_arena_env.py:__init__",
    # A command's parameters are its options.
    "harness/cli/serve.py:serve",
    "harness/cli/replay.py:replay",
    "harness/cli/rescore.py:rescore",
    "harness/cli/resume.py:resume",
    "harness/cli/report.py:report",
    "harness/cli/compare.py:compare",
    "harness/cli/gate.py:gate",
    "harness/cli/power.py:power",
    "harness/cli/push.py:push",
    "harness/cli/runs_list.py:list_runs",
    # All that the numbers of a run depend on.
    "harness/stats/summary.py:summarize",
    # The parameters of an environment are the keys of its table.
    "harness/agents/environment.py:load_environment",
    "harness/tasks/environment.py:load_environment",
    # The documented API's own arguments, which callers also pass by position.
    "harness/eval/runner.py:__init__",
    "harness/eval/runner.py:run_eval",
}

HEAVY = {
    "aiohttp",
    "datasets",
    "pandas",
    "pyarrow",
    "numpy",
    "scipy",
    "huggingface_hub",
    "openai",
    "litellm",
    "genai_prices",
    "ray",
    "fastmcp",
    "mcp",
    "math_verify",
    "sympy",
    "httpx",
    "jsonschema",
    "polars",
    "referencing",
    "matplotlib",
}

DOORS = {
    # A package that is itself imported only when it is needed may import its library at the top.
    "harness/clients/": {"aiohttp"},
    "harness/reference/": {"aiohttp"},
}


def room(path: Path) -> str:
    """The first part of a module's path below `harness`: a package or a top-level module."""
    part = path.relative_to(HOUSE).parts[0]
    return part.removesuffix(".py")


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, "relative imports hide where a name comes from"
        assert node.module is not None
        yield node.module
        if node.module == "harness":
            yield from (f"harness.{alias.name}" for alias in node.names)


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@for_each_row("path", MODULES)
def test_a_module_imports_only_from_lower_ranks(path: Path) -> None:
    here = room(path)
    for node in ast.walk(tree(path)):
        for target in imported(node):
            if not target.startswith("harness."):
                continue
            there = target.split(".")[1]
            if there == here or there not in RANKS:
                continue
            allowed = RANKS[there] < RANKS[here] or (here, there) in SIBLINGS
            assert allowed, f"{name_of(path)}:{getattr(node, 'lineno', 0)} imports {target}"


@for_each_row("path", MODULES)
def test_a_module_fits_the_house(path: Path) -> None:
    assert room(path) in RANKS, f"{name_of(path)} has no rank: give it one here and in docs/concepts/architecture.md"
    assert ast.get_docstring(tree(path)), f"{name_of(path)} does not say what it owns"
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MODULE_LINES
    for function in functions(path):
        where = f"{name_of(path)}:{function.lineno} {function.name}"
        assert function.end_lineno is not None
        assert function.end_lineno - function.lineno < FUNCTION_LINES, where
        arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        count = len([a for a in arguments if a.arg not in {"self", "cls"}])
        assert count <= PARAMETERS or f"{name_of(path)}:{function.name}" in LONG_SIGNATURES, where


@for_each_row("path", MODULES)
def test_heavy_packages_are_imported_late(path: Path) -> None:
    open_here: set[str] = set()
    for prefix, names in DOORS.items():
        if name_of(path).startswith(prefix):
            open_here |= names
    for node in tree(path).body:
        for target in imported(node):
            package = target.split(".")[0]
            assert package not in HEAVY or package in open_here, f"{name_of(path)}:{node.lineno} imports {target}"


@for_each_row("path", MODULES)
def test_nothing_unsafe_or_untidy(path: Path) -> None:
    banned_calls = {"eval", "exec", "gather", "create_task"} - RUNS_CODE.get(name_of(path), set())
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for target in imported(node):
                assert target.split(".")[0] not in {"pickle", "dill", "marshal", "shelve"}, name_of(path)
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        where = f"{name_of(path)}:{node.lineno} calls {called}"
        if called == "create_task":
            owner = node.func.value if isinstance(node.func, ast.Attribute) else None
            assert not (isinstance(owner, ast.Name) and owner.id in {"asyncio", "loop"}), where
        elif isinstance(node.func, ast.Name) or called == "gather":
            assert called not in banned_calls, where
        assert not any(given.arg == "trust_remote_code" for given in node.keywords), where
        if called == "load":
            owner = node.func.value if isinstance(node.func, ast.Attribute) else None
            assert not (isinstance(owner, ast.Name) and owner.id == "yaml"), where


OF_STRANGERS = {
    "mktemp": "a name that another process may take first",
    "system": "a shell",
    "popen": "a shell",
    "getoutput": "a shell",
    "getstatusoutput": "a shell",
    "create_subprocess_shell": "a shell",
    "extractall": "an archive that may write anywhere",
    "unpack_archive": "an archive that may write anywhere",
    "read_pickle": "a pickle",
    "unsafe_load": "YAML that makes objects",
    "full_load": "YAML that makes objects",
    "load_all": "YAML that makes objects",
    "literal_eval": "a literal: only of a registry in Python, which is read and not run",
}
"""Calls that give what others wrote more than a reader's power, and why."""

READS_LITERALS = {"harness/config/endpoints.py"}


@for_each_row("path", MODULES)
def test_what_strangers_wrote_is_only_read(path: Path) -> None:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for target in imported(node):
                assert target.split(".")[0] not in {"cloudpickle", "joblib", "jsonpickle", "tarfile"}, name_of(path)
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        where = f"{name_of(path)}:{node.lineno} calls {called}"
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        asks_platform = isinstance(owner, ast.Name) and owner.id == "platform"
        if not (asks_platform or (called == "literal_eval" and name_of(path) in READS_LITERALS)):
            assert called not in OF_STRANGERS, f"{where}: {OF_STRANGERS.get(called)}"
        for given in node.keywords:
            if given.arg in {"shell", "allow_pickle"}:
                assert isinstance(given.value, ast.Constant) and given.value.value is False, where


def test_no_room_is_a_drawer() -> None:
    assert not [name_of(path) for path in MODULES if path.stem in {"utils", "helpers", "common", "misc"}]
