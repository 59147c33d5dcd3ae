from __future__ import annotations

from typing import Any

import pytest

from harness import MultiTurnEnv, Rubric, SingleTurnEnv
from harness.authoring import play
from harness.core.errors import EnvironmentFault

ROWS = [{"question": "2 + 2?", "answer": "4"}, {"question": "3 + 3?", "answer": "6"}]


def right(completion: Any, answer: str) -> float:
    return float(completion[-1]["content"] == answer)


class Asking(MultiTurnEnv):
    async def env_response(self, messages: Any, state: Any, **kwargs: Any) -> Any:
        return [{"role": "user", "content": f"You said {messages[-1]['content']}."}]


def test_a_rollout_with_given_replies_is_played_and_scored() -> None:
    env = SingleTurnEnv(dataset=ROWS, rubric=Rubric([right]), system_prompt="Add.")
    state = play(env, "4")
    assert (state["reward"], state["metrics"]["right"]) == (1.0, 1.0)
    assert state["prompt"] == [{"role": "system", "content": "Add."}, {"role": "user", "content": "2 + 2?"}]
    assert play(env, "4", index=1)["reward"] == 0.0
    assert play(env, {"role": "assistant", "content": "6"}, index=1)["reward"] == 1.0


def test_a_row_of_the_tests_own_is_formatted_as_rows_of_the_dataset_are() -> None:
    env = SingleTurnEnv(dataset=ROWS, rubric=Rubric([right]), system_prompt="Add.")
    state = play(env, "9", row={"question": "4 + 5?", "answer": "9"})
    assert state["reward"] == 1.0
    assert state["prompt"][0] == {"role": "system", "content": "Add."}
    with pytest.raises(EnvironmentFault, match="column 'question': is empty"):
        play(env, "9", row={"question": ""})


def test_replies_are_given_turn_after_turn_and_too_few_are_told() -> None:
    env = Asking(dataset=ROWS, rubric=Rubric([right]), max_turns=3)
    state = play(env, "a", "b", "4")
    assert [message["content"] for message in state["completion"]] == ["a", "You said a.", "b", "You said b.", "4"]
    with pytest.raises(EnvironmentFault, match="requests another reply after the 1 reply passed to play"):
        play(env, "a")


def test_a_rollout_without_a_score_says_why() -> None:
    def broken(completion: Any) -> float:
        raise KeyError("price")

    env = SingleTurnEnv(dataset=ROWS, rubric=Rubric([broken]))
    with pytest.raises(EnvironmentFault, match="the rollout has no score: broken raised KeyError: 'price'"):
        play(env, "4")
