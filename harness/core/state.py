"""What one rollout knows: its input, its transcript so far, and whatever the environment's author keeps in it. Owns the
classic mapping semantics and the way a state goes through the journal and back; owns no loop and no scoring.

The input (`prompt answer task info example_id`) lies in `state["input"]` and is reached through the state itself. The
transcript is one growing list, and the steps of the trajectory refer to it, so that a rollout of n turns costs O(n)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import Any, cast, overload

import orjson

from harness.core.errors import EnvironmentFault, StateLost
from harness.core.records import Example, Generated
from harness.core.types import Chat, JsonDict, Message, Messages, ModelResponse, Prompt

INPUT_KEYS: tuple[str, ...] = ("prompt", "answer", "task", "info", "example_id")
"""Fields of the example, reached through the state."""

FIXED_KEYS: frozenset[str] = frozenset(INPUT_KEYS) | {
    "input", "rollout_index", "model", "sampling_args", "tools", "completion", "is_completed", "is_truncated",
    "stop_condition", "prompt_too_long", "final_env_response", "trajectory", "trajectory_id", "reward", "metrics",
    "advantage", "error", "timing", "usage", "client", "chat", "oai_tools", "tool_defs", "transcript",
}  # fmt: skip
"""Keys with a meaning of their own. They are recorded elsewhere or not at all, so an export leaves them out."""

_STEPS = "trajectory"
"""Under this key an export holds what authors noted in steps; the steps themselves are rebuilt from the completion.
Where that alone does not tell them, it is an object: the `notes`, and the `places` of the steps in the completion."""

_STEP_KEYS = frozenset({"prompt", "completion", "response", "tokens", "is_truncated", "trajectory_id"})
"""Of a step: what the loop puts there."""

# Values that orjson would turn into another type (a dataclass into a dict) do not come back as they were.
_FAITHFUL = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS


class Prefix(Sequence[Message]):
    """The first `end` messages of a transcript that goes on growing. Reads like a list and holds no copy."""

    __slots__ = ("_end", "_messages")

    def __init__(self, messages: Messages, end: int) -> None:
        self._messages = messages
        self._end = end

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Messages: ...
    def __getitem__(self, index: int | slice) -> Message | Messages:
        if isinstance(index, slice):
            return [self._messages[i] for i in range(*index.indices(self._end))]
        position = index + self._end if index < 0 else index
        if not 0 <= position < self._end:
            raise IndexError(f"message {index} of {self._end}")
        return self._messages[position]

    def __len__(self) -> int:
        return self._end

    def __iter__(self) -> Iterator[Message]:
        return (self._messages[i] for i in range(self._end))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(cast("Sequence[object]", other))

    __hash__ = None  # type: ignore[assignment]  # equal to lists, which have no hash

    def __add__(self, other: Sequence[Message]) -> Messages:
        return [*self, *other]

    def __radd__(self, other: Sequence[Message]) -> Messages:
        return [*other, *self]

    def __repr__(self) -> str:
        return repr(list(self))


class State(dict[str, Any]):
    """The state of one rollout: a dict whose input fields can be read through it."""

    __slots__ = ("chat", "example", "lost", "start", "transcript")

    chat: Chat | None
    """The rollout's model, while it runs."""
    example: Example | None
    """What the rollout is an attempt at; shared by all rollouts of it, so never changed."""
    lost: frozenset[str]
    """Names whose values no journal could hold; reading one raises `StateLost`."""
    transcript: Prompt
    """Prompt and everything said since: one growing list, or one text for a completion model."""
    start: int
    """Where the completion begins in `transcript`."""

    def __init__(self, *args: Any, **values: Any) -> None:
        super().__init__(*args, **values)
        self.chat = None
        self.example = None
        self.lost = frozenset()
        self.transcript = []
        self.start = 0

    @classmethod
    def begin(cls, example: Example, rollout_index: int, model: str, sampling_args: JsonDict) -> State:
        """The state of an attempt that is about to start. It owns its values: changing them touches no other rollout.

        Args:
            example: The row that is attempted.
            rollout_index: Number of the attempt at this row, from 0.
            model: The model's name at its endpoint.
            sampling_args: What the model is asked with.
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
            trajectory_id=uuid.uuid4().hex,
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
        """The state of a rollout that a journal holds, well enough to be scored.

        The trajectory has the steps that it had; their `response` is gone, and one whose messages are not in the
        completion is empty.

        Args:
            example: The row that was attempted.
            generated: The rollout's journal line.
            model: The model's name at its endpoint.
            sampling_args: What the model was asked with.
        """
        state = cls.begin(example, generated.rollout_index, model, sampling_args)
        author = {name: value for name, value in generated.state.items() if name not in generated.lost}
        changed: JsonDict = author.pop("input", {})
        told: list[JsonDict] | JsonDict = author.pop(_STEPS, [])
        notes, places = (told["notes"], told["places"]) if isinstance(told, dict) else (told, None)
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
            state["input"].pop(name, None)  # what the example says is not what the rollout had
        _rebuild_trajectory(state, generated.completion, _usual(generated.completion) if places is None else places)
        _annotate(state["trajectory"], notes, is_lost=_STEPS in generated.lost)
        return state

    def export(self) -> tuple[JsonDict, tuple[str, ...]]:
        """What a journal must hold beside the transcript so that the rollout can be scored later.

        Returns:
            The author's JSON-able values (under `input` also the input fields that the environment changed, under
            `trajectory` what it noted in its steps), and the names of the values that would not come back as they
            were. Such a value is still rendered where JSON can show it, for state columns.
        """
        author = {name: value for name, value in self.items() if name not in FIXED_KEYS}
        notes = _notes(self["trajectory"])
        places = self.places()
        if places is not None:
            author[_STEPS] = {"notes": notes, "places": places}
        elif notes:
            author[_STEPS] = notes
        changed = self._changed_input()
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

    def places(self) -> list[list[int]] | None:
        """Where the completion has the steps, if these are not its assistant messages, one by one; None also of an
        environment that makes no steps."""
        completion, trajectory = self["completion"], self["trajectory"]
        if not trajectory or len(_usual(completion)) == len(trajectory):
            return None
        return [_place(each, self.start, len(completion)) for each in trajectory]

    def _changed_input(self) -> JsonDict:
        """Input fields that are no longer what the example says."""
        example = self.example
        if example is None:
            return {}
        return {name: self.get(name) for name in INPUT_KEYS if _differ(self.get(name), getattr(example, name))}

    def __missing__(self, name: str) -> Any:
        if name in INPUT_KEYS:
            fields = cast(JsonDict, super().get("input", {}))
            if name in fields:
                return fields[name]
        if name in self.lost:
            raise StateLost(
                f"state[{name!r}] was not a JSON value, so the journal does not hold it; "
                "keep JSON values in the state, or let the rubric declare needs_live_state"
            )
        raise KeyError(name)

    def __setitem__(self, name: str, value: Any) -> None:
        if name in INPUT_KEYS and name in super().get("input", ()):
            self["input"][name] = value
        else:
            super().__setitem__(name, value)

    def __contains__(self, name: object) -> bool:
        if super().__contains__(name) or name in self.lost:
            return True
        return name in INPUT_KEYS and name in super().get("input", ())

    def get(self, name: str, default: Any = None) -> Any:
        """`state[name]`, or `default` if there is no such key; raises `StateLost` like `state[name]`."""
        try:
            return self[name]
        except KeyError:
            return default

    def setdefault(self, name: str, default: Any = None) -> Any:
        """`state[name]`, set to `default` first if there is no such key; raises `StateLost` like `state[name]`."""
        if name not in self:
            self[name] = default
        return self[name]

    def pop(self, name: str, *default: Any) -> Any:
        """Take a key of the author's out; raises `StateLost` like `state[name]`."""
        if not super().__contains__(name) and name in self.lost:
            return self[name]
        return super().pop(name, *default)


def step(state: State, prompt: Prompt | Prefix, completion: Prompt, response: ModelResponse | None) -> JsonDict:
    """One step of the trajectory: what was asked and what came back, without a copy of either."""
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
    """What authors put into the steps: `extras`, `reward`, `advantage`, and keys of their own. Empty if nothing."""
    notes: list[JsonDict] = []
    found = False
    for each in trajectory:
        note = {name: value for name, value in each.items() if name not in _STEP_KEYS and _says_something(value)}
        found = found or bool(note)
        notes.append(note)
    return notes if found else []


def _says_something(value: object) -> bool:
    return value is not None and not (isinstance(value, dict) and not value)


def _annotate(trajectory: Sequence[JsonDict], notes: Sequence[JsonDict], *, is_lost: bool) -> None:
    """Put notes back into steps that were rebuilt; without a note for each step, reading extras raises `StateLost`."""
    if is_lost or (notes and len(notes) != len(trajectory)):
        for each in trajectory:
            each["extras"] = LostExtras()
        return
    for each, note in zip(trajectory, notes, strict=False):
        each.update(note)


class LostExtras(dict[str, Any]):
    """Stands for the `extras` of a step that no journal could hold."""

    def __missing__(self, name: str) -> Any:
        raise StateLost(
            f"state['trajectory'][…]['extras'][{name!r}] was not a JSON value, so the journal does not hold it; "
            "keep JSON values in steps, or let the rubric declare needs_live_state"
        )

    def get(self, name: str, default: Any = None) -> Any:
        """Raises `StateLost`."""
        return self[name]


def own(value: Any) -> Any:
    """A copy of a JSON value that shares no list and no dict with the original."""
    if isinstance(value, dict):
        return {name: own(part) for name, part in cast(JsonDict, value).items()}
    if isinstance(value, list | tuple):
        return [own(part) for part in cast("list[object]", value)]
    return value


def _differ(one: object, other: object) -> bool:
    try:
        return bool(one != other)
    except Exception:  # the author's types: an array has no truth value, and what cannot be compared has changed
        return True


def _usual(completion: Prompt) -> list[list[int]]:
    """Where a completion has its steps, unless something else is said: each assistant message is one, or the text."""
    if isinstance(completion, str):
        return [[0, len(completion)]] if completion else []
    # Code of an environment may leave anything there.
    messages = completion if isinstance(completion, list | tuple) else ()  # pyright: ignore[reportUnnecessaryIsInstance]
    return [
        [at, at + 1]
        for at, message in enumerate(messages)
        if isinstance(message, dict) and message.get("role") == "assistant"  # pyright: ignore[reportUnnecessaryIsInstance]
    ]


def _place(step: JsonDict, start: int, end: int) -> list[int]:
    """Begin and end of a step in the completion; [0, 0] if it is not there. Authors may make steps of any kind."""
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
        raise EnvironmentFault("the journal holds messages for a prompt that is a text: it is of another environment")
    transcript: Messages = [*prompt, *completion]
    state.transcript, state.start = transcript, len(prompt)
    state["trajectory"] = [
        step(state, Prefix(transcript, state.start + begin), completion[begin:end], None) for begin, end in places
    ]


def _export_each(author: JsonDict) -> tuple[JsonDict, tuple[str, ...]]:
    """The slow way, for a state with values that JSON does not know: one at a time."""
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
    """Sets are common in states and plain to show; nothing else is worth a guess."""
    if isinstance(value, set | frozenset):
        return sorted(cast("set[object]", value), key=str)
    raise TypeError(f"not a JSON value: {type(value).__name__}")
