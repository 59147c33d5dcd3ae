import os

import verifiers as vf
from datasets import Dataset
from openai import AsyncOpenAI


def load_environment(
    judge_model: str = "gpt-4.1-nano",
    judge_base_url: str | None = None,
    judge_api_key_var: str = "OPENAI_API_KEY",
    own_client: bool = True,
) -> vf.Environment:
    def build():
        return Dataset.from_list(
            [
                {"question": "Who wrote Faust?", "answer": "Goethe"},
                {"question": "Who wrote Emma?", "answer": "Austen"},
                {"question": "Who wrote Ulysses?", "answer": "Joyce"},
            ]
        )

    if own_client:
        client = AsyncOpenAI(base_url=judge_base_url, api_key=os.getenv(judge_api_key_var) or "EMPTY")
        rubric = vf.JudgeRubric(judge_client=client, judge_model=judge_model, parser=vf.MaybeThinkParser())
    else:
        rubric = vf.JudgeRubric(judge_model=judge_model, parser=vf.MaybeThinkParser())

    async def correct(judge, prompt, completion, answer, state) -> float:
        verdict = await judge(prompt, completion, answer, state)
        return 1.0 if "yes" in verdict.lower() else 0.0

    async def by_text(completion, answer, **kwargs) -> float:
        verdict = await rubric.judge(prompt="Is it a writer?", completion=completion[-1].content, answer=answer)
        return float(verdict.strip().lower() == "yes")

    rubric.add_reward_func(correct)
    rubric.add_reward_func(by_text, weight=0.0)

    checks = vf.Rubric(funcs=[short])
    return vf.SingleTurnEnv(
        dataset=build,
        system_prompt="One name only.",
        rubric=vf.RubricGroup(rubrics=[rubric, checks]),
        parser=vf.MaybeThinkParser(),
    )


def short(completion: vf.Messages) -> float:
    return 0.5 if len(completion[-1].content.split()) <= 2 else 0.0
