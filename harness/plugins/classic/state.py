"""The state of a rollout as classic packages know it. Owns the keys that only they have (`client`, `responses`,
`turn`), their timings, and the way from our own state, fresh or restored from a journal; a state stays one object
throughout.

Our engine makes and restores states before it knows what plays them, so an environment of the classic API turns the
one it is handed into its own kind: the classes differ in methods alone."""

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
"""Where the journal keeps what the completion does not tell of the trajectory."""

_TOKENS = "token_usage"
"""Likewise, the tokens that the rollout counted."""

_SPANS = "timing_spans"
"""Likewise, the spans of generation C's timings."""

_ABSENT: JsonDict = {"answer": "", "info": {}}
"""What is read of columns that a dataset does not have. They are not in the state's input."""


class ClassicState(State):
    """A state in which `in` asks for keys of its own alone: what lies in the input is read through `[]` and `get`."""

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
                return type(_ABSENT[name])()  # a row without such a column
            raise

    def __contains__(self, name: object) -> bool:
        return name in self.keys() or name in self.lost or (name == "client" and self.chat is not None)

    def setdefault(self, name: str, default: Any = None) -> Any:
        """`state[name]`, set to `default` first if nothing answers to that name."""
        try:
            return self[name]
        except KeyError:
            self[name] = default
            return default

    def export(self) -> tuple[JsonDict, tuple[str, ...]]:
        """As of every state. Messages that an author kept count as the JSON that they are, and what was put into the
        trajectory goes along, so that scoring from a journal finds it."""
        exported, lost = super().export()
        for name in lost:
            value = _unrecorded(dict(self).get(name))
            if _is_json(value):
                exported, lost = {**exported, name: value}, tuple(each for each in lost if each != name)
        steps = trajectories.kept(self["trajectory"], self["prompt"], self.get("completion") or "")
        told = {_STEPS: steps, _TOKENS: dict(self).get("usage"), _SPANS: spans_of(self["timing"])}
        return {**exported, **{name: value for name, value in told.items() if value}}, lost

    def places(self) -> list[list[int]] | None:
        """None: what is kept of the trajectory says it."""
        return None

    def _client(self) -> Any:
        """An `AsyncOpenAI` that asks the rollout's model; made when somebody wants it."""
        if self.chat is None:
            raise EnvironmentFault("state['client'] can be used while the rollout runs: its model is not at hand now")
        from harness.plugins.classic.openai_client import Faults, async_openai

        faults = Faults()
        names = {str(self["model"])}
        client = async_openai(self.chat, names=names, sampling_args=self.get("sampling_args"), faults=faults)
        setattr(client, _FAULTS, faults)
        if self.generation == "C":
            setattr(client, "client", client)  # noqa: B010  # C's own clients hold the one that they wrap
        self["client"] = client
        return client

    def check_client(self) -> None:
        """Raise what author code got past, though it is not its to handle.

        Raises:
            SystemicError: the endpoint is unusable.
            EnvironmentFault: the code asked its client for what there is not.
        """
        faults: Any = getattr(dict(self).get("client"), _FAULTS, None)
        if faults is not None:
            faults.check()


class DictState(ClassicState):
    """A state of generation B."""

    __slots__ = ()


class TypedState(ClassicState):
    """A state of generation C."""

    __slots__ = ()
    generation = "C"


_KINDS: dict[Generation, type[ClassicState]] = {"B": DictState, "C": TypedState}


def adopt(state: State, kind: Generation, columns: Mapping[str, object] | None) -> ClassicState:
    """Turn a state of ours into one of a generation; harmless for one that is.

    Args:
        state: Fresh, or restored from a journal.
        kind: The generation.
        columns: The row of the dataset that it is about, as the author's dataset has it: values that are no text, and
            columns of the author's own. None if it is not at hand.
    """
    wanted = _KINDS[kind]
    if type(state) is wanted:
        return state
    if not isinstance(state, ClassicState):
        state.__class__ = wanted  # pyright: ignore[reportAttributeAccessIssue]  # slots are the same
    adopted = cast(ClassicState, state)
    fields: JsonDict = adopted["input"]
    for name, value in (columns or {}).items():
        if name not in fields or (name == "answer" and fields[name] == as_text(value)):
            fields[name] = value
    for name in _ABSENT:
        if columns is not None and name not in columns and fields.get(name) == _ABSENT[name]:
            del fields[name]
    prompt = messages_of(fields["prompt"], kind)
    fields["prompt"] = prompt
    _take_timing(adopted, kind)
    if adopted.get("completion"):
        adopted["completion"] = messages_of(adopted["completion"], kind)
        _retype_trajectory(adopted, kind)
    elif kind == "C":
        adopted["completion"] = None
    return adopted


def as_text(value: object) -> str:
    """An answer of any type as the text that our records hold."""
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
    """The value with plain dicts for records; other objects stay what they are."""
    if isinstance(value, Record) or type(value) is dict:
        return {name: _unrecorded(part) for name, part in cast(JsonDict, value).items()}
    if type(value) is list or type(value) is tuple:
        return [_unrecorded(part) for part in cast("list[object]", value)]
    return value


def _take_timing(state: ClassicState, kind: Generation) -> None:
    """Timings of the generation's kind, and tokens, as far as a journal held them."""
    timing = state["timing"] = timing_of(state.get("timing") or {}, kind)
    spans, tokens = state.pop(_SPANS, None), state.pop(_TOKENS, None)
    if isinstance(timing, RolloutTiming) and spans:
        timing.take_spans(spans)
    if tokens:
        state["usage"] = tokens


def _retype_trajectory(state: ClassicState, kind: Generation) -> None:
    """Steps that were rebuilt from a journal: their messages typed, and a reply for each."""
    token = current.set(kind)
    try:
        trajectories.put_back(state["trajectory"], state.pop(_STEPS, None), str(state["model"]))
    finally:
        current.reset(token)


# Timings


class Milliseconds(dict[str, Any]):
    """The timings of generation B. What our engine puts in by its own names is there by theirs, too."""

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
    """From one moment to another, in Unix seconds."""

    defaults: ClassVar[Mapping[str, object]] = {"start": 0.0, "end": 0.0}

    @property
    def duration(self) -> float:
        """Seconds; 0 while it lasts."""
        return self["end"] - self["start"] if self["end"] > 0.0 else 0.0


class TimeSpans(Record):
    """Spans one after the other."""

    defaults: ClassVar[Mapping[str, object]] = {"spans": []}

    @property
    def duration(self) -> float:
        """The sum of theirs."""
        return sum(span.duration for span in self["spans"])


class RolloutTiming(Record):
    """The timings of generation C. A number that our engine sets for a phase closes its span."""

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
        """Take over what `spans_of` told of the rollout, once it has ended."""
        for name, span in spans.items():
            if name == "setup":
                self[name] = TimeSpan(span)
            else:
                self[name]["spans"] = [TimeSpan(each) for each in span]

    @property
    def total(self) -> float:
        """From the first turn to the last reward."""
        scored = self["scoring"]["end"]
        return scored - self["generation"]["start"] if scored > 0.0 else 0.0

    @property
    def overhead(self) -> float:
        """What is in no span."""
        return self.total - sum(self[name].duration for name in ("setup", "model", "env", "scoring"))


def timing_of(fields: Mapping[str, Any], kind: Generation) -> dict[str, Any]:
    """The timings of a rollout, of a generation's kind."""
    if isinstance(fields, Milliseconds | RolloutTiming):
        return fields
    return Milliseconds(fields) if kind == "B" else RolloutTiming(fields)


def spans_of(timing: Mapping[str, Any]) -> JsonDict:
    """Of the timings of generation C, what our records have no place for; nothing of other ones."""
    if not isinstance(timing, RolloutTiming):
        return {}
    spans: JsonDict = {name: plain(timing[name]["spans"]) for name in ("model", "env")}
    return {"setup": plain(timing["setup"]), **spans}


def count_env_response(state: State, started: float) -> None:
    """Note an answer of the environment among the timings."""
    timing = state["timing"]
    if isinstance(timing, RolloutTiming):
        timing["env"]["spans"].append(TimeSpan(start=started, end=time.time()))


def count_model_call(state: ClassicState, started: float, response: Response) -> None:
    """Note a model call among the timings."""
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
