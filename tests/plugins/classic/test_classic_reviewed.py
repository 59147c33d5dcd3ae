"""Faults of the classic API's shim that a review found, each with a package that shows it."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from bench_runs import Workshop, count, lines
from classic_runs import KEYS
from classic_server import MODEL, ScriptedModel
from tables import for_each_row

from harness.core.errors import EnvironmentLoadError
from harness.engine.environment_loader import load_environment
from harness.plugins.classic.generation import generation_of
from harness.plugins.classic.source_text import asks

LATER = ("--no-interleave-scoring",)
"""Scoring goes by the journal, in the same process."""


class Echo(ScriptedModel):
    """A model that says `x`."""

    def __init__(self) -> None:
        super().__init__()
        self._replies = [{"say": "x"}]


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


def scores(shop: Workshop, target: str, more: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Reward, metrics and completion of every rollout of a run of one rollout per example."""
    before = set(shop.run_dirs())
    with Echo() as server:
        command = ["run", target, "-m", MODEL, "-b", server.url, "-n", "-1", "-r", "1", "-q", *more]
        done = shop.bench(*command, env=dict.fromkeys(KEYS, ""))
    assert done.code == 0, done.out + done.err
    found: list[dict[str, Any]] = []
    for run in sorted(path.parent for path in set(shop.run_dirs()) - before):
        assert count(run, "failed") == 0
        said = {line["key"]: line["completion"] for line in lines(run) if line["type"] == "generated"}
        found += [
            {"reward": line["reward"], **line["metrics"], "completion": said[line["key"]]}
            for line in lines(run)
            if line["type"] == "scored"
        ]
    return found


def package(generation: str, body: str) -> str:
    """A package of a generation: a class `E`, functions, and `FUNCS`."""
    mark = {"B": "vf.ChatMessage", "C": "vf.UserMessage"}[generation]
    return f"""
import verifiers as vf
from datasets import Dataset
KIND = {mark}
{textwrap.dedent(body)}
def load_environment(**kwargs):
    rows = Dataset.from_list([{{"question": "q", "answer": "a"}}])
    return E(dataset=rows, rubric=vf.Rubric(funcs=FUNCS), max_turns=2, **kwargs)
"""


TIMED = {
    "B": """
        class E(vf.MultiTurnEnv):
            async def setup_state(self, state):
                state["began"] = state["timing"]["start_time"]
                return state
            async def env_response(self, messages, state, **kwargs):
                state["zero"] = state["timing"]["generation_ms"] + state["timing"]["scoring_ms"]
                return [{"role": "user", "content": "go"}]
        def began(state): return float(0.0 <= state["began"] - state["timing"]["start_time"] < 1.0)
        def lasted(state): return float(state["timing"]["generation_ms"] > 0.0 == state["zero"])
        def whole(state): return float(state["timing"]["total_ms"] == state["timing"]["generation_ms"])
        FUNCS = [began, lasted, whole]
    """,
    "C": """
        class E(vf.MultiTurnEnv):
            async def setup_state(self, state):
                state["began"] = state["timing"].generation.start
            async def env_response(self, messages, state, **kwargs):
                state["asked"] = len(state["timing"].model.spans)
                return [vf.UserMessage(content="go")]
        def began(state): return float(abs(state["began"] - state["timing"].generation.start) < 1.0)
        def lasted(state): return float(state["timing"].generation.duration > 0.0)
        def whole(state):
            timing = state["timing"]
            setup = float(timing.setup.start > 0.0 and timing.setup.end >= timing.setup.start)
            return 100 * state["asked"] + 10 * len(timing.model.spans) + len(timing.env.spans) + setup / 2
        FUNCS = [began, lasted, whole]
    """,
}


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), LATER], ids=["live", "restored"])
@pytest.mark.parametrize(("generation", "whole"), [("B", 1.0), ("C", 121.5)])
def test_timings_read_as_those_of_the_release(
    shop: Workshop, generation: str, whole: float, more: tuple[str, ...]
) -> None:
    shop.environment("kit_timed", package(generation, TIMED[generation]))
    [score] = scores(shop, "kit_timed", more=more)
    assert (score["began"], score["lasted"], score["whole"]) == (1.0, 1.0, whole)


SPENT = """
class E(vf.MultiTurnEnv):
    async def env_response(self, messages, state, **kwargs):
        return [{"role": "user", "content": "go"}]
def tokens(state):
    return sum(step["response"].usage.completion_tokens for step in state["trajectory"])
def prompts(state):
    return sum(step["response"]["usage"]["prompt_tokens"] for step in state["trajectory"])
def named(state):
    return float(all(step["response"].id == "scripted-1" for step in state["trajectory"]))
def stopped(state):
    return float(all(step["response"].choices[0].finish_reason == "stop" for step in state["trajectory"]))
def counted(state):
    return (state["usage"] or {})["output_tokens"]
FUNCS = [tokens, prompts, named, stopped, counted]
"""


@pytest.mark.slow
@pytest.mark.parametrize("generation", ["B", "C"])
def test_tokens_are_known_to_scoring_from_the_journal(shop: Workshop, generation: str) -> None:
    shop.environment("kit_spent", package(generation, SPENT))
    live, later = scores(shop, "kit_spent"), scores(shop, "kit_spent", more=LATER)
    assert live == later
    assert [later[0][name] for name in ("tokens", "prompts", "named", "stopped", "counted")] == [10, 20, 1, 1, 10]


SCRIBBLING = """
class E(vf.MultiTurnEnv):
    async def env_response(self, messages, state, **kwargs):
        if messages[0]["content"] == "q":
            messages.append({"role": "user", "content": "appended"})
        return [{"role": "user", "content": "returned"}]
class Forgetting(E):
    async def env_response(self, messages, state, **kwargs):
        messages.pop()
        return [{"role": "user", "content": "again"}]
def length(state):
    return len(state["trajectory"][1]["prompt"])
def steps(state):
    return sum(10 ** n * len(step["completion"]) for n, step in enumerate(state["trajectory"]))
FUNCS = [length, steps]
"""


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), LATER], ids=["live", "restored"])
@pytest.mark.parametrize("generation", ["B", "C"])
def test_what_env_response_does_to_the_messages_holds(shop: Workshop, generation: str, more: tuple[str, ...]) -> None:
    source = package(generation, SCRIBBLING)
    shop.environment("kit_appends", source)
    shop.environment("kit_pops", source.replace("return E(", "return Forgetting("))
    [appended] = scores(shop, "kit_appends", more=more)
    assert [message["content"] for message in appended["completion"]] == ["x", "appended", "returned", "x"]
    assert (appended["length"], appended["steps"]) == (4, 11)
    [popped] = scores(shop, "kit_pops", more=more)
    assert [message["content"] for message in popped["completion"]] == ["again", "x"]
    assert (popped["length"], popped["steps"]) == (2, 11)


IMPORTING = {
    "list": "import os, verifiers as vf\nfrom datasets import Dataset",
    "one_line": "from datasets import Dataset; import verifiers as vf",
    "call": "from datasets import Dataset\nvf = __import__('verifiers')",
    "late": "import importlib\nfrom datasets import Dataset\nNAME = 'verifiers'\nvf = importlib.import_module(NAME)",
    "neighbour": "import os, kit_beside\nfrom datasets import Dataset\nvf = kit_beside.vf",
}


@pytest.mark.slow
def test_imports_are_found_however_they_are_written(shop: Workshop) -> None:
    shop.environment("kit_beside", "import sys, verifiers as vf\n")
    body = """
def right(completion): return float(completion[-1]["content"] == "x")
def load_environment():
    rows = Dataset.from_list([{"question": "q", "answer": "a"}])
    return vf.SingleTurnEnv(dataset=rows, rubric=vf.Rubric(funcs=[right]))
"""
    paths = [str(shop.environment(f"kit_{name}", f"{head}\n{body}")) for name, head in IMPORTING.items()]
    rewards = [scores(shop, path)[0]["reward"] for path in paths]
    assert rewards == [1.0] * len(IMPORTING)


@for_each_row(
    ("text", "asking"),
    [
        ('"""About verifiers, and `import verifiers as vf`."""\nimport json', False),
        ("# import verifiers\nimport json", False),
        ("NOTE = 'import verifiers as vf'", False),
        ("if True:\n    import json, verifiers.types", True),
        ("from .verifiers import x", False),
        ("print 'an old one'\nimport verifiers", True),
        ("print 'an old one'\nimport json", False),
    ],
)
def test_who_asks_for_the_api(text: str, asking: bool) -> None:
    assert asks(text) is asking


SHARED = """
import verifiers as vf
from datasets import Dataset
from kit_shared import KIND, version
def same(): return float(KIND == vf.__version__)
def late():
    import kit_shared
    return float(kit_shared.version() == vf.__version__ == "%s")
def load_environment():
    rows = Dataset.from_list([{"question": "q", "answer": "a"}])
    return vf.SingleTurnEnv(dataset=rows, rubric=vf.Rubric(funcs=[same, late]))
USED = vf.%s
"""


@pytest.mark.slow
def test_a_helper_is_of_the_generation_of_whoever_imports_it(shop: Workshop) -> None:
    shop.environment(
        "kit_shared", "import verifiers as vf\nKIND = vf.__version__\ndef version(): return vf.__version__\n"
    )
    pairs = {"kit_older": ("0.1.9.post3", "ChatMessage"), "kit_newer": ("0.1.14", "UserMessage")}
    paths = [str(shop.environment(name, SHARED % what)) for name, what in pairs.items()]
    paths.append(str(shop.environment("kit_older_too", SHARED % pairs["kit_older"])))
    suite = shop.write("suite.toml", "".join(f'[[eval]]\nenv_id = "{path}"\n' for path in paths))
    found = scores(shop, str(suite))
    assert [(score["same"], score["late"]) for score in found] == [(1.0, 1.0)] * 3


ASKING = """
class E(vf.MultiTurnEnv):
    async def setup_state(self, state):
        reply = await self.get_model_response(
            state, [{"role": "user", "content": "aside"}], state["client"], state["model"], None, {}, "chat"
        )
        state["aside"] = reply.choices[0].message.content
        return state
    async def env_response(self, messages, state, **kwargs):
        return [{"role": "user", "content": "go"}]
def aside(state): return float(state["aside"] == "x")
FUNCS = [aside]
"""


@pytest.mark.slow
def test_a_model_is_asked_with_the_message_type_in_its_place(shop: Workshop) -> None:
    shop.environment("kit_asking", package("B", ASKING))
    assert scores(shop, "kit_asking")[0]["aside"] == 1.0


@for_each_row(
    ("source", "generation"),
    [
        ("# oai_tools, ChatMessage, m['function']\nvf.UserMessage(content='')", "C"),
        ('def f():\n    """Of m["function"], oai_tools and ChatMessage."""\n    return m.tool_calls', "C"),
        ("PROMPT = 'never say tool_defs, UserMessage or ToolCall'\nx = state['oai_tools']", "B"),
        ("x = state['oai_tools'], call['function'], t['generation_ms']\nvf.UserMessage(content='')", "C"),
        ("from verifiers.types import ChatMessage\nx = m.tool_calls, tool_defs, ToolCall", "B"),
        ("x = vf.UserMessage(content='') if hasattr(vf, 'UserMessage') else state['oai_tools'], 'generation_ms'", "B"),
        ("try:\n    from verifiers import UserMessage\nexcept ImportError: ...\nx = oai_tools, call['function']", "B"),
        ("x = f\"{call['function']['name']}\"", "B"),
        ("x = {'tool_defs': []}", "C"),
    ],
)
def test_a_generation_is_told_by_code_alone(source: str, generation: str) -> None:
    assert generation_of([], [f"import verifiers as vf\n{source}"]) == generation


def test_a_missing_dependency_is_named_for_a_path_too(tmp_path: Path) -> None:
    path = tmp_path / "kit_lacking.py"
    path.write_text("import verifiers as vf\nimport no_such_dependency.part\ndef load_environment(): ...\n")
    with pytest.raises(EnvironmentLoadError) as caught:
        load_environment(str(path))
    assert str(caught.value) == (
        f"environment {str(path)!r}: it needs the module 'no_such_dependency', which is not installed; install the "
        "environment with its dependencies"
    )
    assert "kit_lacking" not in sys.modules


STAR = """
import verifiers as vf
from verifiers.types import *
class E(vf.SingleTurnEnv):
    async def get_model_response(self, state, prompt, **kwargs):
        said: Any = json.loads('"a"')
        message = ResponseMessage(content=said, finish_reason="stop", is_truncated=False)
        usage = Usage(prompt_tokens=1, reasoning_tokens=0, completion_tokens=1, total_tokens=2)
        return Response(id="r", created=int(time.time()), model="m", usage=usage, message=message)
def right(completion, answer): return float(vf.Parser().parse_answer(completion) == answer)
def load_environment():
    return E(dataset=[{"question": "q", "answer": "a"}], rubric=vf.Rubric(funcs=[right]))
"""


def test_star_imports_bring_what_the_release_brings_and_say_which_release(shop: Workshop) -> None:
    shop.environment("starry", STAR)
    [row] = scores(shop, "starry")
    assert row["reward"] == 1.0
    names = "from verifiers.types import *\nclass Usage: ...\n"
    assert generation_of([], [names + "x: Usage = json"]) == "C"
    assert generation_of([], [names + "import json\nx: Usage = json"]) == "B"


JUDGED = f"""
import verifiers as vf
async def right(judge, prompt, completion, answer, state):
    return float("x" in await judge(prompt, completion, answer, state))
def load_environment():
    rubric = vf.JudgeRubric(judge_model="{MODEL}")
    rubric.add_reward_func(right)
    return vf.SingleTurnEnv(dataset=[{{"question": "q", "answer": "a"}}], rubric=rubric)
"""


def test_a_judge_without_a_client_is_not_asked_at_a_host_that_no_layer_names(shop: Workshop) -> None:
    shop.environment("judged", JUDGED)
    key = {**dict.fromkeys(KEYS, ""), "OPENAI_API_KEY": "sk-not-for-strangers-0123456789"}
    with Echo() as model, Echo() as judge:
        command = ["run", "judged", "-m", MODEL, "-b", model.url, "-r", "1", "-q"]
        refused = shop.bench(*command, env={**key, "OPENAI_BASE_URL": ""})
        words = (refused.out + refused.err).replace("\n", " ")
        assert (refused.code != 0, model.requests, judge.requests) == (True, [], [])
        assert "api.openai.com" in words and "set OPENAI_BASE_URL" in words, words
        done = shop.bench(*command, env={**key, "OPENAI_BASE_URL": judge.url})
        assert (done.code, len(model.requests), len(judge.requests)) == (0, 1, 1), done.err
        shop.environment("judged", JUDGED.replace(MODEL, "grader"))
        entry = f'[[endpoint]]\nendpoint_id = "grader"\nmodel = "{MODEL}"\nurl = "{judge.url}"\nkey = "NONE"\n'
        shop.write("configs/endpoints.toml", entry)
        listed = shop.bench(*command, env={**key, "OPENAI_BASE_URL": ""})
        assert (listed.code, len(judge.requests)) == (0, 2), listed.err
