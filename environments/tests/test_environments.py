"""What every environment of this folder promises: sound reference policies, the same rows everywhere, a light import, a
wheel that carries its defaults, and a README that names its arguments and metrics."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from sandboxes import sandbox

from harness import Chat, Environment, Message, Messages, ModelResponse, Prompt, Score, State
from harness.errors import ConfigError
from harness.keys import ExampleKeys
from harness.records import Example
from harness.reference.panel import ReferencePanel
from harness.rubrics.judge_port import judged_by

FOLDER = Path(__file__).parents[1]
MODULES = (
    "alphabet_sort", "gsm8k", "humaneval", "math_python", "mcp_demo", "multiple_choice", "reverse_text",
    "simple_qa", "tool_test", "wordle",
)  # fmt: skip
SAMPLES: dict[str, dict[str, Any]] = {
    "gsm8k": {"split": "sample"},
    "humaneval": {"split": "sample", "sandbox": "unsafe-local"},
    "math_python": {"split": "sample", "sandbox": "unsafe-local"},
    "multiple_choice": {"benchmark": "sample"},
    "simple_qa": {"split": "sample"},
}
"""How to ask those that read the Hub by default for what they ship, on any machine."""
VARIANTS: tuple[Any, ...] = (
    ("alphabet_sort", {}),
    (
        "alphabet_sort",
        {"num_examples": 50, "seed": 7, "min_turns": 4, "max_turns": 10, "max_names": 6, "sort_by": "first"},
    ),
    ("gsm8k", {"split": "sample"}),
    ("humaneval", {"split": "sample"}),
    pytest.param("math_python", {"split": "sample"}, marks=pytest.mark.slow),  # an interpreter each
    ("multiple_choice", {"benchmark": "sample"}),
    ("multiple_choice", {"benchmark": "sample", "seed": None}),
    ("multiple_choice", {"benchmark": "sample", "seed": 7}),
    ("reverse_text", {}),
    ("reverse_text", {"num_examples": 20, "sentences": 20}),
    ("mcp_demo", {}),
    ("mcp_demo", {"num_examples": 4, "seed": 3, "transport": "stdio"}),
    ("mcp_demo", {"num_examples": 5, "scope": "rollout"}),
    ("simple_qa", {"split": "sample"}),
    ("tool_test", {}),
    ("tool_test", {"num_examples": 30, "seed": 2, "min_calls": 6, "max_calls": 10}),
    ("wordle", {}),
    ("wordle", {"num_examples": 30, "seed": 5, "hard_mode": True}),
)


class Player:
    """A model that answers as a policy says."""

    model = "player"

    def __init__(self, policy: Callable[[Messages], Message | str]) -> None:
        self.policy = policy

    async def __call__(self, prompt: Prompt, **_: object) -> ModelResponse:
        assert isinstance(prompt, list)
        reply = self.policy(prompt)
        return ModelResponse({"role": "assistant", "content": reply} if isinstance(reply, str) else reply, "stop")


def load(module: str, **arguments: Any) -> Environment:
    return importlib.import_module(module).load_environment(**arguments)


def load_contained(module: str, arguments: dict[str, Any]) -> Environment:
    """The same where model-written code runs in a sandbox; skips the test where there is none."""
    if module in ("humaneval", "math_python"):
        sandbox("auto")
    return load(module, **arguments)


def examples(env: Environment) -> list[Example]:
    keys = ExampleKeys()
    return [keys.example(env.row(index), index) for index in range(env.row_count)]


async def play(env: Environment, example: Example, chat: Chat) -> Score:
    state = State.begin(example, 0, "player", {})
    await env.rollout(state, chat)
    with judged_by(ReferencePanel(env)):
        (score,) = await env.rubric.score([state])
    return score


@pytest.mark.parametrize(("module", "arguments"), VARIANTS)
def test_the_ideal_player_gets_exactly_the_best_score_and_the_null_player_the_worst(
    module: str, arguments: dict[str, Any]
) -> None:
    env = load_contained(module, arguments)
    assert env.has_reference
    assert env.rubric.reward_range == (0, 1)

    turns = asyncio.Semaphore(8)  # most of a rollout in a sandbox is waiting for it
    played = 0

    async def both(example: Example) -> None:
        nonlocal played
        async with turns:
            ideal = await play(env, example, Player(lambda messages: env.reference_reply(example, messages)))
            null = await play(env, example, Player(lambda messages: env.null_reply(example, messages)))
        assert (ideal.reward, ideal.reasons) == (1.0, {}), example
        assert (null.reward, null.reasons) == (0.0, {}), example
        played += 1

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            for example in examples(env):
                tasks.create_task(both(example))

    asyncio.run(main())
    assert played == env.row_count > 0


@pytest.mark.parametrize(("module", "arguments"), VARIANTS)
def test_a_player_that_echoes_the_prompt_or_says_nothing_gets_no_full_score(
    module: str, arguments: dict[str, Any]
) -> None:
    env = load_contained(module, arguments)

    async def main() -> None:
        for example in examples(env)[:20]:
            # A judge takes the bare answer for what it is; the others want it in their form.
            bare = [] if env.rubric.judges else [example.answer]
            for reply in ("", "<think>", *bare, str(example.prompt[-1])):
                score = await play(env, example, Player(lambda _, said=reply: said))
                assert score.reward is not None
                assert 0.0 <= score.reward < 0.2, (reply, score)

    asyncio.run(main())


@pytest.mark.parametrize("module", MODULES)
def test_questions_are_all_different_and_do_not_hold_their_answer(module: str) -> None:
    every = examples(load(module, **SAMPLES.get(module, {})))
    assert len({json.dumps(example.prompt) for example in every}) == len(every)
    if module not in SAMPLES:  # a number or a letter may well stand in its own question
        for example in every:
            assert example.answer not in str(example.prompt[-1])


ROWS = """
import hashlib, importlib, json, sys
module, arguments = sys.argv[1], json.loads(sys.argv[2])
env = importlib.import_module(module).load_environment(**arguments)
loaded = sorted({"datasets", "pandas", "numpy", "pyarrow", "openai", "aiohttp", "fastmcp", "mcp"} & set(sys.modules))
rows = [env.row(i) for i in range(env.row_count)]
text = json.dumps([[row.prompt[-1], row.answer, row.info] for row in rows], sort_keys=True)
print(hashlib.sha256(text.encode()).hexdigest()[:16], *loaded)
"""

DIGESTS = {
    "alphabet_sort": "b990566d063e6cef",
    "gsm8k": "ce23e16b2bb0d2d9",
    "humaneval": "c1ff5a59845cb17a",
    "math_python": "3b98fae655cb6e1c",
    "mcp_demo": "16b49b204f9d2c8a",
    "multiple_choice": "66f40c252c97bf2a",
    "reverse_text": "acc7be11a587b1ab",
    "simple_qa": "af622d500c1ebb01",
    "tool_test": "095b1915433a84e0",
    "wordle": "7d3b5d3730c09b4b",
}
"""Of all rows with default arguments (of `SAMPLES`: the sample). A change here means that older results are of other
questions, so raise the package's version with it."""


@pytest.mark.parametrize("hash_seed", ["0", "1"])
@pytest.mark.parametrize("module", MODULES)
def test_rows_are_the_same_in_every_process_and_loading_imports_nothing_heavy(module: str, hash_seed: str) -> None:
    arguments = SAMPLES.get(module, {})
    done = subprocess.run(
        [sys.executable, "-c", ROWS, module, json.dumps(arguments)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [DIGESTS[module]]


@pytest.mark.parametrize("module", ["alphabet_sort", "mcp_demo", "reverse_text", "tool_test", "wordle"])
def test_more_examples_begin_with_the_fewer_and_another_seed_gives_others(module: str) -> None:
    few, many = load(module, num_examples=10), load(module, num_examples=40)
    other = load(module, num_examples=10, seed=1)
    assert [few.row(i) for i in range(10)] == [many.row(i) for i in range(10)]
    assert (few.row_count, many.row_count) == (10, 40)
    assert sum(few.row(i).answer == other.row(i).answer for i in range(10)) <= 1


@pytest.mark.parametrize(
    ("module", "arguments", "named"),
    [
        ("alphabet_sort", {"num_examples": 0}, "num_examples"),
        ("alphabet_sort", {"num_examples": "10"}, "num_examples"),
        ("alphabet_sort", {"min_turns": 3, "max_turns": 2}, "max_turns"),
        ("alphabet_sort", {"max_names": 1}, "max_names"),
        ("alphabet_sort", {"sort_by": "middle"}, "sort_by"),
        ("gsm8k", {"dataset": 5}, "dataset"),
        ("gsm8k", {"split": None}, "split"),
        ("humaneval", {"split": 1}, "split"),
        ("humaneval", {"form": "text"}, "form"),
        ("humaneval", {"sandbox": None}, "sandbox"),
        ("humaneval", {"timeout_seconds": 0}, "timeout_seconds"),
        ("humaneval", {"timeout_seconds": True}, "timeout_seconds"),
        ("math_python", {"max_turns": 1}, "max_turns"),
        ("math_python", {"tool_seconds": 0}, "tool_seconds"),
        ("math_python", {"sandbox": 1}, "sandbox"),
        ("mcp_demo", {"num_examples": 2001}, "num_examples"),
        ("mcp_demo", {"seed": -1}, "seed"),
        ("mcp_demo", {"transport": "http"}, "transport"),
        ("mcp_demo", {"scope": None}, "scope"),
        ("multiple_choice", {"benchmark": None}, "benchmark"),
        ("multiple_choice", {"extraction": "loose"}, "extraction"),
        ("multiple_choice", {"seed": "0"}, "seed"),
        ("reverse_text", {"num_examples": True}, "num_examples"),
        ("reverse_text", {"num_examples": 100_001}, "num_examples"),
        ("reverse_text", {"sentences": 21}, "sentences"),
        ("reverse_text", {"seed": -1}, "seed"),
        ("simple_qa", {"split": 1}, "split"),
        ("simple_qa", {"judge_model": ""}, "judge_model"),
        ("simple_qa", {"judge_base_url": 5}, "judge_base_url"),
        ("tool_test", {"num_examples": 0}, "num_examples"),
        ("tool_test", {"min_calls": 4, "max_calls": 3}, "max_calls"),
        ("tool_test", {"max_calls": 11}, "max_calls"),
        ("tool_test", {"seed": "0"}, "seed"),
        ("wordle", {"num_examples": 928}, "num_examples"),
        ("wordle", {"num_examples": 0}, "num_examples"),
        ("wordle", {"seed": 1.5}, "seed"),
        ("wordle", {"hard_mode": 1}, "hard_mode"),
    ],
)
def test_a_bad_argument_is_refused_by_name(module: str, arguments: dict[str, Any], named: str) -> None:
    value = list(arguments.values())[-1]
    with pytest.raises(ConfigError, match=rf"^{named} .*not {value!r}"):
        load(module, **arguments)


@pytest.mark.parametrize("module", MODULES)
def test_the_package_declares_itself_and_its_readme_names_every_argument_and_metric(module: str) -> None:
    project = tomllib.loads((FOLDER / module / "pyproject.toml").read_text())
    name = project["project"]["name"]
    loader = importlib.import_module(module).load_environment
    (point,) = entry_points(group="harness.environments", name=name)
    assert point.load() is loader
    assert set(project["tool"]["harness"]["eval"]) <= {"num_examples", "rollouts_per_example", "pass_threshold"}
    readme = (FOLDER / module / "README.md").read_text()
    for argument, parameter in inspect.signature(loader).parameters.items():
        default = "asks for " if argument == "system_prompt" else f"`{json.dumps(parameter.default)}` |"
        assert f"| `{argument}` | {default}" in readme
    env = load(module, **SAMPLES.get(module, {}))
    for metric in env.rubric.metric_names:
        assert f"| `{metric}` |" in readme
    assert f"[{name}]({module}/README.md)" in (FOLDER / "README.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("module", MODULES)
def test_a_wheel_carries_the_defaults_inside_the_package(module: str, tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=FOLDER / module,
        check=True,
        capture_output=True,
        timeout=120,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        inside = tomllib.loads(archive.read(f"{module}/pyproject.toml").decode())
    assert f"{module}/__init__.py" in names
    assert not [name for name in names if "tests" in name.split("/")]
    assert inside["tool"]["harness"]["eval"]["num_examples"] > 0


@pytest.mark.parametrize(
    ("module", "floor"),
    [("alphabet_sort", 0.59), ("reverse_text", 0.39)],
)
def test_the_floor_that_the_readme_names_is_what_unchanged_input_scores(module: str, floor: float) -> None:
    """The model that only copies: what it was given, in the tags that were asked for."""
    env = load(module, num_examples=200)
    tag = "sorted" if module == "alphabet_sort" else "reversed"

    def copy(example: Example, messages: Messages) -> str:
        if module == "reverse_text":
            return f"<{tag}>{messages[-1]['content']}</{tag}>"
        turn = sum(message["role"] == "assistant" for message in messages)
        given = [name for names in example.info["turns"][: turn + 1] for name in names]
        return "\n".join([f"<{tag}>", *given, f"</{tag}>"])

    async def main() -> float:
        rewards = [
            (await play(env, example, Player(lambda messages, e=example: copy(e, messages)))).reward or 0.0
            for example in examples(env)
        ]
        return sum(rewards) / len(rewards)

    assert asyncio.run(main()) == pytest.approx(floor, abs=0.03)
    assert f"about {floor}" in (FOLDER / module / "README.md").read_text()
