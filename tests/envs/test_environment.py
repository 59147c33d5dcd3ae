"""What the engine asks of an environment: options, the frame around a rollout, settings, reference policies."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from scripted_chat import ScriptedChat, example_of
from tables import for_each_row

from harness import MultiTurnEnv, Parser, Rubric, RubricGroup, SingleTurnEnv, State, XMLParser, cleanup, stop, teardown
from harness.core.errors import ConfigError, EnvironmentFault, ModelError
from harness.core.types import Messages, Prompt
from harness.envs import Environment
from harness.usercode.threads import offload

ROWS = [{"question": "q", "answer": "yes"}]


def begin(env: Environment, **fields: Any) -> State:
    return State.begin(example_of(env.row(0).prompt, **fields), 0, "m", {})


def play(env: Environment, *replies: object, **fields: Any) -> State:
    state = begin(env, **fields)
    asyncio.run(env.rollout(state, ScriptedChat(replies or ("yes",))))
    return state


# Options


def test_options_become_attributes() -> None:
    parser, rubric = XMLParser(["answer"]), Rubric()
    env = SingleTurnEnv(
        dataset=ROWS, system_prompt="s", parser=parser, rubric=rubric, sampling_args={"temperature": 0}, env_id="e",
        env_args={"a": 1}, few_shot=[],
    )  # fmt: skip
    assert (env.system_prompt, env.parser, env.rubric, env.message_type) == ("s", parser, rubric, "chat")
    assert (env.sampling_args, env.env_id, env.env_args) == ({"temperature": 0}, "e", {"a": 1})
    assert rubric.parser is parser
    plain = SingleTurnEnv(dataset=ROWS, parser=None, rubric=None, sampling_args=None)
    assert type(plain.parser) is Parser
    assert (plain.sampling_args, plain.env_id, plain.env_args) == ({}, "", {})


@for_each_row(
    ("options", "words"),
    [
        ({"system_promt": "x"}, r"SingleTurnEnv\(system_promt=…\): unknown name; did you mean 'system_prompt'\?"),
        ({"zebra": 1}, r"SingleTurnEnv\(zebra=…\): unknown name; Known names are cluster_key, dataset, env_args"),
        ({"score_rollouts": False}, r"score_rollouts=…\): this option is for training"),
        ({"max_turns": 1}, "use MultiTurnEnv for more than one turn"),
        ({"system_prompt": 3}, r"system_prompt=…\) must be a string, not 3"),
        ({"rubric": print}, "must be a Rubric"),
        ({"parser": "xml"}, "must be a Parser"),
        ({"message_type": "text"}, "must be 'chat' or 'completion', not 'text'"),
        ({"sampling_args": [1]}, "must be a dict"),
        ({"few_shot": [{"role": "user"}]}, r"few_shot=…\): message 0 has no content"),
        ({"message_type": "completion", "system_prompt": "s"}, "requires message_type='chat'"),
        ({"max_workers": 0}, "must be above 0"),
    ],
)
def test_a_wrong_option_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(EnvironmentFault, match=words):
        SingleTurnEnv(dataset=ROWS, **options)


def test_the_names_of_an_authors_own_constructor_are_suggested_too() -> None:
    class Mine(SingleTurnEnv):
        def __init__(self, difficulty: int = 1, **options: Any) -> None:
            super().__init__(**options)
            self.difficulty = difficulty

    assert Mine(difficulty=2, dataset=ROWS).difficulty == 2
    with pytest.raises(EnvironmentFault, match="did you mean 'difficulty'"):
        Mine(dataset=ROWS, dificulty=2)


def test_max_workers_lets_more_blocking_code_run() -> None:
    SingleTurnEnv(dataset=ROWS, max_workers=40)
    assert offload.max_workers >= 40


def test_a_subclass_may_not_hide_what_runs_it() -> None:
    with pytest.raises(EnvironmentFault, match=r"Mine\.rollout overrides a method"):

        class Mine(SingleTurnEnv):  # pyright: ignore[reportUnusedClass]
            async def rollout(self, state: State, chat: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
                pass


def test_a_rubric_may_be_added() -> None:
    env = SingleTurnEnv(dataset=ROWS, parser=XMLParser(["answer"]))
    more = Rubric([lambda completion: 1.0])
    env.add_rubric(more)
    assert isinstance(env.rubric, RubricGroup)
    assert env.rubric.metric_names == ("<lambda>",)
    assert more.parser is env.parser


# The frame around a rollout


class Noted(MultiTurnEnv):
    """Keeps the order of events; `fails` says where to go wrong."""

    def __init__(self, fails: str = "", **options: Any) -> None:
        super().__init__(dataset=ROWS, max_turns=2, **options)
        self.fails = fails
        self.events: list[str] = []

    def note(self, event: str) -> None:
        self.events.append(event)
        if event == self.fails:
            raise ValueError(f"{event} went wrong")

    async def setup_state(self, state: State) -> None:
        self.note("setup")

    async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Prompt:
        self.note("answer")
        return [{"role": "user", "content": "go on"}]

    @stop(priority=1)
    async def checks(self, state: State) -> bool:
        self.note("stop?")
        return False

    @cleanup
    async def b_second(self, state: State) -> None:
        self.note("cleanup b")

    @cleanup(priority=10)
    def first(self, state: State) -> None:
        self.note("cleanup first")

    @cleanup()
    async def c_third(self, state: State) -> None:
        assert isinstance(state["completion"], list)
        self.note("cleanup c")

    @teardown
    async def close(self) -> None:
        self.note("teardown close")

    @teardown(5)
    def before(self) -> None:
        self.note("teardown before")


CLEANED = ["cleanup first", "cleanup b", "cleanup c"]


def test_hooks_run_in_order() -> None:
    env = Noted()
    state = play(env, "one", "two")
    assert env.events == ["setup", "stop?", "stop?", "answer", "stop?", *CLEANED]
    assert [m["content"] for m in state["completion"]] == ["one", "go on", "two"]
    assert (state["stop_condition"], state["is_completed"], state["is_truncated"]) == ("max_turns_reached", True, False)
    assert state["timing"]["generation"] > 0


@for_each_row("fails", ["setup", "answer", "stop?"])
def test_cleanup_runs_after_a_failure_and_what_was_said_is_kept(fails: str) -> None:
    env = Noted(fails)
    state = begin(env)
    with pytest.raises(ValueError, match="went wrong") as caught:
        asyncio.run(env.rollout(state, ScriptedChat(["one"])))
    assert env.events[-3:] == CLEANED
    assert state["error"] is caught.value
    assert [m["content"] for m in state["completion"]] == (["one"] if fails == "answer" else [])


def test_cleanup_runs_after_a_failed_model_call() -> None:
    env = Noted()
    state = begin(env)
    error = ModelError("gone", retryable=True, reason="connection")
    with pytest.raises(ModelError) as caught:
        asyncio.run(env.rollout(state, ScriptedChat(["one", error])))
    assert caught.value is error
    assert env.events[-3:] == CLEANED
    assert [m["content"] for m in state["completion"]] == ["one", "go on"]


def test_cleanup_runs_when_the_rollout_is_cancelled() -> None:
    env = Noted()

    async def main() -> None:
        asked = asyncio.Event()

        class Slow(ScriptedChat):
            async def __call__(self, *args: Any, **kwargs: Any) -> Any:
                if self.asked:
                    asked.set()
                    await asyncio.Event().wait()
                return await super().__call__(*args, **kwargs)

        state = begin(env)
        task = asyncio.ensure_future(env.rollout(state, Slow(["one"])))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert env.events[-3:] == CLEANED
        assert [m["content"] for m in state["completion"]] == ["one", "go on"]

    asyncio.run(main())


def test_a_cleanup_that_raises_fails_a_rollout_that_had_not_failed(caplog: pytest.LogCaptureFixture) -> None:
    env = Noted("cleanup b")
    state = begin(env)
    with pytest.raises(EnvironmentFault, match="Noted @cleanup b_second raised ValueError: cleanup b went wrong"):
        asyncio.run(env.rollout(state, ScriptedChat(["one"])))
    assert env.events[-3:] == CLEANED  # the others ran
    assert len(state["completion"]) == 3
    assert "b_second" in caplog.text


def test_a_cleanup_that_raises_does_not_hide_what_went_wrong_before(caplog: pytest.LogCaptureFixture) -> None:
    class Twice(Noted):
        def note(self, event: str) -> None:
            super().note(event)
            if event == "cleanup b":
                raise OSError("again")

    env = Twice("answer")
    with pytest.raises(ValueError, match="answer went wrong"):
        asyncio.run(env.rollout(begin(env), ScriptedChat(["one"])))
    assert "OSError: again" in caplog.text
    assert env.events[-3:] == CLEANED


def test_a_cleanup_that_hangs_is_given_up() -> None:
    class Hangs(SingleTurnEnv):
        cleanup_timeout = 0.05
        after = False

        @cleanup(priority=1)
        async def hang(self, state: State) -> None:
            await asyncio.Event().wait()

        @cleanup
        async def last(self, state: State) -> None:
            self.after = True

    env = Hangs(dataset=ROWS)
    with pytest.raises(EnvironmentFault, match="@cleanup hang raised TimeoutError"):
        play(env)
    assert env.after


def test_a_cleanup_that_hangs_is_given_up_in_a_cancelled_rollout_too() -> None:
    events: list[str] = []

    class Hangs(SingleTurnEnv):
        cleanup_timeout = 0.05

        @cleanup(priority=1)
        async def hang(self, state: State) -> None:
            await asyncio.Event().wait()

        @cleanup
        async def last(self, state: State) -> None:
            events.append("last")

    class Silent(ScriptedChat):
        async def __call__(self, *args: Any, **kwargs: Any) -> Any:
            await asyncio.Event().wait()

    async def main() -> None:
        env = Hangs(dataset=ROWS)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await env.rollout(begin(env), Silent())
        assert events == ["last"]

    asyncio.run(main())


def test_a_reward_may_take_what_the_environment_kept() -> None:
    class Keeps(SingleTurnEnv):
        async def setup_state(self, state: State) -> None:
            state["kept"] = 0.5

    env = Keeps(dataset=ROWS, rubric=Rubric([lambda state: state["kept"]]))
    assert asyncio.run(env.rubric.score([play(env)]))[0].reward == 0.5


def test_tool_definitions_are_not_shared_between_rollouts() -> None:
    class Adds(SingleTurnEnv):
        async def setup_state(self, state: State) -> None:
            state["tools"].append({"type": "function"})

    env = Adds(dataset=ROWS, tool_defs=[{"type": "function"}])
    assert [len(play(env)["tools"]) for _ in range(2)] == [2, 2]
    assert len(env.tool_defs) == 1


def test_teardown_runs_every_hook_and_only_logs_what_fails(caplog: pytest.LogCaptureFixture) -> None:
    env = Noted("teardown before")
    asyncio.run(env.teardown())
    assert env.events == ["teardown before", "teardown close"]
    assert "@teardown before raised ValueError" in caplog.text


@for_each_row("error", [OSError("no box"), "no box"])
def test_an_error_in_the_state_fails_the_rollout(error: object) -> None:
    class Errs(Noted):
        async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Prompt:
            state["error"] = error
            return []

    env = Errs()
    state = begin(env)
    with pytest.raises(EnvironmentFault, match="no box"):
        asyncio.run(env.rollout(state, ScriptedChat(["one"])))
    assert state["stop_condition"] == "has_error"
    assert env.events[-3:] == CLEANED


def test_rendering_that_raises_costs_the_rollout_but_not_what_was_said() -> None:
    class Renders(Noted):
        async def render_completion(self, state: State) -> None:
            raise KeyError("oops")

    env = Renders()
    state = begin(env)
    with pytest.raises(EnvironmentFault, match="render_completion raised KeyError"):
        asyncio.run(env.rollout(state, ScriptedChat(["one", "two"])))
    assert len(state["completion"]) == 3
    assert env.events[-3:] == CLEANED


# What the model is asked with


def test_tools_and_sampling_arguments_reach_the_model() -> None:
    tool = {"type": "function", "function": {"name": "t"}}
    other = {"type": "function", "function": {"name": "o"}}
    env = SingleTurnEnv(dataset=ROWS, tool_defs=[tool])

    def asked(env: Environment, **fields: Any) -> list[Any] | None:
        chat = ScriptedChat()
        state = State.begin(example_of(**fields), 0, "m", {"temperature": 0.5})
        asyncio.run(env.rollout(state, chat))
        assert chat.asked[0].sampling_args == {"temperature": 0.5}
        return chat.asked[0].tools

    assert asked(env) == [tool]
    assert asked(env, info={"tool_defs": [other]}) == [other]
    assert asked(env, info={"oai_tools": '[{"type": "function", "function": {"name": "o"}}]'}) == [other]
    assert asked(SingleTurnEnv(dataset=ROWS, oai_tools=[tool])) == [tool]
    assert asked(SingleTurnEnv(dataset=ROWS)) is None
    with pytest.raises(EnvironmentFault, match="info\\['tool_defs'\\] must be a list"):
        asked(env, info={"tool_defs": {"name": "t"}})


def test_an_author_may_ask_on_the_side() -> None:
    class Asks(SingleTurnEnv):
        async def setup_state(self, state: State) -> None:
            response = await self.get_model_response(state, [{"role": "user", "content": "side"}], tools=[])
            state["side"] = response.message["content"]

    state = play(Asks(dataset=ROWS), "aside", "answer")
    assert state["side"] == "aside"
    assert [m["content"] for m in state["completion"]] == ["answer"]
    assert state.chat is None
    with pytest.raises(EnvironmentFault, match="while the rollout runs"):
        asyncio.run(Asks(dataset=ROWS).get_model_response(state, []))


# Settings of a run


class Settable(MultiTurnEnv):
    level = 1
    ratio = 0.5
    strict = False

    def __init__(self) -> None:
        super().__init__(dataset=ROWS)
        self.words = ["a"]

    def set_mode(self, mode: str) -> None:
        if mode not in ("hard", "easy"):
            raise ValueError(f"no mode {mode!r}")
        self.mode_was = mode

    async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Prompt:
        return []


def test_settings_change_a_built_environment() -> None:
    env = Settable()
    env.set_kwargs(max_turns=3, system_prompt="new", mode="hard", words=["b"])
    assert (env.max_turns, env.mode_was, env.words) == (3, "hard", ["b"])
    assert env.row(0).prompt[0] == {"role": "system", "content": "new"}
    assert env.extra_env_kwargs == {"max_turns": 3, "system_prompt": "new", "mode": "hard", "words": ["b"]}


@for_each_row(
    ("values", "words"),
    [
        ({"max_turn": 3}, r"env.extra_env_kwargs.max_turn \(Settable\): unknown name; did you mean 'max_turns'\?"),
        ({"max_turns": 0}, "env.extra_env_kwargs.max_turns: max_turns must be at least 1"),
        ({"max_turns": "3"}, "max_turns must be at least 1, or -1 for no limit, not '3'"),
        ({"mode": "odd"}, "env.extra_env_kwargs.mode: no mode 'odd'"),
        ({"words": "b"}, "env.extra_env_kwargs.words must be list, not 'b'"),
        ({"system_prompt": 3}, "env.extra_env_kwargs.system_prompt must be a string, not 3"),
        ({"rubric": {}}, "rubric"),
        ({"env_id": "x"}, "env_id"),
        ({"rollout": 1}, "rollout"),
        ({"row_count": 1}, "row_count"),
        ({"_tables": {}}, "_tables"),
        ({"kwargs": {}}, "kwargs"),
    ],
)
def test_a_wrong_setting_is_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Settable().set_kwargs(**values)


def test_class_attributes_are_settings_too() -> None:
    env = Settable()
    env.set_kwargs(level=2, ratio=1, strict=True)
    assert (env.level, env.ratio, env.strict) == (2, 1, True)
    assert Settable.level == 1
    for name, value in (("level", True), ("level", 1.5), ("strict", "yes")):
        with pytest.raises(ConfigError, match=f"{name} must be"):
            env.set_kwargs(**{name: value})


def test_a_single_turn_stays_one() -> None:
    with pytest.raises(ConfigError, match="must be 1, not 3"):
        SingleTurnEnv(dataset=ROWS).set_kwargs(max_turns=3)


# Reference policies


def test_an_environment_may_have_a_reference_policy() -> None:
    class Known(SingleTurnEnv):
        def reference_reply(self, example: Any, messages: Messages) -> str:
            return example.answer

    plain, known = SingleTurnEnv(dataset=ROWS, env_id="plain"), Known(dataset=ROWS)
    example = example_of(answer="4")
    assert (plain.has_reference, known.has_reference) == (False, True)
    assert known.reference_reply(example, []) == "4"
    with pytest.raises(NotImplementedError, match="plain has no reference policy"):
        plain.reference_reply(example, [])
    assert plain.null_reply(example, []) == "I do not know."


def test_nothing_is_logged_when_nothing_is_wrong(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "harness"):
        play(Noted(), "one", "two")
    assert caplog.records == []
