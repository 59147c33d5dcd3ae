"""Several environments as one: rows, routing, hooks, scores and what is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from scripted_chat import ScriptedChat
from tables import for_each_row

from harness import Environment, MultiTurnEnv, Rubric, SingleTurnEnv, State, XMLParser, cleanup, teardown
from harness.core.errors import ConfigError, EnvironmentFault
from harness.core.keys import ExampleKeys
from harness.core.records import Example, Generated
from harness.envs.env_group import EnvGroup


def right(completion: Any, answer: str) -> float:
    return float(completion[-1]["content"] == answer)


def seen_task(task: str, state: State) -> float:
    state["seen"] = [*state.get("seen", []), task]
    return 1.0


def said(completion: Any, parser: Any) -> float:
    return float(len(parser.parse_answer(completion) or ""))


class Sums(SingleTurnEnv):
    def reference_reply(self, example: Example, messages: Any) -> str:
        assert example.task == "own"
        return example.answer


class Talk(MultiTurnEnv):
    cleaned: int = 0
    torn: int = 0

    async def setup_state(self, state: State) -> None:
        state["setup"] = state["task"]

    async def env_response(self, messages: Any, state: State, **kwargs: Any) -> Any:
        return [{"role": "user", "content": "and?"}]

    @cleanup
    async def count(self, state: State) -> None:
        self.cleaned += 1

    @teardown
    async def end(self) -> None:
        self.torn += 1

    def reference_reply(self, example: Example, messages: Any) -> str:
        return example.answer


def sums() -> Sums:
    rows = [{"question": f"{n}+{n}", "answer": str(2 * n), "task": "own", "example_id": 7 + n} for n in range(3)]
    return Sums(dataset=rows, rubric=Rubric([right, seen_task], [1.0, 0.0]), system_prompt="Add.")


def talk() -> Talk:
    rows = [{"question": f"Say {word}.", "answer": word} for word in ("yes", "no")]
    rubric = Rubric([right, said], [2.0, -1.0])
    return Talk(eval_dataset=lambda: rows, rubric=rubric, max_turns=2, sampling_args={"top_p": 0.5, "seed": 1})


def group(**options: Any) -> EnvGroup:
    return EnvGroup([sums(), talk()], ["sums", "talk"], **options)


def examples(env: Environment) -> list[Example]:
    keys = ExampleKeys()
    return [keys.example(env.row(index), index) for index in range(env.row_count)]


def play(env: Environment, example: Example, *replies: object, **sampling_args: Any) -> tuple[State, ScriptedChat]:
    chat, state = ScriptedChat(replies), State.begin(example, 0, "scripted", sampling_args)
    asyncio.run(env.rollout(state, chat))
    return state, chat


def test_rows_stand_one_environment_after_the_other_with_new_numbers_and_their_tasks() -> None:
    env = group()
    rows = [env.row(index) for index in range(env.row_count)]
    assert [row.task for row in rows] == ["sums/own"] * 3 + ["talk"] * 2
    assert [row.example_id for row in rows] == [0, 1, 2, 3, 4]
    assert rows[0].prompt == [{"role": "system", "content": "Add."}, {"role": "user", "content": "0+0"}]
    assert rows[3].prompt == [{"role": "user", "content": "Say yes."}]


def test_nothing_is_read_before_a_row_is_needed() -> None:
    def rows() -> Any:
        raise AssertionError("opened")

    lazy = SingleTurnEnv(dataset=rows)
    env = EnvGroup([lazy], ["lazy"])
    with pytest.raises(EnvironmentFault, match="opened"):
        _ = env.row_count


def test_a_rollout_is_played_and_cleaned_up_by_the_environment_of_its_row() -> None:
    env = group()
    state, chat = play(env, examples(env)[3], "no", "yes")
    member = env.env_map["talk"]
    assert isinstance(member, Talk)
    assert (state["setup"], state["task"], member.cleaned) == ("", "talk", 1)
    assert [message["content"] for message in state["completion"]] == ["no", "and?", "yes"]
    assert state["stop_condition"] == "max_turns_reached"
    assert len(chat.asked) == 2
    asyncio.run(env.teardown())
    assert member.torn == 1


def test_its_sampling_arguments_lie_under_those_of_the_run() -> None:
    env = group()
    _, chat = play(env, examples(env)[4], "x", seed=5, temperature=0.1)
    assert chat.asked[0].sampling_args == {"top_p": 0.5, "seed": 5, "temperature": 0.1}
    _, chat = play(env, examples(env)[0], "x", seed=5)
    assert chat.asked[0].sampling_args == {"seed": 5}


def test_each_rubric_scores_its_own_and_what_it_does_not_measure_is_null() -> None:
    env = group()
    assert env.rubric.metric_names == ("right", "seen_task", "said", "num_turns")
    assert env.rubric.reward_range == (-1.0, 2.0)
    first, _ = play(env, examples(env)[1], "2")
    (score,) = asyncio.run(env.rubric.score([first]))
    assert score.reward == 1.0
    assert score.metrics == {"right": 1.0, "seen_task": 1.0, "said": None, "num_turns": None}
    assert score.reasons == {}
    assert (first["seen"], first["task"]) == (["own"], "sums/own")
    second, _ = play(env, examples(env)[3], "yes")
    (score,) = asyncio.run(env.rubric.score([second]))
    assert score.reward == 2.0 - 3.0
    assert score.metrics == {"right": 1.0, "seen_task": None, "said": 3.0, "num_turns": 2.0}


def test_a_rollout_that_comes_back_from_a_journal_scores_the_same() -> None:
    env = group()
    example = examples(env)[3]
    state, _ = play(env, example, "no", "yes")
    exported, lost = state.export()
    assert (exported, lost) == ({"setup": ""}, ())
    line = Generated("k", example.key, 0, state["completion"], state["stop_condition"], state=exported)
    restored = State.restore(example, line, "scripted", {})
    assert asyncio.run(env.rubric.score([restored])) == asyncio.run(env.rubric.score([state]))


def test_groups_nest() -> None:
    env = EnvGroup([group(), sums()], ["inner", "sums"])
    assert [env.row(index).task for index in (0, 3, 5)] == ["inner/sums/own", "inner/talk", "sums/own"]
    state, _ = play(env, examples(env)[3], "yes")
    (score,) = asyncio.run(env.rubric.score([state]))
    assert (score.reward, state["task"], state["setup"]) == (-1.0, "inner/talk", "")
    assert env.get_env_for_task("inner/talk") is env.envs[0]


def test_the_reference_player_is_the_one_of_the_row() -> None:
    env = group()
    rows = examples(env)
    assert env.has_reference
    assert [env.reference_reply(row, []) for row in rows] == ["0", "2", "4", "yes", "no"]
    assert env.null_reply(rows[0], []) == "I do not know."
    assert not EnvGroup([sums(), SingleTurnEnv(dataset=[{"question": "?"}])], ["a", "b"]).has_reference


def test_group_rewards_see_the_rollouts_of_one_example() -> None:
    def shortest(completions: Any, tasks: Any) -> list[float]:
        assert tasks == ["", ""]
        sizes = [len(completion[-1]["content"]) for completion in completions]
        return [float(size == min(sizes)) for size in sizes]

    ranked = SingleTurnEnv(dataset=[{"question": "?"}], rubric=Rubric([shortest]))
    env = EnvGroup([sums(), ranked], ["sums", "ranked"])
    assert env.rubric.is_group
    states = [play(env, examples(env)[3], reply)[0] for reply in ("long", "s")]
    scores = asyncio.run(env.rubric.score(states))
    assert [score.reward for score in scores] == [0.0, 1.0]
    alone, _ = play(env, examples(env)[0], "0")
    assert asyncio.run(env.rubric.score([alone]))[0].reward == 1.0


def test_settings_reach_every_environment_that_has_them() -> None:
    env = group()
    env.set_kwargs(max_turns=4, system_prompt="Be brief.")
    assert getattr(env.env_map["talk"], "max_turns") == 4  # noqa: B009
    assert [member.system_prompt for member in env.envs] == ["Be brief."] * 2
    assert env.row(0).prompt[0] == {"role": "system", "content": "Be brief."}
    assert env.extra_env_kwargs == {"max_turns": 4, "system_prompt": "Be brief."}
    with pytest.raises(ConfigError, match=r"env\.extra_env_kwargs\.max_turn .*did you mean"):
        env.set_kwargs(max_turn=4)


def test_a_rubric_may_be_added_on_top() -> None:
    def brevity(completion: Any) -> float:
        return 1.0 / len(completion[-1]["content"])

    env = group()
    env.add_rubric(Rubric([brevity], parser=XMLParser(["answer"])))
    state, _ = play(env, examples(env)[2], "4")
    (score,) = asyncio.run(env.rubric.score([state]))
    assert (score.reward, score.metrics["brevity"]) == (2.0, 1.0)


@for_each_row(
    ("envs", "names", "words"),
    [
        ([], None, "at least one environment"),
        ([3], None, "takes environments, not 3"),
        ([sums(), sums()], ["a"], "1 names for 2 environments"),
        ([sums(), sums()], ["a", "a"], "two environments of an EnvGroup are called 'a'"),
        ([sums()], ["a/b"], "without '/'"),
        ([sums()], [""], "''"),
        (
            [sums(), SingleTurnEnv(dataset=[{"prompt": "x"}], message_type="completion")],
            ["a", "b"],
            "must all have the same message_type",
        ),
    ],
)
def test_what_is_no_group_is_refused(envs: Any, names: Any, words: str) -> None:
    with pytest.raises(EnvironmentFault, match=words):
        EnvGroup(envs, names)


def test_what_belongs_to_the_environments_is_refused_on_the_group() -> None:
    for option in ({"rubric": Rubric()}, {"parser": XMLParser(["a"])}, {"tool_defs": [{"type": "function"}]}):
        with pytest.raises(
            EnvironmentFault, match=rf"EnvGroup\({next(iter(option))}=…\): pass this option to the environments"
        ):
            group(**option)
    with pytest.raises(
        EnvironmentFault,
        match="task 'other' must begin with the name of an environment: sums, talk",
    ):
        group().get_env_for_task("other")


def test_names_default_to_ids() -> None:
    first, second = sums(), sums()
    first.env_id = "org/adding"
    assert EnvGroup([first, second]).env_names == ["adding", "env_1"]
