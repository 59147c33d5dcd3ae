"""A single file without a project that only the typed generation can run."""

import verifiers as vf
from datasets import Dataset


class PoliteEnv(vf.MultiTurnEnv):
    async def env_response(self, messages: vf.Messages, state: vf.State) -> vf.Messages:
        return [vf.UserMessage(content=f"You said {messages[-1].content}. Say please.")]


def polite(completion: vf.Messages) -> float:
    return float("please" in completion[-1].content)


def load_environment():
    rows = [{"question": "Ask for bread.", "answer": ""}, {"question": "Ask for salt.", "answer": ""}]
    return PoliteEnv(dataset=Dataset.from_list(rows), rubric=vf.Rubric(funcs=[polite]), max_turns=2)
