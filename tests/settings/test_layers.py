from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from harness.settings.layers import Layer, Origin, below, dotted, flatten, fold, merge, value_at

ROOT = ("env", "env_args")
NAMES = ("eval", "defaults", "cli")

scalars = st.one_of(
    st.integers(0, 3), st.text("ab", max_size=2), st.booleans(), st.lists(st.integers(0, 2), max_size=2)
)
tables = st.dictionaries(
    st.sampled_from("abc"),
    st.recursive(scalars, lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=6),
    max_size=3,
)


def layer(table: object, name: str = "cli", path: tuple[str, ...] = ROOT) -> Layer:
    return flatten(path, table, lambda leaf: Origin(name, f"{name}: {dotted(leaf)}"))  # type: ignore[arg-type]


def deep(low: object, high: object) -> object:
    """Merging as people think of it."""
    if isinstance(low, dict) and isinstance(high, dict):
        return {**low, **{key: deep(low[key], value) if key in low else value for key, value in high.items()}}
    return high


def same(one: object, other: object) -> bool:
    """Equal, and True is not 1."""
    return repr(_sorted(one)) == repr(_sorted(other))


def _sorted(value: object) -> object:
    return {key: _sorted(value[key]) for key in sorted(value)} if isinstance(value, dict) else value


@given(tables, tables, tables)
def test_merging_is_what_people_think_of(low: object, middle: object, high: object) -> None:
    merged = merge(layer(low), layer(middle), layer(high))
    assert same(value_at(merged, ROOT), deep(deep(low, middle), high))


@given(tables, tables, tables)
@example({"a": {"a": 0}}, {"a": 0}, {"a": {"a": {}}})
def test_merging_is_associative(low: object, middle: object, high: object) -> None:
    a, b, c = layer(low, "cli"), layer(middle, "defaults"), layer(high, "eval")
    assert merge(merge(a, b), c) == merge(a, b, c)
    assert merge(a, merge(b, c)) == merge(a, b, c)


@given(tables, tables)
def test_origins_point_at_the_winning_layer(low: dict[str, object], high: dict[str, object]) -> None:
    merged = merge(layer(low, "defaults"), layer(high, "eval"))
    for entry in below(merged, ROOT):
        inside = entry.path[len(ROOT) :]
        winner = high if entry.origin.layer == "eval" else low
        assert same(at(winner, inside), entry.value)
        if entry.origin.layer == "defaults":
            assert at(high, inside) is MISSING or isinstance(at(high, inside), dict)


MISSING = object()


def at(table: object, path: tuple[str, ...]) -> object:
    for part in path:
        if not isinstance(table, dict) or part not in table:
            return MISSING
        table = table[part]
    return table


@given(tables)
def test_an_empty_layer_changes_nothing(table: object) -> None:
    assert same(value_at(merge(layer(table), layer({})), ROOT), table)
    assert same(value_at(merge(layer({}), layer(table)), ROOT), table)


def test_lists_replace() -> None:
    merged = merge(layer({"names": [1, 2]}), layer({"names": [9]}))
    assert value_at(merged, ROOT) == {"names": [9]}


def test_a_table_replaced_by_a_value_and_made_a_table_again_holds_nothing_old() -> None:
    merged = merge(layer({"k": {"x": 1}}), layer({"k": 5}), layer({"k": {"y": 2}}))
    assert value_at(merged, ROOT) == {"k": {"y": 2}}
    assert value_at(merge(layer({"k": 5}), layer({"k": {}})), ROOT) == {"k": {}}


def test_values_are_copies() -> None:
    one = layer({"names": [1]})
    first = value_at(one, ROOT)
    assert isinstance(first, dict)
    first["names"].append(2)
    assert value_at(one, ROOT) == {"names": [1]}


def test_header_names_meet_whatever_their_case() -> None:
    path = ("model", "extra_headers")
    merged = merge(layer({"X-A": "1", "Y": "2"}, path=path), layer({"x-a": "3"}, path=path))
    assert value_at(merged, path) == {"x-a": "3", "Y": "2"}
    assert fold(("env", "env_args", "X")) == ("env", "env_args", "X")


def test_dotted_paths_are_toml_keys() -> None:
    assert dotted(("model", "extra_headers", "X.Y", "é")) == 'model.extra_headers."X.Y"."é"'
