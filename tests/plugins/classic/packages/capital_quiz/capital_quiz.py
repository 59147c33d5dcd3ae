from datasets import Dataset
from verifiers.parsers.xml_parser import XMLParser
from verifiers.types import ChatMessage, Info, Messages, State

import verifiers as vf

COUNTRIES = {
    "Austria": ("Vienna", "Europe", '{"hard": false, "river": "Danube"}'),
    "Peru": ("Lima", "America", '{"hard": false, "river": "Rimac"}'),
    "Ghana": ("Accra", "Africa", '{"hard": true, "river": "Densu"}'),
    "Nepal": ("Kathmandu", "Asia", '{"hard": true, "river": "Bagmati"}'),
    "Fiji": ("Suva", "Oceania", '{"hard": true, "river": "Rewa"}'),
}

FEW_SHOT: list[ChatMessage] = [
    {"role": "user", "content": "What is the capital of France?"},
    {"role": "assistant", "content": "<notes>\neasy\n</notes>\n<city>\nParis\n</city>"},
]


def load_environment(
    system_prompt: str | None = "Answer in the given format.",
    bonus: float = 0.25,
    **kwargs,
) -> vf.Environment:
    rows = []
    for country, (capital, continent, info) in COUNTRIES.items():
        rows.append(
            {
                "question": f"What is the capital of {country}?",
                "answer": capital,
                "task": continent,
                "info": info,
            }
        )
    dataset = Dataset.from_list(rows)
    parser = XMLParser(["notes", ("city", "capital")], answer_field="city")

    def exact(parser, completion: Messages, answer: str) -> float:
        found = parser.parse_answer(completion) or ""
        return 1.0 if found.lower() == answer.lower() else 0.0

    async def alternative(completion, answer, **kwargs) -> float:
        parsed = parser.parse(completion[-1]["content"])
        return float(parsed.capital == answer)

    def names_river(completion, info: Info) -> bool:
        return info["river"] in completion[-1]["content"]

    def everything(**kwargs) -> int:
        wanted = {"prompt", "completion", "answer", "state", "task", "info", "parser"}
        return len(wanted & set(kwargs))

    def on_continent(task: str, state: State) -> float:
        return float(task == state["task"] == COUNTRIES[state["prompt"][-1]["content"].split()[-1][:-1]][1])

    def shots_seen(prompt) -> float:
        return float(len([m for m in prompt if m["role"] == "assistant"]))

    rubric = vf.Rubric(
        funcs=[exact, alternative, parser.get_format_reward_func(), names_river],
        weights=[1.0, 0.5, bonus, 0.0],
        parser=parser,
    )
    rubric.add_metric(everything)
    rubric.add_metric(shots_seen)
    rubric.add_reward_func(on_continent, weight=0)
    return vf.SingleTurnEnv(
        dataset=dataset,
        system_prompt=system_prompt,
        few_shot=FEW_SHOT,
        parser=parser,
        rubric=rubric,
        sampling_args={"temperature": 0.5, "extra_body": {"top_k": 7}},
        **kwargs,
    )
