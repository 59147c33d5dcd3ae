from dataclasses import dataclass

import verifiers as vf
from datasets import Dataset


@dataclass
class Vault:
    money: dict


class ClerkEnv(vf.StatefulToolEnv):
    def __init__(self, **kwargs):
        super().__init__(tools=[], **kwargs)
        self.add_tool(self.transfer, args_to_skip=["vault", "state"])
        self.add_tool(self.forget)
        self.remove_tool(self.forget)

    async def setup_state(self, state: vf.State, **kwargs) -> None:
        await super().setup_state(state, **kwargs)
        state["vault"] = Vault(dict(state["info"]["accounts"]))
        state["log"] = []

    async def transfer(self, source: str, target: str, amount: int, vault: Vault, state: vf.State) -> str:
        """Move money.

        Args:
            source: From whom.
            target: To whom.
            amount: How much.
        """
        if vault.money.get(source, 0) < amount:
            raise vf.ToolCallError(f"{source} has too little")
        vault.money[source] -= amount
        vault.money[target] = vault.money.get(target, 0) + amount
        state["log"].append([source, target, amount])
        return f"{source}: {vault.money[source]}"

    def forget(self) -> str:
        """Forget everything."""
        return ""

    def update_tool_args(
        self, tool_name: str, tool_args: dict, messages: vf.Messages, state: vf.State, **kwargs
    ) -> dict:
        assert messages[-1].tool_calls
        return {**tool_args, "vault": state["vault"], "state": state}

    @vf.cleanup
    async def empty_vault(self, state: vf.State):
        state["final_money"] = dict(state.pop("vault").money)


def sum_is_kept(state, info) -> float:
    return float(sum(state["final_money"].values()) == sum(info["accounts"].values()))


def moved(state, answer) -> float:
    return float(state["final_money"].get("Bo", 0) == int(answer))


def log_length(state) -> int:
    return len(state["log"])


def offered(state) -> float:
    [tool] = state["tool_defs"]
    assert isinstance(tool, vf.Tool)
    return float(tool.name == "transfer" and sorted(tool.parameters["properties"]) == ["amount", "source", "target"])


def load_environment(stop_on_error: bool = False):
    accounts = [{"Al": 10, "Bo": 0}, {"Al": 3, "Bo": 2}, {"Al": 0, "Bo": 1}]
    rows = [
        {"question": f"Case {i}: give Bo 5", "answer": "5", "info": {"accounts": a}} for i, a in enumerate(accounts)
    ]
    rubric = vf.Rubric(funcs=[moved, sum_is_kept], weights=[1.0, 0.1])
    rubric.add_metric(log_length)
    rubric.add_metric(offered)
    return ClerkEnv(
        eval_dataset=Dataset.from_list(rows),
        rubric=rubric,
        max_turns=3,
        stop_errors=[vf.ToolError] if stop_on_error else [],
    )
