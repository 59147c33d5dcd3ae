"""Resolve the type annotations of a function's parameters for pydantic."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, NotRequired, Required, Union, cast, get_args, get_origin

import typing_extensions

from harness.core.errors import EnvironmentFault


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
