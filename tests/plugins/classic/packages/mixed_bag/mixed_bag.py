import verifiers as vf
from datasets import Dataset
from verifiers.rubrics.rubric import Rubric
from verifiers.rubrics.rubric_group import RubricGroup


class LengthRubric(Rubric):
    def __init__(self, limit: int, **kwargs):
        super().__init__(**kwargs)
        self.limit = limit
        self.add_class_object("limit", limit)
        self.add_reward_func(self.short_enough, weight=0.5)
        self.add_reward_func(shared, weight=1.0)

    async def short_enough(self, completion, limit) -> float:
        return float(len(completion[-1]["content"]) <= limit == self.limit)


def shared(completion, parser) -> float:
    return float(parser.parse_answer(completion).endswith("!"))


def closest(completions, answers, infos) -> list[float]:
    """1 for the guess that is nearest to the answer among all of one example."""
    far = [abs(int(c[-1]["content"].strip("!")) - int(a)) for c, a in zip(completions, answers)]
    return [float(f == min(far)) for f in far]


async def spread(states, prompts, **kwargs) -> list[float]:
    """How many different guesses there are."""
    said = {state["completion"][-1]["content"] for state in states}
    return [float(len(said))] * len(states)


def exact(completion, answer) -> float:
    return float(completion[-1]["content"].strip("!") == answer)


class SecondTryEnv(vf.MultiTurnEnv):
    async def env_response(self, messages, state, **kwargs):
        return [{"role": "user", "content": "Sure?"}]


def load_environment(limit: int = 4):
    guesses = Dataset.from_list(
        [
            {"question": "How many beans?", "answer": "50", "info": {"jar": 1}},
            {"question": "How many peas?", "answer": "70", "info": {"jar": 2}},
        ]
    )
    sums = Dataset.from_list(
        [
            {"question": "6 x 7", "answer": "42", "info": {"jar": 0}},
            {"question": "6 x 8", "answer": "48", "info": {"jar": 0}},
        ]
    )
    contest = vf.SingleTurnEnv(
        dataset=guesses,
        rubric=RubricGroup([Rubric(funcs=[closest, spread, shared], weights=[1.0, 0.0, 0.25]), LengthRubric(limit)]),
    )
    twice = SecondTryEnv(dataset=sums, rubric=vf.Rubric(funcs=[exact]), max_turns=2, system_prompt="Be sure.")
    return vf.EnvGroup([contest, twice], env_names=["contest", "twice"])
