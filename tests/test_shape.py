"""The shape of the house: who may import whom, how large things may get, and what may not be written at all."""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tables import for_each_row

ROOT = Path(__file__).resolve().parent.parent
HOUSE = ROOT / "harness"
MODULES = sorted(HOUSE.rglob("*.py"))

RANKS = {
    "core": 0,
    "settings": 1, "stats": 1, "usercode": 1,
    "models": 2, "rubrics": 2, "sandbox": 2, "store": 2, "tools": 2,
    "envs": 3, "reference": 3,
    "engine": 4,
    "authoring": 5, "report": 5,
    "agents": 6,
    "multi": 7,
    "cli": 8,
}  # fmt: skip
"""Rooms by rank. A module imports from its own room and from rooms of lower ranks; a plugin imports from all rooms, and
none imports it."""

BY_NAME = {("settings", "agents"), ("settings", "multi")}
"""Rooms that are imported by a module's name: those of the built-in environments."""

MODULE_NAME = r"harness(\.[a-z_]+)+"

LINES = {
    "__init__": (118, 105),  # MachineEnv
    # rubrics of conversations; ctx.llm.openai; the server of an MCP folder; judges of eval functions
    # no trace path without a trace
    # rows of datasets, also for imports
    # the machine of a rollout, for agents
    "agents": (6128, 3887),  # delays as values; annotations of rubric functions that cannot be evaluated
    # names of examples in checks; environments of plugins in the list
    "authoring": (2319, 1574),  # bench env copy, bundled environments
    # selection of rollouts by a query; bench import and its options; tables of bench compare
    # completion of words that bash splits, examples in the help (also of bench view); schema; notes on unset keys
    # checks of the arguments that Python programs pass to evaluate()
    # the suggestion of bench view
    # completion of fixed choices, also joined; trust of doctor and evaluate(); clients of callers
    # completion for a named shell; usage of cancelled rollouts; trust of folders of code
    # containers in doctor
    # containers and Ray in doctor
    # trust of all arguments that are code, in any spelling
    # the options --k and --cluster of finished runs
    # examples of bench items and bench trend
    # options of bench compare for places and equality
    # examples of bench judge
    # bench gate that asks a model itself, and verdicts below the results of runs
    # remedies of gates whose baseline has clusters or was moved
    "cli": (10620, 7320),
    # a dict of the keys that were added last; log-probabilities of a reply
    # the number of a key, and of one that was added
    # imported runs without messages or times
    # room for keys that are expected
    # the machine of a rollout; whether its result is being verified
    # lost computers, and which one executed a rollout
    "core": (2824, 1554),  # the client for the openai SDK; records that are made quickly; the calls of a rollout
    # status.json of runs in progress, and the pace of a run, which was in the report
    # replayed calls have the tokens and seconds of their recording; calls from other loops
    # statistics and dataset in one pass; pauses between writes of the dataset; an iterator that is closed
    # figures of a run that its environment computes; errors of sources, which say what is missing
    # what a resume passes over, in an array
    # a sandbox that fails after a limit of the rollout; the cleanup of containers, which the keeper spares
    # where processes of environments run, if not here: protocols, nodes that join, computers that differ or are lost
    # settings of an executor without one; a process whose computer is lost while it loads
    # clusters that the environment declares
    # the rows of chosen examples
    # the baseline of a sequential gate, and checks that it can be compared
    # the remedy of a gate names --example-ids
    # worker processes that take turns at scoring, and share rollouts by what waits in them
    "engine": (8060, 5518),  # executors and listeners of plugins; a backlog with less work than a queue of asyncio
    # MachineEnv and its tools
    # a hook around the turns on a machine; errors of verify after a limit
    # a machine that failed is never verified; texts of models that no program can have
    # programs that the turns have left; failures that `verify` has caught
    # lines of files as other tools count them
    # clusters
    "envs": (2738, 1652),  # figures of a run; kept connections to MCP servers; errors of state.openai
    "errors": (3, 1),
    "eval": (25, 14),
    "keys": (3, 1),
    # delays of requests as values; advice on errors that providers describe in a 200
    # the usual sampling arguments are checked at once
    # log-probabilities of a reply
    "models": (3481, 2188),  # errors with setting and remedy as fields, an argument a line
    # clusters of tasks
    "multi": (
        4145,
        2635,
    ),  # the observer is notified by methods, not by callbacks set on runs; unknown usage of a model
    "plugins": (1, 0),
    # bench items and bench trend: scores of many runs, tables, charts
    # intervals that allow for declared clusters
    "plugins/archive": (1291, 947),
    # containers for images of SandboxEnv, and their lifetime
    # failures of containers that the code of an environment has caught
    "plugins/classic": (6001, 3881),
    # bench estimate: the choice of controls, and its output
    # clusters leave no interval for new examples
    "plugins/estimate": (330, 256),
    # intervals of pass rates
    "plugins/exports": (1899, 1424),  # notes; in Inspect logs, what an import needs to restore a run
    "plugins/faults": (1071, 755),  # completion of faults
    # formats of `bench import`: Inspect, lm-eval, Osmosis, tables, verifiers; reading of untrusted archives
    "plugins/imports": (1992, 1386),
    # tasks of lm-eval: the door to the library, prompts, requests, log-likelihoods, metrics, groups
    # checks of offsets in replies, refusals of tasks that execute code, values that JSON lacks
    # files that cannot be read are named before the whole index is
    "plugins/lm_eval_tasks": (1148, 739),
    # tasks in the Harbor format: folders and repositories, task.toml, the environment, its tests
    # rights of rewards, links that dangle in the container, tasks that change during a run, git of the user
    # names of variables; programs that root runs; logs that are copied after the verdict
    # and errors of git, of folders for logs and of links, in whole sentences
    # versions of the format, limits that no engine accepts
    "plugins/harbor": (1409, 986),
    # bench judge: agreement and bias by kind, files of labels, draws of rollouts to label
    # the line of declared clusters
    "plugins/judge_check": (1064, 761),
    # runs of chosen examples are a part of a benchmark
    "plugins/leaderboards": (648, 443),  # errors with setting and remedy as fields, an argument a line
    "plugins/osmosis": (1233, 745),  # evaluate_rubric; tool calls, requests and MCP servers, as agents import them
    # bench view: the server, its index of a journal, and its answers; the comparison of runs from their indexes; notes;
    # states of runs in progress, the removal of old indexes, the table of a suite; bundles; figures of turns
    # origin and unknown times of imported runs
    # the full-text index; an index that is built by columns; journals that are replaced, fields of wrong types named
    # processes that help to index a long journal; columns of equal values that share their memory
    # whether a cluster answers and demands a token, before Ray waits for minutes; nodes that die at the start
    # lists of nodes that are read again when one is lost; heartbeats that are kept back
    "plugins/ray_executor": (836, 544),
    # clusters that runs declare
    "plugins/view": (5826, 3901),
    "records": (3, 1),
    # log-probabilities of prompts, with their tokenizer; several prompts and token ids
    "reference": (1101, 695),  # the quoted names of runs are kept
    # selection of rollouts by a query; the table models × environments in four formats; faster texts of messages
    # a rollout keeps its reply, which several columns read; the usage of cancelled rollouts
    # a rollout keeps its reply, which several columns read; columns of usual rollouts in fewer steps
    # the origin of imported runs, and their unknown times
    # figures of a run
    # where failed rollouts ran
    # pass rates with intervals in every table, pass rates of comparisons, clusters
    # rankings of all runs, their columns in reports and tables; verdicts on equality
    # labels of people beside scores, and the mean that they correct, in all formats of a report
    # the verdict of a sequential gate, and the examples that it saved
    # means of ranked pass rates, and runs that have other thresholds of passing
    # clusters of labels and of places; why runs are not ranked
    "report": (10194, 7090),  # columns of notes, and notes in transcripts; calls of rollouts
    "results": (5, 2),
    # names of arguments are matched to fields of the state once
    "rubrics": (3200, 1920),  # judge.openai; judges that sync functions ask; judges called from other loops
    # machines: a container or workbench for each rollout, docker and podman, images, containers that were left
    # timeouts of builds
    # checks that programs, containers, volumes and builds have ended; engines that fail, restart or lose a program
    # files with the rights of the container's user; Dockerfiles whose images are replaced; hashes that are kept
    # failures of engines that are told from those of programs, also while they start, end or are cancelled
    # calls during a restart, or when all processes are used up; names of files that podman would read as patterns
    # the end of the output of builds that fail; programs killed for lack of memory
    # limits that no engine accepts
    "sandbox": (5107, 3305),
    # lists of headers; arguments of environment sources that are code
    # the note on unset key variables; marks of options that all commands share; environment sources; JSON Schemas
    # sources whose prefix alone is an environment
    # arguments of environment sources that need trust
    # arguments of executors, and one process a core
    # the k of pass@k, the key of clusters
    # example_ids
    # the settings of a sequential gate, and a module of settings that end a run early
    # lists in messages as they were typed
    "settings": (4901, 3251),  # messages that spell settings as Python calls do
    "state": (3, 1),
    # clusters of runs, their pass rates and plans; pass rates of an example
    # statistics of examples, subsets that rank models, the e-process for drift
    # places of models and groups; equality within a margin; control variates
    # means corrected by labels of clustered rollouts with probabilities, kappa with an interval
    # the sequential gate: its rule, and control variates in confidence sequences
    # whether a run is ranked
    # rounding errors that are no spread; labels of declared clusters; hits of controls that show no spread
    "stats": (6170, 3566),  # figures of a run; tables of scattered indices take little memory
    # queries over rollouts; errors with setting and remedy as fields, an argument a line; imports as run folders
    # notes of people; hostile indices in a journal take little memory
    # usual lines become records quickly, with the types of their fields checked by position; lines read in blocks
    # options of imports, and imports of several files as a whole
    # rows that are counted when they are written; words for replies that an import does not have
    # figures of a run
    # the expected number of keys of a journal
    # optional last fields of lines
    # labels of clusters
    # the record of rollouts that were drawn for labelling; several notes with one write
    # the baseline's scores in the manifest
    # sizes of draws that no run has
    # scored lines without a reward
    "store": (7591, 4693),  # calls of rollouts; imports as run folders; the query language; the schema beside the runs
    "tools": (1500, 970),  # sessions of stateless MCP servers
    "types": (3, 1),
    "usercode": (
        925,
        599,
    ),  # work in the loop of the run; timeouts with little work; threads for quick and slow calls; signals
}
"""Lines, and lines of code, of each room and plugin. Lower them when a room became shorter; to raise one, say why in a
comment on its line."""

BANNED_WORDS = {
    "__init__": 1,
    "cli": 1,
    "core": 2,
    "plugins": 6,
    "report": 2,
    "sandbox": 1,
    "settings": 3,
}
"""Occurrences of `BANNED` in the docstrings and comments of each room. Lower them; raise none."""

BANNED = re.compile(
    r"\b(what (is|are|a|an|the|was|were|it|they)|whoever|whatever|nobody|owns|comes to|came to|is told|are told|goes on"
    r"|there are none)\b",
    re.IGNORECASE,
)
"""Words of the private dialect that this code once had."""

NAMES_COMMANDS = {
    # The table of spellings.
    "harness/core/messages.py",
    # Text in files of a user: dataset cards and the settings of a run.
    "harness/settings/resolved_run.py",
    "harness/store/card.py",
    "harness/store/card_tables.py",
}
"""Modules below `cli`, `report` and `plugins` whose texts may name options and commands of `bench`."""

REEXPORT_LINES = 60
"""Lines of a top-level module, which only re-exports names under their documented path."""

CONTEXT_VARIABLES = 4
"""`ContextVar`s in `harness/`."""

RUNS_CODE = {
    # The interpreter that a model talks to: it only ever runs inside a sandbox.
    "harness/sandbox/repl.py": {"eval", "exec"},
    # `bench exec`: the user's own program, which `python` would run as well.
    "harness/plugins/osmosis/exec_command.py": {"eval"},
}
"""Who may run code that is given as text."""

MODULE_LINES = 400
FUNCTION_LINES = 60
PARAMETERS = 7

LONG_SIGNATURES = {
    # The classic API's own arguments, which packages also pass by position.
    "harness/plugins/classic/gym_env.py:__init__",
    "harness/plugins/classic/text_arena_env.py:__init__",
    # The arguments of osmosis_ai.
    "harness/plugins/osmosis/requests.py:dataset_row_to_request",
    "harness/plugins/osmosis/rubric.py:evaluate_rubric",
    # A command's parameters are its options.
    "harness/plugins/faults/options.py:faults_of_options",
    "harness/plugins/leaderboards/options.py:leaderboard",
    "harness/cli/import_results.py:import_results",
    "harness/cli/resume.py:resume",
    "harness/cli/report.py:report",
    "harness/cli/evaluate.py:aevaluate",
    "harness/cli/compare.py:compare",
    "harness/cli/compare.py:power",
    "harness/cli/runs.py:list_runs",
    "harness/cli/runs_show.py:show",
    "harness/plugins/view/view_command.py:view",
    "harness/plugins/archive/items_command.py:items",
    "harness/plugins/judge_check/next_command.py:next_labels",
    # All that the numbers of a run depend on.
    "harness/stats/summary.py:summarize",
    # The parameters of an environment are the keys of its table.
    "harness/agents/environment.py:load_environment",
    "harness/multi/environment.py:load_environment",
    "harness/plugins/lm_eval_tasks/loader.py:load_environment",
    "harness/plugins/harbor/loader.py:load_environment",
    # The documented API's own arguments, which callers also pass by position.
    "harness/agents/runner.py:__init__",
    "harness/agents/runner.py:run_eval",
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
    "lm_eval",
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
    "harness/models/": {"aiohttp"},
    "harness/reference/": {"aiohttp"},
    "harness/plugins/faults/": {"aiohttp"},
    "harness/plugins/view/": {"aiohttp", "numpy"},
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
        targets = [*imported(node)]
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(MODULE_NAME, node.value):
            targets.append(node.value)  # a module that is imported by its name
        for target in targets:
            there = target.split(".")[1] if target.startswith("harness.") else here
            if there == here or here == "plugins" or there not in {*RANKS, "plugins"} or here not in RANKS:
                continue
            allowed = RANKS.get(there, math.inf) < RANKS[here] or (here, there) in BY_NAME
            assert allowed, f"{name_of(path)}:{getattr(node, 'lineno', 0)} imports {target}"


def test_every_room_has_a_rank_and_every_other_module_only_re_exports() -> None:
    tops = {room(path) for path in MODULES if path.parent != HOUSE}
    assert tops == {*RANKS, "plugins"}, "give a new room a rank here and a line in docs/concepts/architecture.md"
    for path in HOUSE.glob("*.py"):
        short = len(path.read_text(encoding="utf-8").splitlines()) <= REEXPORT_LINES
        assert short or path.name == "__init__.py", f"{name_of(path)} belongs into a room"


def test_no_two_classes_of_the_core_share_a_name() -> None:
    homes: dict[str, list[str]] = {}
    for path in MODULES:
        if room(path) != "plugins":
            for node in ast.walk(tree(path)):
                if isinstance(node, ast.ClassDef):
                    homes.setdefault(node.name, []).append(f"{name_of(path)}:{node.lineno}")
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


def budget_of(path: Path) -> str:
    """The entry of `LINES` that a module counts for: its room, or `plugins/NAME`."""
    parts = path.relative_to(HOUSE).parts
    return "/".join(parts[:2]) if parts[0] == "plugins" and len(parts) > 2 else room(path)


def prose(path: Path) -> str:
    """Docstrings and comments of a module."""
    texts = [
        node.value.value
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    return "\n".join([*texts, *re.findall(r"#.*", path.read_text(encoding="utf-8"))])


def lines_of_code(path: Path) -> int:
    """Lines that are neither blank nor part of a docstring nor only a comment."""
    docstrings: set[int] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    return sum(1 for n, line in lines if line.strip() and not line.strip().startswith("#") and n not in docstrings)


def test_rooms_do_not_grow() -> None:
    lines: Counter[str] = Counter()
    code: Counter[str] = Counter()
    for path in MODULES:
        lines[budget_of(path)] += path.read_text(encoding="utf-8").count("\n")
        code[budget_of(path)] += lines_of_code(path)
    found = {name: (lines[name], code[name]) for name in lines}
    grown = {
        name: (size, LINES.get(name))
        for name, size in found.items()
        if size[0] > LINES.get(name, (0, 0))[0] or size[1] > LINES.get(name, (0, 0))[1]
    }
    assert not grown, f"more lines than the budget allows (found, budget): {grown}"


def test_prose_uses_plain_words() -> None:
    found: Counter[str] = Counter()
    for path in MODULES:
        found[room(path)] += len(BANNED.findall(prose(path)))
    grown = {
        name: (count, BANNED_WORDS.get(name)) for name, count in found.items() if count > BANNED_WORDS.get(name, 0)
    }
    assert not grown, f"more banned words than before (found, budget): {grown}"


def test_texts_below_the_commands_name_no_option_of_theirs() -> None:
    option = re.compile(
        r"\s--(?!no-cache-dir|rm\b|mcp directory)[a-z][a-z-]+ ?"  # the last is a documented text of another SDK
        r"|\bbench (run|eval|multi|resume|replay|rescore|push|export|env|runs|report|compare|doctor)\b"
    )
    found: list[str] = []
    for path in MODULES:
        if room(path) in {"cli", "report", "plugins"} or name_of(path) in NAMES_COMMANDS:
            continue
        docstrings = {id(node.value) for node in ast.walk(tree(path)) if isinstance(node, ast.Expr)}
        found += [
            f"{name_of(path)}:{node.lineno}"
            for node in ast.walk(tree(path))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
            if id(node) not in docstrings and option.search(node.value)
        ]
    assert not found, f"use a `Message` with a name of `core.messages.COMMANDS`: {found}"


def has_text_of(node: ast.AST, errors: set[str]) -> bool:
    """Whether an expression contains `str(error)`, or an f-string with the error, or a variable with such a text."""
    for part in ast.walk(node):
        if isinstance(part, ast.Call) and getattr(part.func, "id", "") == "str" and part.args:
            part = part.args[0]
        elif isinstance(part, ast.FormattedValue):
            part = part.value
        elif not (isinstance(part, ast.Name) and f"str({part.id})" in errors):
            continue
        if isinstance(part, ast.Name) and (part.id in errors or f"str({part.id})" in errors):
            return True
    return False


@for_each_row("path", MODULES)
def test_no_code_runs_a_regular_expression_over_the_text_of_an_error(path: Path) -> None:
    matching = {"search", "match", "fullmatch", "sub", "subn", "findall", "finditer"}
    for function in functions(path):
        nodes = list(ast.walk(function))
        errors = {each.name for each in nodes if isinstance(each, ast.ExceptHandler) and each.name}
        errors |= {
            each.arg for each in nodes if isinstance(each, ast.arg) and each.arg in {"error", "exc", "exception"}
        }
        for node in nodes:
            if isinstance(node, ast.Assign) and has_text_of(node.value, errors):
                errors |= {f"str({target.id})" for target in node.targets if isinstance(target, ast.Name)}
        for node in nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in matching:
                where = f"{name_of(path)}:{node.lineno} parses the text of an error; give the error a field"
                assert not any(has_text_of(each, errors) for each in node.args), where


def test_context_variables_are_few() -> None:
    calls = [
        f"{name_of(path)}:{node.lineno}"
        for path in MODULES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "ContextVar"
    ]
    assert len(calls) <= CONTEXT_VARIABLES, calls


@for_each_row("path", MODULES)
def test_modules_and_functions_are_of_a_readable_size(path: Path) -> None:
    assert ast.get_docstring(tree(path)), f"{name_of(path)} has no docstring"
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

READS_LITERALS = {"harness/settings/endpoints.py"}

READS_ARCHIVES = {
    # Reads the regular files of an archive one by one, and writes them under names that it has checked.
    "harness/sandbox/archives.py",
}


@for_each_row("path", MODULES)
def test_what_strangers_wrote_is_only_read(path: Path) -> None:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for target in imported(node):
                banned = {"cloudpickle", "joblib", "jsonpickle", "tarfile"}
                banned -= {"tarfile"} if name_of(path) in READS_ARCHIVES else set()
                assert target.split(".")[0] not in banned, name_of(path)
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
