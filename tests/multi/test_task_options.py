"""The settings beside the tasks, and chat options as a request has them."""

from __future__ import annotations

from typing import Any

import pytest
from tables import for_each_row

from harness.core.errors import ConfigError
from harness.multi.environment import sampling_args_of
from harness.multi.scoring import TaskOptions


def test_what_is_built_in() -> None:
    options = TaskOptions()
    assert (options.match_mode, options.length_target, options.schema_mode) == ("contains", 400, "subset")
    assert (options.timeout_ms, options.score_output, options.chat_options, options.model_id) == (0, None, {}, None)


@for_each_row(
    ("values", "words"),
    [
        ({"match_mode": "exakt"}, 'match_mode = "exakt": did you mean "exact"?'),
        ({"match_mode": "fuzzy"}, 'match_mode = "fuzzy": valid here: exact, contains'),
        ({"match_mode": None}, "match_mode = null: must be one of exact, contains"),
        ({"schema_mode": "reploid"}, 'schema_mode = "reploid": valid here: subset, jsonschema'),
        ({"schema_mode": "json-schema"}, 'schema_mode = "json-schema": did you mean "jsonschema"?'),
        ({"length_target": "400"}, 'length_target = "400": must be a finite number'),
        ({"length_target": True}, "length_target = true: must be a finite number"),
        ({"length_target": float("nan")}, "length_target = NaN: must be a finite number"),
        ({"timeout_ms": None}, "timeout_ms = null: must be a finite number"),
        ({"timeout_ms": 10**400}, f"timeout_ms = {10**58}…: must be a finite number"),
        ({"chat_options": []}, "chat_options = []: must be a table of keys and values"),
        (
            {"chat_options": {"stop": {1}}},
            "chat_options: must be a JSON value (Object of type set is not JSON serializable)",
        ),
        ({"model_id": 5}, "model_id = 5: must be a string"),
    ],
)
def test_a_wrong_option_is_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        TaskOptions(**values)
    assert str(refused.value) == words


def test_chat_options_as_a_request_has_them() -> None:
    given = {
        "tools": [1],
        "temperature": 0,
        "maxTokens": 5,
        "topP": 0.5,
        "stopSequences": ["a"],
        "responseFormat": {"type": "json_object"},
        "seed": 1,
        "min_tokens": 3,
        "someVendorsOwn": True,
    }
    assert sampling_args_of(given) == {
        "temperature": 0,
        "max_tokens": 5,
        "top_p": 0.5,
        "stop": ["a"],
        "response_format": {"type": "json_object"},
        "seed": 1,
        "min_tokens": 3,
        "someVendorsOwn": True,
    }
    assert sampling_args_of({}) == {}


@for_each_row(
    ("given", "words"),
    [
        ({"maxTokens": 1, "max_tokens": 1}, "chatOptions: max_tokens is given in two spellings; remove one"),
        ({"apiKey": "sk-123"}, "must not contain an api_key, because runs record sampling arguments"),
        ({"stream": True}, "streamed replies are not supported"),
        ({"n": 2}, "only one answer per request is used"),
        ({"model": "other"}, "sampling_args.model would replace the model that the run records"),
        ({"messages": []}, "sampling_args.messages would replace the messages"),
        ({"extraBody": {"prompt": "p"}}, "sampling_args.prompt would replace the prompt"),
        ({"headers": {}}, "chatOptions.headers: set headers in the definition of the model"),
        ({"extraHeaders": {"X-Key": "k"}}, "chatOptions.extraHeaders: set headers in the definition"),
    ],
)
def test_chat_options_that_no_run_can_have_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        sampling_args_of(given)
    assert words in str(refused.value)
    assert "sk-123" not in str(refused.value)
