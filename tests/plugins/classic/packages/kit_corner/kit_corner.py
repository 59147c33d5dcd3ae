from copy import deepcopy

import verifiers as vf
from datasets import Dataset
from openai import AsyncOpenAI
from verifiers.types import ChatCompletion, ModelResponse, RewardFunc, RolloutInput, SamplingArgs, TrajectoryStep
from verifiers.utils.async_utils import maybe_await
from verifiers.utils.message_utils import concat_messages
from verifiers.utils.tool_utils import convert_func_to_oai_tool

PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
)


def knock(times: int) -> str:
    """Knock at the door."""
    return "knock " * times


class Scale:
    def __init__(self, factor: float):
        self.factor = factor


class CornerEnv(vf.MultiTurnEnv):
    def __init__(self, hint_model: str | None = None, **kwargs):
        super().__init__(**kwargs)
        self.hint_model = hint_model

    async def setup_state(self, state, **kwargs):
        state["calls"] = 0
        state["keys"] = [key for key in ("prompt", "answer", "task", "info", "example_id") if key in state["input"]]
        state["hidden_keys"] = [key for key in ("prompt", "answer") if key in state]
        return state

    async def add_trajectory_step(self, state, trajectory_step: TrajectoryStep):
        trajectory_step["extras"]["number"] = len(state["trajectory"])
        await super().add_trajectory_step(state, trajectory_step)

    async def env_response(self, messages, state, **kwargs):
        client: AsyncOpenAI = state["client"]
        question = [{"role": "user", "content": "hint? " + messages[-1]["content"]}]
        response: ModelResponse = await self.get_model_response(state, question)
        assert isinstance(response, ChatCompletion)
        first = response.choices[0].message.content
        other = await client.chat.completions.create(
            model=state["model"], messages=[{"role": "user", "content": "again?"}]
        )
        state["calls"] += 2
        return [{"role": "user", "content": f"{first} / {other.choices[0].message.content}"}]

    async def render_completion(self, state):
        await super().render_completion(state)
        state["whole"] = concat_messages([state["prompt"], state["completion"]])


def extras(state) -> float:
    return float([step["extras"]["number"] for step in state["trajectory"]] == list(range(len(state["trajectory"]))))


async def scaled(completion, scale, **kwargs) -> float:
    value = await maybe_await(lambda: len(completion[-1]["content"]))
    return value * scale.factor


def seen(state, prompt) -> float:
    parts = prompt[-1]["content"]
    kinds = [part["type"] for part in parts] if isinstance(parts, list) else ["text"]
    return float(len(kinds)) + 0.1 * state["calls"]


def keys(state) -> float:
    return float(len(state["keys"]) + 10 * len(state["hidden_keys"]) + 100 * ("prompt" in state["input"]))


def whole(state) -> float:
    return float(len(state["whole"]))


class CountRubric(vf.Rubric):
    def __init__(self, **kwargs):
        funcs: list[RewardFunc] = [whole]
        super().__init__(funcs=funcs, weights=[0.0], **kwargs)


def load_environment(num_examples: int = -1, **kwargs):
    assert convert_func_to_oai_tool(knock)["function"]["name"] == "knock"
    args: SamplingArgs = {"temperature": 1.0, "extra_body": {"min_p": 0.1}}
    rows: list[RolloutInput] = [
        {
            "example_id": 10,
            "task": "words",
            "answer": "x",
            "prompt": [{"role": "user", "content": [{"type": "text", "text": "Just words"}]}],
        },
        {
            "example_id": 11,
            "task": "picture",
            "answer": "y",
            "prompt": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "What is it?"},
                        {"type": "image_url", "image_url": {"url": PIXEL}},
                    ],
                }
            ],
        },
    ]
    rubric = vf.Rubric(funcs=[scaled, extras, seen], weights=[1.0, 1.0, 0.0])
    rubric.add_class_object("scale", Scale(0.5))
    rubric.add_metric(keys)
    env = CornerEnv(
        dataset=Dataset.from_list(rows),
        rubric=rubric,
        max_turns=2,
        sampling_args=deepcopy(args),
        hint_model="none",
        odd_attribute=5,
    )
    assert env.odd_attribute == 5 and env.message_type == "chat"
    assert env.get_dataset(n=1).column_names and len(env.get_eval_dataset()) == 2
    env.add_rubric(CountRubric())
    env.set_kwargs(max_turns=3, other=1)
    return env
