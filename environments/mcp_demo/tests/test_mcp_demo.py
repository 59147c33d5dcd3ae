"""Numbers that are read or not, the server's tools, and the two ways to run the server."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tables import for_each_row

from harness import Message, Messages, ModelResponse, Prompt, State
from harness.keys import ExampleKeys
from mcp_demo import SCRIPT, load_environment
from mcp_demo.grading import read_number
from mcp_demo.stockroom import MATERIALS, SHELVES, THINGS, make_stockroom


@for_each_row(
    ("reply", "number"),
    [
        ("\\boxed{123}", "123"),
        ("There are $\\boxed{ 1,234 }$ of them.", "1234"),
        ("\\boxed{12 345}", "12345"),
        ("\\boxed{123.}", "123"),
        ("\\boxed{123} and again \\boxed{123}", "123"),
        ("\\boxed{123} or \\boxed{124}", ""),
        ("<think>\\boxed{1}</think>\\boxed{2}", "2"),
        ("<think>\\boxed{1}", ""),
        ("\\boxed{many}", ""),
        ("\\boxed{many}, that is, \\boxed{12}", "12"),
        ("\\boxed{512 \\text{ coins}}", "512"),
        ("\\boxed{512\\text{ coins}}", "512"),
        ("\\boxed{512 coins (in all)}", "512"),
        ("\\boxed{\\text{Total: }512}", "512"),
        ("\\boxed{x = 512}", "512"),
        ("\\boxed{1{,}234}", "1234"),
        ("\\boxed{1\\,234}", "1234"),
        ("\\boxed{1,234,567.00}", "1234567"),
        ("\\boxed {512}", "512"),
        ("\\boxed{\\$512}", "512"),
        ("\\boxed{\\textbf{512}}", "512"),
        ("\\boxed{\\boxed{512}}", "512"),
        ("\\fbox{512}", "512"),
        ("\\boxed{512.0}", "512"),
        ("\\boxed{512} or \\boxed{512.0}", "512"),
        ("\\boxed{0512}", "512"),
        ("\\boxed{0}", "0"),
        ("\\boxed{５１２}", "512"),
        ("\\boxed{512.5}", ""),
        ("\\boxed{12} and \\boxed{13 pieces}", ""),
        ("\\boxed{12} and \\boxed{13.5}", ""),
        ("\\boxed{12 or 13}", ""),
        ("\\boxed{12 or more}", ""),
        ("\\boxed{12 thousand}", ""),
        ("\\boxed{300 + 212 = 512}", ""),
        ("\\boxed{1,2345}", ""),
        ("\\boxed{1 2}", ""),
        ("\\boxed{12^2}", ""),
        ("\\boxed{12½}", ""),
        ("\\boxed{1/2}", ""),
        ("\\boxed{12", ""),
        ("\\boxed{" + "9" * 300 + "}", ""),
        ("\\boxed{-5}", ""),
        ("123", ""),
        ("", ""),
    ],
)
def test_a_number_is_read_or_there_is_none(reply: str, number: str) -> None:
    assert read_number(reply) == number


def test_stock_and_prices_belong_to_the_seed() -> None:
    one, same, other = make_stockroom(1), make_stockroom(1), make_stockroom(2)
    assert one == same != other
    assert len(one.numbers) == len(set(one.numbers.values())) == len(MATERIALS) * len(THINGS) == 80
    assert set(one.prices) == set(one.numbers.values())
    assert set(one.stock) == {(number, shelf) for number in one.prices for shelf in SHELVES}


def test_answers_are_what_the_stockroom_holds() -> None:
    env, stockroom = load_environment(num_examples=300, seed=4), make_stockroom(4)
    asked: set[str] = set()
    for index in range(300):
        row = env.row(index)
        number = stockroom.numbers[row.info["item"]]
        there = sum(stockroom.stock[number, shelf] for shelf in row.info["shelves"])
        asked.add(row.info["asks"])
        assert int(row.answer) == there * (stockroom.prices[number] if row.info["asks"] == "worth" else 1)
        question = str(row.prompt[-1]["content"])  # type: ignore[index]
        assert all(shelf in question for shelf in row.info["shelves"]) and row.info["item"] in question
        assert not any(character.isdigit() for character in question)
    assert asked == {"count", "sum", "worth"}


class Player:
    """A model that answers as a policy says."""

    model = "player"

    def __init__(self, policy: Callable[[Messages], Message | str]) -> None:
        self.policy = policy
        self.tools: list[list[str]] = []

    async def __call__(self, prompt: Prompt, **more: Any) -> ModelResponse:
        assert isinstance(prompt, list)
        self.tools.append([tool["function"]["name"] for tool in more["tools"] or ()])
        reply = self.policy(prompt)
        return ModelResponse({"role": "assistant", "content": reply} if isinstance(reply, str) else reply, "stop")


def call(name: str, number: int, /, **arguments: str) -> dict[str, Any]:
    return {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


@pytest.mark.slow
@for_each_row("transport", ["memory", "stdio"])
def test_the_ideal_player_asks_the_server_for_everything_it_says(transport: Any) -> None:
    env = load_environment(num_examples=20, seed=5, transport=transport)
    number = next(index for index in range(20) if env.row(index).info["asks"] == "worth")
    example = ExampleKeys().example(env.row(number), number)
    state = State.begin(example, 0, "player", {})
    model = Player(lambda messages: env.reference_reply(example, messages))

    async def main() -> None:
        await env.rollout(state, model)
        await env.rubric.score([state])
        await env.teardown()

    asyncio.run(main())
    stockroom = make_stockroom(5)
    item = stockroom.numbers[example.info["item"]]
    roles = [message["role"] for message in state["completion"]]
    assert roles == ["assistant", "tool", "assistant", "tool", "tool", "assistant"]
    found, stock, price = (message["content"] for message in state["completion"] if message["role"] == "tool")
    assert {"name": example.info["item"], "number": item} in json.loads(found)
    assert (int(stock), int(price)) == (stockroom.stock[item, example.info["shelves"][0]], stockroom.prices[item])
    assert model.tools == [["find_item", "stock_of", "price_of"]] * 3
    assert state["metrics"] == {
        "correct": 1.0,
        "num_turns": 3.0,
        "total_tool_calls": 3.0,
        "find_item_calls": 1.0,
        "stock_of_calls": 1.0,
        "price_of_calls": 1.0,
    }


@pytest.mark.slow
def test_the_program_imports_nothing_from_where_it_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("json", "mcp_demo", "stockroom"):
        (tmp_path / f"{name}.py").write_text(f"raise RuntimeError('this is not the {name} that was meant')\n")
    monkeypatch.chdir(tmp_path)
    env = load_environment(num_examples=1, transport="stdio")
    example = ExampleKeys().example(env.row(0), 0)
    state = State.begin(example, 0, "player", {})

    async def main() -> None:
        await env.rollout(state, Player(lambda messages: env.reference_reply(example, messages)))
        await env.rubric.score([state])
        await env.teardown()

    asyncio.run(main())
    assert state["reward"] == 1.0


@pytest.mark.slow
def test_the_program_starts_without_a_warning() -> None:
    command = [sys.executable, "-P", str(SCRIPT), "3"]
    done = subprocess.run(command, input="", capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "" and "Warning" not in done.stderr


def test_wrong_calls_are_answered_and_the_model_may_try_again() -> None:
    env = load_environment(num_examples=1)
    example = ExampleKeys().example(env.row(0), 0)
    state = State.begin(example, 0, "player", {})
    wrong = [call("stock_of", 0, number="K-1", shelf="Oak"), call("price_of", 1), call("find_item", 2, name="unicorn")]
    replies: list[Message | str] = [
        {"role": "assistant", "content": None, "tool_calls": wrong},
        "\\boxed{1}",
    ]
    model = Player(lambda _: replies.pop(0))

    async def main() -> None:
        await env.rollout(state, model)
        await env.rubric.score([state])
        await env.teardown()

    asyncio.run(main())
    said = [message["content"] for message in state["completion"] if message["role"] == "tool"]
    assert "there is no item number 'K-1'; find_item tells numbers" in said[0]
    assert "number" in said[1] and "issing" in said[1]
    assert said[2] == "[]"
    assert (state["reward"], state["stop_condition"]) == (0.0, "no_tools_called")
