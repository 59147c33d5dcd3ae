"""A single file without a project: what both generations have in common."""

import verifiers as vf
from datasets import Dataset


def load_environment(words: str = "sea sky", **kwargs):
    rows = [{"question": f"Say {word}", "answer": word} for word in words.split()]

    def said(completion, answer, parser):
        return 1.0 if parser.parse_answer(completion) == answer else 0.0

    def length(completion):
        return len(completion[-1]["content"])

    rubric = vf.Rubric(funcs=[said], parser=vf.Parser(extract_fn=str.strip))
    rubric.add_metric(length)
    return vf.SingleTurnEnv(dataset=Dataset.from_list(rows), rubric=rubric, **kwargs)
