"""What a hosted rubric's functions really did. The classic rubric turns a function's exception into 0.0 and adds NaN
up; here each function is wrapped, once, when the environment is hosted, so that its failure is known. Owns the wrapping
and the notes about the rollouts being scored; the sum stays the package's own.

A classic rubric passes arguments by name, so the wrapper asks for `state` (or `states`) beside what the function takes:
that is how it knows which rollout a call is about. Plain functions run in a thread, off the event loop."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, cast

from harness.compat.hosted.judges import scoring
from harness.compat.openai_client import original
from harness.errors import ThreadsHung
from harness.offload import offload
from harness.rubrics.functions import GROUP_NAMES, raised, read, read_group
from harness.state import State

_ON_LOOP = ("main thread", "threaded environment", "event loop")
"""How a function says that it can only run where classic code ran it: signals (math-verify's time limit) and tasks."""


class Notes:
    """Of one rollout that is being scored."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.called: set[str] = set()
        self.reasons: dict[str, str] = {}
        """Why a function gave no value."""


class Watch:
    """The functions of one environment's rubrics."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.weights: dict[str, list[float]] = {}
        self.is_group = False
        self._notes: dict[int, Notes] = {}
        self._hung: ThreadsHung | None = None

    def wrap(self, rubric: Any) -> None:
        """Put wrappers into a rubric's place of functions."""
        for index, (function, weight) in enumerate(zip(rubric.funcs, rubric.weights, strict=False)):
            name = _name(function)
            self.names.append(name)
            self.weights.setdefault(name, []).append(float(weight))
            rubric.funcs[index] = self._wrapper(function, name)

    @contextmanager
    def over(self, theirs: Sequence[Any], states: Sequence[State]) -> Generator[list[Notes]]:
        """Take notes while rollouts are scored.

        Args:
            theirs: Their states, the package's own.
            states: Ours.

        Raises:
            ThreadsHung: plain functions of earlier rollouts hang.
        """
        notes = [Notes(state) for state in states]
        self._notes.update((id(one), note) for one, note in zip(theirs, notes, strict=True))
        try:
            yield notes
        finally:
            for one in theirs:
                self._notes.pop(id(one), None)
        if self._hung is not None:
            hung, self._hung = self._hung, None
            raise hung

    def _wrapper(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        signature = inspect.signature(function)
        takes = signature.parameters
        is_group = any(known in takes for known in GROUP_NAMES) or _returns_list(signature)
        self.is_group = self.is_group or is_group
        about = "states" if is_group else "state"
        takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in takes.values())
        passes_on = about in takes or takes_all
        call = _Call(function)

        async def watched(**arguments: Any) -> Any:
            subject = arguments.get(about) if passes_on else arguments.pop(about, None)
            noted = [self._notes.get(id(state)) for state in _each(subject, is_group)]
            for note in noted:
                if note is not None:
                    note.called.add(name)
            token = scoring.set(noted[0].state if len(noted) == 1 and noted[0] is not None else None)
            try:
                value = await call(arguments)
            except (Exception, SystemExit) as error:  # the boundary around reward functions; classic code sees it too
                self._hung = error if isinstance(error, ThreadsHung) else self._hung
                _note(noted, name, [raised(original(error) or error)] * len(noted))
                raise
            finally:
                scoring.reset(token)
            values = read_group(value, len(noted)) if is_group else [read(value)]
            _note(noted, name, [reason for _, reason in values])
            return value

        functools.update_wrapper(watched, function, ("__doc__", "__module__"), ())
        watched.__name__ = watched.__qualname__ = name
        cast(Any, watched).__signature__ = signature if passes_on else _with(signature, about)
        return watched


class _Call:
    """One function, called where it can run."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._is_plain = not _is_async(function)

    async def __call__(self, arguments: dict[str, Any]) -> Any:
        if self._is_plain:
            try:
                return await _settled(await offload.run(functools.partial(self._function, **arguments)))
            except (RuntimeError, ValueError) as error:
                if not any(words in str(error) for words in _ON_LOOP):
                    raise
                self._is_plain = False  # from now on as classic code called it
        return await _settled(self._function(**arguments))


async def _settled(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _each(subject: Any, is_group: bool) -> Iterable[Any]:
    return cast("list[Any]", subject or []) if is_group else [subject]


def _note(notes: Sequence[Notes | None], name: str, reasons: Sequence[str]) -> None:
    for note, reason in zip(notes, reasons, strict=True):
        if note is not None and reason:
            note.reasons[name] = reason


def _with(signature: inspect.Signature, name: str) -> inspect.Signature:
    parameter = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY)
    return signature.replace(parameters=[*signature.parameters.values(), parameter])


def _returns_list(signature: inspect.Signature) -> bool:
    annotation: object = signature.return_annotation
    return annotation is list or getattr(annotation, "__origin__", None) is list


def _name(function: object) -> str:
    while isinstance(function, functools.partial):
        function = cast("functools.partial[Any]", function).func
    return str(getattr(function, "__name__", None) or type(function).__name__)


def _is_async(function: object) -> bool:
    while isinstance(function, functools.partial):
        function = cast("functools.partial[Any]", function).func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004
