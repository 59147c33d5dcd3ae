"""Environment for the files in `verifiers/`, which vf-eval of verifiers 0.1.14 wrote in an environment of its own, with
`bench serve --port 8462` in another terminal: `vf-eval vf_sums -m reference/echo -b http://localhost:8462/v1 -n 3 -r 2 -s`."""
# pyright: basic, reportMissingImports=false

import verifiers as vf
from datasets import Dataset


class Sums(vf.MultiTurnEnv):
    async def setup_state(self, state, **kwargs):
        if "broken" in str(state["prompt"]):
            raise vf.InfraError("no sandbox")
        return await super().setup_state(state, **kwargs)

    async def env_response(self, messages, state, **kwargs):
        return [{"role": "user", "content": "Say it again."}]


def echoes(completion, answer):
    return 1.0 if answer in str(completion) else 0.0


def length(completion):
    return float(len(completion))


def load_environment(size: int = 3):
    rows = Dataset.from_list([
        {"question": "Say Oslo", "answer": "Oslo", "info": {"level": 1}},
        {"question": "Capital of Peru?", "answer": "Lima", "info": {"level": 2}},
        {"question": "This one is broken", "answer": "x", "info": {"level": 3}},
    ][:size])
    return Sums(dataset=rows, eval_dataset=rows, rubric=vf.Rubric(funcs=[echoes, length], weights=[1.0, 0.0]), max_turns=2, system_prompt="Be brief.")
