"""Decorators `osmosis_reward` and `osmosis_rubric`, which validate a function's signature and return value. The
decorators are optional: eval functions are loaded and called in the same way without them."""

from __future__ import annotations

import functools
import inspect
import numbers
import re
import types
import typing
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar, Union, cast

F = TypeVar("F", bound=Callable[..., Any])

_NAMES = ("solution_str", "ground_truth", "extra_info")

_ORDINALS = ("First", "Second", "Third")


def osmosis_reward(func: F) -> F:
    """Decorator that validates the signature of a reward function and, at each call, its return value.

    A function whose first parameter is `solution_str` must be `(solution_str: str, ground_truth: str, extra_info: dict
    | None = None, …) -> float`, sync or async; any other function is returned unchanged. The return value is converted
    to float. The keyword argument `data_source` is dropped if the function does not accept it.

    Raises:
        TypeError: the signature is invalid, or a call returns a value that is not a number.
    """
    if next(iter(inspect.signature(func).parameters), None) != _NAMES[0]:
        return func
    _check_signature(func, has_default=True, is_truth_optional=False)
    return _wrapped(func, None)


def osmosis_rubric(func: F) -> F:
    """Decorator that validates the signature of a rubric function and, at each call, its arguments and return value.

    The function must be `(solution_str: str, ground_truth: str | None, extra_info: dict | None, …) -> float`, sync or
    async. The parameters of a function that takes `messages` first are not checked.

    Raises:
        TypeError: the signature is invalid, or a call has an invalid argument or returns a value that is not a number.
    """
    if next(iter(inspect.signature(func).parameters), None) == "messages":
        return _wrapped(func, None)
    _check_signature(func, has_default=False, is_truth_optional=True)
    return _wrapped(func, inspect.signature(func))


def _check_signature(func: Callable[..., object], *, has_default: bool, is_truth_optional: bool) -> None:
    parameters = list(inspect.signature(func).parameters.values())
    if len(parameters) < len(_NAMES):
        raise TypeError(f"Function {_name(func)} must have at least 3 parameters, got {len(parameters)}")
    kinds = _annotations(func)
    for ordinal, name, parameter in zip(_ORDINALS, _NAMES, parameters, strict=False):
        if parameter.name != name:
            raise TypeError(f"{ordinal} parameter must be named {name!r}, got {parameter.name!r}")
        kind = kinds.get(name, parameter.annotation)
        wanted = "dict" if name == "extra_info" else "str"
        is_optional = name == "extra_info" or (name == "ground_truth" and is_truth_optional)
        if not _fits(kind, wanted, is_optional=is_optional):
            raise TypeError(f"{ordinal} parameter {name!r} must be annotated as {wanted}, got {_shown(kind)}")
    extra = parameters[2]
    if has_default and extra.default is extra.empty:
        raise TypeError("Third parameter 'extra_info' must have a default value of None")
    if not has_default and extra.default is not extra.empty:
        raise TypeError("Third parameter 'extra_info' must not have a default value")


def _annotations(func: Callable[..., object]) -> dict[str, Any]:
    """Return a function's annotations as types; empty if one of them names an undefined type."""
    try:
        return typing.get_type_hints(func)
    except Exception:  # the user's annotations may raise any error
        return {}


def _fits(kind: object, wanted: str, *, is_optional: bool) -> bool:
    """Return whether an annotation is the type `wanted` (`str`, or `dict`, for which `Mapping` is accepted, too); if
    `is_optional`, `| None` is allowed."""
    if isinstance(kind, str):
        optional = re.fullmatch(r"\s*(?:typing\.)?Optional\[(.*)\]\s*", kind)
        texts = [optional[1], "None"] if optional else kind.split("|")
        parts = {part.strip().partition("[")[0].rpartition(".")[2].lower() for part in texts}
        parts = {"dict" if part == "mapping" else part for part in parts}
        return wanted in parts and parts <= ({wanted, "none"} if is_optional else {wanted})
    if typing.get_origin(kind) in (Union, types.UnionType):
        options = [option for option in typing.get_args(kind) if option is not types.NoneType]
        return is_optional and len(options) == 1 and _fits(options[0], wanted, is_optional=False)
    plain = {"str": (str,), "dict": (dict, Mapping)}[wanted]
    return kind in plain or typing.get_origin(kind) in plain


def _wrapped(func: F, checked: inspect.Signature | None) -> F:
    """Wrap a scoring function so that it returns a float.

    Args:
        func: Sync or async.
        checked: The function's signature, if its arguments must be validated as well; else None.
    """
    takes = inspect.signature(func).parameters.values()
    takes_source = any(p.name == "data_source" or p.kind is p.VAR_KEYWORD for p in takes)

    def prepare(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        if not takes_source:
            kwargs.pop("data_source", None)
        if checked is not None:
            _check_arguments(func, checked.bind(*args, **kwargs))
        return kwargs

    if inspect.iscoroutinefunction(func):

        @functools.wraps(func)
        async def call_async(*args: Any, **kwargs: Any) -> float:
            return _number(func, await cast("Awaitable[object]", func(*args, **prepare(args, kwargs))))

        return cast(F, call_async)

    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> float:
        return _number(func, func(*args, **prepare(args, kwargs)))

    return cast(F, call)


def _check_arguments(func: Callable[..., object], bound: inspect.BoundArguments) -> None:
    annotation = _annotations(func).get(_NAMES[2], inspect.signature(func).parameters[_NAMES[2]].annotation)
    # None is accepted for `extra_info` unless the annotation excludes it.
    extra_info = (dict,) if _fits(annotation, "dict", is_optional=False) else (dict, types.NoneType)
    wanted: dict[str, tuple[type, ...]] = {
        "solution_str": (str,), "ground_truth": (str, types.NoneType), "extra_info": extra_info,
    }  # fmt: skip
    for name, kinds in wanted.items():
        value = bound.arguments.get(name)
        if not isinstance(value, kinds):
            allowed = " or ".join("None" if kind is types.NoneType else kind.__name__ for kind in kinds)
            raise TypeError(f"Function {_name(func)}: {name!r} must be {allowed}, got {type(value).__name__}")


def _number(func: Callable[..., object], value: object) -> float:
    item = getattr(value, "item", None) if getattr(value, "ndim", None) == 0 else None
    number: object = item() if callable(item) else value  # a scalar of numpy or of a tensor library
    if isinstance(number, numbers.Real):
        return float(number)
    raise TypeError(f"Function {_name(func)} must return a float, got {type(value).__name__}")


def _name(func: object) -> str:
    return str(getattr(func, "__name__", None) or type(func).__name__)


def _shown(kind: object) -> str:
    if kind is inspect.Parameter.empty:
        return "no annotation"
    return kind.__name__ if isinstance(kind, type) else str(kind)
