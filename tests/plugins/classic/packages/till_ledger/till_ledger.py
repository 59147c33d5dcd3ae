import json

import verifiers as vf
from datasets import Dataset
from verifiers.envs.stateful_tool_env import StatefulToolEnv


async def pay_in(amount: int, drawer: dict, clerk: str = "nobody") -> str:
    """Pay money in.

    Args:
        amount: How much.
        drawer: Where it goes.
        clerk: Who does it.
    """
    if amount <= 0:
        raise ValueError("nothing to pay in")
    drawer["money"] += amount
    drawer["by"].append(clerk)
    return f"{drawer['money']} in the drawer"


def count(drawer: dict) -> int:
    """Count the money."""
    return drawer["money"]


class TillEnv(StatefulToolEnv):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.add_tool(pay_in, args_to_skip=["drawer", "clerk"])
        self.add_tool(count, args_to_skip=["drawer"])

    async def setup_state(self, state, **kwargs):
        state = await super().setup_state(state, **kwargs)
        state["drawer"] = {"money": int(state["info"]["float"]), "by": []}
        return state

    def update_tool_args(self, tool_name, tool_args, messages, state, **kwargs) -> dict:
        assert messages[-1]["role"] == "assistant"
        tool_args["drawer"] = state["drawer"]
        if tool_name == "pay_in":
            tool_args["clerk"] = state["info"]["clerk"]
        return tool_args


def balance(state, answer) -> float:
    return float(state["drawer"]["money"] == int(answer))


def signed(state, info) -> float:
    return float(set(state["drawer"]["by"]) <= {info["clerk"]})


def hidden(state) -> float:
    text = json.dumps(state["oai_tools"])
    return float("drawer" not in text.replace("in the drawer", "") or "clerk" not in text)


def load_environment(**kwargs):
    rows = [
        {"question": "Ann pays in 5 and 7.", "answer": "22", "info": {"float": 10, "clerk": "Ann"}},
        {"question": "Bob pays in nothing.", "answer": "3", "info": {"float": 3, "clerk": "Bob"}},
        {"question": "Cem counts.", "answer": "4", "info": {"float": 4, "clerk": "Cem"}},
        {"question": "Dee sends a list.", "answer": "1", "info": {"float": 1, "clerk": "Dee"}},
    ]
    rubric = vf.Rubric(funcs=[balance, signed], weights=[1.0, 0.5])
    rubric.add_reward_func(hidden, weight=0.0)
    return TillEnv(dataset=Dataset.from_list(rows), rubric=rubric, max_turns=4, **kwargs)
