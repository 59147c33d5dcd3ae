"""Folders of MCP tools: which server is found, how its modules import one another, and what is left behind."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.agents.loop import CompletionsResult, RolloutContext
from harness.agents.mcp_folder import load_mcp
from harness.agents.schemas import RolloutRequest
from harness.core.errors import MCPLoadError

MAIN = """
from fastmcp import FastMCP
mcp = FastMCP("my_tools")

@mcp.tool()
def where() -> str:
    "Says where it is."
    return {where}
"""


def folder_of(root: Path, **files: str) -> Path:
    """A folder with these modules; `pkg_inner` is `pkg/inner.py`, `pkg_init` is `pkg/__init__.py`."""
    for name, text in files.items():
        path = root / f"{name.replace('_', '/').replace('init', '__init__')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


class Caller:
    """A model that calls one tool, and then has its say."""

    def __init__(self, name: str) -> None:
        call = {"id": "c", "type": "function", "function": {"name": name, "arguments": "{}"}}
        self._replies: list[dict[str, Any]] = [{"role": "assistant", "tool_calls": [call]}, {"role": "assistant"}]

    async def chat_completions(self, messages: Any, **kwargs: Any) -> CompletionsResult:
        return CompletionsResult(self._replies.pop(0), [], [], {}, "stop")


def called(folder: Path, name: str = "where") -> str:
    """What a tool of the folder's says to a model."""
    request = RolloutRequest(rollout_id="r", server_url="http://h", messages=[], completion_params={})
    result = asyncio.run(load_mcp(folder).agent.run(RolloutContext(request, [], Caller(name))))  # type: ignore[arg-type]
    return result.final_messages[1]["content"]


def fault(folder: Path | str) -> str:
    with pytest.raises(MCPLoadError) as caught:
        load_mcp(folder)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert fault(tmp_path / "mcp") == f"MCP directory does not exist: {tmp_path / 'mcp'}"
    (tmp_path / "mcp").write_text("")
    assert fault(tmp_path / "mcp") == f"MCP directory is not a directory: {tmp_path / 'mcp'}"


def test_a_folder_without_main(tmp_path: Path) -> None:
    assert fault(tmp_path) == (
        f"No main.py found in MCP directory: {tmp_path}\n"
        "The --mcp directory must contain a main.py with a FastMCP instance."
    )


def test_a_main_without_a_server(tmp_path: Path) -> None:
    folder_of(tmp_path, main="from fastmcp import FastMCP\nmcp = FastMCP\n")
    assert fault(tmp_path) == (
        f"No FastMCP instance found in {tmp_path / 'main.py'}. Make sure your main.py creates a FastMCP instance, "
        'e.g.:\nfrom fastmcp import FastMCP\nmcp = FastMCP("my_tools")'
    )


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("x = nowhere\n", "NameError: name 'nowhere' is not defined (main.py, line 1)"),
        ("import tools\n", "ZeroDivisionError: division by zero (tools.py, line 2)"),
        ("from . import tools\n", "ZeroDivisionError: division by zero (tools.py, line 2)"),
        ("\ndef f(:\n", "SyntaxError: invalid syntax (main.py, line 2)"),
        ("import sys\nsys.exit(2)\n", "SystemExit: 2 (main.py, line 2)"),
        ("import nowhere_to_be_found\n", "No module named 'nowhere_to_be_found' (main.py, line 1)"),
    ],
)
def test_what_main_raises_is_told_with_its_line(tmp_path: Path, source: str, words: str) -> None:
    folder_of(tmp_path, main=source, tools="\n1 / 0\n")
    expected = f"Error importing {tmp_path / 'main.py'}: {words}"
    assert fault(tmp_path) == expected  # imports what loading itself needs
    path, modules = list(sys.path), set(sys.modules)
    assert fault(tmp_path) == expected
    assert sys.path == path
    assert set(sys.modules) == modules


def test_without_fastmcp_there_is_the_command_that_installs_it(tmp_path: Path) -> None:
    folder_of(tmp_path, main=MAIN.format(where="''"))
    code = (
        "import sys\n"
        "class Without:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'fastmcp':\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Without())\n"
        "from harness.agents.mcp_folder import load_mcp\n"
        "from harness.core.errors import MCPLoadError\n"
        "try:\n"
        "    load_mcp(sys.argv[1])\n"
        "except MCPLoadError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "fastmcp is not installed. Install it with: pip install 'bench-harness[mcp]'\n"


def test_the_first_server_by_name_is_taken_and_said_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder_of(tmp_path, main=MAIN.format(where="'mcp'") + "a_server = FastMCP('other')\nb_server = mcp\n")
    with caplog.at_level(logging.WARNING):
        said = fault(tmp_path)
    assert said == f"The MCP server in {tmp_path / 'main.py'} has no tools: decorate its functions with @mcp.tool()"
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path / 'main.py'} creates several FastMCP instances (a_server, b_server, mcp); using a_server"
    ]


def test_one_server_under_two_names_is_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder_of(tmp_path, main=MAIN.format(where="'here'") + "server = mcp\n")
    assert called(tmp_path) == "here"
    assert caplog.records == []


def test_modules_beside_main_are_imported_however_it_is_written(tmp_path: Path) -> None:
    folder_of(
        tmp_path,
        main=MAIN.format(where="later()")
        + "from .names import A\nfrom names import B\nimport names as other\nfrom pkg import inner\nimport pkg.inner\n"
        + "import bare.leaf\nfrom names import *\nfrom importlib import import_module\n"
        + "import names\nassert names is other and names.A is A\n"
        + "dynamic = import_module('names').B\n"
        + "def later():\n    import late\n    from pkg import rare\n"
        + "    return ' '.join([A, B, C, inner.I, pkg.inner.I, bare.leaf.L, dynamic, late.X, rare.R])\n",
        names="from fastmcp import FastMCP\nA, B, C = 'a', 'b', 'c'\n",
        pkg_init="from . import inner\n",
        pkg_inner="import names\nfrom names import A\nI = names.A + A\n",
        pkg_rare="R = 'rare'\n",
        bare_leaf="L = 'leaf'\n",
        late="X = 'late'\n",
    )
    assert called(tmp_path) == "a b c aa aa leaf b late rare"


def test_two_folders_with_modules_of_one_name_do_not_meet(tmp_path: Path) -> None:
    for name in ("one", "two"):
        folder_of(
            tmp_path / name,
            main=MAIN.format(where="here()") + "from helpers import NAME\n"
            "def here():\n    import lazily\n    return NAME + lazily.NAME\n",
            helpers=f"NAME = '{name}'\n",
            lazily=f"NAME = '{name}'\n",
        )
    load_mcp(tmp_path / "one")
    load_mcp(tmp_path / "two")
    assert called(tmp_path / "one") == "oneone"
    assert called(tmp_path / "two") == "twotwo"


def test_nothing_is_left_on_the_path_or_under_plain_names(tmp_path: Path) -> None:
    folder_of(
        tmp_path,
        main="import importlib, sys\nsys.path.insert(0, '/nowhere')\nimport plain\n"
        "importlib.import_module('dynamic')\n" + MAIN.format(where="__name__"),
        plain="",
        dynamic="",
    )
    path = list(sys.path)
    load_mcp(tmp_path)
    assert sys.path == path
    assert not {"main", "plain", "dynamic"} & set(sys.modules)


def test_a_module_beside_main_hides_an_installed_one_for_the_folder_alone(tmp_path: Path) -> None:
    folder_of(tmp_path, main=MAIN.format(where="colorsys.NAME") + "import colorsys\n", colorsys="NAME = 'mine'\n")
    assert called(tmp_path) == "mine"
    import colorsys

    assert not hasattr(colorsys, "NAME")


def test_a_folder_of_data_hides_no_installed_package(tmp_path: Path) -> None:
    folder_of(tmp_path, main=MAIN.format(where="wsgiref.__name__") + "import wsgiref\n")
    (tmp_path / "wsgiref").mkdir()
    assert called(tmp_path) == "wsgiref"


@pytest.mark.slow
def test_a_folder_called_mcp_is_not_the_library_and_its_lifespan_ends_with_the_process(tmp_path: Path) -> None:
    lifespan = (
        "import asyncio\nfrom contextlib import asynccontextmanager\n"
        "@asynccontextmanager\nasync def lifespan(server):\n"
        "    print('up', flush=True)\n    try:\n        yield\n"
        "    finally:\n        await asyncio.to_thread(print, 'down', flush=True)\n"  # a pool still takes work
    )
    main = lifespan + MAIN.format(where="'mine'").replace('"my_tools"', '"my_tools", lifespan=lifespan')
    folder_of(tmp_path / "mcp", main=main, init="")
    assert (tmp_path / "mcp" / "__init__.py").is_file()
    code = (
        "from harness.agents.mcp_folder import load_mcp\n"
        "print(load_mcp('mcp').agent.get_default_tools()[0]['function']['name'], flush=True)\n"
        "raise SystemExit(3)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("up\nwhere\ndown\n", 3)
    assert "Traceback" not in done.stderr


def test_main_is_not_run_as_a_program(tmp_path: Path) -> None:
    folder_of(
        tmp_path,
        main=MAIN.format(where="'up'") + "if __name__ == '__main__':\n    raise SystemExit('would serve')\n",
    )
    assert called(tmp_path) == "up"


def test_custom_routes_do_no_harm(tmp_path: Path) -> None:
    route = (
        "from starlette.requests import Request\nfrom starlette.responses import PlainTextResponse\n"
        "@mcp.custom_route('/health', methods=['GET'])\n"
        "async def health(request: Request) -> PlainTextResponse:\n    return PlainTextResponse('ok')\n"
    )
    folder_of(tmp_path, main=MAIN.format(where="'up'") + route)
    assert called(tmp_path) == "up"


def test_a_folder_that_is_loaded_again_is_the_same_server_until_a_file_changes(tmp_path: Path) -> None:
    folder_of(tmp_path, main=MAIN.format(where="NAME") + "from names import NAME\n", names="NAME = 'old'\n")
    first = load_mcp(tmp_path)
    assert load_mcp(str(tmp_path) + "/").agent is first.agent
    folder_of(tmp_path, names="NAME = 'changed'\n")
    assert load_mcp(tmp_path).agent is not first.agent
    assert called(tmp_path) == "changed"


def test_the_source_files_are_the_folders(tmp_path: Path) -> None:
    folder_of(tmp_path, main=MAIN.format(where="''"), pkg_inner="", tools="")
    for other in (".venv/lib/x.py", "__pycache__/y.py", "data.json"):
        (tmp_path / other).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / other).write_text("")
    loaded = load_mcp(tmp_path)
    assert [file.relative_to(tmp_path).as_posix() for file in loaded.files] == [
        "main.py",
        "pkg/inner.py",
        "tools.py",
    ]
    assert loaded.name == "mcp_agent"


def test_a_server_of_the_sdk_below_fastmcp_will_do(tmp_path: Path) -> None:
    folder_of(
        tmp_path,
        main="try:\n    from mcp.server.mcpserver import MCPServer as Server\n"
        "except ImportError:\n    from mcp.server.fastmcp import FastMCP as Server\n"
        + MAIN.format(where="'sdk'").replace("FastMCP(", "Server("),
    )
    assert called(tmp_path) == "sdk"


def test_a_server_that_does_not_start_is_refused_at_once(tmp_path: Path) -> None:
    folder_of(
        tmp_path,
        main="from contextlib import asynccontextmanager\nfrom fastmcp import FastMCP\n"
        "@asynccontextmanager\nasync def lifespan(server):\n    raise RuntimeError('no index')\n    yield\n"
        "mcp = FastMCP('broken', lifespan=lifespan)\n",
    )
    told = fault(tmp_path)
    assert told.startswith("the tools of the MCP server cannot be listed: ")
    assert told.endswith("no index")


def test_it_is_fastmcps_own_class_that_is_looked_for(tmp_path: Path) -> None:
    folder_of(tmp_path, main="class FastMCP: ...\nmcp = FastMCP()\n")
    assert fault(tmp_path).startswith("No FastMCP instance found in ")


@pytest.mark.slow
def test_a_server_that_runs_when_it_is_imported_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fastmcp import FastMCP

    monkeypatch.chdir(tmp_path)
    before = {name: getattr(FastMCP, name) for name in dir(FastMCP) if name.startswith("run")}
    running = "import asyncio\nmcp.run()\nmcp.run(transport='http', port=0)\nasyncio.run(mcp.run_async('stdio'))\n"
    folder = folder_of(tmp_path / "mcp", main=f"{MAIN.format(where='after')}\n{running}\nafter = 'beyond it'\n")
    program = f"from harness.agents.mcp_folder import load_mcp; print(load_mcp({str(folder)!r}).name)"
    # In a process whose stdin stays open, as a terminal's does: there it would wait for ever.
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "mcp_agent\n"
    assert process.returncode == 0
    assert called(folder) == "beyond it"
    assert {name: getattr(FastMCP, name) for name in before} == before


def test_a_folder_that_changes_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    main = "import os\nos.chdir(os.path.dirname(__file__))\n" + MAIN.format(where="os.getcwd()")
    folder = folder_of(tmp_path / "mcp", main=main)
    load_mcp(folder)
    assert Path.cwd() == tmp_path
    assert [record.getMessage() for record in caplog.records if record.name == "harness.agents.loading"] == [
        f"loading the user's code changed the working directory; it was changed back to {tmp_path}"
    ]
    assert called(folder) == str(tmp_path)
