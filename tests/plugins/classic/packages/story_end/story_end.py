import os

import verifiers as vf
from datasets import Dataset
from openai import AsyncOpenAI
from verifiers.rubrics.judge_rubric import JudgeRubric

JUDGE_PROMPT = """Story: {question}
Written: {response}
Known end: {answer}
Grade it A, B or C."""


def load_environment(
    judge_model: str = "grader",
    judge_base_url: str = "https://api.openai.com/v1",
    judge_api_key_var: str = "STORY_JUDGE_KEY",
):
    dataset = Dataset.from_list(
        [
            {"prompt": "Once there was a fox who", "answer": "met a goose", "info": {"theme": "fox"}},
            {"prompt": "Long ago a king had", "answer": "three sons", "info": {"theme": "king"}},
            {"prompt": "On the hill stood", "answer": "a mill", "info": {"theme": "mill"}},
        ]
    )
    client = AsyncOpenAI(base_url=judge_base_url, api_key=os.getenv(judge_api_key_var, "EMPTY"))
    rubric = JudgeRubric(
        judge_client=client,
        judge_model=judge_model,
        judge_prompt=JUDGE_PROMPT,
        judge_sampling_args={"temperature": 0.0, "max_tokens": 5},
    )

    async def grade(judge, prompt, completion, answer, state) -> float:
        verdict = await judge(prompt, completion, answer, state)
        again = await judge(prompt, completion, answer, state)
        assert verdict == again
        return {"A": 1.0, "B": 0.5}.get(verdict.strip(), 0.0)

    async def own_question(judge_client, judge_model, completion, info) -> float:
        reply = await judge_client.chat.completions.create(
            model=judge_model,
            messages=[{"role": "user", "content": f"Is this about a {info['theme']}? {completion}"}],
        )
        return float("yes" in (reply.choices[0].message.content or "").lower())

    def words(completion: str) -> float:
        return float(len(completion.split()))

    rubric.add_reward_func(grade, weight=1.0)
    rubric.add_reward_func(own_question, weight=0.5)
    rubric.add_reward_func(words, weight=0.0)
    return vf.SingleTurnEnv(dataset=dataset, rubric=rubric, message_type="completion")
