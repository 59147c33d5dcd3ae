"""JSON schemas of functions' parameters, and validation of arguments with pydantic."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, Required, Union, cast, get_args, get_origin

import typing_extensions
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticSerializationError, to_jsonable_python

from harness.core.errors import EnvironmentFault, ToolCallError
from harness.core.safe_text import clean
from harness.core.types import JsonDict
from harness.settings.wording import nearest


def read_annotations(
    tool: str, function: Callable[..., Any], parameters: Sequence[inspect.Parameter]
) -> dict[str, Any]:
    """Resolve the annotations of the given parameters. Other parameters may use names that exist only for type
    checkers.

    Args:
        tool: The tool's name, for messages.
        function: The function that the annotations belong to.
        parameters: The parameters to resolve; those without an annotation are omitted.

    Raises:
        EnvironmentFault: an annotation uses an undefined name.
    """
    written = {p.name: p.annotation for p in parameters if p.annotation is not p.empty}
    stand_in = types.SimpleNamespace(__annotations__=written)
    local = dict(inspect.getclosurevars(function).nonlocals) if inspect.isfunction(function) else dict[str, Any]()
    try:
        hints = typing.get_type_hints(
            cast("Callable[..., Any]", stand_in), getattr(function, "__globals__", {}), local, include_extras=True
        )
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        raise EnvironmentFault(
            f"tool {tool!r}: an annotation cannot be resolved ({error}); define its type at module level"
        ) from error
    return {name: _readable(hint) for name, hint in hints.items()}


def optional(annotation: Any) -> Any:
    """Make an annotation that also allows None; metadata of `Annotated` stays outermost."""
    if get_origin(annotation) is Annotated:
        inner, *metadata = get_args(annotation)
        return Annotated[(inner | None, *metadata)]  # type: ignore[misc]
    return annotation | None


def own_description(annotation: Any) -> str:
    """The description in `Annotated[…, "text"]` or `Annotated[…, Field(description="text")]`; "" if there is none."""
    for metadata in get_args(annotation)[1:] if get_origin(annotation) is Annotated else ():
        text = metadata if isinstance(metadata, str) else getattr(metadata, "description", None)
        if isinstance(text, str) and text:
            return text
    return ""


def _readable(annotation: Any, inside: frozenset[Any] = frozenset()) -> Any:
    """Replace `typing.TypedDict` by that of `typing_extensions` in an annotation; pydantic requires it."""
    if typing_extensions.is_typeddict(annotation):
        return annotation if annotation in inside else _typed_dict(annotation, inside | {annotation})
    origin: Any = get_origin(annotation)
    arguments: tuple[Any, ...] = get_args(annotation)
    if not arguments or origin is Literal:
        return annotation
    if origin is Annotated:
        return Annotated[(_readable(arguments[0], inside), *arguments[1:])]  # type: ignore[misc]
    inner: tuple[Any, ...] = tuple(_readable(argument, inside) for argument in arguments)
    if _are_same(inner, arguments):
        return annotation
    if origin in (Union, types.UnionType):
        return Union[inner]  # noqa: UP007  # a tuple of members
    return origin[inner]


def _typed_dict(annotation: Any, inside: frozenset[Any]) -> Any:
    hints = typing_extensions.get_type_hints(annotation, include_extras=True)
    fields: dict[str, Any] = {}
    plain: list[Any] = []
    for name, hint in hints.items():
        kind = get_origin(hint)
        bare = get_args(hint)[0] if kind in (Required, NotRequired) else hint
        plain.append(bare)
        inner = _readable(bare, inside)
        is_required = kind is Required or (kind is not NotRequired and name in annotation.__required_keys__)
        fields[name] = Required[inner] if is_required else NotRequired[inner]
    read = [get_args(field)[0] for field in fields.values()]
    if type(annotation).__module__ != "typing" and _are_same(read, plain):
        return annotation
    made = cast(Any, typing_extensions).TypedDict(annotation.__name__, fields)
    made.__doc__ = annotation.__doc__
    made.__module__ = annotation.__module__
    return made


def _are_same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return all(first is second for first, second in zip(one, other, strict=True))


_FAULTS_SHOWN = 5
"""Maximum number of wrong arguments in one message."""

_SHOWN = 80
"""Maximum characters of a wrong value in a message."""

_BY_NAME = ("properties", "patternProperties", "$defs", "dependentSchemas")
"""Schema keywords whose keys are names, not keywords."""

_LITERAL = ("const", "default", "enum", "example", "examples")
"""Schema keywords whose values are data, not schemas."""


@dataclass(frozen=True, slots=True)
class ArgumentReader:
    """Validates the arguments of one function."""

    tool: str
    model: type[BaseModel]
    """A pydantic model with one field per parameter. The fields have generated names with the parameters' names as
    aliases, since a model's field cannot be called `schema` or `copy`."""
    fields: Mapping[str, str]
    """Parameter names by field name."""
    parameters: JsonDict
    """The JSON schema of the arguments."""
    always: frozenset[str]
    """Parameters that are always passed because a pydantic `Field` contains their default."""

    def read(self, arguments: JsonDict) -> JsonDict:
        """Validate arguments and convert them to the annotated types. Omitted arguments stay omitted.

        Raises:
            ToolCallError: an argument is unknown, missing or of the wrong type; the message is meant for the model.
        """
        try:
            values = self.model.model_validate(arguments)
        except ValidationError as error:
            faults = error.errors(include_url=False, include_context=False)
            messages = [self._fault(fault) for fault in faults[:_FAULTS_SHOWN]]
            if len(faults) > _FAULTS_SHOWN:
                messages.append(f"and {len(faults) - _FAULTS_SHOWN} more")
            raise ToolCallError(f"{self.tool}: {'; '.join(messages)}") from error
        given = values.model_fields_set
        read = {
            name: getattr(values, field) for field, name in self.fields.items() if field in given or name in self.always
        }
        return {**read, **values.model_extra} if values.model_extra else read

    def _fault(self, fault: ErrorDetails) -> str:
        place = fault["loc"]
        if len(place) == 1 and fault["type"] == "missing":
            return f"argument {place[0]!r} is missing"
        if len(place) == 1 and fault["type"] == "extra_forbidden":
            return unknown_argument(str(place[0]), self.fields.values())
        where = "".join(f"[{part!r}]" for part in place[1:])
        message = f"argument {str(place[0])!r}{where}: {fault['msg']}" if place else fault["msg"]
        return message if fault["type"] == "missing" else f"{message}, not {clean(repr(fault['input']), _SHOWN)}"


def unknown_argument(name: str, known: Collection[str]) -> str:
    """Return the error message for an argument that the tool does not have."""
    near = nearest(name, known)
    takes = f"it takes {', '.join(known)}" if known else "it takes no arguments"
    return f"unknown argument {name!r}{f' (did you mean {near!r}?)' if near else ''}; {takes}"


def read_parameters(
    tool: str,
    function: Callable[..., Any],
    parameters: Sequence[inspect.Parameter],
    descriptions: Mapping[str, str],
) -> ArgumentReader:
    """Make the argument reader of a function.

    Args:
        tool: The tool's name, for messages.
        function: The function with the annotations; names in them are resolved in its module.
        parameters: The parameters that the model may pass.
        descriptions: Descriptions from the docstring, by parameter. An annotation's own description takes precedence.

    Raises:
        EnvironmentFault: an annotation cannot be resolved or converted to a JSON schema.
    """
    hints = read_annotations(tool, function, parameters)
    definitions: dict[str, Any] = {}
    names: dict[str, str] = {}
    rest: object = None
    for number, parameter in enumerate(parameters):
        annotation = hints.get(parameter.name, Any)
        if parameter.kind is parameter.VAR_KEYWORD:
            rest = annotation
            continue
        names[f"field{number}"] = parameter.name
        definitions[f"field{number}"] = _definition(parameter, annotation, descriptions.get(parameter.name))
    try:
        model = create_model("Arguments", __base__=_base(rest), **definitions)
        schema = plain(model.model_json_schema())
    except (PydanticUserError, TypeError) as error:
        raise _no_json_form(tool, hints, error) from error
    always = frozenset(p.name for p in parameters if isinstance(p.default, FieldInfo))
    return ArgumentReader(tool, model, names, schema, always)


def plain(schema: JsonDict) -> JsonDict:
    """Simplify a schema: remove pydantic's titles and replace each `$ref` by its definition, since not all endpoints
    support it. Recursive definitions stay."""
    definitions = cast("dict[str, JsonDict]", schema.get("$defs", {}))
    recursive = {name for name in definitions if name in _reached(definitions[name], definitions)}
    cleaned = cast(JsonDict, _cleaned({k: v for k, v in schema.items() if k != "$defs"}, definitions, recursive))
    if needed := _reached(cleaned, definitions) & recursive:
        cleaned["$defs"] = {name: _cleaned(definitions[name], definitions, recursive) for name in sorted(needed)}
    return cleaned


def _cleaned(schema: object, definitions: Mapping[str, JsonDict], recursive: Collection[str]) -> object:
    if isinstance(schema, list):
        return [_cleaned(part, definitions, recursive) for part in cast("list[object]", schema)]
    if not isinstance(schema, dict):
        return schema
    fields = cast(JsonDict, schema)
    name = _definition_name(fields)
    if name in definitions and name not in recursive:
        fields = {**definitions[name], **{key: value for key, value in fields.items() if key != "$ref"}}
    result: JsonDict = {}
    for key, value in fields.items():
        if key in _LITERAL:
            result[key] = value
        elif key in _BY_NAME and isinstance(value, dict):
            parts = cast(JsonDict, value)
            result[key] = {part: _cleaned(inner, definitions, recursive) for part, inner in parts.items()}
        elif key != "title":
            result[key] = _cleaned(value, definitions, recursive)
    return result


def _definition_name(fields: JsonDict) -> str:
    reference: object = fields.get("$ref")
    return reference.removeprefix("#/$defs/") if isinstance(reference, str) else ""


def _reached(schema: object, definitions: Mapping[str, JsonDict]) -> set[str]:
    """Names of the `$defs` that a JSON schema refers to, directly or through other definitions."""
    found: set[str] = set()
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            fields = cast(JsonDict, part)
            name = _definition_name(fields)
            if name and name not in found:
                found.add(name)
                waiting.append(definitions.get(name))
            waiting.extend(fields.values())
        elif isinstance(part, list):
            waiting.extend(cast("list[object]", part))
    return found


def _definition(parameter: inspect.Parameter, annotation: Any, described: str | None) -> tuple[Any, Any]:
    """Pydantic field definition of a parameter: its type, and its default if it has one."""
    default: Any = parameter.default
    more: dict[str, Any] = {"alias": parameter.name}
    if isinstance(default, FieldInfo):
        if described and not default.description:
            more["description"] = described
        return Annotated[annotation, default], Field(**more)
    if description := own_description(annotation) or described:
        more["description"] = description
    if default is None and annotation is not Any:
        annotation = optional(annotation)
    if default is parameter.empty:
        return annotation, Field(**more)
    try:
        to_jsonable_python(default)
    except (PydanticSerializationError, ValueError):
        return annotation, Field(default_factory=lambda: default, **more)  # a value that JSON cannot represent
    return annotation, Field(default, **more)


def _base(rest: object) -> type[BaseModel]:
    """Make the pydantic base model. It forbids extra arguments, unless the function has `**kwargs` of type `rest`."""
    if rest is None:
        return _Closed
    if rest is Any:
        return _Open
    annotations = {"__pydantic_extra__": dict[str, rest]}
    made = types.new_class("Open", (_Open,), exec_body=lambda body: body.update(__annotations__=annotations))
    return cast("type[BaseModel]", made)


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", protected_namespaces=())


class _Open(BaseModel):
    model_config = ConfigDict(extra="allow", protected_namespaces=())


def _no_json_form(tool: str, hints: Mapping[str, Any], error: Exception) -> EnvironmentFault:
    """Make the error for the first parameter without a JSON schema."""
    for name, annotation in hints.items():
        try:
            TypeAdapter(annotation).json_schema()
        except (PydanticUserError, TypeError) as own:
            return EnvironmentFault(
                f"tool {tool!r}, parameter {name!r} has no JSON schema ({str(own).splitlines()[0]}); annotate it with "
                "a type that has one, or hide it from the model (StatefulToolEnv.add_tool(…, args_to_skip=[…]))"
            )
    return EnvironmentFault(f"tool {tool!r}: its parameters have no JSON schema: {error}")
