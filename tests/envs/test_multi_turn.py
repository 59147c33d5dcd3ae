"""The loop of turns: transcript, stop conditions, and what a turn costs."""

from __future__ import annotations

import asyncio
import sys
import threading
import tracemalloc
from collections.abc import Callable
from typing import Any, cast

import pytest
from scripted_chat import ScriptedChat, example_of
from tables import for_each_row

from harness import MultiTurnEnv, Rubric, SingleTurnEnv, State, stop
from harness.core.errors import ContextLengthError, EnvironmentFault
from harness.core.types import JsonDict, Messages, ModelResponse, Prompt
from harness.envs import Environment

ROWS = [{"question": "q"}]


class Echo(MultiTurnEnv):
    """Answers with a number; `last` is the turn at which it ends the rollout."""

    def __init__(self, last: int = 0, **options: Any) -> None:
        options.setdefault("dataset", ROWS)
        super().__init__(**options)
        self.last = last

    async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Prompt:
        turn = len(state["trajectory"])
        if turn == self.last:
            state["final_env_response"] = [{"role": "user", "content": "the end"}]
        return [{"role": "user", "content": f"env {turn}"}]


def begin(env: Environment) -> State:
    return State.begin(example_of(env.row(0).prompt), 0, "m", {})


def play(env: Environment, chat: ScriptedChat | None = None) -> State:
    state = begin(env)
    asyncio.run(env.rollout(state, chat or ScriptedChat(["yes"])))
    return state


def said(state: State) -> list[str]:
    return [message["content"] for message in state["completion"]]


def test_a_single_turn_asks_once() -> None:
    chat = ScriptedChat([{"role": "assistant", "content": "4", "reasoning_content": "2+2"}])
    state = play(SingleTurnEnv(dataset=ROWS, system_prompt="S"), chat)
    assert [asked.prompt for asked in chat.asked] == [
        [{"role": "system", "content": "S"}, {"role": "user", "content": "q"}]
    ]
    assert state["completion"] == [{"role": "assistant", "content": "4", "reasoning_content": "2+2"}]
    assert (state["stop_condition"], len(state["trajectory"])) == ("max_turns_reached", 1)


def test_the_model_sees_the_whole_conversation_every_turn() -> None:
    chat = ScriptedChat(["one", "two", "three"])
    state = play(Echo(max_turns=3), chat)
    assert [[m["content"] for m in asked.prompt] for asked in chat.asked if isinstance(asked.prompt, list)] == [
        ["q"],
        ["q", "one", "env 1"],
        ["q", "one", "env 1", "two", "env 2"],
    ]
    assert said(state) == ["one", "env 1", "two", "env 2", "three"]
    assert state["prompt"] == [{"role": "user", "content": "q"}]


def test_the_trajectory_tells_what_was_asked_and_answered_in_each_turn() -> None:
    state = play(Echo(max_turns=3), ScriptedChat(["one", "two", "three"]))
    turns = [([m["content"] for m in turn["prompt"]], turn["completion"][0]["content"]) for turn in state["trajectory"]]
    assert turns == [
        (["q"], "one"),
        (["q", "one", "env 1"], "two"),
        (["q", "one", "env 1", "two", "env 2"], "three"),
    ]
    assert isinstance(state["trajectory"][0]["response"], ModelResponse)
    assert {turn["trajectory_id"] for turn in state["trajectory"]} == {state["trajectory_id"]}


def test_tool_calls_stay_in_the_transcript() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    reply = {"role": "assistant", "content": None, "tool_calls": [call]}

    class Tools(Echo):
        async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Prompt:
            return [{"role": "tool", "tool_call_id": messages[-1]["tool_calls"][0]["id"], "content": "done"}]

    state = play(Tools(max_turns=2), ScriptedChat([reply, "fine"]))
    assert state["completion"] == [
        reply,
        {"role": "tool", "tool_call_id": "1", "content": "done"},
        {"role": "assistant", "content": "fine"},
    ]


def test_the_environment_may_have_the_last_word() -> None:
    chat = ScriptedChat(["one", "two"])
    state = play(Echo(last=2), chat)
    assert said(state) == ["one", "env 1", "two", "the end"]
    assert state["stop_condition"] == "has_final_env_response"
    assert len(chat.asked) == 2


def test_an_empty_last_word_ends_the_rollout_too() -> None:
    class Silent(Echo):
        async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Prompt:
            state["final_env_response"] = []
            return []

    state = play(Silent())
    assert (said(state), state["stop_condition"]) == (["yes"], "has_final_env_response")


def test_the_highest_priority_names_the_end() -> None:
    class Wins(Echo):
        @stop(priority=10)
        async def won(self, state: State) -> bool:
            return bool(state["trajectory"])

        @stop(priority=5)
        def also(self, state: State) -> bool:
            assert threading.current_thread() is not threading.main_thread()
            return bool(state["trajectory"])

    assert play(Wins(max_turns=1))["stop_condition"] == "won"


def test_a_built_in_stop_can_be_overridden_without_being_lost() -> None:
    class Longer(Echo):
        async def max_turns_reached(self, state: State) -> bool:
            return len(state["trajectory"]) >= 2 * self.max_turns

    state = play(Longer(max_turns=2))
    assert (len(state["trajectory"]), state["stop_condition"]) == (4, "max_turns_reached")


def test_a_prompt_that_no_longer_fits_truncates_the_rollout() -> None:
    state = play(Echo(), ScriptedChat(["one", ContextLengthError("too long", status=400)]))
    assert said(state) == ["one", "env 1"]
    assert (state["stop_condition"], state["is_truncated"], state["error"]) == ("prompt_too_long", True, None)


def test_a_first_prompt_that_does_not_fit_is_an_empty_truncated_answer() -> None:
    state = play(SingleTurnEnv(dataset=ROWS), ScriptedChat([ContextLengthError("too long")]))
    assert (state["completion"], state["is_truncated"]) == ([], True)


def test_taking_a_stop_away_does_not_make_a_rollout_endless() -> None:
    class Odd(Echo):
        async def prompt_too_long(self, state: State) -> bool:
            return False

        async def has_final_env_response(self, state: State) -> bool:
            return False

    assert play(Odd(), ScriptedChat([ContextLengthError("x")]))["stop_condition"] == "prompt_too_long"
    assert play(Odd(last=1))["stop_condition"] == "has_final_env_response"


@for_each_row(("finish", "truncated"), [("length", True), ("stop", False)])
def test_a_truncated_reply_truncates_the_rollout(finish: str, truncated: bool) -> None:
    state = play(Echo(max_turns=2), ScriptedChat(["one"], finish_reason=finish))
    assert state["is_truncated"] is truncated
    assert [turn["is_truncated"] for turn in state["trajectory"]] == [truncated] * 2


@for_each_row("max_turns", [0, -2, 1.0, True, "3", None])
def test_max_turns_is_a_positive_number_or_no_bound(max_turns: Any) -> None:
    with pytest.raises(EnvironmentFault, match="max_turns must be at least 1"):
        Echo(max_turns=max_turns)


def test_sync_hooks_run_in_a_thread() -> None:
    threads: list[bool] = []

    class Blocking(MultiTurnEnv):
        def setup_state(self, state: State) -> State:  # pyright: ignore[reportIncompatibleMethodOverride]
            threads.append(threading.current_thread() is threading.main_thread())
            state["seen"] = 1
            return state

        def env_response(self, messages: Messages, state: State) -> Messages:  # pyright: ignore[reportIncompatibleMethodOverride]
            threads.append(threading.current_thread() is threading.main_thread())
            return [{"role": "user", "content": "next"}]

    state = play(Blocking(dataset=ROWS, max_turns=2))
    assert threads == [False, False]
    assert (state["seen"], said(state)) == (1, ["yes", "next", "yes"])


def test_setup_may_change_the_prompt_and_return_a_dict() -> None:
    class Sets(SingleTurnEnv):
        async def setup_state(self, state: State) -> Any:
            state["prompt"] = [*state["prompt"], {"role": "user", "content": "more"}]
            return {**state, "extra": 1}

    class Wrong(SingleTurnEnv):
        async def setup_state(self, state: State) -> Any:
            return "state"

    chat = ScriptedChat()
    state = play(Sets(dataset=ROWS), chat)
    assert [m["content"] for m in cast(Messages, chat.asked[0].prompt)] == ["q", "more"]
    assert (state["extra"], said(state)) == (1, ["yes"])
    with pytest.raises(EnvironmentFault, match="setup_state must return the state or None, not str"):
        play(Wrong(dataset=ROWS))


def test_what_an_environment_appends_to_its_argument_is_not_said() -> None:
    class Appends(Echo):
        async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Prompt:
            messages.append({"role": "user", "content": "scratch"})
            return [{"role": "user", "content": "real"}]

    assert said(play(Appends(max_turns=2))) == ["yes", "real", "yes"]


@for_each_row("change", [lambda m: m.pop(), lambda m: m.reverse(), lambda m: m.clear()])
def test_an_environment_that_changes_its_argument_is_told(change: Callable[[Messages], object]) -> None:
    class Changes(Echo):
        async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Prompt:
            change(messages)
            return []

    with pytest.raises(EnvironmentFault, match=r"Changes.env_response changed the list.*work on a copy"):
        play(Changes(max_turns=2))


@for_each_row(
    ("answer", "words"),
    [
        (None, "must return a list of messages, not NoneType"),
        ("text", "must return a list of messages, not str"),
        ({"role": "user", "content": "x"}, "must return a list of messages, not dict"),
        (([{"role": "user", "content": "x"}], {}), "must return only the messages, not a tuple"),
        (["x"], "message 0 must be a dict"),
        ([{"role": "user", "content": "x"}, {"content": "x"}], "message 1 has no role"),
    ],
)
def test_a_wrong_answer_of_the_environment_is_told(answer: Any, words: str) -> None:
    class Wrong(Echo):
        async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Prompt:
            return answer

    with pytest.raises(EnvironmentFault, match=rf"Wrong\.env_response:? {words}"):
        play(Wrong(max_turns=2))


def test_a_wrong_last_word_is_told() -> None:
    class Wrong(Echo):
        async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Prompt:
            state["final_env_response"] = "bye"
            return []

    with pytest.raises(EnvironmentFault, match="final_env_response'] must be a list, not str"):
        play(Wrong())


# Hooks of the transcript


def test_an_authors_own_prompt_is_what_the_conversation_goes_on_from() -> None:
    class Reminds(Echo):
        async def get_prompt_messages(self, state: State) -> Prompt:
            messages = await super().get_prompt_messages(state)
            return [*cast(Messages, messages), {"role": "user", "content": "remember"}]

    chat = ScriptedChat(["one", "two"])
    state = play(Reminds(max_turns=2), chat)
    assert [m["content"] for m in cast(Messages, chat.asked[1].prompt)] == ["q", "remember", "one", "env 1", "remember"]
    assert said(state) == ["remember", "one", "env 1", "remember", "two"]
    assert state["prompt"] == [{"role": "user", "content": "q"}]


def test_the_classic_way_of_building_prompts_works() -> None:
    class Classic(Echo):
        async def get_prompt_messages(self, state: State) -> Prompt:
            if not state["trajectory"]:
                return state["prompt"]
            before = state["trajectory"][-1]["prompt"] + state["trajectory"][-1]["completion"]
            return before + cast(Messages, await self.env_response(before, state))

    state = play(Classic(max_turns=3), ScriptedChat(["one", "two", "three"]))
    assert said(state) == ["one", "env 1", "two", "env 2", "three"]
    assert state["prompt"] == [{"role": "user", "content": "q"}]


def test_steps_and_completion_may_be_an_authors_own() -> None:
    class Own(Echo):
        async def add_trajectory_step(self, state: State, step: JsonDict) -> None:
            step["extras"]["number"] = len(state["trajectory"])
            await super().add_trajectory_step(state, step)

        async def render_completion(self, state: State) -> None:
            await super().render_completion(state)
            state["completion"] = [m for m in state["completion"] if m["role"] == "assistant"]

    state = play(Own(max_turns=2), ScriptedChat(["one", "two"]))
    assert said(state) == ["one", "two"]
    assert [turn["extras"] for turn in state["trajectory"]] == [{"number": 0}, {"number": 1}]


# Completion models


def test_a_completion_environment_speaks_text() -> None:
    class Story(MultiTurnEnv):
        async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Prompt:
            if len(state["trajectory"]) == 2:
                state["final_env_response"] = " The end."
            return " Then"

    chat = ScriptedChat([" there was", " nothing."])
    env = Story(dataset=[{"question": "Once"}], message_type="completion", max_turns=5)
    state = play(env, chat)
    assert [asked.prompt for asked in chat.asked] == ["Once", "Once there was Then"]
    assert state["completion"] == " there was Then nothing. The end."
    assert (state["prompt"], state["stop_condition"]) == ("Once", "has_final_env_response")


def test_a_completion_environment_must_answer_with_text() -> None:
    with pytest.raises(EnvironmentFault, match="must return a string, not list"):
        play(Echo(dataset=[{"question": "Once"}], message_type="completion", max_turns=2))


def test_an_empty_answer_of_a_completion_model_is_an_answer() -> None:
    env = SingleTurnEnv(dataset=[{"question": "Once"}], message_type="completion")
    assert play(env, ScriptedChat([{"role": "assistant", "content": None}]))["completion"] == ""


# Turns


def test_turns_are_counted_unless_the_author_does() -> None:
    env = Echo(max_turns=3)
    assert env.rubric.metric_names == ("num_turns",)
    (score,) = asyncio.run(env.rubric.score([play(env)]))
    assert (score.reward, score.metrics) == (0.0, {"num_turns": 3.0})

    async def num_turns(state: State) -> float:
        return 7.0

    assert Echo(rubric=Rubric([num_turns])).rubric.metric_names == ("num_turns",)
    assert SingleTurnEnv(dataset=ROWS).rubric.metric_names == ()


def calls_of(turns: int) -> int:
    """Python calls that a rollout of so many turns makes."""
    env, count = Echo(max_turns=turns), 0

    class Plain(ScriptedChat):
        async def __call__(self, *args: Any, **kwargs: Any) -> ModelResponse:
            return ModelResponse({"role": "assistant", "content": "x"}, "stop")

    def profile(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += 1

    async def main() -> None:
        state = begin(env)
        sys.setprofile(profile)
        try:
            await env.rollout(state, Plain())
        finally:
            sys.setprofile(None)

    asyncio.run(main())
    return count


def test_the_work_of_a_rollout_grows_with_its_turns_and_not_with_their_square() -> None:
    few, many = calls_of(100), calls_of(2_000)
    assert many < 20 * few * 1.1


def test_the_memory_of_a_rollout_grows_with_its_turns_and_not_with_their_square() -> None:
    class Plain(ScriptedChat):
        async def __call__(self, *args: Any, **kwargs: Any) -> ModelResponse:
            return ModelResponse({"role": "assistant", "content": "x"}, "stop")

    def kept(turns: int) -> int:
        env = Echo(max_turns=turns)
        tracemalloc.start()
        try:
            state = begin(env)
            asyncio.run(env.rollout(state, Plain()))
            assert len(state["trajectory"]) == turns
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    # A copy of the transcript a turn would be 2000² × 8 bytes = 32 MB, references alone.
    assert kept(2_000) < 6_000_000
