import asyncio
import importlib

import verifiers as vf
from datasets import Dataset
from verifiers.types import AssistantMessage, Response, State, SystemMessage, ToolMessage, TrajectoryStep, UserMessage
from verifiers.utils.async_utils import maybe_await
from verifiers.utils.message_utils import concat_messages, normalize_messages


class SlowEnv(vf.MultiTurnEnv):
    async def setup_state(self, state: State) -> None:
        state["ended"] = []

    async def add_trajectory_step(self, state: State, trajectory_step: TrajectoryStep) -> None:
        trajectory_step["extras"]["length"] = len(trajectory_step["prompt"])
        await super().add_trajectory_step(state, trajectory_step)

    async def env_response(self, messages: vf.Messages, state: State, **kwargs) -> vf.Messages:
        late = importlib.import_module("verifiers")  # asked for by name, while the rollout runs
        assert late.UserMessage is UserMessage
        if messages[-1].content == "wait":
            await asyncio.sleep(30)
        question = [SystemMessage(content="Be kind."), UserMessage(content="hint?")]
        response: Response = await self.get_model_response(state, question)
        hint = response.message.content
        asked = normalize_messages([{"role": "user", "content": f"A hint: {hint}"}], field_name="hint")
        assert isinstance(asked[0], UserMessage)
        return asked

    @vf.cleanup(priority=-1)
    async def last(self, state: State) -> None:
        state["ended"].append("last")

    @vf.cleanup
    async def middle(self, state: State) -> None:
        state["ended"].append("middle")


class CornerRubric(vf.Rubric):
    def __init__(self):
        super().__init__()
        self.add_reward_func(self.length)
        self.add_metric(self.tidy)
        self.add_metric(self.kinds)
        self.add_metric(self.steps)

    async def length(self, completion: vf.Messages) -> float:
        return await maybe_await(lambda: float(len(concat_messages([completion, completion]))))

    async def tidy(self, state: State) -> float:
        return float(state["ended"] == ["middle", "last"])

    async def kinds(self, prompt: vf.Messages, completion: vf.Messages) -> float:
        assert not any(isinstance(message, ToolMessage) for message in completion)
        good = isinstance(prompt[0], SystemMessage) and isinstance(completion[0], AssistantMessage)
        return float(good and "tool_calls" in completion[0] and completion[0].tool_calls is None)

    async def steps(self, state: State) -> float:
        return float(sum(step["extras"]["length"] for step in state["trajectory"]))


def load_environment(timeout_seconds: float = 3.0, tokens: int = 12) -> vf.Environment:
    rows = [{"question": "Quick"}, {"question": "Slow"}, {"question": "Chatty"}]
    env = SlowEnv(
        dataset=Dataset.from_list(rows),
        system_prompt="Corners.",
        rubric=CornerRubric(),
        max_turns=2,
        timeout_seconds=timeout_seconds,
        pass_threshold=0.7,
    )
    env.add_rubric(vf.Rubric(funcs=[bonus], weights=[0.5]))
    env.set_kwargs(max_turns=5)
    env.set_max_total_completion_tokens(tokens)
    return env


def bonus(state: State) -> float:
    return float(state.get("timed_out", False))
