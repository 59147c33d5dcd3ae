"""Rubrics, parsers and judges of the classic API: what its tables say they do, and the faults that are mended."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from scripted_chat import ScriptedChat, example_of, state_of

from harness.core.errors import EnvironmentFault
from harness.core.records import Score
from harness.core.state import State
from harness.core.types import Chat
from harness.plugins.classic.context import current
from harness.plugins.classic.modules import module_of
from harness.rubrics.judge_port import JudgeSpec, judged_by


@pytest.fixture(params=["B", "C"])
def vf(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    token = current.set(request.param)
    yield module_of(request.param, "verifiers")  # type: ignore[misc]
    current.reset(token)


def score(vf: ModuleType, rubric: Any, *states: State) -> list[Score]:
    env = vf.SingleTurnEnv(dataset=[{"question": "q", "level": 3}], rubric=rubric)
    env.settle()
    return asyncio.run(env.rubric.score(list(states or (state_of(),))))


def one(vf: ModuleType, rubric: Any, *states: State) -> Score:
    return score(vf, rubric, *states)[0]


def half(completion: Any) -> float:
    return 0.5


def test_the_reward_is_the_weighted_sum_and_a_weight_of_zero_a_metric(vf: ModuleType) -> None:
    def truth(answer: str) -> bool:
        return answer == ""

    async def three(prompt: Any, info: Any, task: Any, parser: Any, **kwargs: Any) -> int:
        assert kwargs["state"]["answer"] == "" and kwargs["extra"] == "object" and isinstance(parser, vf.Parser)
        return 3

    rubric = vf.Rubric(funcs=[half, truth], weights=[2.0, -1.0])
    rubric.add_reward_func(three, weight=0.5)
    rubric.add_metric(lambda state: 7)
    rubric.add_class_object("extra", "object")
    found = one(vf, rubric)
    assert (found.reward, found.reasons) == (2 * 0.5 - 1 + 0.5 * 3, {})
    assert found.metrics == {"half": 0.5, "truth": 1.0, "three": 3.0, "<lambda>": 7.0, "num_turns": 0.0}
    assert rubric.funcs[:2] == [half, truth] and rubric.get_reward_weights() == rubric.weights == [2.0, -1.0, 0.5, 0.0]


def test_as_many_weights_as_functions_are_wanted(vf: ModuleType) -> None:
    with pytest.raises(ValueError, match=r"Number of weights \(1\) must match number of functions \(2\)"):
        vf.Rubric(funcs=[half, half], weights=[1.0])


def test_what_fails_is_unscored_and_named_not_zero(vf: ModuleType) -> None:
    def broken(completion: Any) -> float:
        raise ZeroDivisionError("no")

    def nan(completion: Any) -> float:
        return float("nan")

    found = one(vf, vf.Rubric(funcs=[half, broken]))
    assert (found.reward, found.reasons) == (
        None,
        {"broken": "raised ZeroDivisionError: no (in broken, test_shim_scoring.py:68)"},
    )
    assert one(vf, vf.Rubric(funcs=[nan])).reasons == {"nan": "returned nan"}
    unharmed = one(vf, vf.Rubric(funcs=[half, broken], weights=[1.0, 0.0]))
    assert (unharmed.reward, unharmed.metrics["broken"]) == (0.5, None)


def test_functions_of_one_name_all_count_and_the_last_is_the_metric(vf: ModuleType) -> None:
    def make(value: float) -> Any:
        def same(completion: Any) -> float:
            return value

        return same

    found = one(vf, vf.Rubric(funcs=[make(1.0), make(0.25)], weights=[1.0, 2.0]))
    assert (found.reward, found.metrics["same"]) == (1.5, 0.25)


def test_a_function_named_like_a_column_of_ours_gets_another_name(vf: ModuleType) -> None:
    def reward(completion: Any) -> float:
        return 0.75

    found = one(vf, vf.Rubric(funcs=[reward]))
    assert (found.reward, found.metrics["reward_metric"]) == (0.75, 0.75)


def test_a_function_that_asks_for_what_there_is_not_is_refused_at_the_end_of_loading(vf: ModuleType) -> None:
    def wrong(completion: Any, anwser: str) -> float:
        return 1.0

    def spare(completion: Any, anwser: str = "x") -> float:
        return 1.0

    rubric = vf.Rubric(funcs=[wrong])
    with pytest.raises(EnvironmentFault, match="'wrong', parameter 'anwser'"):
        score(vf, rubric)
    rubric = vf.Rubric(funcs=[wrong])
    rubric.add_class_object("anwser", "late, and in time")
    assert one(vf, rubric).reward == 1.0
    assert one(vf, vf.Rubric(funcs=[spare])).reward == 1.0


def test_columns_of_the_dataset_are_parameters_of_generation_c_alone(vf: ModuleType) -> None:
    def of_column(level: int) -> float:
        return float(level)

    env_rows = [{"prompt": [{"role": "user", "content": "question"}], "level": 3}]
    env = vf.SingleTurnEnv(dataset=env_rows, rubric=vf.Rubric(funcs=[of_column]))
    if vf.__version__ == "0.1.9.post3":
        with pytest.raises(EnvironmentFault, match="'level'"):
            env.settle()
    else:
        env.settle()
        [found] = asyncio.run(env.rubric.score([state_of()]))
        assert found.reward == 3.0


def test_a_group_function_sees_all_rollouts(vf: ModuleType) -> None:
    def best(completions: list[Any], states: list[State], answers: list[str]) -> list[float]:
        return [float(len(c[0]["content"]) == max(len(x[0]["content"]) for x in completions)) for c in completions]

    def listed(prompt: Any = None) -> list:  # type: ignore[type-arg]
        return [1.0, 2.0]

    states = [state_of([{"role": "assistant", "content": text}]) for text in ("a", "bcd")]
    rubric = vf.Rubric(funcs=[half, best, listed], weights=[1.0, 1.0, 0.1])
    assert rubric.is_group and not vf.Rubric(funcs=[half]).is_group
    found = score(vf, rubric, *states)
    assert [each.reward for each in found] == [pytest.approx(0.6), pytest.approx(1.7)]
    assert [state["advantage"] for state in states] == [pytest.approx(-0.55), pytest.approx(0.55)]


def test_a_rubric_group_sums_rewards_and_metrics_of_one_name(vf: ModuleType) -> None:
    first, second = vf.Rubric(funcs=[half]), vf.Rubric(funcs=[half], weights=[3.0])
    group = vf.RubricGroup(rubrics=[first, second])
    group.add_metric(lambda state: 9.0)
    found = one(vf, group)
    assert (found.reward, found.metrics) == (2.0, {"half": 1.0, "<lambda>": 9.0, "num_turns": 0.0})
    assert len(first.funcs) == 2
    with pytest.raises(ValueError, match="at least one"):
        vf.RubricGroup(rubrics=[])


def test_scoring_of_the_authors_own_is_used(vf: ModuleType) -> None:
    class Doubling(vf.Rubric):  # type: ignore[misc,name-defined]
        async def score_rollout(self, state: Any, score_sem: Any = None) -> None:
            await super().score_rollout(state)
            state["reward"] *= 2
            state["metrics"]["doubled"] = 1.0

    class Ranking(vf.Rubric):  # type: ignore[misc,name-defined]
        async def score_group(self, states: Any, **kwargs: Any) -> None:
            await super().score_group(states, **kwargs)
            for rank, state in enumerate(states):
                state["reward"] += rank

    found = one(vf, Doubling(funcs=[half]))
    assert (found.reward, found.metrics["half"], found.metrics["doubled"]) == (1.0, 0.5, 1.0)
    assert Ranking(funcs=[half]).is_group
    assert [each.reward for each in score(vf, Ranking(funcs=[half]), state_of(), state_of())] == [0.5, 1.5]

    def broken(completion: Any) -> float:
        raise KeyError("gone")

    failed = asyncio.run(_caught(vf, Ranking(funcs=[broken])))
    assert isinstance(failed, TypeError)  # no reward to add to: the engine makes it an unscored outcome


async def _caught(vf: ModuleType, rubric: Any) -> BaseException | None:
    env = vf.SingleTurnEnv(dataset=[{"question": "q"}], rubric=rubric)
    env.settle()
    try:
        await env.rubric.score([state_of()])
    except TypeError as error:
        return error
    return None


# Parsers


def grade(vf: ModuleType, parser: Any, *texts: str) -> float:
    completion = [{"role": "assistant", "content": text} for text in texts]
    return parser.get_format_reward_func()(completion=completion)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>a</think><answer>b</answer>", 1.0),
        ("<think>a</think> so <answer>b</answer>.", 0.8),
        ("<answer>b</answer>", 0.2 + 0.2 + 0.2),
        ("<think>open<answer>b</answer>", 0.4 + 0.2 + 0.2 + 0.2),
        ("<think>open", 0.2 + 0.2),
        ("nothing", 0.2),
        ("", 0.2),
    ],
)
def test_the_graded_format_reward(vf: ModuleType, text: str, expected: float) -> None:
    assert grade(vf, vf.XMLParser(["think", "answer"]), text) == pytest.approx(expected)


def test_an_xml_parser(vf: ModuleType) -> None:
    parser = vf.XMLParser(["think", ("code", "answer")], answer_field="answer")
    found = parser.parse("<think> a </think><answer>\n42\n</answer>")
    assert (found.think, found.answer, found.code) == ("a", "42", None)
    assert parser.parse("<answer>1</answer><answer>2</answer>", last=True).answer == "2"
    assert parser.get_fields() == ["think", "code"]
    assert parser.get_format_str() == "<think>\n...\n</think>\n<[ code | answer ]>\n...\n</[ code | answer ]>"
    assert parser.format(think="t", answer="x") == "<think>\nt\n</think>\n<code>\nx\n</code>"
    said = [{"role": "assistant", "content": "<answer>1</answer>"}, {"role": "assistant", "content": "no tag"}]
    assert parser.parse_answer(said) == "1"
    assert parser.parse_answer([{"role": "user", "content": "<answer>1</answer>"}]) is None
    assert grade(vf, parser) == 0.0
    for wrong, error in ((["a", "a"], ValueError), ([()], ValueError), ([5], TypeError)):
        with pytest.raises(error):
            vf.XMLParser(wrong)
    with pytest.raises(ValueError, match="'code'"):
        parser.format(think="t")


def test_the_thinking_parsers(vf: ModuleType) -> None:
    assert vf.ThinkParser(str.upper).parse("<think>x</think> yes ") == "YES"
    assert vf.ThinkParser().parse("yes") == ""
    assert vf.MaybeThinkParser().parse("yes ") == vf.MaybeThinkParser().parse("<think>x</think>yes") == "yes"
    assert grade(vf, vf.ThinkParser(), "<think>x</think>yes", "no") == 0.5
    assert vf.Parser(extract_fn=len).parse_answer([{"role": "assistant", "content": "four"}]) == 4
    assert vf.Parser().parse_answer([]) is None


def test_a_rubric_without_a_parser_has_a_plain_one_whatever_the_environment_reads_with(vf: ModuleType) -> None:
    def kind(parser: Any) -> float:
        return float(isinstance(parser, vf.XMLParser))

    env = vf.SingleTurnEnv(dataset=[{"question": "q"}], rubric=vf.Rubric(funcs=[kind]), parser=vf.XMLParser(["a"]))
    env.settle()
    assert asyncio.run(env.rubric.score([state_of()]))[0].reward == 0.0


# The judge


class Panel:
    """One judge, whoever is asked for."""

    def __init__(self, *replies: object) -> None:
        self.model = ScriptedChat(replies)
        self.wanted: list[JudgeSpec] = []

    def chat(self, spec: JudgeSpec, state: Any) -> Chat:
        self.wanted.append(spec)
        return self.model


def test_a_judge_is_asked_through_the_port_once_a_prompt(vf: ModuleType) -> None:
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url="http://judge.example/v1", api_key="sk-of-the-judge")
    rubric = vf.JudgeRubric(
        judge_client=client, judge_model="grader", judge_prompt="{question}|{answer}|{response}",
        judge_sampling_args={"max_tokens": 5, "temperature": None},
    )  # fmt: skip

    async def graded(judge: Any, prompt: Any, completion: Any, answer: str, state: Any) -> float:
        said = await judge(prompt, completion, answer, state)
        assert said == await judge(prompt, completion, answer, state)
        return float("yes" in said)

    async def direct(judge_client: Any, judge_model: str) -> float:
        reply = await judge_client.chat.completions.create(
            model=judge_model, messages=[{"role": "user", "content": "and?"}]
        )
        return float(reply.choices[0].message.content)

    rubric.add_reward_func(graded)
    rubric.add_reward_func(direct, weight=0.5)
    panel = Panel("yes, it is", "0.5")
    state = state_of([{"role": "assistant", "content": "Paris"}], answer="paris")
    with judged_by(panel):
        found = one(vf, rubric, state)
    assert (found.reward, found.reasons) == (1.25, {})
    asked = panel.model.asked
    assert [call.prompt for call in asked] == [
        [{"role": "user", "content": "question|paris|Paris"}], [{"role": "user", "content": "and?"}],
    ]  # fmt: skip
    assert asked[0].sampling_args == {"max_completion_tokens": 5}
    assert state["judge_response"] == {"question|paris|Paris": "yes, it is"}
    [spec] = rubric.judges
    assert (spec.model, spec.base_url, spec.key) == ("grader", "http://judge.example/v1", "sk-of-the-judge")
    assert set(map(id, panel.wanted)) == {id(spec)}


def test_a_judge_without_a_client_is_the_openai_packages_own(vf: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    [spec] = vf.JudgeRubric().judges
    assert (spec.model, spec.base_url, spec.default_url, spec.api_key_var, spec.key) == (
        "gpt-4.1-nano", None, "https://api.openai.com/v1", "OPENAI_API_KEY", None,
    )  # fmt: skip


def test_a_client_of_the_authors_own_make_is_asked_itself(vf: ModuleType) -> None:
    class Own:
        def __init__(self) -> None:
            self.chat = self.completions = self

        def create(self, **request: Any) -> Any:
            from types import SimpleNamespace as N

            return N(choices=[N(message=N(content=f"own {request['model']}"))])

    rubric = vf.JudgeRubric(judge_client=Own(), judge_model="g")
    assert rubric.judges == ()
    assert asyncio.run(rubric.judge("q", "a", "b")) == "own g"


def test_mathematics_is_compared_as_such(vf: ModuleType) -> None:
    pytest.importorskip("math_verify")
    rubric = vf.MathRubric()
    said = [
        state_of([{"role": "assistant", "content": text}], answer="0.5")
        for text in (r"\boxed{\frac12}", r"\boxed{2}", "0.5")
    ]
    rewards = [one(vf, vf.MathRubric(), state).reward for state in said]
    assert rewards == [1.0, 0.0, 1.0 if vf.__version__ == "0.1.9.post3" else 0.0]
    assert rubric.get_reward_func_names() == ["correct_answer"]


def test_a_state_of_ours_is_prepared_for_scoring(vf: ModuleType) -> None:
    def seen(state: Any, prompt: Any) -> float:
        return float(isinstance(state, vf.State) and prompt[0].content == "question")

    state = State.begin(example_of(), 0, "m", {})
    state["completion"] = [{"role": "assistant", "content": "x"}]
    assert one(vf, vf.Rubric(funcs=[seen]), state).reward == 1.0


@pytest.mark.parametrize("weights", [(0.7, 0.2, 0.1), (0.7, 0.29, 0.01)])
def test_a_right_answer_gets_the_sum_of_the_weights(vf: ModuleType, weights: tuple[float, ...]) -> None:
    right = [lambda completion: 1.0, lambda answer: 1.0, lambda state: 1.0]
    apart = [vf.Rubric(funcs=[function], weights=[weight]) for function, weight in zip(right, weights, strict=True)]
    for rubric in (vf.Rubric(funcs=right, weights=weights), vf.RubricGroup(apart)):
        assert one(vf, rubric).reward == rubric.reward_range[1] == 1.0
