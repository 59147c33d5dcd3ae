"""The guide for authors: its examples run as they stand."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from scripted_chat import ScriptedChat

import harness
from harness import Environment, State, load_environment
from harness.core.keys import ExampleKeys
from harness.core.types import Message, Messages

DOCS = Path(__file__).resolve().parents[2] / "docs"
GUIDE = (DOCS / "guides" / "environments.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)


@pytest.fixture
def high_low(tmp_path: Path) -> Environment:
    path = tmp_path / "high_low.py"
    path.write_text(BLOCKS[0], encoding="utf-8")
    return load_environment(str(path))


def play(env: Environment, reply: str) -> tuple[State, float | None]:
    """Score the first row, played by its reference, its null player, or with a fixed reply."""
    example = ExampleKeys().example(env.row(0), 0)

    def answer(messages: Messages) -> Message | str:
        if reply == "oracle":
            return env.reference_reply(example, messages)
        return env.null_reply(example, messages) if reply == "null" else reply

    async def main() -> tuple[State, float | None]:
        state = State.begin(example, 0, "reference", {})
        await env.rollout(state, ScriptedChat([answer]))
        (score,) = await env.rubric.score([state])
        assert score.reasons == {}
        return state, score.reward

    return asyncio.run(main())


def test_the_screenful_is_a_sound_environment(high_low: Environment) -> None:
    assert high_low.row_count == 100
    assert high_low.has_reference
    state, reward = play(high_low, "oracle")
    assert reward == high_low.rubric.reward_range[1] == 1.5
    assert (state["stop_condition"], state["completion"][-1]["content"]) == ("has_final_env_response", "Yes!")
    state, reward = play(high_low, "null")
    assert reward == high_low.rubric.reward_range[0] == 0.0
    assert (state["stop_condition"], len(state["trajectory"])) == ("max_turns_reached", 8)


def test_its_stop_condition_works(high_low: Environment) -> None:
    state, reward = play(high_low, "<guess>0</guess>")
    assert (state["stop_condition"], len(state["trajectory"]), reward) == ("gave_up", 4, 0.0)


def test_it_becomes_a_package_that_can_be_installed(tmp_path: Path, high_low: Environment) -> None:
    pytest.importorskip("hatchling")
    (project,) = re.findall(r"```toml\n(.*?)```", GUIDE, re.DOTALL)
    (tmp_path / "pyproject.toml").write_text(project, encoding="utf-8")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "dist"]
    subprocess.run(build, cwd=tmp_path, check=True, capture_output=True, timeout=120)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        entries = archive.read("high_low-0.1.0.dist-info/entry_points.txt").decode()
    assert "high_low.py" in names
    assert "high-low = high_low:load_environment" in entries


def test_the_single_turn_example_works(tmp_path: Path) -> None:
    path = tmp_path / "boxed.py"
    path.write_text(BLOCKS[1], encoding="utf-8")
    env = load_environment(str(path))
    assert play(env, r"It is \boxed{42}")[1] == 1.0
    assert play(env, "It is 42")[1] == 0.0


def test_the_reference_speaks_of_every_class_and_function() -> None:
    text = (DOCS / "reference" / "environment-api.md").read_text(encoding="utf-8")
    types = {"Chat", "Example", "JsonDict", "Message", "Messages", "ModelResponse", "Prompt", "Environment"}
    errors = {"EnvironmentFault", "HarnessError", "ModelError"}
    missing = [name for name in harness.__all__ if name not in text and name not in types | errors]
    assert missing == []
