"""Agents by `module:attribute`: what is found, what is refused and in which words, and whose modules are whose."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from harness.agents.loading import import_object, load_agent
from harness.agents.loop import RolloutAgentLoop
from harness.core.errors import AgentLoadError, EvalFnError
from harness.settings.paths import local_modules

AGENT = """
from harness.agents.loop import RolloutAgentLoop

class MyAgentLoop(RolloutAgentLoop):
    name = "mine"
    def get_tools(self, request):
        return []
    async def run(self, ctx):
        return ctx.complete([])

class Broken(MyAgentLoop):
    def __init__(self):
        raise ValueError("no database")

class Needy(MyAgentLoop):
    def __init__(self, url):
        self.url = url

class Duck:
    name = "duck"
    def get_tools(self, request):
        return []
    async def run(self, ctx):
        return None

class Nothing:
    pass

class Nameless(Duck):
    name = " "

class Late(Duck):
    async def get_tools(self, request):
        return []

class Yielding(Duck):
    async def run(self, ctx):
        yield

agent_loop = MyAgentLoop()
number = 3
_hidden = 4
"""


@pytest.fixture(autouse=True)
def imports_as_before() -> Generator[None]:
    """Take back what a test has put on the path."""
    path = list(sys.path)
    yield
    sys.path[:] = path


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the module `my_agent`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_agent.py").write_text(AGENT)
    return tmp_path


def fault(path: str) -> str:
    with pytest.raises(AgentLoadError) as caught:
        load_agent(path)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_a_class_is_instantiated(work: Path) -> None:
    loaded = load_agent("my_agent:MyAgentLoop")
    assert (type(loaded.agent).__name__, loaded.name) == ("MyAgentLoop", "mine")
    assert isinstance(loaded.agent, RolloutAgentLoop)
    assert loaded.files == (work / "my_agent.py",)


def test_an_instance_is_taken_as_it_is(work: Path) -> None:
    first, second = load_agent("my_agent:agent_loop"), load_agent("my_agent:agent_loop")
    assert first.agent is second.agent


def test_whatever_has_the_three_members_is_an_agent(work: Path) -> None:
    loaded = load_agent("my_agent:Duck")
    assert loaded.name == "duck"
    assert not isinstance(loaded.agent, RolloutAgentLoop)


@pytest.mark.parametrize("path", ["my_agent", ":x", "my_agent:", ":", ""])
def test_a_path_without_both_parts(work: Path, path: str) -> None:
    assert fault(path) == (
        f"Invalid module path {path!r}. Expected format: 'module.path:attribute_name' (e.g., 'my_agent:MyAgentLoop')"
    )


@pytest.mark.parametrize(
    ("attribute", "words"),
    [
        (
            "Nothing",
            "'Nothing' is a class but not a RolloutAgentLoop subclass, and lacks "
            "get_tools and run, which an agent needs",
        ),
        ("Broken", "Cannot instantiate 'Broken': ValueError: no database (my_agent.py, line 13)"),
        (
            "Needy",
            "Cannot instantiate 'Needy': TypeError: Needy.__init__() missing 1 required positional argument: 'url'",
        ),
        (
            "number",
            "'number' must be a RolloutAgentLoop instance or subclass, got int (it lacks get_tools and run)",
        ),
        ("Nameless", "the attribute 'name' of 'Nameless' must be a non-empty string, not ' '"),
        ("Late", "'Late': get_tools must be a plain function, not an async one"),
        ("Yielding", "'Yielding': run must return one result, but it is a generator, since it contains a yield"),
    ],
)
def test_what_is_no_agent_is_refused(work: Path, attribute: str, words: str) -> None:
    assert fault(f"my_agent:{attribute}") == words


def test_an_attribute_that_is_not_there(work: Path) -> None:
    public = [
        "Broken", "Duck", "Late", "MyAgentLoop", "Nameless", "Needy", "Nothing", "RolloutAgentLoop", "Yielding",
        "agent_loop", "number",
    ]  # fmt: skip
    listed = f"Available attributes: {public}"
    start = "Module 'my_agent' has no attribute"
    assert fault("my_agent:MyAgentLop") == f"{start} 'MyAgentLop'. Did you mean 'MyAgentLoop'? {listed}"
    assert fault("my_agent:zzz") == f"{start} 'zzz'. {listed}"


def test_a_module_that_is_not_there(work: Path) -> None:
    looked = f"looked in {work} and where packages are installed"
    start = "Cannot import module"
    assert fault("my_agnt:X") == (f"{start} 'my_agnt': No module named 'my_agnt' ({looked}); did you mean 'my_agent'?")
    assert fault("qqq.zzz:X") == f"{start} 'qqq.zzz': No module named 'qqq' ({looked})"


@pytest.mark.parametrize(
    ("path", "better"),
    [
        ("my_agent.py:MyAgentLoop", "my_agent:MyAgentLoop"),
        ("./agents/calc.py:Calc", "agents.calc:Calc"),
        ("agents/calc:Calc", "agents.calc:Calc"),
        (".calc:Calc", "calc:Calc"),
    ],
)
def test_a_file_in_place_of_a_module(work: Path, path: str, better: str) -> None:
    module = path.rpartition(":")[0]
    assert fault(path) == (f"Cannot import module {module!r}: it is a path, not the name of a module; write {better!r}")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import os\n\nx = = 3\n", "SyntaxError: invalid syntax (bad.py, line 3)"),
        ("def f():\n    return nowhere\n\nf()\n", "NameError: name 'nowhere' is not defined (bad.py, line 2)"),
        ("import sys\nsys.exit('no key')\n", "SystemExit: no key (bad.py, line 2)"),
        ("raise SystemExit\n", "SystemExit (bad.py, line 1)"),
        ("import nowhere_to_be_found\n", "No module named 'nowhere_to_be_found' (bad.py, line 1)"),
        ("import json\njson.loads('{')\n", "(bad.py, line 2)"),
        ("import deeper\n", "ZeroDivisionError: division by zero (deeper.py, line 2)"),
        ("raise BaseException('odd')\n", "BaseException: odd (bad.py, line 1)"),
    ],
)
def test_what_a_module_raises_is_told_with_its_line(work: Path, source: str, words: str) -> None:
    (work / "bad.py").write_text(source)
    (work / "deeper.py").write_text("\n1 / 0\n")
    told = fault("bad:X")
    assert told.startswith("Cannot import module 'bad': ")
    assert told.endswith(words)
    assert "Traceback" not in told


def test_ctrl_c_while_a_module_is_imported_is_the_users(work: Path) -> None:
    (work / "bad.py").write_text("raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        load_agent("bad:X")


def test_a_module_that_failed_can_be_mended(work: Path) -> None:
    (work / "bad.py").write_text("x = nowhere\n")
    assert fault("bad:agent").endswith("(bad.py, line 1)")
    (work / "bad.py").write_text("from my_agent import agent_loop as agent\n")
    assert load_agent("bad:agent").name == "mine"


def test_a_module_that_another_one_hides_is_not_mistaken_for_it(work: Path) -> None:
    (work / "colorsys.py").write_text("agent = 1\n")
    import colorsys

    assert fault("colorsys:agent") == (
        f"Cannot import module 'colorsys': colorsys.py is hidden by another module of that name ({colorsys.__file__}); "
        "rename it"
    )


def test_other_errors_and_words_for_other_things(work: Path) -> None:
    with pytest.raises(EvalFnError) as caught:
        import_object("my_agent:numbr", EvalFnError)
    assert "Did you mean 'number'? Available: [" in str(caught.value)
    assert import_object("my_agent:number", EvalFnError) == (3, (work / "my_agent.py",))


def test_the_source_files_are_those_of_the_code(work: Path) -> None:
    (work / "agents" / "inner").mkdir(parents=True)
    (work / "tools").mkdir()
    for name, text in {
        "agents/__init__.py": "",
        "agents/calc.py": "from .inner.deep import NAME\nimport shared\nfrom my_agent import Duck\n",
        "agents/inner/deep.py": "NAME = 'deep'\n",
        "agents/unused.py": "",
        "shared.py": "def later():\n    from tools.sums import add\n    return add\n",
        "tools/sums.py": "def add(): ...\n",
        "other.py": "",
    }.items():
        (work / name).write_text(text)
    loaded = load_agent("agents.calc:Duck")
    assert [file.relative_to(work).as_posix() for file in loaded.files] == [
        "agents/__init__.py", "agents/calc.py", "agents/inner/deep.py", "agents/unused.py", "my_agent.py", "shared.py",
        "tools/sums.py",
    ]  # fmt: skip


def test_an_installed_package_is_its_own_source() -> None:
    found, files = import_object("colorsys:rgb_to_hsv", AgentLoadError)
    assert found is sys.modules["colorsys"].rgb_to_hsv
    assert [file.name for file in files] == ["colorsys.py"]
    package = import_object("wsgiref.util:guess_scheme", AgentLoadError)[1]
    assert {"__init__.py", "util.py", "headers.py"} <= {file.name for file in package}
    assert import_object("sys:path", AgentLoadError)[1] == ()


def test_bench_itself_is_nobodys_module() -> None:
    checkout = Path(__file__).parents[2]
    assert local_modules(Path(__file__), checkout) == (Path(__file__),)


def agents_in(folder: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> Any:
    """An agent `solver:Agent` whose modules are called as those of every other one."""
    folder.mkdir(exist_ok=True)
    monkeypatch.chdir(folder)
    (folder / "numbers_of.py").write_text(f"NUMBER = {number}\n")
    (folder / "lazily.py").write_text(f"NUMBER = {number}\n")
    (folder / "solver.py").write_text(
        "from numbers_of import NUMBER\n"
        f"{AGENT}\n"
        "class Agent(MyAgentLoop):\n"
        "    async def run(self, ctx):\n"
        "        import lazily\n"
        "        return NUMBER, lazily.NUMBER\n"
    )
    return load_agent("solver:Agent").agent


def test_modules_of_one_name_in_two_directories_are_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = agents_in(tmp_path / "one", monkeypatch, 1)
    assert asyncio.run(first.run(None)) == (1, 1)
    second = agents_in(tmp_path / "two", monkeypatch, 2)
    assert asyncio.run(second.run(None)) == (2, 2)
    assert asyncio.run(first.run(None))[0] == 1
    assert str(tmp_path / "one") not in sys.path
    assert sys.path[0] == str(tmp_path / "two")


def test_a_directory_that_is_come_back_to_has_its_modules_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = agents_in(tmp_path / "one", monkeypatch, 1)
    agents_in(tmp_path / "two", monkeypatch, 2)
    monkeypatch.chdir(tmp_path / "one")
    assert type(load_agent("solver:Agent").agent) is type(first)
    assert sys.modules["numbers_of"].NUMBER == 1


def test_a_module_of_the_directory_before_is_no_longer_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agents_in(tmp_path / "one", monkeypatch, 1)
    (tmp_path / "two").mkdir()
    monkeypatch.chdir(tmp_path / "two")
    assert fault("solver:Agent").startswith("Cannot import module 'solver': No module named 'solver'")


def test_a_module_that_changes_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "below").mkdir()
    (tmp_path / "wanderer.py").write_text(f"import os\nos.chdir('below')\n{AGENT}")
    loaded = load_agent("wanderer:agent_loop")
    assert loaded.files == (tmp_path / "wanderer.py",)
    assert Path.cwd() == tmp_path
    assert [record.getMessage() for record in caplog.records] == [
        f"loading the user's code changed the working directory; it was changed back to {tmp_path}"
    ]


def test_what_the_users_own_lookups_raise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lookups.py").write_text(
        "class Unnamed:\n"
        "    get_tools = run = lambda self, _: None\n"
        "    @property\n"
        "    def name(self):\n"
        "        raise KeyError('name')\n"
        "def __getattr__(name):\n"
        "    raise RuntimeError('no driver') if name == 'lazy' else AttributeError(name)\n"
    )
    assert fault("lookups:Unnamed") == "cannot read the name of 'Unnamed': KeyError: 'name' (lookups.py, line 5)"
    assert fault("lookups:lazy") == (
        "Cannot read 'lazy' from module 'lookups': RuntimeError: no driver (lookups.py, line 7)"
    )
    assert fault("lookups:absent").startswith("Module 'lookups' has no attribute 'absent'. ")
