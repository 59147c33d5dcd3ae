"""The options: both spellings, the documented defaults, and what of them is stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tables import for_each_row

from harness.core.errors import ConfigError
from harness.multi.options import RECORDS, Options, Persist, read_options


def hook(task: object) -> float:
    return 1.0


def test_nothing_is_the_defaults() -> None:
    assert read_options() == read_options({}) == read_options(None, {}) == Options()
    assert Options().persist_dir == RECORDS == ".memory/multi-model-eval"


def test_both_spellings_and_keywords_over_a_dict() -> None:
    camel = {"modelConcurrency": 3, "matchMode": "exact", "lengthTarget": -1, "timeoutMs": 5.5, "abortOnError": True,
             "taskConcurrency": 4, "runId": "x", "schemaMode": "jsonschema", "persistDir": Path("d")}  # fmt: skip
    snake = {"model_concurrency": 3, "match_mode": "exact", "length_target": -1, "timeout_ms": 5.5,
             "abort_on_error": True, "task_concurrency": 4, "run_id": "x", "schema_mode": "jsonschema",
             "persist_dir": "d"}  # fmt: skip
    assert read_options(camel) == read_options(snake) == read_options(None, snake) == Options(**snake)
    assert read_options(camel, {"model_concurrency": 9}).model_concurrency == 9
    assert read_options(Options(**snake), {"model_concurrency": 9}) == Options(**{**snake, "model_concurrency": 9})


def test_0_and_none_mean_the_default() -> None:
    read = read_options({"modelConcurrency": 0, "taskConcurrency": 0, "matchMode": None, "persist": None})
    assert read == Options()


@for_each_row(
    ("given", "expected"),
    [
        (True, True),
        (False, False),
        ({}, Persist()),
        ({"includeInputs": False, "path": "x.json"}, Persist(include_inputs=False, path="x.json")),
        (Persist(include_options=False), Persist(include_options=False)),
        ({"include_outputs": False}, Persist(include_outputs=False)),
    ],
)
def test_persist(given: Any, expected: bool | Persist) -> None:
    assert read_options({"persist": given}).persist == expected


def test_what_is_stored_is_what_was_given_under_the_documented_names() -> None:
    given = {
        "modelConcurrency": 2, "matchMode": "contains", "timeout_ms": 0, "runId": "r", "chatOptions": {"maxTokens": 5},
        "scoreOutput": hook, "persist": True, "api_keys": {"m": "secret"}, "on_event": print, "output_dir": "o",
    }  # fmt: skip
    assert read_options(given).stored() == {
        "modelConcurrency": 2, "matchMode": "contains", "timeoutMs": 0, "runId": "r", "chatOptions": {"maxTokens": 5},
    }  # fmt: skip
    assert read_options(Options(model_concurrency=5, score_output=hook)).stored() == {"modelConcurrency": 5}
    assert read_options(Options(model_concurrency=5), {"timeoutMs": 1}).stored() == {
        "modelConcurrency": 5, "timeoutMs": 1,
    }  # fmt: skip
    assert "secret" not in repr(read_options(given))


@for_each_row(
    ("given", "words"),
    [
        ({"modelConcurency": 1}, "unknown key 'modelConcurency'; did you mean \"modelConcurrency\"\\?$"),
        ({"modelConcurrency": 1, "model_concurrency": 2}, "'model_concurrency' means the same as 'modelConcurrency'"),
        ({"modelConcurrency": 1.5}, "^options: modelConcurrency = 1.5: must be an integer of at least 1$"),
        ({"taskConcurrency": True}, "^options: taskConcurrency = true: must be an integer of at least 1$"),
        ({"timeoutMs": "5"}, '^options: timeoutMs = "5": must be a finite number$'),
        ({"lengthTarget": float("inf")}, "must be a finite number$"),
        ({"lengthTarget": 10**400}, "must be a finite number$"),
        ({"abortOnError": 1}, "^options: abortOnError = 1: must be true or false$"),
        ({"matchMode": 1}, "^options: matchMode = 1: must be a string$"),
        ({"chatOptions": [1]}, "^options: chatOptions = \\[1\\]: must be a table of keys and values$"),
        ({"apiKeys": "k"}, "^options: apiKeys: must be a table of keys and values$"),
        ({"onEvent": "f"}, '^options: onEvent = "f": must be a function$'),
        ({"outputDir": ""}, '^options: outputDir = "": must be a path$'),
        ({"persist": "yes"}, "^options: persist: must be a dict or a dataclass, not str$"),
        ({"persist": {"includeInput": True}}, 'did you mean "includeInputs"'),
        ({"persist": {"includeInputs": "no"}}, '^options: persist: includeInputs = "no": must be true or false$'),
        ({"runId": ""}, "must be a string of letters, digits"),
        ({"retryFailed": True, "outputDir": "o"}, "retryFailed retries the failed tasks of an earlier evaluation"),
        (7, "^options: must be a dict or a dataclass, not int$"),
    ],
)
def test_what_is_wrong_is_said(given: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_options(given)
