import json

import verifiers as vf
from datasets import Dataset
from verifiers.types import AssistantMessage, Messages, State, UserMessage

RIVERS = [
    ("Nile", "Africa", 6650),
    ("Amazon", "America", 6400),
    ("Rhine", "Europe", 1230),
    ("Murray", "Australia", 2508),
]


def load_environment(need: str | None = None, **env_args) -> vf.Environment:
    if need:
        vf.ensure_keys([need])

    def build() -> Dataset:
        rows = [
            {
                "prompt": [{"role": "user", "content": f"Where is the {name}, and how long is it?"}],
                "answer": continent,
                "info": json.dumps({"length": length}),
                "difficulty": position,
            }
            for position, (name, continent, length) in enumerate(RIVERS)
        ]
        return Dataset.from_list(rows)

    parser = vf.XMLParser(["continent", "km"], answer_field="continent")

    def right_place(completion: Messages, answer: str, parser: vf.Parser) -> float:
        return float(parser.parse_answer(completion) == answer)

    async def near_enough(parser, completion, info) -> float:
        last = completion[-1]
        assert isinstance(last, AssistantMessage)
        km = parser.parse(last.content).km
        return 1.0 if km and abs(int(km) - info["length"]) < 100 else 0.0

    def both_ways(completion, prompt) -> float:
        said, asked = completion[-1], prompt[-1]
        same = said.content == said["content"] == said.get("content")
        dumped = asked.model_dump(exclude_none=True)
        equal = asked == UserMessage(content=asked.content) and asked == {"role": "user", "content": asked["content"]}
        return float(same and equal and dumped["role"] == asked.role and said.get("nothing", 7) == 7)

    def hard(difficulty: int) -> float:
        return float(difficulty)

    def all_columns(**kwargs) -> float:
        return float({"difficulty", "prompt", "completion", "answer", "state", "info", "parser"} <= set(kwargs))

    def tokens(state: State) -> float:
        response = state["trajectory"][0]["response"]
        return float(response.usage.completion_tokens + len(response.message.content) * 0)

    rubric = vf.Rubric(funcs=[right_place, near_enough], weights=[1.0, 0.5], parser=parser)
    rubric.add_reward_func(parser.get_format_reward_func(), weight=0.1)
    for metric in (both_ways, hard, all_columns, tokens):
        rubric.add_metric(metric)
    return vf.SingleTurnEnv(
        eval_dataset=build,
        dataset=build,
        system_prompt="Give <continent> and <km>.",
        parser=parser,
        rubric=rubric,
        sampling_args={"max_tokens": 64, "stop": ["###"]},
        **env_args,
    )
