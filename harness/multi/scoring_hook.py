"""The scoring hook: a user's function that replaces the documented formula. Loads it, calls it and reads its score. A
failed hook gives no score, rather than 0."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

from harness.agents.loading import import_function
from harness.core.errors import EvalFnError
from harness.core.types import JsonDict
from harness.multi.schemas import SchemaRegistry
from harness.multi.tasks import Task, TaskError, TaskScore
from harness.rubrics.functions import raised, read
from harness.usercode.functions import is_async, name_of, parameters_of, without_partials
from harness.usercode.separate_task import OwnTask
from harness.usercode.threads import offload

HookFunction: TypeAlias = Callable[..., Any]
"""Type of a scoring hook: takes a `HookCall`, or those parts of it that its parameters name; returns a number, a bool,
a dict of `score`, `valid` and `errors`, a `TaskScore`, or an awaitable of one."""

_PYTHON_NAMES: Mapping[str, str] = {"model_id": "modelId", "schema_registry": "SchemaRegistry"}

_NAMES = ("task", "output", "modelId", "SchemaRegistry")


class HookCall(dict[str, Any]):
    """Argument of a scoring hook: `task`, `output`, `modelId` and `SchemaRegistry`, as keys and as attributes. The last
    two are also `model_id` and `schema_registry`.

    Args:
        task: The task; its fields can be read as attributes and by their documented names.
        output: The model's reply without its thinking.
        model_id: The model's name in the results.
        registry: Validates values against schemas.
    """

    def __init__(self, task: Task, output: str, model_id: str, registry: SchemaRegistry) -> None:
        super().__init__(task=task, output=output, modelId=model_id, SchemaRegistry=registry)

    def __missing__(self, name: str) -> Any:
        documented = _PYTHON_NAMES.get(name)
        if documented is None:
            raise KeyError(name)
        return self[documented]

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"a scoring hook has no argument {name!r}; it has {', '.join(_NAMES)}") from None


@dataclass(frozen=True, slots=True)
class ScoringHook:
    """A user's scoring function with its name and source files.

    Raises:
        EvalFnError: its parameters do not accept a hook's arguments.
    """

    function: HookFunction
    name: str = "scoreOutput"
    """The hook's name in the reasons of a missing score; `module:function` if it was loaded."""
    files: tuple[Path, ...] = ()
    """Source files of the hook's code."""

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise EvalFnError(f"scoring hook {self.name!r} must be a function, not {type(self.function).__name__}")
        _parameters(self.function, self.name)

    async def __call__(self, call: HookCall) -> TaskScore:
        """Score one output with the hook. A plain function runs in a thread, an async one in a separate task.

        Raises:
            EvalFnError: the returned value is not a score.
            Exception: any error that the hook raised.
        """
        if is_async(self.function):
            value = await OwnTask[object](f"scoring hook {self.name!r}").run(self._awaited(call))
        else:
            value = await offload.run(self._begin, call)
            if inspect.isawaitable(value):
                value = cast(object, await value)
        return read_score(value)

    async def _awaited(self, call: HookCall) -> object:
        return await self._begin(call)

    def _begin(self, call: HookCall) -> Any:
        names = _parameters(self.function, self.name)
        try:
            return self.function(call) if names is None else self.function(**{name: call[name] for name in names})
        except SystemExit as error:  # the thread runner's message would name an internal function
            raise EvalFnError(raised(error)) from error


def hook_of(value: ScoringHook | HookFunction | str | None) -> ScoringHook | None:
    """Convert a scoring hook, given as a function or as `module:function`, to a `ScoringHook`.

    Raises:
        EvalFnError: there is no such function, or its parameters do not accept a hook's arguments.
    """
    if value is None or isinstance(value, ScoringHook):
        return value
    if isinstance(value, str):
        function, files = import_function(value, "scoring hook", "scoring:score_output")
        return ScoringHook(function, value, files)
    try:
        file = inspect.getsourcefile(code_of(value))
    except (TypeError, ValueError):
        file = None
    return ScoringHook(value, name_of(value), () if file is None or not Path(file).is_file() else (Path(file),))


def code_of(function: HookFunction) -> Callable[..., Any]:
    """Return the function or class that contains a hook's code: the function of a partial, the class of any other
    object."""
    function = without_partials(function)
    return inspect.unwrap(function) if inspect.isroutine(function) or inspect.isclass(function) else type(function)


def read_score(value: object) -> TaskScore:
    """Convert the value that a scoring hook returned to a score. By default an output is valid if its score is above 0.

    Raises:
        EvalFnError: the value is not a score.
    """
    if isinstance(value, TaskScore):
        value = {"score": value.score, "valid": value.valid, "errors": value.errors}
    if isinstance(value, Mapping):
        return _from_fields(cast("Mapping[str, object]", value))
    number = _number(value)
    return TaskScore(number, number > 0)


def _from_fields(fields: Mapping[str, object]) -> TaskScore:
    if "score" not in fields:
        raise EvalFnError(f"returned a dict without 'score'; its keys: {', '.join(map(str, fields)) or 'none'}")
    number = _number(fields["score"], " as 'score'")
    valid = fields.get("valid")
    truth = number > 0 if valid is None else read(valid)[0]
    if truth is None:
        raise EvalFnError(f"returned a dict whose 'valid' is not true or false, but {type(valid).__name__}")
    return TaskScore(number, bool(truth), _errors(fields.get("errors")))


def _errors(value: object) -> list[TaskError]:
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        return [str(value)]
    entries = cast("list[object] | tuple[object, ...]", value)
    return [_error(each) for each in entries]


def _error(value: object) -> TaskError:
    """Convert an error from a scoring hook to a form that a journal can store; non-JSON values become strings."""
    if not isinstance(value, dict):
        return str(value)
    try:
        return cast(JsonDict, json.loads(json.dumps(value, allow_nan=False)))
    except (TypeError, ValueError, RecursionError):
        return str(cast(object, value))


def _number(value: object, where: str = "") -> float:
    number, why = read(value)
    if number is None:
        kind, colon, shown = why.partition(":")
        raise EvalFnError(f"{kind}{where}{colon}{shown}")
    return number


def _parameters(function: HookFunction, name: str) -> tuple[str, ...] | None:
    """Return the keyword arguments with which a scoring hook is called; None if it takes the whole call as its only
    argument.

    Raises:
        EvalFnError: the hook's parameters fit neither form.
    """
    try:
        parameters = parameters_of(function)
    except (TypeError, ValueError) as error:
        raise EvalFnError(
            f"scoring hook {name!r}: its signature cannot be read; wrap the function in a def ({error})"
        ) from error
    known = (*_NAMES, *_PYTHON_NAMES)
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name in known]
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
    rest = [p for p in parameters if p not in named and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    needed = [p for p in rest if p.default is p.empty]
    if (named or takes_all) and not needed:
        return tuple(dict.fromkeys([*(p.name for p in named), *(_NAMES if takes_all else ())]))
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    is_one = len(needed) <= 1 and all(p in positional[:1] for p in needed) and not named
    if is_one and (positional or any(p.kind is p.VAR_POSITIONAL for p in parameters)):
        return None
    wrong = f"{needed[0].name!r} gets no value" if needed and named else "none of its parameters has such a name"
    raise EvalFnError(
        f"scoring hook {name!r}: the function must take either one argument (an object with the attributes "
        f"{', '.join(_NAMES)}) or parameters with some of these names (also model_id and schema_registry), but {wrong}"
    )
