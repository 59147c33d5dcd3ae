"""Rollout states of the classic API: the keys that only this API has (`client`, `responses`, `turn`), its timings, and
the conversion of states of the engine, new or restored from a journal. The engine creates states before it knows the
environment. A classic environment therefore changes the class of the state object that it gets; the classes differ in
methods only."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, ClassVar, cast

import orjson

from harness.core.errors import EnvironmentFault
from harness.core.state import INPUT_KEYS, State
from harness.core.types import JsonDict
from harness.plugins.classic import trajectories
from harness.plugins.classic.context import current
from harness.plugins.classic.generation import Generation
from harness.plugins.classic.messages import messages_of
from harness.plugins.classic.records import Record, plain
from harness.plugins.classic.responses import Response

_FAULTS = "bench_faults"

_STEPS = "trajectory_steps"
"""Key in the journal for trajectory data that the completion does not contain."""

_TOKENS = "token_usage"
"""Key in the journal for the rollout's token counts."""

_SPANS = "timing_spans"
"""Key in the journal for the timing spans of generation C of the classic API."""

_ABSENT: JsonDict = {"answer": "", "info": {}}
"""Default values of columns that a dataset lacks. `state[…]` returns them, but they are not in the state's input."""


class ClassicState(State):
    """Base class of the rollout states of the classic API. `in` tests only the state's own keys; `[]` and `get` also
    read its input."""

    __slots__ = ()
    generation: ClassVar[Generation] = "B"
    INPUT_FIELDS: ClassVar[list[str]] = list(INPUT_KEYS)

    def __missing__(self, name: str) -> Any:
        if name == "client":
            return self._client()
        if name == "responses" and "trajectory" in self:
            return [step["response"] for step in self["trajectory"]]
        if name == "turn" and "trajectory" in self:
            return len(self["trajectory"])
        try:
            return super().__missing__(name)
        except KeyError:
            if name in _ABSENT and "input" in self:
                return type(_ABSENT[name])()  # a row without that column
            raise

    def __contains__(self, name: object) -> bool:
        return name in self.keys() or name in self.lost or (name == "client" and self.chat is not None)

    def get(self, name: str, default: Any = None) -> Any:
        """Return `state[name]`, also for fields of the input; `default` if the key is missing."""
        try:
            return self[name]
        except KeyError:
            return default

    def setdefault(self, name: str, default: Any = None) -> Any:
        """Return `state[name]`; if the key is missing, first set it to `default`."""
        try:
            return self[name]
        except KeyError:
            self[name] = default
            return default

    def export(self) -> tuple[JsonDict, tuple[str, ...]]:
        """Export the state for the journal. Messages that an author stored become JSON, and data that was added to the
        trajectory is included, so that the rollout can be scored from the journal."""
        exported, lost = super().export()
        for name in lost:
            value = _unrecorded(dict(self).get(name))
            if _is_json(value):
                exported, lost = {**exported, name: value}, tuple(each for each in lost if each != name)
        steps = trajectories.kept(self["trajectory"], self["prompt"], self.get("completion") or "")
        notes = {_STEPS: steps, _TOKENS: dict(self).get("usage"), _SPANS: spans_of(self["timing"])}
        return {**exported, **{name: value for name, value in notes.items() if value}}, lost

    def places(self) -> list[list[int]] | None:
        """Return None: no positions of trajectory steps are needed, since `export` includes the whole trajectory."""
        return None

    def _client(self) -> Any:
        """An `AsyncOpenAI` that calls the rollout's model; created on first use."""
        if self.chat is None:
            raise EnvironmentFault("state['client'] can be used only while the rollout runs")
        from harness.core.openai_client import Faults, async_openai

        faults = Faults()
        names = {str(self["model"])}
        client = async_openai(
            self.chat, names=names, sampling_args=self.get("sampling_args"), inherits=False, faults=faults
        )
        setattr(client, _FAULTS, faults)
        if self.generation == "C":
            setattr(client, "client", client)  # noqa: B010  # C's own clients hold the one that they wrap
        self["client"] = client
        return client

    def check_client(self) -> None:
        """Raise an error that author code suppressed but must not.

        Raises:
            SystemicError: the endpoint is unusable.
            EnvironmentFault: the code requested an unsupported feature from its client.
        """
        faults: Any = getattr(dict(self).get("client"), _FAULTS, None)
        if faults is not None:
            faults.check()


class DictState(ClassicState):
    """A rollout state of generation B of the classic API: messages are dicts."""

    __slots__ = ()


class TypedState(ClassicState):
    """A rollout state of generation C of the classic API: messages are typed objects."""

    __slots__ = ()
    generation = "C"


_KINDS: dict[Generation, type[ClassicState]] = {"B": DictState, "C": TypedState}


def classic_state(state: State, kind: Generation, columns: Mapping[str, object] | None) -> ClassicState:
    """Convert bench's state of a rollout to a state of the classic API. A converted state is returned unchanged.

    Args:
        state: A state that is new or was restored from a journal.
        kind: Generation of the classic API.
        columns: The author's own row of the dataset, with values that are not text and further columns; None if it is
            unavailable.
    """
    wanted = _KINDS[kind]
    if type(state) is wanted:
        return state
    if not isinstance(state, ClassicState):
        state.__class__ = wanted  # pyright: ignore[reportAttributeAccessIssue]  # slots are the same
    shaped = cast(ClassicState, state)
    fields: JsonDict = shaped["input"]
    for name, value in (columns or {}).items():
        if name not in fields or (name == "answer" and fields[name] == as_text(value)):
            fields[name] = value
    for name in _ABSENT:
        if columns is not None and name not in columns and fields.get(name) == _ABSENT[name]:
            del fields[name]
    prompt = messages_of(fields["prompt"], kind)
    fields["prompt"] = prompt
    timing = shaped["timing"] = timing_of(shaped.get("timing") or {}, kind)
    spans, tokens = shaped.pop(_SPANS, None), shaped.pop(_TOKENS, None)
    if isinstance(timing, RolloutTiming) and spans:
        timing.take_spans(spans)
    if tokens:
        shaped["usage"] = tokens
    if shaped.get("completion"):
        shaped["completion"] = messages_of(shaped["completion"], kind)
        token = current.set(kind)
        try:
            trajectories.put_back(shaped["trajectory"], shaped.pop(_STEPS, None), str(shaped["model"]))
        finally:
            current.reset(token)
    elif kind == "C":
        shaped["completion"] = None
    return shaped


def as_text(value: object) -> str:
    """Convert an expected answer of any type to text, for the records of bench."""
    if value is None:
        return ""
    return value if isinstance(value, str) else str(value)


def _is_json(value: object) -> bool:
    try:
        orjson.dumps(value, option=orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_PASSTHROUGH_DATACLASS)
    except TypeError:
        return False
    return True


def _unrecorded(value: Any) -> Any:
    """Convert dicts with attribute access in a value to plain dicts; other objects are returned unchanged."""
    if isinstance(value, Record) or type(value) is dict:
        return {name: _unrecorded(part) for name, part in cast(JsonDict, value).items()}
    if type(value) is list or type(value) is tuple:
        return [_unrecorded(part) for part in cast("list[object]", value)]
    return value


# Timings


class Milliseconds(dict[str, Any]):
    """Timings of a rollout in milliseconds, for the older classic API (generation B). Values that the engine sets under
    its own names are also set under the classic names."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        super().__init__(generation_ms=0.0, scoring_ms=0.0, total_ms=0.0)
        self["start_time"] = fields.get("started_at", time.time())
        for name, value in fields.items():
            self[name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        if name == "generation":
            super().__setitem__("generation_ms", value * 1000.0)
            super().__setitem__("total_ms", value * 1000.0)


class TimeSpan(Record):
    """A span of time, in Unix seconds."""

    defaults: ClassVar[Mapping[str, object]] = {"start": 0.0, "end": 0.0}

    @property
    def duration(self) -> float:
        """Duration in seconds; 0 until the span ends."""
        return self["end"] - self["start"] if self["end"] > 0.0 else 0.0


class TimeSpans(Record):
    """A sequence of time spans."""

    defaults: ClassVar[Mapping[str, object]] = {"spans": []}

    @property
    def duration(self) -> float:
        """The total duration of the spans, in seconds."""
        return sum(span.duration for span in self["spans"])


class RolloutTiming(Record):
    """Timings of a rollout as time spans, for the newer classic API (generation C). When the engine sets the duration
    of a phase, the span of that phase ends."""

    def __init__(self, *args: Any, **values: Any) -> None:
        super().__init__(
            start_time=time.time(), setup=TimeSpan(), generation=TimeSpan(), scoring=TimeSpan(), model=TimeSpans(),
            env=TimeSpans(),
        )  # fmt: skip
        for name, value in dict(*args, **values).items():
            self[name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        if name == "started_at":
            super().__setitem__("start_time", value)
            self["generation"]["start"] = value
        elif name == "generation" and isinstance(value, int | float):
            span = self["generation"]
            span["end"] = span["start"] + value if value else 0.0
        elif name == "model" and isinstance(value, int | float):
            start = self["start_time"]
            self["model"]["spans"] = [TimeSpan(start=start, end=start + value)] if value else []
        else:
            super().__setitem__(name, value)

    def take_spans(self, spans: Mapping[str, Any]) -> None:
        """Restore the time spans of a rollout that has ended from its record (see `spans_of`)."""
        for name, span in spans.items():
            if name == "setup":
                self[name] = TimeSpan(span)
            else:
                self[name]["spans"] = [TimeSpan(each) for each in span]

    @property
    def total(self) -> float:
        """Seconds from the first turn to the last reward."""
        scored = self["scoring"]["end"]
        return scored - self["generation"]["start"] if scored > 0.0 else 0.0

    @property
    def overhead(self) -> float:
        """Seconds of the rollout that are outside of all time spans."""
        return self.total - sum(self[name].duration for name in ("setup", "model", "env", "scoring"))


def timing_of(fields: Mapping[str, Any], kind: Generation) -> dict[str, Any]:
    """Convert the timings of a rollout to the form that the given generation of the classic API uses."""
    if isinstance(fields, Milliseconds | RolloutTiming):
        return fields
    return Milliseconds(fields) if kind == "B" else RolloutTiming(fields)


def spans_of(timing: Mapping[str, Any]) -> JsonDict:
    """Return the time spans for which bench's records have no field; empty unless the timings are those of the newer
    classic API (generation C)."""
    if not isinstance(timing, RolloutTiming):
        return {}
    spans: JsonDict = {name: plain(timing[name]["spans"]) for name in ("model", "env")}
    return {"setup": plain(timing["setup"]), **spans}


def count_env_response(state: State, started: float) -> None:
    """Add the duration of an environment's response to the timings of a rollout."""
    timing = state["timing"]
    if isinstance(timing, RolloutTiming):
        timing["env"]["spans"].append(TimeSpan(start=started, end=time.time()))


def count_model_call(state: ClassicState, started: float, response: Response) -> None:
    """Add the duration and the tokens of a model call to the state of a rollout."""
    timing = state["timing"]
    now = time.time()
    if isinstance(timing, RolloutTiming):
        timing["model"]["spans"].append(TimeSpan(start=started, end=now))
    else:
        timing["model"] = timing.get("model", 0.0) + (now - started)
    usage = response.get("usage")
    if usage is not None:
        total: JsonDict = state.setdefault("usage", {"input_tokens": 0.0, "output_tokens": 0.0})
        total["input_tokens"] += usage["prompt_tokens"]
        total["output_tokens"] += usage["completion_tokens"]
