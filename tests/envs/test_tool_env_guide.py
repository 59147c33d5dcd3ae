"""The guide to tools: its examples run as they stand."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from scripted_chat import ScriptedChat

from harness import Environment, State, load_environment
from harness.core.keys import ExampleKeys
from harness.core.types import Message, Messages

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "tools.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"[Ss]ave this as `(\w+)\.py`.*?```python\n(.*?)```", GUIDE, re.DOTALL))

TOOLS = {"capitals": "population", "notebook": "note", "stars": "distance"}


def test_every_block_is_tried() -> None:
    assert set(EXAMPLES) == set(TOOLS)
    assert len(re.findall(r"```python\n", GUIDE)) == len(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_a_sound_environment(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"guide_{name}.py"
    path.write_text(EXAMPLES[name], encoding="utf-8")
    env = load_environment(str(path))
    assert f"{TOOLS[name]}_calls" in env.rubric.metric_names

    async def main() -> list[tuple[float | None, float | None, float | None]]:
        scores = [await rewards(env, index) for index in range(env.row_count)]
        await env.teardown()
        return scores

    assert asyncio.run(main()) == [(1.0, 1.0, 0.0)] * 3


async def rewards(env: Environment, index: int) -> tuple[float | None, float | None, float | None]:
    """What the ideal player gets and how many tools it calls, and what the null player gets."""
    example = ExampleKeys().example(env.row(index), index)

    def ideal(messages: Messages) -> Message | str:
        return env.reference_reply(example, messages)

    def null(messages: Messages) -> Message | str:
        return env.null_reply(example, messages)

    found: list[float | None] = []
    for player in (ideal, null):
        state = State.begin(example, 0, "reference", {})
        await env.rollout(state, ScriptedChat([player]))
        (score,) = await env.rubric.score([state])
        assert score.reasons == {}
        found += [score.reward, score.metrics["total_tool_calls"]]
    assert found[3] == 0.0
    return found[0], found[1], found[2]
