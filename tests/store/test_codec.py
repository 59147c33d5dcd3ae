"""The line format: what goes in comes out, however odd, and no secret gets in."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_samples import example, failed, generated, key, scored
from tables import for_each_row

from harness.core.errors import EnvironmentFault
from harness.core.records import Record
from harness.core.redact import redactor
from harness.core.types import Usage
from harness.store.codec import decode, encode, from_text, parse, record_of, to_text

# Whatever JSON allows, lone surrogates and endless integers included. A pair of them comes back as its character.
text = st.text(max_size=20) | st.sampled_from(["\ud800", "a\udfffb", "\udc00\ud800", "\x00", "\u2028\x85", '"\\'])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=8,
)
tables = st.dictionaries(text, values, max_size=4)


@given(info=tables, state=tables, said=text, reason=text)
def test_any_json_comes_back_as_it_was(info: dict[str, Any], state: dict[str, Any], said: str, reason: str) -> None:
    lines: list[Record] = [
        example(0, info=info, prompt=[{"role": "user", "content": said, "extra": info}]),
        generated(0, completion=said, state=state, usage=Usage(1, 2, 3, 4, 5, 6, 0.5), lost=("session",)),
        scored(0, metrics={said: None, "x": 0.25}, reasons={said: reason}, extra=info),
        failed(0, error=reason, completion=[{"role": "assistant", "content": said}]),
    ]
    for record in lines:
        line = encode(record)
        assert line.endswith(b"\n") and line.count(b"\n") == 1
        assert json.loads(line)["type"] == record.kind
        assert decode(line) == record


def test_a_line_has_the_fields_of_its_record_under_the_names_of_the_design() -> None:
    line = json.loads(encode(example(3)))
    assert list(line) == ["type", "example_key", "example_id", "prompt", "answer", "task", "info", "index"]
    line = json.loads(encode(generated(3)))
    assert list(line)[:4] == ["type", "key", "example_key", "rollout_index"]
    assert line["usage"]["input_tokens"] == 10 and line["timing"]["generation"] == 0.5


@for_each_row("value", [math.nan, math.inf, -math.inf])
def test_nan_is_never_written(value: float) -> None:
    # The huge integer takes the slow path, which must not write NaN either.
    for record in (
        scored(0, reward=value, extra={"x": [value]}),
        scored(0, reward=value, extra={"x": value, "n": 2**70}),
    ):
        line = encode(record)
        assert b"NaN" not in line and b"Infinity" not in line
        back = decode(line)
        assert not isinstance(back, type(example())) and back == scored(
            0, reward=None, outcome="scored", metrics={"correct": None}, extra=json.loads(line)["extra"]
        )


@dataclass
class Verdict:
    right: bool
    why: str


def test_what_orjson_knows_beyond_json_becomes_json() -> None:
    import numpy as np

    moment = datetime(2026, 1, 2, tzinfo=UTC)
    info = {
        "when": moment,
        7: "int key",
        "score": np.float32(0.5),
        "many": np.arange(2),
        "verdict": Verdict(True, "so"),
    }
    record = decode(encode(example(0, info=info)))
    plain = {"when": moment.isoformat(), "7": "int key", "score": 0.5, "many": [0, 1]}
    assert record == example(0, info={**plain, "verdict": {"right": True, "why": "so"}})
    wide = decode(encode(example(0, info={**info, "n": 2**70, "t": (1, 2)})))
    assert wide == example(0, info={**plain, "verdict": {"right": True, "why": "so"}, "n": 2**70, "t": [1, 2]})


@for_each_row("value", [object(), {1, 2}, b"bytes", 1j])
def test_what_is_no_json_is_refused_by_name(value: object) -> None:
    with pytest.raises(
        EnvironmentFault, match=f"generated record {key('rollout', 0, 0)} cannot be recorded: .*must be JSON"
    ):
        encode(generated(0, state={"x": value}))


def test_depth_is_kept_up_to_a_bound_and_then_refused() -> None:
    def nested(depth: int) -> list[Any]:
        value: list[Any] = []
        for _ in range(depth):
            value = [value]
        return value

    deep = example(0, info={"x": nested(300)})
    assert decode(encode(deep)) == deep
    with pytest.raises(EnvironmentFault, match="example record"):
        encode(example(0, info={"x": nested(100_000)}))


@for_each_row(
    "line", [b"", b"\n", b"null\n", b"{}\n", b'{"type":[]}\n', b'{"wide": true, "type": "scored", "key": NaN}\n']
)
def test_what_is_no_record_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(line)


@for_each_row(
    "record,name,value",
    [
        (scored(), "reward", [1]), (scored(), "reward", "1"), (scored(), "metrics", "x"), (scored(), "reasons", None),
        (scored(), "seconds", {}), (scored(), "extra", []), (generated(), "completion", {}),
        (generated(), "state", []), (generated(), "attempts", "1"), (failed(), "attempts", None),
        (example(), "prompt", 7),
    ],
)  # fmt: skip
def test_a_field_of_the_wrong_type_is_named(record: Record, name: str, value: object) -> None:
    document = {**parse(encode(record)), name: value}
    with pytest.raises(ValueError, match=f"not a {document['type']} line: TypeError: the field {name} must not be a "):
        record_of(document)


lines = st.sampled_from([example(), generated(), scored(), failed(), generated(replies=[], calls={"cost": [1]})])


@given(lines, st.lists(st.tuples(st.booleans(), text, values, st.integers(0, 20)), max_size=3))
def test_an_unusual_line_is_read_as_one_with_another_field(
    record: Record, changes: list[tuple[bool, str, object, int]]
) -> None:
    # A line with exactly the usual fields is read by other code than one with a field more, which is ignored.
    document = parse(encode(record))
    for is_missing, name, value, number in changes:
        names = [*document, *(f"usage.{each}" for each in document.get("usage") or ()), name]
        chosen = names[number % len(names)]
        table, chosen = (document["usage"], chosen[6:]) if chosen.startswith("usage.") else (document, chosen)
        table.pop(chosen, None)
        table |= {} if is_missing else {chosen: value}
        if not isinstance(document.get("usage"), dict):
            break
    found: list[object] = []
    for line in (document, {**document, "a field of a later version": 1}):
        try:
            found.append(record_of(line))
        except ValueError as error:
            found.append(type(error))
    assert found[0] == found[1]


@given(values)
def test_cell_text_is_json_without_newlines(value: object) -> None:
    text = to_text(value)
    assert "\n" not in text
    assert from_text(text.encode()) == value


def test_cell_text_never_fails() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert from_text(to_text({"x": object, "n": 2**70}).encode()) == {"x": repr(object), "n": 2**70}
    assert to_text(loop) == '"[nested too deeply]"'
    assert to_text({"x": math.nan}) == '{"x":null}'


@pytest.fixture
def secrets() -> Iterator[list[str]]:
    """Secrets that the redactor knows for the length of a test."""
    known = list(redactor._secrets)  # pyright: ignore[reportPrivateUsage]
    chosen = ["canary-4711-secret", "content", "example_key", key("rollout", 0, 0)[10:18]]
    for secret in chosen:
        redactor.add(secret)
    yield chosen
    redactor._secrets[:] = known  # pyright: ignore[reportPrivateUsage]


def test_known_secrets_are_taken_out_of_values_and_of_nothing_else(secrets: list[str]) -> None:
    """Not even a placeholder that is spelt like a field, or like a part of a key, breaks a line."""
    said = f"my key is {secrets[0]}"
    record = generated(0, completion=[{"role": "assistant", "content": said}], state={secrets[0]: {"deep": [said]}})
    line = encode(record)
    assert secrets[0].encode() not in line
    back = decode(line)
    clean = "my key is [redacted]"
    message = {"role": "assistant", "content": clean}
    assert back == generated(0, completion=[message], state={"[redacted]": {"deep": [clean]}})
    assert decode(encode(scored(0))) == scored(0)
