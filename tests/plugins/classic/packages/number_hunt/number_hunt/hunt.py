import random

import verifiers as vf
from datasets import Dataset
from verifiers.envs.multiturn_env import MultiTurnEnv
from verifiers.types import Messages, State

from number_hunt.words import FOUND, first_number


class HuntEnv(MultiTurnEnv):
    def __init__(self, log: str | None = None, **kwargs):
        super().__init__(**kwargs)
        self.log = log
        self.calls = random.Random(0)

    def note(self, line: str) -> None:
        if self.log:
            with open(self.log, "a") as file:
                file.write(line + "\n")

    async def setup_state(self, state: State, **kwargs) -> State:
        state["guesses"] = []
        state["order"] = []
        return await super().setup_state(state, **kwargs)

    @vf.stop(priority=10)
    async def gave_up(self, state: State) -> bool:
        state["order"].append("gave_up")
        last = state["trajectory"][-1]["completion"] if state["trajectory"] else []
        return bool(last) and "give up" in last[-1]["content"]

    @vf.stop
    async def again_and_again(self, state: State) -> bool:
        state["order"].append("again_and_again")
        said = [step["completion"][-1]["content"] for step in state["trajectory"]]
        return len(said) >= 2 and said[-1] == said[-2]

    @vf.stop(priority=-5)
    async def bored(self, state: State) -> bool:
        state["order"].append("bored")
        return False

    async def env_response(self, messages: Messages, state: State, **kwargs) -> Messages:
        from number_hunt.words import HIGH, LOW  # late, while the rollout runs

        assert isinstance(messages, list)
        guess = first_number(messages[-1]["content"])
        if guess is None:
            return [{"role": "user", "content": "A number, please."}]
        if guess == 13:
            raise vf.InfraError("the thirteenth box is jammed")
        state["guesses"].append(guess)
        wanted = int(state["answer"])
        if guess == wanted:
            state["final_env_response"] = [{"role": "user", "content": FOUND}]
            return []
        return [
            {"role": "user", "content": LOW if guess < wanted else HIGH},
            {"role": "user", "content": f"{len(state['guesses'])} so far."},
        ]

    @vf.cleanup
    async def close_box(self, state: State):
        state["closed"] = state.get("closed", []) + ["box"]
        self.note(f"box {state['answer']}")

    @vf.cleanup(priority=5)
    async def close_lid(self, state: State):
        state["closed"] = state.get("closed", []) + ["lid"]

    @vf.teardown
    async def lock_up(self):
        self.note("locked")


def found(state: State) -> float:
    return float(int(state["answer"]) in state["guesses"])


def speed(state, completion) -> float:
    turns = [m for m in completion if m["role"] == "assistant"]
    return found(state) / max(1, len(turns))


def steps(state) -> float:
    whole = [step["prompt"] + step["completion"] for step in state["trajectory"]]
    return sum(len(messages) for messages in whole)


def tidy(state) -> float:
    return float(state["closed"] == ["lid", "box"])


def in_order(state) -> float:
    first = state["order"][:3]
    return float(first == ["gave_up", "again_and_again", "bored"])


def load_environment(low: int = 1, high: int = 40, max_turns: int = 5, log: str | None = None):
    rows = [
        {"prompt": [{"role": "user", "content": f"My number is from {low} to {high}. ({i})"}], "answer": str(n)}
        for i, n in enumerate([7, 13, 30, 22, 31])
    ]
    rubric = vf.Rubric(funcs=[found, speed], weights=[1.0, 0.5])
    for metric in (steps, tidy, in_order):
        rubric.add_reward_func(metric, weight=0.0)
    return HuntEnv(dataset=Dataset.from_list(rows), rubric=rubric, max_turns=max_turns, log=log)
