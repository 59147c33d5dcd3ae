"""Arguments that the model does not see."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from scripted_chat import ScriptedChat, example_of
from tables import for_each_row

from harness import State, StatefulToolEnv
from harness.core.errors import EnvironmentFault
from harness.core.types import JsonDict, Message, Messages
from harness.tools import read_tool

ROWS = [{"question": "q"}]


class Account:
    """A value that no JSON holds."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.balance = 0


def deposit(amount: int, account: Account, note: str = "") -> str:
    """Put money into the account.

    Args:
        amount: How much.
        account: Whose.
        note: What for.
    """
    account.balance += amount
    return f"{account.owner} has {account.balance}{note}"


class Bank(StatefulToolEnv):
    seen: list[tuple[str, JsonDict, int]]

    def __init__(self, **options: Any) -> None:
        super().__init__(dataset=ROWS, **options)
        self.add_tool(deposit, args_to_skip=["account"])
        self.seen = []
        self.thread = 0

    async def setup_state(self, state: State) -> None:
        state["account"] = Account(state["answer"])

    def update_tool_args(
        self, tool_name: str, tool_args: JsonDict, messages: Messages, state: State, **kwargs: Any
    ) -> JsonDict:
        self.seen.append((tool_name, dict(tool_args), len(messages)))
        self.thread = threading.get_ident()
        return {**tool_args, "account": state["account"]}


class AsyncBank(Bank):
    async def update_tool_args(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, tool_name: str, tool_args: JsonDict, messages: Messages, state: State, **kwargs: Any
    ) -> JsonDict:
        self.thread = threading.get_ident()
        return {**tool_args, "account": state["account"]}


def calls(*arguments: str) -> Message:
    made = [
        {"id": f"c{number}", "type": "function", "function": {"name": "deposit", "arguments": text}}
        for number, text in enumerate(arguments)
    ]
    return {"role": "assistant", "content": None, "tool_calls": made}


def play(env: StatefulToolEnv, *replies: object, answer: str = "Ada") -> State:
    state = State.begin(example_of(env.row(0).prompt, answer=answer), 0, "m", {})
    asyncio.run(env.rollout(state, ScriptedChat([*replies, "done"])))
    return state


def answers(state: State) -> list[str]:
    return [message["content"] for message in state["completion"] if message["role"] == "tool"]


@for_each_row(("kind", "in_a_thread"), [(Bank, True), (AsyncBank, False)])
def test_hidden_arguments_come_from_the_rollouts_state(kind: type[Bank], in_a_thread: bool) -> None:
    env = kind()
    assert answers(play(env, calls('{"amount": "5"}', '{"amount": 2}'))) == ["Ada has 5", "Ada has 7"]
    assert answers(play(env, calls('{"amount": 1}'), answer="Grace")) == ["Grace has 1"]
    assert (env.thread != threading.get_ident()) is in_a_thread


def test_the_model_does_not_see_them() -> None:
    (definition,) = Bank().tool_defs
    assert definition["function"]["parameters"] == {
        "type": "object",
        "properties": {
            "amount": {"type": "integer", "description": "How much."},
            "note": {"type": "string", "default": "", "description": "What for."},
        },
        "required": ["amount"],
        "additionalProperties": False,
    }


def test_the_model_cannot_set_them_and_only_fitting_calls_are_filled_in() -> None:
    env = Bank()
    state = play(env, calls('{"amount": 5, "account": "mine"}', '{"amount": "x"}', "{", '{"amount": 1}'))
    assert answers(state)[0] == ("deposit: unknown argument 'account' (did you mean 'amount'?); it takes amount, note")
    assert "argument 'amount'" in answers(state)[1] and "not valid JSON" in answers(state)[2]
    assert answers(state)[3] == "Ada has 1"
    assert env.seen == [("deposit", {"amount": 1}, 2)]


def test_a_count_is_kept_for_them_too() -> None:
    assert Bank().rubric.metric_names == ("num_turns", "total_tool_calls", "deposit_calls")


@for_each_row(
    ("returned", "words"),
    [
        (None, r"Broken\.update_tool_args must return the arguments as a dict, not NoneType"),
        ({"amount": 1}, "its hidden argument 'account' has no value"),
        (
            {"amount": "many", "account": 1},
            r"Broken\.update_tool_args returned invalid arguments: deposit: argument 'am",
        ),
        ({"amount": 1, "acount": 1}, r"returned invalid arguments: deposit: unknown argument 'acount'"),
    ],
)
def test_what_update_tool_args_gets_wrong_is_not_told_to_the_model(returned: Any, words: str) -> None:
    class Broken(Bank):
        def update_tool_args(self, *args: Any, **kwargs: Any) -> Any:
            return returned

    with pytest.raises(EnvironmentFault, match=words):
        play(Broken(), calls('{"amount": 1}'))


def test_an_exception_of_update_tool_args_fails_the_rollout() -> None:
    class Broken(Bank):
        def update_tool_args(self, *args: Any, **kwargs: Any) -> Any:
            raise KeyError("session")

    with pytest.raises(KeyError, match="session"):
        play(Broken(), calls('{"amount": 1}'))


def test_update_tool_args_may_change_what_the_model_sent() -> None:
    class Doubling(Bank):
        def update_tool_args(self, tool_name: str, tool_args: JsonDict, *args: Any, **kwargs: Any) -> JsonDict:
            return {"amount": 2 * tool_args["amount"], "account": Account("Bob"), "note": "!"}

    assert answers(play(Doubling(), calls('{"amount": 21}'))) == ["Bob has 42!"]


def test_a_missing_or_wrong_update_tool_args_is_refused_at_construction() -> None:
    class Missing(StatefulToolEnv):
        pass

    class Short(StatefulToolEnv):
        def update_tool_args(self, tool_name: str) -> JsonDict:  # pyright: ignore[reportIncompatibleMethodOverride]
            return {}

    with pytest.raises(TypeError, match="update_tool_args"):
        Missing(dataset=ROWS)  # pyright: ignore[reportAbstractUsage]
    with pytest.raises(EnvironmentFault, match=r"Short\.update_tool_args must take"):
        Short(dataset=ROWS)


def test_only_parameters_that_there_are_can_be_skipped() -> None:
    with pytest.raises(EnvironmentFault, match="did you mean 'account'"):
        Bank().add_tool(deposit, args_to_skip=["acount"])


def test_a_tool_that_is_read_already_hides_what_it_is_told_to() -> None:
    env = Bank()
    env.remove_tool(deposit)
    tool = read_tool(deposit, ["account"], name="pay_in")
    env.add_tool(tool, args_to_skip=["note"])
    (definition,) = env.tool_defs
    assert definition["function"]["name"] == "pay_in"
    assert list(definition["function"]["parameters"]["properties"]) == ["amount"]
    env.remove_tool(tool)
    assert env.tool_defs == []


def test_the_model_cannot_set_them_where_anything_may_be_set() -> None:
    def write(text: str, owner: str, **rest: Any) -> str:
        return f"{owner} wrote {text} {rest}"

    class Notes(StatefulToolEnv):
        def update_tool_args(self, tool_name: str, tool_args: JsonDict, *args: Any, **kwargs: Any) -> JsonDict:
            tool_args.setdefault("owner", "Ada")
            return tool_args

    env = Notes(dataset=ROWS)
    env.add_tool(write, args_to_skip=["owner"])
    asked = [
        {"id": f"c{number}", "type": "function", "function": {"name": "write", "arguments": text}}
        for number, text in enumerate(['{"text": "t", "owner": "root"}', '{"text": "t", "size": 3}'])
    ]
    state = play(env, {"role": "assistant", "content": None, "tool_calls": asked})
    assert answers(state) == ["write: unknown argument 'owner'; it takes text", "Ada wrote t {'size': 3}"]
