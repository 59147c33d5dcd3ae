"""The state of a rollout: reading through to the input, and the way through the journal."""

from __future__ import annotations

import dataclasses
import datetime
import multiprocessing

import orjson
import pytest
from scripted_chat import example_of, state_of
from tables import for_each_row

from harness.core.errors import EnvironmentFault, StateLost
from harness.core.records import Generated, Timing
from harness.core.state import FIXED_KEYS, Prefix, State, step
from harness.core.types import JsonDict, Messages, ModelResponse


def through_the_journal(state: State) -> State:
    """The state as a later process sees it: exported, written as JSON, read back."""
    exported, lost = state.export()
    assert state.example is not None
    record = Generated(
        "key", state.example.key, state["rollout_index"], state["completion"], state["stop_condition"],
        state["is_truncated"], state=orjson.loads(orjson.dumps(exported)), lost=lost, timing=Timing(1.0, 2.0, 0.5),
    )  # fmt: skip
    return State.restore(state.example, record, "m", {})


def test_input_fields_are_read_and_written_through_the_state() -> None:
    state = State.begin(example_of(answer="4", task="sums", info={"level": 2}), 1, "m", {"temperature": 0})
    assert (state["answer"], state.get("task"), state["info"]["level"], state["example_id"]) == ("4", "sums", 2, 0)
    assert state["input"]["answer"] == "4"
    assert "answer" in state
    state["answer"] = "5"
    assert state["input"]["answer"] == state["answer"] == "5"
    assert (state["rollout_index"], state["model"], state["sampling_args"]) == (1, "m", {"temperature": 0})


def test_missing_keys_behave_like_those_of_a_dict() -> None:
    state = state_of()
    with pytest.raises(KeyError):
        state["nothing"]
    assert state.get("nothing") is None
    assert state.get("nothing", 3) == 3
    assert "nothing" not in state
    assert state.setdefault("nothing", []) == []
    assert state.pop("nothing") == []
    assert state.pop("nothing", 1) == 1
    assert State().get("answer") is None


def test_a_rollout_owns_its_values() -> None:
    example = example_of([{"role": "user", "content": [{"type": "text", "text": "hi"}]}], info={"list": [1]})
    sampling: JsonDict = {"extra_body": {"top_k": 1}}
    state = State.begin(example, 0, "m", sampling)
    state["prompt"][0]["content"][0]["text"] = "changed"
    state["info"]["list"].append(2)
    state["sampling_args"]["extra_body"]["top_k"] = 9
    assert example.prompt == [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    assert example.info == {"list": [1]}
    assert sampling == {"extra_body": {"top_k": 1}}
    assert State.begin(example, 0, "m", {})["trajectory_id"] != state["trajectory_id"]


def trajectory_id(_: int) -> str:
    return str(State.begin(example_of(), 0, "m", {})["trajectory_id"])


def test_forked_processes_draw_different_ids() -> None:
    trajectory_id(0)
    found: set[str] = set()
    for _ in range(3):
        with multiprocessing.get_context("fork").Pool(1) as pool:
            found |= {*pool.map(trajectory_id, range(2))}
    assert len(found | {trajectory_id(0)}) == 7


def test_an_untouched_state_exports_nothing() -> None:
    state = state_of(answer="4", info={"a": [1]})
    assert state.export() == ({}, ())
    assert "completion" in FIXED_KEYS and "input" in FIXED_KEYS


def test_the_authors_values_come_back() -> None:
    state = state_of(answer="4")
    state["guesses"] = ["crane", "slate"]
    state["board"] = {"rows": 6, "won": False, "score": None}
    back = through_the_journal(state)
    assert back["guesses"] == ["crane", "slate"]
    assert back["board"] == {"rows": 6, "won": False, "score": None}
    assert back["answer"] == "4"
    assert back["is_completed"] is True
    assert back["timing"] == {"started_at": 1.0, "generation": 2.0, "model": 0.5}


def test_input_fields_that_the_environment_changed_come_back_changed() -> None:
    state = state_of(answer="old", info={"seed": 1})
    state["answer"] = "new"
    state["info"]["secret"] = "x"
    exported, lost = state.export()
    assert exported == {"input": {"answer": "new", "info": {"seed": 1, "secret": "x"}}}
    assert lost == ()
    back = through_the_journal(state)
    assert (back["answer"], back["info"], back["task"]) == ("new", {"seed": 1, "secret": "x"}, "")


def test_a_changed_input_field_that_is_no_json_is_lost_and_not_silently_old() -> None:
    state = state_of(info={"seed": 1})
    state["info"]["game"] = object()
    back = through_the_journal(state)
    with pytest.raises(StateLost, match="info"):
        back["info"]
    assert back["answer"] == ""


@dataclasses.dataclass
class Game:
    turns: int = 0


@for_each_row(
    ("value", "shown"),
    [
        (Game(3), {"turns": 3}),
        ({1: "one"}, {"1": "one"}),
        ({"b", "a"}, ["a", "b"]),
        (datetime.date(2026, 1, 2), "2026-01-02"),
    ],
)
def test_what_would_come_back_as_something_else_is_lost_but_shown(value: object, shown: object) -> None:
    state = state_of()
    state["fine"], state["odd"] = 1, value
    exported, lost = state.export()
    assert exported == {"fine": 1, "odd": shown}
    assert lost == ("odd",)
    assert through_the_journal(state)["fine"] == 1


def test_reading_a_lost_value_is_an_error_however_it_is_read() -> None:
    state = state_of()
    state["sandbox"] = object()
    exported, lost = state.export()
    assert (exported, lost) == ({}, ("sandbox",))
    back = through_the_journal(state)
    for read in (
        lambda: back["sandbox"],
        lambda: back.get("sandbox"),
        lambda: back.get("sandbox", 1),
        lambda: back.setdefault("sandbox", 1),
        lambda: back.pop("sandbox", 1),
    ):
        with pytest.raises(StateLost, match="sandbox"):
            read()
    assert "sandbox" in back  # it was there: whoever asks goes on to read it, and is told
    back["sandbox"] = "new"
    assert back["sandbox"] == "new"


def test_values_that_cannot_be_compared_count_as_changed() -> None:
    class Awkward:
        def __ne__(self, other: object) -> bool:
            raise ValueError("ambiguous")

    state = state_of(info={"x": 1})
    state["info"]["x"] = Awkward()
    assert state.export() == ({}, ("info",))


def test_the_trajectory_is_rebuilt_well_enough_to_count_turns() -> None:
    completion: Messages = [
        {"role": "assistant", "content": "one"},
        {"role": "user", "content": "no"},
        {"role": "assistant", "content": "two"},
    ]
    back = through_the_journal(state_of(completion))
    assert [len(turn["prompt"]) for turn in back["trajectory"]] == [1, 3]
    assert [turn["completion"][0]["content"] for turn in back["trajectory"]] == ["one", "two"]
    assert back["trajectory"][1]["prompt"][-1] == {"role": "user", "content": "no"}
    assert back.transcript[back.start :] == completion


def test_a_completion_text_comes_back() -> None:
    state = State.begin(example_of("Once upon"), 0, "m", {})
    assert state["completion"] == ""
    state["completion"] = " a time"
    back = through_the_journal(state)
    assert back["completion"] == " a time"
    assert len(back["trajectory"]) == 1


def test_messages_for_a_text_prompt_are_refused() -> None:
    record = Generated("key", "k", 0, [{"role": "assistant", "content": "x"}])
    with pytest.raises(EnvironmentFault, match="another environment"):
        State.restore(example_of("text"), record, "m", {})


def test_a_prefix_reads_like_the_list_it_was() -> None:
    messages: Messages = [{"role": "user", "content": str(i)} for i in range(3)]
    prefix = Prefix(messages, 2)
    messages.append({"role": "user", "content": "later"})
    assert len(prefix) == 2
    assert prefix == messages[:2]
    assert list(prefix) == messages[:2]
    assert prefix[-1] is messages[1]
    assert prefix[0:5] == messages[:2]
    assert prefix.__add__(messages[3:]) == [*messages[:2], messages[3]]
    assert prefix.__radd__(messages[3:]) == [messages[3], *messages[:2]]
    assert repr(prefix) == repr(messages[:2])
    with pytest.raises(IndexError):
        prefix[2]


def test_a_step_has_the_classic_keys() -> None:
    turn = step(state_of(), [], [], ModelResponse({"role": "assistant", "content": ""}, "length"))
    assert turn["is_truncated"] is True
    assert set(turn) == {
        "prompt", "completion", "response", "tokens", "reward", "advantage", "is_truncated", "trajectory_id", "extras",
    }  # fmt: skip


def with_steps(*extras: dict[str, object]) -> State:
    messages = [{"role": "assistant", "content": str(number)} for number, _ in enumerate(extras)]
    state = state_of(messages)
    state["trajectory"] = [step(state, [], [message], None) for message in messages]
    for each, extra in zip(state["trajectory"], extras, strict=True):
        each["extras"].update(extra)
    return state


def test_what_an_author_noted_in_steps_comes_back() -> None:
    state = with_steps({"move": "e4", "score": [1, 2]}, {}, {"move": "d5"})
    state["trajectory"][1]["reward"] = 0.5
    exported, lost = state.export()
    assert (exported, lost) == (
        {"trajectory": [{"extras": {"move": "e4", "score": [1, 2]}}, {"reward": 0.5}, {"extras": {"move": "d5"}}]},
        (),
    )
    again = through_the_journal(state)
    assert [each["extras"] for each in again["trajectory"]] == [{"move": "e4", "score": [1, 2]}, {}, {"move": "d5"}]
    assert [each["reward"] for each in again["trajectory"]] == [None, 0.5, None]


def test_notes_that_are_no_json_are_lost_and_not_silently_empty() -> None:
    again = through_the_journal(with_steps({"board": object()}, {}))
    with pytest.raises(StateLost, match=r"\['extras'\]\['board'\] was not a JSON value"):
        _ = again["trajectory"][0]["extras"]["board"]
    with pytest.raises(StateLost):
        again["trajectory"][1]["extras"].get("board")
    assert len(again["trajectory"]) == 2, "turns can still be counted"


def test_steps_that_are_not_in_the_completion_are_counted_and_keep_their_notes() -> None:
    state = with_steps({"move": 1}, {"move": 2})
    state["trajectory"][1]["prompt"] = state["completion"]
    state["completion"] = state["completion"][:1]
    [first, second] = through_the_journal(state)["trajectory"]
    assert (first["extras"], first["completion"]) == ({"move": 1}, state["completion"])
    assert (second["extras"], second["completion"]) == ({"move": 2}, [])


def test_only_what_the_model_said_is_a_step() -> None:
    completion: Messages = [
        {"role": "assistant", "content": "of the environment's"},
        {"role": "assistant", "content": "of the model's"},
    ]
    state = state_of(completion)
    transcript = [*state["prompt"], *completion]
    state.transcript, state.start = transcript, len(state["prompt"])
    made = step(state, Prefix(transcript, state.start + 1), [completion[1]], None)
    state["trajectory"].append(made)
    [again] = through_the_journal(state)["trajectory"]
    assert (list(again["prompt"]), again["completion"]) == (transcript[:-1], [completion[1]])


def test_a_text_in_several_turns_comes_back_turn_by_turn() -> None:
    state = State.begin(example_of("Once"), 0, "m", {})
    state.start = len("Once")
    state["completion"] = " upon, and then a time"
    for before, said in (("Once", " upon"), ("Once upon, and then", " a time")):
        state["trajectory"].append(step(state, before, said, None))
    again = through_the_journal(state)["trajectory"]
    assert [(each["prompt"], each["completion"]) for each in again] == [
        ("Once", " upon"), ("Once upon, and then", " a time"),
    ]  # fmt: skip


@for_each_row("odd", [{}, {"prompt": None, "completion": 3}, {"prompt": [], "completion": []}])
def test_steps_of_an_authors_own_shape_cost_no_rollout(odd: JsonDict) -> None:
    state = state_of([{"role": "assistant", "content": "one"}])
    state["trajectory"] += [odd, odd]
    assert [each["completion"] for each in through_the_journal(state)["trajectory"]] == [[], []]
