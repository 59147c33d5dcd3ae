import verifiers as vf
from datasets import Dataset


def lookup(word: str) -> str:
    """Look a word up.

    Args:
        word: The word.
    """
    return {"hund": "dog", "katze": "cat"}.get(word.lower(), "unknown")


def translated(completion: vf.Messages, answer: str) -> float:
    return float(answer in (completion[-1].content or ""))


def shared(completion: vf.Messages) -> float:
    return float(len(completion))


def rank(completions: list[vf.Messages], **kwargs) -> list[float]:
    lengths = [len(c[-1].content or "") for c in completions]
    return [1.0 - sorted(lengths).index(n) / len(lengths) for n in lengths]


def varied(states) -> list[float]:
    return [float(len({s["completion"][-1].content for s in states}))] * len(states)


def load_environment(nested: bool = True) -> vf.Environment:
    words = [{"question": f"Translate {w}", "answer": a} for w, a in [("Hund", "dog"), ("Katze", "cat")]]
    tools = vf.ToolEnv(
        dataset=Dataset.from_list(words), tools=[lookup], rubric=vf.Rubric([translated, shared], [1.0, 0.0])
    )

    lines = [{"question": f"Be short about {w}", "answer": w} for w in ["rain", "snow"]]
    short = vf.SingleTurnEnv(
        dataset=Dataset.from_list(lines),
        rubric=vf.RubricGroup(
            [
                vf.Rubric([rank, varied], [1.0, 0.0]),
                vf.Rubric([translated, shared], [0.25, 0.0]),
                vf.Rubric([shared], [0.01]),
            ]
        ),
        system_prompt="Be short.",
    )
    inner = vf.EnvGroup([tools, short], env_names=["tools", "short"])
    if not nested:
        return inner
    extras = [vf.SingleTurnEnv(dataset=Dataset.from_list([line]), rubric=vf.Rubric([translated])) for line in lines]
    return vf.EnvGroup(envs=[inner, vf.EnvGroup(extras)])
