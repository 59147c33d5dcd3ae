import verifiers as vf
from datasets import Dataset


class SourEnv(vf.MultiTurnEnv):
    async def setup_state(self, state, **kwargs):
        if state["info"]["fault"] == "setup":
            raise vf.SandboxError("no box to be had")
        return state

    async def env_response(self, messages, state, **kwargs):
        raise vf.ToolError("never got that far")


def fragile(info, completion) -> float:
    if info["fault"] == "raises":
        raise KeyError("no such grade")
    if info["fault"] == "nan":
        return float("nan")
    if info["fault"] == "none":
        return None
    if info["fault"] == "text":
        return "0.5"
    if info["fault"] == "yes":
        return True
    return 1.0


def constant(completion) -> float:
    return 0.5


def last_word(completion) -> float:
    return float(completion[-1]["content"] == "ok")


def load_environment():
    faults = ["fine", "raises", "nan", "none", "text", "yes", "server", "setup", "long", "metric"]
    rows = [{"question": f"fault: {fault}", "answer": "ok", "info": {"fault": fault}} for fault in faults]

    def shaky_metric(info) -> float:
        return 1 / 0 if info["fault"] == "metric" else 3.0

    rubric = vf.Rubric(funcs=[fragile, constant, last_word], weights=[1.0, 1.0, 0.0])
    rubric.add_metric(shaky_metric)
    return SourEnv(dataset=Dataset.from_list(rows), rubric=rubric, max_turns=1)
