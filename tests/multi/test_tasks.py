"""Tasks as they are given: both spellings, what is refused, and in which words."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import for_each_row

from harness.core.errors import ConfigError, UsageError, ValidationError
from harness.multi.tasks import UNSET, Task, read_task, read_tasks

SCHEMA = {"type": "object", "required": ["ok"], "properties": {"ok": {"type": "boolean"}}}

WHOLE: dict[str, Any] = {
    "id": "a",
    "prompt": "Return JSON.",
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Go."}],
    "schema": SCHEMA,
    "expected": "true",
    "matchMode": "exact",
    "chatOptions": {"temperature": 0},
    "timeoutMs": 500,
    "metadata": {"level": 3},
}


@dataclass
class Mine:
    """A caller's own idea of a task."""

    prompt: str
    expected: str | None = None
    match_mode: str | None = None


def test_every_documented_field_is_read() -> None:
    task = read_task(WHOLE, 0)
    assert task == Task(
        id="a",
        prompt="Return JSON.",
        messages=WHOLE["messages"],
        schema=SCHEMA,
        expected="true",
        match_mode="exact",
        chat_options={"temperature": 0},
        timeout_ms=500,
        metadata={"level": 3},
    )
    assert task.document() == WHOLE
    assert list(task) == list(WHOLE)


def test_both_spellings_mean_the_same() -> None:
    snake = {
        "id": "a",
        "prompt": "p",
        "match_mode": "exact",
        "chat_options": {"tools": []},
        "timeout_ms": 5.5,
    }
    camel = {"id": "a", "prompt": "p", "matchMode": "exact", "chatOptions": {"tools": []}, "timeoutMs": 5.5}
    assert read_task(snake, 0) == read_task(camel, 0)


def test_a_task_can_be_read_by_documented_names() -> None:
    task = read_task({"prompt": "p", "matchMode": "exact", "expected": None}, 4)
    assert (task["matchMode"], task["expected"], task["id"]) == ("exact", None, "task-4")
    assert task.get("schema") is None
    assert task.get("timeoutMs", 7) == 7
    assert "expected" in task
    assert "schema" not in task
    with pytest.raises(KeyError):
        task["match_mode"]


def test_tasks_and_dataclasses_are_read_too() -> None:
    assert read_task(Task(prompt="p", expected=None), 2) == Task(id="task-2", prompt="p", expected=None)
    assert read_task(Mine("p", "x", "exact"), 0) == Task(id="task-0", prompt="p", expected="x", match_mode="exact")
    assert read_task(Mine("p"), 0).expected is UNSET


def test_a_task_without_an_id_is_called_by_its_number() -> None:
    tasks = read_tasks(
        [{"prompt": "a"}, {"id": "", "prompt": "b"}, {"id": None, "prompt": "c"}, {"id": 7, "prompt": "d"}]
    )
    assert [task.id for task in tasks] == ["task-0", "task-1", "task-2", "7"]


@for_each_row(
    ("fields", "conversation"),
    [
        ({"prompt": "p", "description": "d"}, "p"),
        ({"description": "d"}, "d"),
        ({"prompt": "", "description": "d"}, "d"),
        ({"prompt": ""}, ""),
        ({"prompt": "p", "messages": []}, "p"),
    ],
)
def test_what_is_asked_without_messages(fields: dict[str, Any], conversation: str) -> None:
    assert read_task(fields, 0).conversation == [{"role": "user", "content": conversation}]


def test_messages_go_before_a_prompt() -> None:
    messages = [{"role": "user", "content": "m", "name": None}]
    assert read_task({"prompt": "p", "messages": messages}, 0).conversation == [{"role": "user", "content": "m"}]


@for_each_row(
    ("expected", "text"),
    [(None, "null"), (True, "true"), (7.0, "7"), ([1, 2], "1,2"), ("", ""), ("a", "a")],
)
def test_an_expected_is_text_as_javascript_has_it(expected: object, text: str) -> None:
    assert read_task({"prompt": "p", "expected": expected}, 0).expected_text == text


def test_nothing_is_expected_unless_something_is() -> None:
    assert read_task({"prompt": "p"}, 0).expected_text is None
    assert read_task({"prompt": "p", "expected": UNSET}, 0).expected_text is None
    assert not UNSET
    assert repr(UNSET) == "UNSET"


def test_null_says_nothing_where_something_else_is_meant() -> None:
    nulls = dict.fromkeys(("id", "messages", "schema", "matchMode", "chatOptions", "timeoutMs", "metadata"))
    assert read_task({"prompt": "p", **nulls}, 0) == Task(id="task-0", prompt="p")
    assert read_task({"prompt": "p", "schema": "", "matchMode": ""}, 0) == Task(id="task-0", prompt="p")


def test_a_task_shares_nothing_with_what_it_was_read_from() -> None:
    given = {"prompt": "p", "schema": {"type": "object"}, "chatOptions": {"tools": [(1, 2)]}}
    task = read_task(given, 0)
    given["schema"]["type"] = "array"  # type: ignore[index]
    assert task.schema == {"type": "object"}
    assert task.chat_options == {"tools": [[1, 2]]}


@for_each_row(
    ("fields", "words"),
    [
        ({"prompt": "p", "expcted": "x"}, "task 3: unknown key 'expcted'; did you mean \"expected\"?"),
        ({"prompt": "p", 5: "x"}, "task 3: unknown key 5; valid here: id, prompt"),
        ({"id": "t", "prompt": "p", "level": 1}, "(put your own fields into metadata)"),
        ({"prompt": "p", "matchMode": "exact", "match_mode": "exact"}, "'match_mode' means the same as 'matchMode'"),
        ({"id": "t", "expected": "x"}, "task 3 ('t'): the task has neither a prompt nor messages"),
        ({"messages": []}, "task 3: the task has neither a prompt nor messages"),
        ({"prompt": "p", "id": 1.5}, "task 3 ('1.5'): id = 1.5: must be a string"),
        ({"prompt": "p", "id": True}, "task 3 ('True'): id = true: must be a string"),
        ({"prompt": ["p"]}, 'task 3: prompt = ["p"]: must be a string'),
        ({"description": 1}, "task 3: description = 1: must be a string"),
        ({"messages": "hi"}, 'task 3: messages = "hi": must be a list'),
        ({"messages": [{"content": "hi"}]}, "task 3: messages[0] has no role"),
        ({"messages": [{"role": "user"}]}, "task 3: messages[0] has no content"),
        ({"prompt": "p", "schema": []}, "task 3: schema = []: must be an object, or the name of a tool"),
        ({"prompt": "p", "schema": True}, "task 3: schema = true: must be an object"),
        (
            {"prompt": "p", "expected": {"a": 1}},
            "must be a string, since outputs are compared as text; describe an object in a schema",
        ),
        ({"prompt": "p", "expected": float("nan")}, "task 3: expected: must be a JSON value (Out of range"),
        ({"prompt": "p", "metadata": {"on": date(2026, 1, 1)}}, "task 3: metadata: must be a JSON value (Object of"),
        ({"prompt": "p", "matchMode": "contain"}, 'task 3: matchMode = "contain": did you mean "contains"?'),
        ({"prompt": "p", "matchMode": "regex"}, "valid here: exact, contains"),
        ({"prompt": "p", "matchMode": 1}, "task 3: matchMode = 1: must be one of exact, contains"),
        ({"prompt": "p", "chatOptions": []}, "task 3: chatOptions = []: must be a table of keys and values"),
        ({"prompt": "p", "timeoutMs": "5"}, 'task 3: timeoutMs = "5": must be a finite number'),
        ({"prompt": "p", "timeoutMs": True}, "task 3: timeoutMs = true: must be a finite number"),
        ({"prompt": "p", "timeoutMs": 10**400}, "task 3: timeoutMs = 1000000"),
        ({"prompt": "p", "timeoutMs": float("inf")}, "task 3: timeoutMs = Infinity: must be a finite number"),
        (5, "task 3: must be a dict or a dataclass, not int"),
        ("p", "task 3: must be a dict or a dataclass, not str"),
        (Mine, "task 3: must be a dict or a dataclass, not type"),
    ],
)
def test_a_wrong_task_is_refused(fields: object, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_task(fields, 3)
    assert words in str(refused.value)
    with pytest.raises(ConfigError) as refused:
        read_task(fields, 3, "tasks.json")
    assert str(refused.value).startswith("tasks.json: task 3")


@for_each_row("values", [[], (), None, {}, "tasks", 5, {"a": 1}])
def test_there_must_be_tasks(values: object) -> None:
    with pytest.raises(ValidationError) as refused:
        read_tasks(values)
    assert str(refused.value).startswith("Task list required")
    assert isinstance(refused.value, UsageError)


def test_two_tasks_must_not_share_an_id() -> None:
    with pytest.raises(
        ConfigError, match=r"^x\.json: tasks 0 and 2 \(counted from 0\) have the same id 'a'; give each"
    ):
        read_tasks([{"id": "a", "prompt": "1"}, {"prompt": "2"}, {"id": "a", "prompt": "3"}], "x.json")
    with pytest.raises(ConfigError, match=r"^tasks 0 and 1 .* have the same id 'task-1'"):
        read_tasks([{"id": "task-1", "prompt": "1"}, {"prompt": "2"}])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*WHOLE, "match_mode", "description", "other"]), JSON))
def test_whatever_a_task_is_it_is_read_or_refused_and_comes_back_as_it_was(fields: dict[str, Any]) -> None:
    try:
        task = read_task(fields, 0)
    except ConfigError:
        return
    assert read_task(task.document(), 0) == task
