"""Where the imports of osmosis_ai lead, without that SDK, with one that has the agent API, and with one that has it no
more."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from types import ModuleType
from typing import Any

import pytest

from harness.agents import loop, schemas, tool_calls
from harness.core.errors import HarnessError, ProviderError, UsageError
from harness.plugins.osmosis import finder, hosted
from harness.plugins.osmosis.names import LEFT_OUT, MODULES, NAME

IMPORTS = """
from osmosis_ai import osmosis_reward, osmosis_rubric
from osmosis_ai import MissingAPIKeyError, ModelNotFoundError, ProviderRequestError, evaluate_rubric
from osmosis_ai.rubric import evaluate_rubric
from osmosis_ai.rubric_eval import DEFAULT_API_KEY_ENV, ensure_api_key_available, evaluate_rubric
from osmosis_ai.rubric_types import MissingAPIKeyError, ModelInfo, RewardRubricRunResult
from osmosis_ai.utils import osmosis_reward
from osmosis_ai.rollout import (
    RolloutAgentLoop, RolloutContext, RolloutResult, RolloutRequest, RolloutMetrics, CompletionsResult,
    OpenAIFunctionToolSchema, OpenAIFunctionSchema, OpenAIFunctionParametersSchema, OpenAIFunctionPropertySchema,
    OsmosisLLMClient, OsmosisRolloutError, OsmosisServerError, OsmosisTimeoutError, ToolArgumentError,
    create_app, register_agent_loop, get_agent_loop, list_agent_loops,
    create_tool_result, create_tool_error_result, serialize_tool_result, parse_tool_arguments, get_tool_call_info,
    execute_tool_calls, parse_tool_calls, normalize_stop, get_message_content, get_message_role,
    is_assistant_message, is_tool_message, is_user_message, count_messages_by_role,
)
from osmosis_ai.rollout import (
    LLMClientProtocol, OpenAIFunctionCallSchema, OpenAIFunctionParsedSchema, OpenAIFunctionToolCall, ToolResponse,
)
from osmosis_ai.rollout.core import LLMClientProtocol, RolloutAgentLoop, RolloutRequest, ToolResponse
from osmosis_ai.rollout.eval.common import dataset_row_to_request
from osmosis_ai.rollout.eval.common.dataset import dataset_row_to_request
from osmosis_ai.rollout.mcp import load_mcp_server
from osmosis_ai.rollout.mcp.loader import load_mcp_server
from osmosis_ai.rollout.core.base import RolloutAgentLoop, RolloutContext, RolloutResult
from osmosis_ai.rollout.core.exceptions import ToolArgumentError, ToolExecutionError
from osmosis_ai.rollout.core.llm_client import LLMClientProtocol
from osmosis_ai.rollout.core.schemas import OpenAIFunctionToolSchema, RolloutRequest
from osmosis_ai.rollout.client import CompletionsResult, OsmosisLLMClient
from osmosis_ai.rollout.tools import execute_tool_calls
from osmosis_ai.rollout.utils import parse_tool_calls
from osmosis_ai.rollout.mcp import MCPAgentLoop, MCPLoadError
from osmosis_ai.rollout.eval.common import (
    DatasetParseError, DatasetReader, DatasetRow, DatasetValidationError, ExternalLLMClient, LocalExecutionError,
    ProviderError, ToolValidationError,
)
from osmosis_ai.rollout.eval.common.errors import SystemicProviderError
from osmosis_ai.rollout.eval.evaluation import (
    EvalEvalSummary, EvalFnError, EvalFnWrapper, EvalModelSummary, EvalResult, EvalRowResult, EvalRunner,
    EvalRunResult, load_eval_fns, pass_at_k,
)
from osmosis_ai.rollout.eval.evaluation.eval_fn import load_eval_fns
from osmosis_ai.rollout.eval.evaluation.runner import EvalRunner
from osmosis_ai.rollout.eval.bench import (
    BenchEvalSummary, BenchResult, BenchRowResult, BenchRunner, BenchRunResult, EvalFnError, EvalFnWrapper,
    load_eval_fns,
)
from osmosis_ai.rollout.eval.test_mode import LocalTestBatchResult, LocalTestRunner, LocalTestRunResult
from osmosis_ai.eval.evaluation import EvalRunner
"""
"""What the three documents, the pages that they lead to, and the SDK's own example projects import."""


def forget() -> dict[str, ModuleType]:
    """Take whatever goes by the SDK's name out of `sys.modules`."""
    names = [name for name in sys.modules if name.partition(".")[0] == NAME]
    return {name: sys.modules.pop(name) for name in names}


@pytest.fixture(autouse=True)
def process() -> Iterator[None]:
    """A process that has not heard of the SDK, and none of these tests' doing afterwards."""
    finders, path, modules = list(sys.meta_path), list(sys.path), forget()
    sys.meta_path[:] = [each for each in finders if not type(each).__module__.startswith("harness.plugins.osmosis")]
    yield
    sys.meta_path[:], sys.path[:] = finders, path
    forget()
    sys.modules.update(modules)


def sdk(folder: Path, **files: str) -> None:
    """Install a stand-in for the SDK: `files` are its modules, `__` for a dot."""
    for name, text in files.items():
        path = folder / NAME / (name.replace("__", "/") + ".py" if name != "init" else "__init__.py")
        path.parent.mkdir(parents=True, exist_ok=True)
        for parent in path.relative_to(folder).parents:
            if parent != Path():
                (folder / parent / "__init__.py").touch()
        path.write_text(textwrap.dedent(text))
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()


def without(name: str) -> ModuleNotFoundError:
    with pytest.raises(ModuleNotFoundError) as caught:
        importlib.import_module(name)
    return caught.value


# Absent


def test_nothing_is_answered_before_it_is_installed() -> None:
    assert without("osmosis_ai").name == NAME
    assert not finder.answers()


def test_every_import_of_documents_and_example_projects_is_answered() -> None:
    finder.install()
    assert finder.answers()
    namespace: dict[str, Any] = {}
    exec(IMPORTS, namespace)
    assert namespace["RolloutAgentLoop"] is loop.RolloutAgentLoop
    assert namespace["execute_tool_calls"] is tool_calls.execute_tool_calls
    assert namespace["ProviderError"] is ProviderError


@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_module_has_the_very_objects_that_bench_has(name: str) -> None:
    finder.install()
    module = importlib.import_module(name)
    assert module.__all__ == sorted(each for each in MODULES[name] if not each.startswith("__"))
    for each, target in MODULES[name].items():
        path, _, attribute = target.partition(":")
        assert getattr(module, each) is getattr(importlib.import_module(path), attribute)
    assert set(module.__all__) <= set(dir(module))


def test_classes_are_known_by_where_they_are() -> None:
    finder.install()
    from osmosis_ai.rollout import RolloutResult  # pyright: ignore[reportMissingImports]

    result = RolloutResult("COMPLETED", [], "stop")
    assert isinstance(result, loop.RolloutResult)
    assert RolloutResult.__module__ == "harness.agents.loop"
    assert pickle.loads(pickle.dumps(result)) == result


def test_a_star_imports_every_name_and_no_other() -> None:
    finder.install()
    namespace: dict[str, Any] = {}
    exec("from osmosis_ai.rollout import *", namespace)
    assert set(namespace) - {"__builtins__"} == set(MODULES["osmosis_ai.rollout"])


def test_modules_below_are_there_without_being_imported() -> None:
    finder.install()
    import osmosis_ai  # pyright: ignore[reportMissingImports]

    assert osmosis_ai.rollout.core.schemas.RolloutRequest is schemas.RolloutRequest
    assert osmosis_ai.__version__ == "0.2.17"


def test_reloading_changes_nothing() -> None:
    finder.install()
    module = importlib.import_module("osmosis_ai.rollout")
    before = module.RolloutAgentLoop
    assert importlib.reload(module) is module
    assert module.RolloutAgentLoop is before is loop.RolloutAgentLoop
    assert module.create_app is hosted.create_app


def test_installing_again_changes_nothing() -> None:
    finder.install()
    finder.install(over_newer=True)
    after = list(sys.meta_path)
    finder.install()
    finder.install(over_newer=True)
    assert sys.meta_path == after
    assert [type(finder).__name__ for finder in (after[0], after[-1])] == ["_First", "_Last"]


def test_threads_that_install_and_import_at_once_get_the_same() -> None:
    count, start = 8, Barrier(8)

    def first(_: int) -> tuple[object, object]:
        start.wait(60)
        finder.install()
        module = importlib.import_module("osmosis_ai.rollout.tools")
        return module, module.create_tool_result

    with ThreadPoolExecutor(count) as pool:
        found = set(pool.map(first, range(count)))
    assert found == {(sys.modules["osmosis_ai.rollout.tools"], tool_calls.create_tool_result)}
    assert sum(type(finder).__name__ == "_Last" for finder in sys.meta_path) == 1


# What is not there


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("from osmosis_ai.rollout import RolloutSettings", "is part of the hosted training service"),
        ("import osmosis_ai.rollout.config", "`bench eval -m module:attribute …`"),
        ("from osmosis_ai.rollout.eval.common import load_agent", "is part of that SDK's own commands"),
        ("from osmosis_ai.rollout import AgentWorkflow, Grader", "AgentWorkflow belongs to releases after 0.2.17"),
        ("from osmosis_ai.rollout.eval.evaluation import load_eval_fn", "is `load_eval_fns([path])[0]`"),
        ("from osmosis_ai.rollout import RolloutAgentLop", "RolloutAgentLop; did you mean RolloutAgentLoop?"),
        ("import osmosis_ai.rollout.tool", "no osmosis_ai.rollout.tool; did you mean tools?"),
        ("from osmosis_ai.rollout.core import create_app", "core.create_app; it is in osmosis_ai"),
        ("from osmosis_ai import something_else", "which has no osmosis_ai.something_else"),
    ],
)  # fmt: skip
def test_an_import_of_what_is_not_there_says_what_to_do(line: str, words: str) -> None:
    finder.install()
    with pytest.raises(ImportError) as caught:
        exec(line, {})
    assert words in str(caught.value)
    assert not isinstance(caught.value, ModuleNotFoundError)  # files that catch it tell their users to install the SDK


def test_what_is_not_there_can_be_asked_for() -> None:
    finder.install()
    module = importlib.import_module("osmosis_ai")
    assert not hasattr(module, "cli_services")
    assert not hasattr(module, "__file__")
    with pytest.raises(AttributeError, match="own commands"):
        module.cli_services  # noqa: B018


def test_nothing_is_both_there_and_left_out() -> None:
    assert not {name for names in MODULES.values() for name in names} & LEFT_OUT.keys()


# An SDK is installed

AGENT_API = "class RolloutAgentLoop: theirs = True\n"


@pytest.mark.parametrize("over_newer", [False, True])
def test_an_installed_sdk_with_the_agent_api_answers_for_itself(tmp_path: Path, over_newer: bool) -> None:
    sdk(tmp_path, init="", rollout__core__base=AGENT_API, rollout__tools="mine = 1")
    finder.install(over_newer=over_newer)
    assert not finder.answers()
    assert importlib.import_module("osmosis_ai.rollout.core.base").RolloutAgentLoop.theirs
    assert importlib.import_module("osmosis_ai.rollout.tools").mine == 1
    assert not finder.answers()
    assert without("osmosis_ai.rollout.eval.common").name == "osmosis_ai.rollout.eval"


def test_an_installed_sdk_without_the_agent_api_is_left_alone(tmp_path: Path) -> None:
    sdk(tmp_path, init="", rollout__agent_workflow="class AgentWorkflow: pass")
    finder.install()
    assert not finder.answers()
    assert importlib.import_module("osmosis_ai.rollout.agent_workflow").AgentWorkflow
    assert without("osmosis_ai.rollout.core.base").name == "osmosis_ai.rollout.core"


def test_a_command_answers_before_an_sdk_without_the_agent_api(tmp_path: Path) -> None:
    sdk(tmp_path, init="raise RuntimeError('must not be imported')", rollout__agent_workflow="")
    finder.install(over_newer=True)
    assert finder.answers()
    assert importlib.import_module("osmosis_ai.rollout.core.base").RolloutAgentLoop is loop.RolloutAgentLoop
    with pytest.raises(ImportError, match=r"agent_workflow belongs to releases after 0\.2\.17"):
        importlib.import_module("osmosis_ai.rollout.agent_workflow")


def test_an_sdk_that_is_imported_already_stays(tmp_path: Path) -> None:
    sdk(tmp_path, init="", rollout__agent_workflow="")
    theirs = importlib.import_module("osmosis_ai")
    finder.install(over_newer=True)
    assert not finder.answers()
    assert importlib.import_module("osmosis_ai") is theirs


# The parts that mean nothing here


def test_the_app_of_an_agent_file_can_be_made_and_not_served() -> None:
    agent = object()
    app = hosted.create_app(agent, max_concurrent=4, debug_dir=None)
    assert app.agent_loop is agent
    assert not hasattr(app, "__wrapped__")
    with pytest.raises(
        UsageError, match=r"app\.router is part of .* hosted serving.*`bench eval -m module:attribute …`"
    ):
        app.router  # noqa: B018
    with pytest.raises(UsageError, match="this app is part of"):
        app({}, None, None).send(None)
    for refuse in (hosted.serve_agent_loop, hosted.validate_and_report, hosted.validate_agent_loop):
        with pytest.raises(UsageError, match=refuse.__name__):
            refuse(agent, port=9000)
    with pytest.raises(UsageError, match="OsmosisLLMClient"):
        hosted.OsmosisLLMClient(server_url="http://localhost", rollout_id="r")


def test_exceptions_of_the_protocol() -> None:
    finder.install()
    errors = importlib.import_module("osmosis_ai.rollout.core.exceptions")
    for error in (ProviderError("x"), tool_calls.ToolArgumentError("x"), errors.OsmosisTimeoutError("x")):
        assert isinstance(error, errors.OsmosisRolloutError)
    assert issubclass(errors.ToolArgumentError, errors.ToolExecutionError)
    server = errors.OsmosisServerError("busy", status_code=503)
    assert (str(server), server.status_code) == ("busy", 503)
    assert not isinstance(errors.OsmosisValidationError("bad", 422), errors.OsmosisServerError)
    assert errors.OsmosisRolloutError is HarnessError


def test_the_register_of_agents() -> None:
    finder.install()
    registry = importlib.import_module("osmosis_ai.rollout.registry")

    class Named:
        name = "named-for-the-register"

    agent, other = Named(), Named()
    registry.register_agent_loop(agent)
    try:
        assert registry.get_agent_loop(agent.name) is agent
        assert agent.name in registry.list_agent_loops()
        with pytest.raises(ValueError, match="already registered"):
            registry.register_agent_loop(other)
    finally:
        assert registry.unregister_agent_loop(agent.name)
    assert not registry.unregister_agent_loop(agent.name)
    with pytest.raises(registry.AgentLoopNotFoundError, match="no agent 'named-for-the-register'") as caught:
        registry.get_agent_loop(agent.name)
    assert (caught.value.name, caught.value.available) == (agent.name, registry.list_agent_loops())
    mine = registry.AgentLoopRegistry()
    mine.register(agent)
    assert (mine.get(agent.name), mine.list_names()) == (agent, [agent.name])
    mine.clear()
    assert (mine.get(agent.name), mine.list_names()) == (None, [])


def test_a_name_of_the_api_answers_the_imports_and_nothing_heavy_is_imported_for_it() -> None:
    code = (
        "import sys\nfrom harness.agents import EvalRunner\nfrom osmosis_ai.rollout.core.base import RolloutAgentLoop\n"
        "heavy = {'aiohttp', 'datasets', 'pandas', 'pyarrow', 'openai', 'huggingface_hub', 'fastmcp', 'litellm'}\n"
        "print(sorted(heavy & set(sys.modules)), RolloutAgentLoop.__module__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[] harness.agents.loop\n", "")
