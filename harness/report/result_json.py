"""JSON output of `--json`: one object on stdout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import orjson

from harness.core.redact import redactor
from harness.core.types import JsonDict
from harness.report.table import RunReport
from harness.report.text import clean_block


def result_object(results: Sequence[RunReport], budget: JsonDict | None = None, suite: str | None = None) -> JsonDict:
    """`{"runs": [{env_id, name, model, path, state, note, summary}]}`; `summary` is null for a run without rollouts.

    Args:
        results: Results of the runs.
        budget: Limits and spending, under `budget`; None omits the key.
        suite: Id of the suite, under `suite`; None omits the key.
    """
    whole: JsonDict = {
        "runs": [
            {
                "env_id": result.env_id,
                "name": result.name,
                "model": result.model,
                "path": result.path,
                "state": result.state,
                "note": result.note,
                "summary": None if result.summary is None else result.summary.to_json(),
            }
            for result in results
        ]
    }
    whole |= {} if suite is None else {"suite": suite}
    return whole if budget is None else {**whole, "budget": budget}


def result_json(results: Sequence[RunReport], budget: JsonDict | None = None, suite: str | None = None) -> bytes:
    """Indented JSON with a final newline; write it to `sys.stdout.buffer`."""
    whole = writable(result_object(results, budget, suite))
    return orjson.dumps(whole, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def writable(value: object) -> object:
    """Copy of `value` without secrets and unprintable characters, since reasons and notes may hold foreign text."""
    if isinstance(value, str):
        value = redactor.text(value, patterns=False)
        return value if value.isprintable() else clean_block(value)
    if isinstance(value, dict):
        items = cast("dict[object, object]", value).items()
        return {writable(str(key)): writable(item) for key, item in items}
    if isinstance(value, list | tuple):
        return [writable(item) for item in cast("list[object]", value)]
    return value
