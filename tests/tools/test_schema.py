"""What models are told of a function's parameters, and what becomes of the arguments they send."""

from __future__ import annotations

import dataclasses
import enum
import json
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, Optional, Union

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from tables import for_each_row
from typing_extensions import TypedDict

from harness.core.errors import EnvironmentFault, ToolCallError
from harness.tools import Tool, read_tool
from harness.tools.schema import plain

if typing.TYPE_CHECKING:
    from decimal import Decimal as OnlyForCheckers


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Point:
    x: int
    y: int = 0


class Old(typing.TypedDict):
    """Of Python's own kind."""

    a: int
    b: NotRequired[str]


class New(TypedDict, total=False):
    c: list[Old]


class Branch(TypedDict):
    value: int
    branches: NotRequired[list[Branch]]


class Item(BaseModel):
    name: str = Field(description="What it is called.")
    tags: list[str] = []


class Tree(BaseModel):
    value: int
    children: list[Tree] = []


def tool(annotation: Any, default: Any = dataclasses.MISSING) -> Tool:
    """A tool with one parameter `x` of a type."""
    if default is dataclasses.MISSING:

        def f(x: Any) -> Any:
            return x
    else:

        def f(x: Any = default) -> Any:
            return x

    f.__annotations__["x"] = annotation
    return read_tool(f)


INTEGER = {"type": "integer"}
POINT = {
    "type": "object",
    "properties": {"x": INTEGER, "y": {"default": 0, "type": "integer"}},
    "required": ["x"],
    "additionalProperties": False,
}
OLD = {
    "type": "object",
    "description": "Of Python's own kind.",
    "properties": {"a": INTEGER, "b": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}


@for_each_row(
    ("annotation", "schema", "sent", "received"),
    [
        (int, INTEGER, 5, 5),
        (int, INTEGER, "5", 5),
        (float, {"type": "number"}, 5, 5.0),
        (bool, {"type": "boolean"}, True, True),
        (str, {"type": "string"}, "", ""),
        (None, {"type": "null"}, None, None),
        (Any, {}, {"any": ["thing", None]}, {"any": ["thing", None]}),
        (object, {}, [1], [1]),
        (list, {"type": "array", "items": {}}, [1, "a"], [1, "a"]),
        (dict, {"type": "object", "additionalProperties": True}, {"a": 1}, {"a": 1}),
        (
            list[dict[str, int]],
            {"type": "array", "items": {"type": "object", "additionalProperties": INTEGER}},
            [{"a": 1}, {}],
            [{"a": 1}, {}],
        ),
        (
            tuple[int, str],
            {
                "type": "array",
                "maxItems": 2,
                "minItems": 2,
                "prefixItems": [INTEGER, {"type": "string"}],
            },
            [1, "a"],
            (1, "a"),
        ),
        (set[int], {"type": "array", "items": INTEGER, "uniqueItems": True}, [1, 2, 1], {1, 2}),
        (Optional[int], {"anyOf": [INTEGER, {"type": "null"}]}, None, None),  # noqa: UP045
        (Union[int, str], {"anyOf": [INTEGER, {"type": "string"}]}, "5", "5"),  # noqa: UP007
        (int | None, {"anyOf": [INTEGER, {"type": "null"}]}, 3, 3),
        (Literal["a", 2], {"enum": ["a", 2]}, 2, 2),
        (Colour, {"enum": ["red", "blue"], "type": "string"}, "blue", Colour.BLUE),
        (Level, {"enum": [1, 2], "type": "integer"}, 2, Level.HIGH),
        (Point, POINT, {"x": 1}, Point(1, 0)),
        (list[Point], {"type": "array", "items": POINT}, [{"x": 1, "y": 2}], [Point(1, 2)]),
        (Old, OLD, {"a": 1}, {"a": 1}),
        (dict[str, Old], {"type": "object", "additionalProperties": OLD}, {"k": {"a": 1}}, {"k": {"a": 1}}),
        (Old | None, {"anyOf": [OLD, {"type": "null"}]}, None, None),
        (
            New,
            {
                "type": "object",
                "properties": {"c": {"type": "array", "items": OLD}},
                "additionalProperties": False,
            },
            {"c": [{"a": 1, "b": "x"}]},
            {"c": [{"a": 1, "b": "x"}]},
        ),
        (
            Item,
            {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "description": "What it is called."},
                    "tags": {"type": "array", "items": {"type": "string"}, "default": []},
                },
                "required": ["name"],
            },
            {"name": "n"},
            Item(name="n"),
        ),
        (Annotated[int, "How many."], {"type": "integer", "description": "How many."}, 1, 1),
        (
            Annotated[int, Field(ge=1, description="How many.")],
            {"type": "integer", "minimum": 1, "description": "How many."},
            1,
            1,
        ),
        (Annotated[Old, "It."], {**OLD, "description": "It."}, {"a": 1}, {"a": 1}),
    ],
)
def test_a_type_becomes_a_schema_and_a_json_value_its_value(
    annotation: Any, schema: Any, sent: object, received: object
) -> None:
    made = tool(annotation)
    assert made.parameters == {
        "type": "object",
        "properties": {"x": schema},
        "required": ["x"],
        "additionalProperties": False,
    }
    assert made.read({"x": json.loads(json.dumps(sent))}) == {"x": received}


@for_each_row(
    ("annotation", "default", "schema"),
    [
        (int, 3, {"type": "integer", "default": 3}),
        (int, None, {"anyOf": [INTEGER, {"type": "null"}], "default": None}),
        (Annotated[int, "N."], None, {"anyOf": [INTEGER, {"type": "null"}], "default": None, "description": "N."}),
        (Colour, Colour.RED, {"enum": ["red", "blue"], "type": "string", "default": "red"}),
        (Point | None, Point(1, 2), {"anyOf": [POINT, {"type": "null"}], "default": {"x": 1, "y": 2}}),
        (int, object(), INTEGER),  # a default that no schema can show
        (int, Field(7, ge=1, description="How many."), {"type": "integer", "minimum": 1, "default": 7,
                                                        "description": "How many."}),
    ],
)  # fmt: skip
def test_a_default_stands_in_the_schema_and_makes_the_argument_optional(
    annotation: Any, default: object, schema: Any
) -> None:
    made = tool(annotation, default)
    assert made.parameters["properties"] == {"x": schema}
    assert "required" not in made.parameters
    left_out = made.read({})
    assert left_out == ({"x": 7} if "minimum" in schema else {})  # the function has its own default, a Field has not


def test_no_annotation_takes_any_json_value() -> None:
    def f(x, y=1):  # type: ignore[no-untyped-def]
        return x, y

    assert read_tool(f).parameters["properties"] == {"x": {}, "y": {"default": 1}}
    assert read_tool(f).read({"x": [None, {"a": 1.5}]}) == {"x": [None, {"a": 1.5}]}


def test_a_type_that_refers_to_itself_keeps_its_definition() -> None:
    made = tool(Tree)
    assert made.parameters["properties"] == {"x": {"$ref": "#/$defs/Tree"}}
    assert set(made.parameters["$defs"]) == {"Tree"}
    assert made.read({"x": {"value": 1, "children": [{"value": 2}]}})["x"].children[0].value == 2


def test_so_does_a_typed_dict_that_refers_to_itself() -> None:
    made = tool(Branch)
    assert made.parameters["$defs"]["Branch"]["required"] == ["value"]
    with pytest.raises(ToolCallError, match=r"argument 'x'\['branches'\]\[0\]\['value'\]"):
        made.read({"x": {"value": 1, "branches": [{"value": "no"}]}})


def test_parameters_may_have_the_names_of_a_models_own_methods() -> None:
    def f(
        copy: int, schema: str, json: str, model_config: int, model_fields: int, title: str, default: int
    ) -> None: ...

    names = ["copy", "schema", "json", "model_config", "model_fields", "title", "default"]
    made = read_tool(f)
    assert list(made.parameters["properties"]) == made.parameters["required"] == names
    values = {"copy": 1, "schema": "s", "json": "j", "model_config": 2, "model_fields": 3, "title": "t", "default": 4}
    assert made.read(values) == values
    with pytest.raises(ToolCallError, match="unknown argument 'field0'"):
        made.read({**values, "field0": 1})


def test_descriptions_come_from_the_docstring_unless_the_annotation_has_one() -> None:
    def f(a: int, b: Annotated[int, "of the annotation"], c: int = Field(3)) -> None:
        """Do it.

        Args:
            a: of the docstring
            b: of the docstring
            c: of the docstring
        """

    properties = read_tool(f).parameters["properties"]
    assert [properties[name]["description"] for name in "abc"] == [
        "of the docstring",
        "of the annotation",
        "of the docstring",
    ]


def test_further_arguments_are_checked_like_their_annotation() -> None:
    def typed(a: int, **more: int) -> None: ...
    def free(**more: Any) -> None: ...

    assert read_tool(typed).parameters["additionalProperties"] == INTEGER
    assert read_tool(typed).read({"a": "1", "b": "2"}) == {"a": 1, "b": 2}
    with pytest.raises(ToolCallError, match="argument 'b': Input should be a valid integer"):
        read_tool(typed).read({"a": 1, "b": "x"})
    assert read_tool(free).read({"a": [1]}) == {"a": [1]}


def add(first: int, second: list[int] | None = None) -> int:
    return first


@for_each_row(
    ("arguments", "words"),
    [
        ({}, "add: argument 'first' is missing"),
        ({"frist": 1}, "add: argument 'first' is missing; unknown argument 'frist' (did you mean 'first'?); "
                       "it takes first, second"),
        ({"first": "x"}, "add: argument 'first': Input should be a valid integer, unable to parse string as an "
                         "integer, not 'x'"),
        ({"first": None}, "add: argument 'first': Input should be a valid integer, not None"),
        ({"first": 1, "second": [1, "x"]}, "add: argument 'second'[1]: Input should be a valid integer, unable to "
                                           "parse string as an integer, not 'x'"),
        ({"first": "y" * 500}, "add: argument 'first': Input should be a valid integer, unable to parse string as an "
                               "integer, not '" + "y" * 78 + "…"),
    ],
)  # fmt: skip
def test_a_wrong_argument_is_named_in_words_for_the_model(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ToolCallError) as caught:
        read_tool(add).read(arguments)
    assert str(caught.value) == words


def test_many_wrong_arguments_are_not_all_told() -> None:
    def f(x: list[int]) -> None: ...

    with pytest.raises(ToolCallError) as caught:
        read_tool(f).read({"x": ["no"] * 9})
    assert str(caught.value).count("Input should be") == 5
    assert str(caught.value).endswith("; and 4 more")


def test_an_argument_of_a_tool_without_any_is_unknown() -> None:
    def f() -> None: ...

    with pytest.raises(ToolCallError, match=r"^f: unknown argument 'x'; it takes no arguments$"):
        read_tool(f).read({"x": 1})


def unresolved(x: Nowhere) -> None: ...  # noqa: F821  # pyright: ignore[reportUndefinedVariable]
def for_checkers(x: OnlyForCheckers) -> None: ...
def callback(x: Callable[[int], int]) -> None: ...
def handle(session: Tool, x: int) -> None: ...


@for_each_row(
    ("function", "words"),
    [
        (unresolved, "tool 'unresolved': an annotation cannot be resolved (name 'Nowhere' is not defined)"),
        (for_checkers, "tool 'for_checkers': an annotation cannot be resolved"),
        (callback, "tool 'callback', parameter 'x' has no JSON schema"),
    ],
)
def test_a_type_that_no_model_can_send_is_refused_by_name(function: Callable[..., Any], words: str) -> None:
    with pytest.raises(EnvironmentFault) as caught:
        read_tool(function)
    assert str(caught.value).startswith(words)


def test_a_hidden_parameter_may_have_any_type() -> None:
    def f(x: int, state: OnlyForCheckers, client: Callable[[], None]) -> None: ...

    assert list(read_tool(f, ["state", "client"]).parameters["properties"]) == ["x"]


def test_types_of_the_enclosing_function_are_found() -> None:
    class Inner(BaseModel):
        n: int

    def f(x: Inner) -> int:
        return Inner(n=x.n).n

    assert read_tool(f).read({"x": {"n": 1}})["x"] == Inner(n=1)


def test_plain_leaves_properties_that_are_called_like_keywords_alone() -> None:
    schema = {
        "title": "T",
        "type": "object",
        "properties": {"title": {"title": "Title", "type": "string"}, "default": {"$ref": "#/$defs/D"}},
        "$defs": {"D": {"title": "D", "enum": [{"title": "kept"}], "default": {"title": "kept"}}},
    }
    assert plain(schema) == {
        "type": "object",
        "properties": {
            "title": {"type": "string"},
            "default": {"enum": [{"title": "kept"}], "default": {"title": "kept"}},
        },
    }


# Whatever a type takes comes back as it was: the schema admits it and reading it changes nothing.

leaves: st.SearchStrategy[tuple[Any, st.SearchStrategy[Any]]] = st.sampled_from(
    [
        (int, st.integers()),
        (float, st.floats(allow_nan=False, allow_infinity=False)),
        (bool, st.booleans()),
        (str, st.text()),
        (Literal["a", "b"], st.sampled_from(["a", "b"])),
        (type(None), st.none()),
    ]
)


def grown(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        inner.map(lambda pair: (list[pair[0]], st.lists(pair[1], max_size=3))),
        inner.map(lambda pair: (dict[str, pair[0]], st.dictionaries(st.text(), pair[1], max_size=3))),
        inner.map(lambda pair: (Optional[pair[0]], st.none() | pair[1])),  # noqa: UP045
    )


types = st.recursive(leaves, grown, max_leaves=4)


@settings(deadline=None, max_examples=150)
@given(types.flatmap(lambda pair: st.tuples(st.just(pair[0]), pair[1])))
def test_what_a_type_admits_survives_the_way_there(pair: tuple[Any, Any]) -> None:
    annotation, value = pair
    made = tool(annotation)
    read = made.read(json.loads(json.dumps({"x": value})))
    assert read == {"x": value}
    assert json.loads(json.dumps(made.definition)) == made.definition
