"""The state of one rollout: a dict with the input, the transcript and the environment's own values.

The input (`prompt answer task info example_id`) is stored in `state["input"]` and can be read from the state itself.
The steps of the trajectory refer to one growing transcript, so that a rollout of n turns needs O(n) memory."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import orjson

from harness.core.errors import EnvironmentFault, StateLost
from harness.core.prefix import Prefix
from harness.core.records import Example, Generated
from harness.core.types import Chat, JsonDict, Messages, ModelResponse, Prompt

if TYPE_CHECKING:
    from openai import AsyncOpenAI

INPUT_KEYS: tuple[str, ...] = ("prompt", "answer", "task", "info", "example_id")
"""Fields of the example that can be read from the state."""

_INPUTS = frozenset(INPUT_KEYS)

_get: Callable[..., Any] = dict[str, Any].get
_set: Callable[..., Any] = dict[str, Any].__setitem__

_ids = random.Random()
"""Source of the ids of rollouts. Not `os.urandom`, which gives up the interpreter's lock in each call."""

os.register_at_fork(after_in_child=_ids.seed)

_ABSENT: Any = object()
"""Default of a lookup, since None is a value."""

FIXED_KEYS: frozenset[str] = frozenset(INPUT_KEYS) | {
    "input", "rollout_index", "model", "sampling_args", "tools", "completion", "is_completed", "is_truncated",
    "stop_condition", "prompt_too_long", "final_env_response", "trajectory", "trajectory_id", "reward", "metrics",
    "advantage", "error", "timing", "usage", "client", "chat", "oai_tools", "tool_defs", "transcript",
}  # fmt: skip
"""Keys of the state with a predefined meaning. They are recorded elsewhere or not at all, so `export` omits them."""

_STEPS = "trajectory"
"""Key under which an exported state stores values that the environment added to steps (notes). The steps themselves are
rebuilt from the completion. If the completion does not determine them, the value is an object with `notes` and with
`places`, the positions of the steps in the completion."""

_STEP_KEYS = frozenset({"prompt", "completion", "response", "tokens", "is_truncated", "trajectory_id"})
"""Keys of a trajectory step that the rollout loop sets."""

# Values that orjson would convert to another type (a dataclass to a dict) cannot be restored as they were.
_FAITHFUL = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS


class State(dict[str, Any]):
    """The state of one rollout: a dict that also gives access to its input fields."""

    __slots__ = ("chat", "example", "is_verifying", "lost", "machine", "start", "transcript")

    chat: Chat | None
    """The rollout's model, while the rollout runs."""
    example: Example | None
    """The example of the rollout. Shared by all of its rollouts, so it must not be changed."""
    lost: frozenset[str]
    """Names of the values that are not in the journal. Reading one of them raises `StateLost`."""
    is_verifying: bool
    """Whether the result is being examined. An error then fails the rollout, even if a limit has ended it before."""
    machine: Any
    """The rollout's machine (`harness.sandbox.Machine`) while the rollout runs in a `MachineEnv`, else None."""
    transcript: Prompt
    """The prompt and all later messages, as one growing list; for a completion model, one string."""
    start: int
    """Index in `transcript` at which the completion starts."""

    def __init__(self, *args: Any, **values: Any) -> None:
        super().__init__(*args, **values)
        self.chat = None
        self.example = None
        self.lost = frozenset()
        self.machine = None
        self.is_verifying = False
        self.transcript = []
        self.start = 0

    @property
    def openai(self) -> AsyncOpenAI:
        """A new `openai.AsyncOpenAI` client (0.1 ms to create) for the rollout's model, with the limits, retries and
        sampling arguments of the run. Raises `EnvironmentFault` after the rollout."""
        from harness.core.openai_client import async_openai

        if self.chat is None:
            raise EnvironmentFault("state.openai can be used only while the rollout runs")
        return async_openai(self.chat, sampling_args=self["sampling_args"])

    @classmethod
    def begin(cls, example: Example, rollout_index: int, model: str, sampling_args: JsonDict) -> State:
        """Create the state of a new rollout. Values are copied, so that changes to them do not affect other rollouts.

        Args:
            example: The row of the rollout.
            rollout_index: Number of the rollout among those of the row, from 0.
            model: The model's name at its endpoint.
            sampling_args: The sampling arguments.
        """
        state = cls(
            input={
                "prompt": own(example.prompt),
                "answer": example.answer,
                "task": example.task,
                "info": own(example.info),
                "example_id": example.example_id,
            },
            rollout_index=rollout_index,
            model=model,
            sampling_args=own(sampling_args),
            tools=None,
            completion=[] if isinstance(example.prompt, list) else "",
            is_completed=False,
            is_truncated=False,
            stop_condition=None,
            final_env_response=None,
            trajectory=[],
            trajectory_id=f"{_ids.getrandbits(128):032x}",
            reward=None,
            metrics={},
            error=None,
            timing={},
        )
        state.example = example
        state.transcript = [] if isinstance(example.prompt, list) else ""
        return state

    @classmethod
    def restore(cls, example: Example, generated: Generated, model: str, sampling_args: JsonDict) -> State:
        """Restore the state of a recorded rollout for scoring.

        The trajectory has the original steps, but without their `response`. A step whose messages are not in the
        completion is empty.

        Args:
            example: The row of the rollout.
            generated: The rollout's journal line.
            model: The model's name at its endpoint.
            sampling_args: The sampling arguments.
        """
        state = cls.begin(example, generated.rollout_index, model, sampling_args)
        author = {name: value for name, value in generated.state.items() if name not in generated.lost}
        changed: JsonDict = author.pop("input", {})
        steps: list[JsonDict] | JsonDict = author.pop(_STEPS, [])
        notes, places = (steps["notes"], steps["places"]) if isinstance(steps, dict) else (steps, None)
        state["input"].update(changed)
        state.update(
            author,
            completion=generated.completion,
            is_completed=True,
            is_truncated=generated.is_truncated,
            stop_condition=generated.stop_condition,
            timing={
                "started_at": generated.timing.started_at,
                "generation": generated.timing.generation,
                "model": generated.timing.model,
            },
        )
        state.lost = frozenset(generated.lost)
        for name in state.lost.intersection(INPUT_KEYS):
            state["input"].pop(name, None)  # the rollout had another value than the example
        _rebuild_trajectory(state, generated.completion, _usual(generated.completion) if places is None else places)
        # If notes are missing for some steps, reading `extras` raises `StateLost`.
        is_lost = _STEPS in generated.lost or (notes and len(notes) != len(state["trajectory"]))
        for number, each in enumerate(state["trajectory"]):
            each.update({"extras": LostExtras()} if is_lost else notes[number] if notes else {})
        return state

    def export(self) -> tuple[JsonDict, tuple[str, ...]]:
        """Return the values of the state that the journal must store in addition to the transcript, for later scoring.

        Returns:
            The environment's values that JSON can represent (with changed input fields under `input` and notes of steps
            under `trajectory`), and the names of the values that cannot be restored exactly. If possible, such a value
            is still included in a readable form, for state columns.
        """
        author: JsonDict = {}
        if not self.keys() <= FIXED_KEYS:
            author = {name: value for name, value in self.items() if name not in FIXED_KEYS}
        notes = _notes(self["trajectory"])
        places = self.places()
        if places is not None:
            author[_STEPS] = {"notes": notes, "places": places}
        elif notes:
            author[_STEPS] = notes
        changed = self._changed_inputs()
        if not author and not changed:
            return {}, ()
        exported = {**author, "input": changed} if changed else author
        try:
            orjson.dumps(exported, option=_FAITHFUL)
        except TypeError:
            kept, lost = _export_each(author)
            kept_input, lost_input = _export_each(changed)
            return ({**kept, "input": kept_input} if kept_input else kept), lost + lost_input
        return exported, ()

    def _changed_inputs(self) -> JsonDict:
        """Return the input fields that differ from those of the example."""
        example, held = self.example, _get(self, "input")
        if example is None:
            return {}
        is_usual = isinstance(held, dict) and not self.lost and self.keys().isdisjoint(INPUT_KEYS)
        values = cast(JsonDict, held) if is_usual else {name: self.get(name) for name in INPUT_KEYS}
        pairs = ((name, values.get(name), getattr(example, name)) for name in INPUT_KEYS)
        return {name: value for name, value, given in pairs if value is not given and _differ(value, given)}

    def places(self) -> list[list[int]] | None:
        """Start and end of each trajectory step in the completion; None if the steps are exactly the assistant messages
        or the environment has no steps."""
        completion, trajectory = self["completion"], self["trajectory"]
        if not trajectory or len(_usual(completion)) == len(trajectory):
            return None
        return [_place(each, self.start, len(completion)) for each in trajectory]

    def __missing__(self, name: str) -> Any:
        if name in _INPUTS and name in (fields := _get(self, "input", ())):
            return fields[name]
        if name in self.lost:
            raise StateLost(
                f"state[{name!r}] was not a JSON value, so it could not be stored in the journal; "
                "store only JSON values in the state, or set needs_live_state=True in the rubric"
            )
        raise KeyError(name)

    def __setitem__(self, name: str, value: Any) -> None:
        if name in _INPUTS and name in _get(self, "input", ()):
            self["input"][name] = value
        else:
            _set(self, name, value)

    def __contains__(self, name: object) -> bool:
        if super().__contains__(name) or name in self.lost:
            return True
        return name in INPUT_KEYS and name in super().get("input", ())

    def get(self, name: str, default: Any = None) -> Any:
        """`state[name]`, or `default` if the key is missing; raises `StateLost` like `state[name]`."""
        value: Any = _get(self, name, _ABSENT)
        if value is not _ABSENT:
            return value
        return self[name] if name in self else default  # noqa: SIM401 - `dict.get` does not call `__missing__`

    def setdefault(self, name: str, default: Any = None) -> Any:
        """`state[name]`, set to `default` first if the key is missing; raises `StateLost` like `state[name]`."""
        if name not in self:
            self[name] = default
        return self[name]

    def pop(self, name: str, *default: Any) -> Any:
        """Remove one of the environment's own keys and return its value; raises `StateLost` like `state[name]`."""
        if not super().__contains__(name) and name in self.lost:
            return self[name]
        return super().pop(name, *default)


def step(state: State, prompt: Prompt | Prefix, completion: Prompt, response: ModelResponse | None) -> JsonDict:
    """Return a new step of the trajectory. Prompt and completion are not copied."""
    return {
        "prompt": prompt,
        "completion": completion,
        "response": response,
        "tokens": None,
        "reward": None,
        "advantage": None,
        "is_truncated": response is not None and response.is_truncated,
        "trajectory_id": state["trajectory_id"],
        "extras": {},
    }


def _notes(trajectory: Sequence[JsonDict]) -> list[JsonDict]:
    """Return the values that the environment added to steps, such as `extras` and `reward`; empty if there are no
    such values."""
    notes: list[JsonDict] = [
        {
            name: value
            for name, value in each.items()
            if name not in _STEP_KEYS and value is not None and (not isinstance(value, dict) or value)
        }
        for each in trajectory
    ]
    return notes if any(notes) else []


class LostExtras(dict[str, Any]):
    """Replacement for the `extras` of a step that could not be stored in the journal."""

    def __missing__(self, name: str) -> Any:
        raise StateLost(
            f"state['trajectory'][…]['extras'][{name!r}] was not a JSON value, so it could not be stored in the "
            "journal; store only JSON values in steps, or set needs_live_state=True in the rubric"
        )

    def get(self, name: str, default: Any = None) -> Any:
        """Always raise `StateLost`, since no value of the step's `extras` was stored."""
        return self[name]


def own(value: Any) -> Any:
    """Return a deep copy of a JSON value."""
    if isinstance(value, dict):
        table = cast(JsonDict, value)
        return {name: own(part) if isinstance(part, _NESTED) else part for name, part in table.items()}
    if isinstance(value, list | tuple):
        parts = cast("list[object]", value)
        return [own(part) if isinstance(part, _NESTED) else part for part in parts]
    return value


_NESTED = (dict, list, tuple)


def _differ(one: object, other: object) -> bool:
    try:
        return bool(one != other)
    except Exception:  # an array has no truth value; values that cannot be compared count as changed
        return True


def _usual(completion: Prompt) -> list[list[int]]:
    """Return the default positions of the steps in a completion: every assistant message, or a string, is one step."""
    if isinstance(completion, str):
        return [[0, len(completion)]] if completion else []
    # An environment's code may store any value here.
    messages = completion if isinstance(completion, list | tuple) else ()  # pyright: ignore[reportUnnecessaryIsInstance]
    return [
        [at, at + 1]
        for at, message in enumerate(messages)
        if isinstance(message, dict) and message.get("role") == "assistant"  # pyright: ignore[reportUnnecessaryIsInstance]
    ]


def _place(step: JsonDict, start: int, end: int) -> list[int]:
    """Return the start and end of a step in the completion; [0, 0] if the completion does not contain the step, since
    an environment may append any step."""
    try:
        first = len(step["prompt"]) - start
        last = first + len(step["completion"])
    except (KeyError, TypeError):
        return [0, 0]
    return [first, last] if 0 <= first < last <= end else [0, 0]


def _rebuild_trajectory(state: State, completion: Prompt, places: Sequence[Sequence[int]]) -> None:
    prompt = state["prompt"]
    if isinstance(completion, str):
        state["trajectory"] = [
            step(state, prompt + completion[:begin], completion[begin:end], None) for begin, end in places
        ]
        return
    if isinstance(prompt, str):
        raise EnvironmentFault(
            "the journal has a list of messages, but the prompt is a string: the run is from another environment"
        )
    transcript: Messages = [*prompt, *completion]
    state.transcript, state.start = transcript, len(prompt)
    state["trajectory"] = [
        step(state, Prefix(transcript, state.start + begin), completion[begin:end], None) for begin, end in places
    ]


def _export_each(author: JsonDict) -> tuple[JsonDict, tuple[str, ...]]:
    """Export the values of a state one by one, and return them with the names of those that JSON cannot represent. This
    is slower than exporting all values at once."""
    kept: JsonDict = {}
    lost: list[str] = []
    for name, value in author.items():
        try:
            orjson.dumps(value, option=_FAITHFUL)
            kept[name] = value
        except TypeError:
            lost.append(name)
            try:
                kept[name] = orjson.loads(orjson.dumps(value, default=_shown, option=orjson.OPT_NON_STR_KEYS))
            except TypeError:
                continue
    return kept, tuple(lost)


def _shown(value: object) -> object:
    """Convert a set to a sorted list, and raise an error for any other type."""
    if isinstance(value, set | frozenset):
        return sorted(cast("set[object]", value), key=str)
    raise TypeError(f"JSON cannot represent a value of type {type(value).__name__}")
