"""Rubrics that ask a judge: what they ask, how often, what is kept, and what becomes of a judge that fails."""

from __future__ import annotations

import asyncio
import threading
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from scripted_chat import ScriptedChat, state_of
from tables import for_each_row

from harness import JudgeRubric, Parser, RubricGroup
from harness.core.errors import ConfigError, EnvironmentFault, JudgeError, ModelError, SystemicError
from harness.core.records import JUDGEMENTS, Score
from harness.core.state import State
from harness.core.types import ModelResponse, Usage
from harness.rubrics.judge import DEFAULT_JUDGE, Judge
from harness.rubrics.judge_port import JudgeSpec, ask, judge_chat, judged_by, scoring_pass
from harness.rubrics.parser import ThinkParser
from harness.rubrics.rubric import Rubric


@dataclass
class Bench:
    """A panel of scripted judges: one chat for all."""

    chat_: ScriptedChat
    seated: list[tuple[JudgeSpec, Mapping[str, Any] | None]] = field(default_factory=list)

    def chat(self, spec: JudgeSpec, state: Mapping[str, Any] | None) -> ScriptedChat:
        self.seated.append((spec, state))
        return self.chat_

    @property
    def told(self) -> list[str]:
        return [each.prompt[-1]["content"] if isinstance(each.prompt, list) else "" for each in self.chat_.asked]


def bench(*replies: object, **chat: Any) -> Bench:
    return Bench(ScriptedChat(replies, model="judge-model", **chat))


def score(rubric: Rubric, judges: Bench, *states: State) -> list[Score]:
    async def main() -> list[Score]:
        with judged_by(judges):
            return await rubric.score(list(states) or [state_of()])

    return asyncio.run(main())


RIGHT = ModelResponse(
    {"role": "assistant", "content": "Same.\n<verdict>CORRECT</verdict>"}, "stop", Usage(40, 9, requests=1, cost=0.25),
    seconds=0.5,
)  # fmt: skip


def test_without_functions_the_verdict_is_the_reward_and_all_of_it_is_kept() -> None:
    rubric, judges = JudgeRubric(), bench(RIGHT)
    state = state_of([{"role": "assistant", "content": "Paris"}], answer="paris")
    [result] = score(rubric, judges, state)
    assert (result.reward, result.metrics, result.reasons) == (1.0, {"judge_verdict": 1.0}, {})
    assert rubric.metric_names == ("judge_verdict",)
    [kept] = state[JUDGEMENTS]
    assert kept.pop("prompt")
    assert kept == {
        "model": "judge-model", "text": "Same.\n<verdict>CORRECT</verdict>", "label": "CORRECT",
        "finish_reason": "stop", "seconds": 0.5,
        "usage": {"input_tokens": 40, "output_tokens": 9, "reasoning_tokens": 0, "cached_tokens": 0, "requests": 1,
                  "unreported": 0, "cost": 0.25},
    }  # fmt: skip
    [told] = judges.told
    assert "<question>\nquestion\n</question>" in told and "<known-answer>\nparis\n</known-answer>" in told
    assert "\nParis\n</response " in told


@for_each_row(
    ("reply", "reason"),
    [
        ("It is fine.", "no verdict"),
        ("", "judge said nothing"),
        ({"role": "assistant", "content": None, "refusal": "No."}, "judge refused"),
        (ModelResponse({"role": "assistant", "content": "CORRECT"}, "length"), "judge cut short"),
        ("<verdict>INCORRECT</verdict>\nCORRECT", "two verdicts"),
        ("<verdict>CORRECT</verdict> <verdict>INCORRECT</verdict>", "two verdicts"),
        ("<verdict>CORRECT</verdict> <verdict>CORRECT</verdict>", "no verdict"),
        (ModelError("host: too busy", reason="rate_limit", retryable=True), "judge rate_limit"),
    ],
)
def test_a_judge_that_gives_no_verdict_leaves_the_rollout_unscored(reply: object, reason: str) -> None:
    [result] = score(JudgeRubric(), bench(reply))
    assert result.reward is None
    assert result.metrics == {"judge_verdict": None}
    assert list(result.reasons) == ["judge_verdict"]
    assert result.reasons["judge_verdict"].startswith(f"{reason}: ")


def test_what_a_judge_said_is_kept_although_it_is_no_verdict() -> None:
    state = state_of()
    score(JudgeRubric(), bench("hm"), state)
    assert [(each["text"], each.get("label")) for each in state[JUDGEMENTS]] == [("hm", None)]


def test_verdicts_of_ones_own() -> None:
    rubric = JudgeRubric(verdicts={"great": 2, "fair": 0.5, "bad": -1})
    assert rubric.reward_range == (-1.0, 2.0)
    assert [score(rubric, bench(said))[0].reward for said in ("great", "Fair", "bad", "CORRECT")] == [2, 0.5, -1, None]
    assert JudgeRubric(weights=[-2.0]).reward_range == (-2.0, 0.0)


async def kind(judge: Judge, prompt: Any, completion: Any, answer: str, state: State) -> float:
    return float("yes" in await judge(prompt, completion, answer, state))


async def label(judge: Judge, prompt: Any, completion: Any, answer: str, state: State) -> float:
    return (await judge.verdict(prompt, completion, answer, state)).value


async def other(judge: Judge, completion: Any, state: State) -> float:
    return float(await judge.ask(f"How long is {completion[-1]['content']}?", state))


def test_one_question_is_asked_once_a_rollout() -> None:
    rubric = JudgeRubric([kind, label, other], [1.0, 1.0, 0.0])
    judges = bench("yes\nCORRECT", "3", "yes\nCORRECT", "3")
    states = [state_of(key="one"), state_of(key="two")]
    assert [result.reward for result in score(rubric, judges, states[0])] == [2.0]
    assert [result.reward for result in score(rubric, judges, states[1])] == [2.0]
    assert len(judges.told) == 4
    assert [len(state[JUDGEMENTS]) for state in states] == [2, 2]


def test_the_same_question_at_the_same_time_waits_for_the_first() -> None:
    async def twice(judge: Judge, prompt: Any, completion: Any, answer: str, state: State) -> float:
        async with asyncio.TaskGroup() as tasks:
            both = [tasks.create_task(judge(prompt, completion, answer, state)) for _ in range(5)]
        return float(len({task.result() for task in both}))

    rubric, judges = JudgeRubric([twice]), bench("one", "two")
    assert score(rubric, judges)[0].reward == 1.0
    assert len(judges.told) == 1
    assert rubric.judge._locks == {}  # pyright: ignore[reportPrivateUsage]


def test_a_question_that_failed_is_not_asked_again_by_the_next_function_but_is_by_the_next_pass() -> None:
    rubric = JudgeRubric([kind, label], [1.0, 0.0])
    judges = bench(ModelError("busy", reason="timeout"), "yes\nCORRECT")
    state = state_of()
    [first] = score(rubric, judges, state)
    assert first.reasons == {"kind": "judge timeout: busy", "label": "judge timeout: busy"}
    assert len(judges.told) == 1
    [second] = score(rubric, judges, state)
    assert (second.reward, second.reasons) == (1.0, {})


def test_without_a_state_nothing_is_kept_and_everything_is_asked() -> None:
    async def stateless(judge: Judge, prompt: Any, completion: Any) -> float:
        return float(await judge(prompt, completion) == await judge(prompt, completion))

    judges, state = bench("one", "two"), state_of()
    assert score(JudgeRubric([stateless]), judges, state)[0].reward == 0.0
    assert JUDGEMENTS not in state
    assert [seat[1] for seat in judges.seated] == [None, None]


def test_group_functions_judge_every_rollout() -> None:
    async def best(judge: Judge, prompts: Any, completions: Any, answers: Any, states: list[State]) -> list[float]:
        values: list[float] = []
        for prompt, completion, answer, state in zip(prompts, completions, answers, states, strict=True):
            values.append((await judge.verdict(prompt, completion, answer, state)).value)
        return [value - sum(values) / len(values) for value in values]

    states = [state_of([{"role": "assistant", "content": text}]) for text in ("a", "b")]
    judges = bench("CORRECT", "INCORRECT")
    assert [result.reward for result in score(JudgeRubric([best]), judges, *states)] == [0.5, -0.5]
    assert [state[JUDGEMENTS][0]["label"] for state in states] == ["CORRECT", "INCORRECT"]


def test_the_parser_reads_what_the_judge_is_shown() -> None:
    state = state_of([{"role": "assistant", "content": "<think>secret</think>Paris"}])
    judges = bench("CORRECT")
    score(JudgeRubric(parser=ThinkParser()), judges, state)
    assert "\nParis\n" in judges.told[0] and "secret" not in judges.told[0]
    adopted, judges = JudgeRubric(), bench("CORRECT")
    adopted.use_parser(Parser(str.upper))
    score(adopted, judges)
    assert "\nYES\n" in judges.told[0]


def test_functions_may_take_the_classic_values() -> None:
    def told(judge_model: str, judge_prompt: str, judge_sampling_args: dict[str, Any], bonus: float) -> float:
        return bonus if (judge_model, judge_prompt, judge_sampling_args) == ("m", "{response}?", {"seed": 1}) else 0.0

    rubric = JudgeRubric(
        [told], judge_model="m", judge_prompt="{response}?", judge_sampling_args={"seed": 1},
        class_objects={"bonus": 3.0},
    )  # fmt: skip
    assert score(rubric, bench())[0].reward == 3.0


def test_what_a_rubric_says_of_its_judge() -> None:
    rubric = JudgeRubric(
        judge_model="alias", judge_base_url="http://x/v1", judge_api_key_var="KEY", judge_sampling_args={"top_p": 1},
        max_concurrent=4,
    )  # fmt: skip
    [spec] = rubric.judges
    assert (spec.model, spec.base_url, spec.api_key_var, dict(spec.sampling_args), spec.max_concurrent) == (
        "alias", "http://x/v1", "KEY", {"top_p": 1}, 4,
    )  # fmt: skip
    assert JudgeRubric().judges[0].model == DEFAULT_JUDGE
    assert Rubric().judges == ()
    other_rubric = JudgeRubric(_functions())
    assert RubricGroup([rubric, Rubric(), other_rubric]).judges == (spec, other_rubric.judges[0])


def _functions() -> list[Any]:
    return [kind]


def test_a_literal_key_is_never_shown() -> None:
    spec = JudgeSpec("m", "http://x/v1", key="very-secret-key-of-mine")
    assert "very-secret" not in repr(spec)
    from harness.core.redact import redactor

    assert redactor.text("it was very-secret-key-of-mine") == "it was [redacted]"


def test_rubrics_of_a_group_each_ask_their_own() -> None:
    first = JudgeRubric(judge_model="one")
    second = JudgeRubric([kind], judge_model="two")
    judges = bench("CORRECT", "yes")
    [result] = score(RubricGroup([first, second]), judges)
    assert (result.reward, result.metrics) == (2.0, {"judge_verdict": 1.0, "kind": 1.0})
    assert [spec.model for spec, _ in judges.seated] == ["one", "two"]


@for_each_row("swallows", [False, True])
def test_a_judge_that_cannot_be_asked_ends_the_pass_whatever_the_function_does(swallows: bool) -> None:
    async def careless(judge: Judge, prompt: Any, completion: Any, answer: str, state: State) -> float:
        try:
            return float(bool(await judge(prompt, completion, answer, state)))
        except Exception:
            if swallows:
                return 0.0
            raise

    rubric, dead = JudgeRubric([careless]), SystemicError("host: refused", reason="connection", retryable=True)
    for whole in (rubric, RubricGroup([Rubric(), rubric])):
        with pytest.raises(SystemicError, match=f"the judge {DEFAULT_JUDGE} cannot be used: host: refused") as caught:
            score(whole, bench(dead))
        assert (caught.value.reason, caught.value.retryable) == ("connection", True)


def test_without_a_panel_the_rollout_is_unscored_and_says_why() -> None:
    [result] = asyncio.run(JudgeRubric().score([state_of()]))
    assert result.reward is None
    assert "is not connected" in result.reasons["judge_verdict"]


def test_a_judge_is_called_in_the_loop_of_the_run_also_from_another_loop() -> None:
    threads: list[int] = []

    def reply(_: object) -> str:
        threads.append(threading.get_ident())
        return "yes"

    async def judged(judge: Judge, state: State) -> float:
        said = await asyncio.to_thread(lambda: asyncio.run(judge.ask("a", state)))
        chat = judge_chat(judge.spec, state)
        more = await asyncio.to_thread(lambda: asyncio.run(cast("Any", chat("b"))))
        return float((said, more.message["content"]) == ("yes", "yes"))

    state = state_of()
    [result] = score(JudgeRubric([judged]), bench(reply), state)
    assert (result.reward, result.reasons) == (1.0, {})
    assert threads == [threading.get_ident()] * 2 == [threading.get_ident() for _ in state[JUDGEMENTS]]


def test_a_judge_as_a_chat_keeps_accounts_too() -> None:
    async def main() -> None:
        spec, judges, state = JudgeSpec("m", sampling_args={"seed": 1}), bench("yes", "no"), state_of()
        chat = judge_chat(spec, state)
        assert chat.model == "m"
        with judged_by(judges), scoring_pass():
            reply = await chat([{"role": "user", "content": "?"}], sampling_args={"top_p": 0.5}, tools=[{"x": 1}])
            asked = await ask(spec, "text", state)
        assert (reply.message["content"], asked.response.message["content"]) == ("yes", "no")
        assert [each["text"] for each in state[JUDGEMENTS]] == ["yes", "no"]
        assert asked.entry is state[JUDGEMENTS][1]
        assert (judges.chat_.asked[0].sampling_args, judges.chat_.asked[0].tools) == ({"top_p": 0.5}, [{"x": 1}])

    asyncio.run(main())


def takes_judge(judge: Judge) -> float:
    return 1.0


async def misspelt(judeg: Judge) -> float:
    return 1.0


@for_each_row(
    ("arguments", "words"),
    [
        ({"funcs": [takes_judge]}, "'takes_judge' is not async, but calls of `judge` must be awaited: use `async def`"),
        ({"funcs": [misspelt]}, "did you mean 'judge'"),
        ({"judge_modell": "x"}, r"JudgeRubric\(judge_modell=…\): unknown argument; .*judge_"),
        ({"judge_model": ""}, "judge_model must be a string"),
        ({"max_concurrent": 0}, "max_concurrent must be a whole number of 1 or more"),
        ({"max_concurrent": True}, "max_concurrent"),
        ({"verdicts": {"A": 1}}, "at least two"),
        ({"judge_prompt": "no field"}, "must contain"),
        ({"class_objects": {"judge": 1}}, "class object 'judge'"),
    ],
)
def test_a_wrong_argument_is_refused_at_once(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(EnvironmentFault, match=words):
        JudgeRubric(**arguments)


def test_a_function_that_is_added_later_is_checked_too() -> None:
    with pytest.raises(EnvironmentFault, match="async def"):
        JudgeRubric([kind]).add_metric(takes_judge)


# Arguments that cannot be


@for_each_row("name", ["judge_api_key_var", "judge_base_url"])
@for_each_row("value", ["sk-live 0123456789", "sk-live-0123456789", "0abc://me:hidden-9137@host/v1", 7, b"x"])
def test_a_key_or_an_address_that_is_none_is_refused_and_not_repeated(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"^{name} must be ") as caught:
        JudgeRubric(**{name: value})
    shown = "".join(traceback.format_exception(caught.value)).partition("ConfigError")[2]
    assert str(value) not in shown and "9137" not in shown
    with pytest.raises(ConfigError):
        JudgeSpec("m", **{name.removeprefix("judge_"): value})


def test_a_password_in_an_address_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^judge_base_url must not contain a user or password") as caught:
        JudgeRubric(judge_base_url="https://me:hidden-9137@judge.example/v1")
    assert "9137" not in str(caught.value)


@for_each_row("key", ["hf_0123456789abcdefABCDEF", "gsk_0123456789abcdefABCDEF"])
def test_a_key_that_could_be_a_variables_name_is_refused_too(key: str) -> None:
    with pytest.raises(ConfigError, match=r"^judge_api_key_var must be the name of an environment variable") as caught:
        JudgeRubric(judge_api_key_var=key)
    assert key not in str(caught.value)


def test_a_name_and_an_address_are_taken() -> None:
    [spec] = JudgeRubric(judge_api_key_var="JUDGE_KEY_2", judge_base_url="https://judge.example/v1").judges
    assert (spec.api_key_var, spec.base_url) == ("JUDGE_KEY_2", "https://judge.example/v1")


@for_each_row(
    ("options", "words"),
    [
        ({"judge_modle": "m"}, 'did you mean "judge_model"'),
        ({"wieghts": [1.0]}, 'did you mean "weights"'),
        ({"verdicts": {1: 1.0}}, "verdicts: a label must be a string, not 1"),
        ({"verdicts": ["A", "B"]}, r"verdicts must map labels to values, .* not \['A', 'B'\]"),
        ({"verdicts": None}, "verdicts must map labels to values, .* not None"),
        ({"judge_sampling_args": "x"}, "judge_sampling_args must be a table of names and values, not 'x'"),
        ({"judge_sampling_args": {1: 2}}, "judge_sampling_args must be a table"),
        ({"weights": ["x"]}, "its weight must be a finite number, not 'x'"),
    ],
)
def test_arguments_that_cannot_be_are_refused_in_words(options: dict[str, Any], words: str) -> None:
    with pytest.raises(EnvironmentFault, match=words):
        JudgeRubric(**options)


# Failures that a function swallows

BUSY = ModelError("host: too busy", reason="rate_limit", retryable=True)
UNASKED = "judge rate_limit: host: too busy"


async def swallowing(judge: Judge, prompt: Any, completion: Any, answer: str, state: State) -> float:
    try:
        return (await judge.verdict(prompt, completion, answer, state)).value
    except Exception:
        return 0.0


async def swallowing_all(judge: Judge, completions: Any, states: list[State]) -> list[float]:
    async def one(completion: Any, state: State) -> float:
        try:
            return float("CORRECT" in await judge.ask(completion[-1]["content"], state))
        except JudgeError:
            return 0.0

    async with asyncio.TaskGroup() as tasks:
        made = [tasks.create_task(one(*each)) for each in zip(completions, states, strict=True)]
    return [each.result() for each in made]


def test_a_failed_call_that_a_function_swallows_is_no_zero() -> None:
    [result] = score(JudgeRubric([swallowing]), bench(BUSY))
    assert (result.reward, result.metrics, result.reasons) == (None, {"swallowing": None}, {"swallowing": UNASKED})
    [first, second] = score(JudgeRubric([swallowing_all]), bench("CORRECT", BUSY), state_of(), state_of())
    assert (first.reward, second.reward) == (None, None)
    assert first.reasons == second.reasons == {"swallowing_all": UNASKED}


def test_every_function_that_swallows_it_is_without_a_value_and_a_metric_costs_no_reward() -> None:
    async def fine(state: State) -> float:
        return 0.5

    async def again(judge: Judge, prompt: Any, completion: Any, answer: str, state: State) -> float:
        return await swallowing(judge, prompt, completion, answer, state)

    judges = bench(BUSY)
    [result] = score(JudgeRubric([swallowing, again, fine], [0.0, 0.0, 1.0]), judges)
    assert result.metrics == {"swallowing": None, "again": None, "fine": 0.5}
    assert (result.reward, result.reasons) == (0.5, {"swallowing": UNASKED, "again": UNASKED})
    assert len(judges.told) == 1  # what failed for good is not asked again


def test_a_reply_that_a_function_reads_in_its_own_way_is_its_own_business() -> None:
    [result] = score(JudgeRubric([swallowing]), bench("hm"))
    assert (result.reward, result.reasons) == (0.0, {})
