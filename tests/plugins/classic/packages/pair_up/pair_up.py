"""A group of environments that were written elsewhere, loaded by name."""

import verifiers as vf


def load_environment(first: str = "capital-quiz", second: str = "number-hunt", bonus: float = 0.5):
    quiz = vf.load_environment(first, bonus=bonus)
    hunt = vf.load_environment(env_id=second, max_turns=2)
    assert quiz.env_id == first and quiz.env_args == {"bonus": bonus}
    group = vf.EnvGroup(envs=[quiz, hunt], env_names=["quiz", "hunt"])
    assert group.get_env_for_task("hunt") is hunt and group.env_map["quiz"] is quiz
    return group
