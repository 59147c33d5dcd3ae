import signal
from pathlib import Path

import verifiers as vf
from datasets import Dataset

from .rules import hits, letter


class LockEnv(vf.MultiTurnEnv):
    def __init__(self, log: str | None = None, window: int = 0, **kwargs):
        super().__init__(**kwargs)
        self.log = log
        self.window = window
        signal.signal(signal.SIGTERM, lambda number, frame: self.note("terminated"))

    def note(self, line: str) -> None:
        if self.log:
            with open(self.log, "a") as file:
                file.write(line + "\n")

    async def setup_state(self, state: vf.State) -> None:
        state["tried"] = ""
        state["seen_prompts"] = []

    async def get_prompt_messages(self, state: vf.State) -> vf.Messages:
        messages = await super().get_prompt_messages(state)
        state["seen_prompts"].append(len(messages))
        return messages

    async def env_response(self, messages: vf.Messages, state: vf.State, **kwargs) -> vf.Messages:
        said = messages[-1]
        assert said.role == "assistant" and said["role"] == "assistant"
        assert said.tool_calls is None and not said.get("tool_calls")
        tried = letter(said.content)
        if tried is None:
            raise vf.InfraError("the pick broke")
        state["tried"] += tried
        if hits(state["answer"], state["tried"]) == len(state["answer"]):
            state["final_env_response"] = [vf.UserMessage(content="Open.")]
            return []
        hint = vf.UserMessage(content=f"{hits(state['answer'], state['tried'])} of {len(state['answer'])}")
        return [hint] if len(state["tried"]) % 2 else [{"role": "user", "content": hint.content + "!"}]

    @vf.stop(priority=1)
    async def rusted(self, state: vf.State) -> bool:
        return len(state["tried"]) >= 3

    @vf.stop
    async def alarm(self, state: vf.State) -> bool:
        return state["tried"].endswith("zz") or len(state["tried"]) >= 3

    @vf.cleanup
    async def put_away(self, state: vf.State) -> None:
        state["away"] = [m.role for m in state["completion"]]
        self.note(f"away {state['example_id']}")

    @vf.teardown
    async def go_home(self) -> None:
        self.note("home")


class LockRubric(vf.Rubric):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.add_reward_func(self.opened)
        self.add_reward_func(self.gentle, weight=0.2)
        self.add_metric(self.cleaned)
        self.add_metric(self.prompts)

    async def opened(self, state: vf.State) -> float:
        return float(state["stop_condition"] == "has_final_env_response")

    async def gentle(self, state: vf.State, answer: str) -> float:
        return hits(answer, state["tried"]) / len(answer)

    async def cleaned(self, state: vf.State, completion: vf.Messages) -> float:
        return float(state.get("away") == [m.role for m in completion])

    async def prompts(self, state: vf.State) -> float:
        return float(sum(state["seen_prompts"]))

    @vf.cleanup
    async def wipe(self, state: vf.State) -> None:
        state["wiped"] = True


def load_environment(max_turns: int = 6, log: str | None = None) -> vf.Environment:
    rows = [{"question": f"Lock {i}", "answer": word} for i, word in enumerate(["ab", "xy", "qq", "e", "no"])]
    system = vf.SystemMessage.from_path(Path(__file__).parent / "system.txt")
    return LockEnv(
        dataset=Dataset.from_list(rows),
        system_prompt=str(system.content).strip(),
        rubric=LockRubric(),
        max_turns=max_turns,
        log=log,
    )
