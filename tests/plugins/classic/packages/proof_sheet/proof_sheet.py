import verifiers as vf
from datasets import Dataset
from verifiers.utils.data_utils import BOXED_SYSTEM_PROMPT, extract_boxed_answer, extract_hash_answer


def load_environment(use_think: bool = True, split: str = "train"):
    solutions = ["So it is 1/2.\n#### \\frac{1}{2}", "#### 12", "#### x^2+2x+1", "#### 7"]
    questions = ["Half of one?", "3 x 4?", "Expand (x+1)^2.", "3 + 4?"]
    rows = [{"question": q, "answer": extract_hash_answer(s)} for q, s in zip(questions, solutions)]
    if use_think:
        parser = vf.ThinkParser(extract_fn=extract_boxed_answer)
    else:
        parser = vf.MaybeThinkParser(extract_fn=extract_boxed_answer)
    rubric = vf.MathRubric(parser=parser)
    rubric.add_reward_func(parser.get_format_reward_func(), weight=0.2)

    def raw_match(parser, completion, answer, **kwargs):
        return 1 if (parser.parse_answer(completion) or "") == answer else 0

    rubric.add_metric(raw_match)
    return vf.SingleTurnEnv(
        eval_dataset=Dataset.from_list(rows),
        system_prompt=BOXED_SYSTEM_PROMPT,
        parser=parser,
        rubric=rubric,
    )
