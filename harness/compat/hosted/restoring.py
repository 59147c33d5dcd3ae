"""The two states of a hosted rollout: the package's own, which its rubric reads, and ours, which goes into the journal.
Owns what passes from one to the other, and the package's state of a rollout whose process is gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, cast

from harness.compat.hosted.dialect import Dialect, plain, to_wire
from harness.compat.hosted.members import routed
from harness.compat.hosted.rows import HostedRows
from harness.compat.openai_client import async_openai
from harness.envs.dataset import without_gaps
from harness.errors import EnvironmentFault, StateLost
from harness.state import FIXED_KEYS, INPUT_KEYS, State, own
from harness.types import JsonDict, ModelResponse, Prompt

LIVE = "client"
"""The fixed key of our state that holds the package's: it is recorded nowhere, and here nothing else uses it."""

_BOOKKEEPING = frozenset({"usage_tracker", "token_usage"})
"""What the package's loop keeps in a state for itself."""

STEPS = "trajectory_steps"
"""The key of our state for what an environment has noted about single turns; their messages are in the completion."""

_STEP = ("reward", "extras", "is_truncated")

_CHANGEABLE = tuple(name for name in INPUT_KEYS if name != "example_id")


def carry_over(theirs: Mapping[str, Any], state: State) -> None:
    """Put what the author keeps in the package's state into ours.

    Args:
        theirs: The package's state.
        state: Ours.
    """
    for name, value in theirs.items():
        if name not in FIXED_KEYS and name not in _BOOKKEEPING:
            state[name] = value


def carry_steps(theirs: Mapping[str, Any], state: State) -> None:
    """Put into our state what the environment noted about single turns.

    Args:
        theirs: The package's state, before it is scored: scoring writes into its steps.
        state: Ours.
    """
    steps = [{name: step.get(name) for name in _STEP} for step in theirs.get("trajectory") or ()]
    if any(step["extras"] or step["reward"] is not None for step in steps) or len(steps) != _replies(theirs):
        state[STEPS] = steps


def carry_input(theirs: Any, raw: JsonDict, state: State) -> None:
    """Put into our state what the environment made of the row.

    Args:
        theirs: The package's state.
        raw: The row as the package knows it.
        state: Ours.
    """
    before = _cells(raw)
    for name, value in _cells({name: theirs.get(name) for name in _CHANGEABLE}).items():
        if name in theirs.get("input", ()) and value != before[name]:
            state[name] = value


async def restored(state: State, inner: Any, dialect: Dialect, rows: HostedRows) -> Any:
    """The package's state of a rollout that a journal holds, well enough to be scored.

    The trajectory has one step for each assistant message; its `response` is gone.

    Args:
        state: Our own, restored.
        inner: The package's environment.
        dialect: How its release speaks.
        rows: Its dataset.
    """
    raw = rows.raw(state["example_id"])
    env, row = routed(inner, raw)
    client = dialect.client(async_openai(_Gone(state["model"])), inner.message_type)
    begun = await env.init_state(row, client, state["model"], dict(state["sampling_args"]))
    theirs: Any = _restored_class(cast(Any, type(begun)))(begun)
    theirs.bench_lost = state.lost
    as_read = rows.formatted(raw)
    for name in _CHANGEABLE:
        if name in theirs.get("input", ()) and _differs(state, name, as_read[name]):
            theirs[name] = dialect.messages(state[name]) if name == "prompt" else own(state[name])
    for name, value in state.items():
        if name not in FIXED_KEYS and name not in state.lost and name != STEPS:
            theirs[name] = value
    completion = dialect.messages(own(state["completion"]))
    theirs.update(
        completion=completion,
        is_completed=True,
        is_truncated=state["is_truncated"],
        stop_condition=state["stop_condition"],
        trajectory=_steps(theirs, completion, state.get(STEPS) if STEPS not in state.lost else None),
    )
    if STEPS in state.lost or (STEPS in state and len(state[STEPS]) != len(theirs["trajectory"])):
        theirs.bench_lost |= {"trajectory"}
        del theirs["trajectory"]
    return theirs


def _replies(theirs: Any) -> int:
    said = theirs.get("completion") or ()
    return 1 if isinstance(said, str) else sum(part["role"] in ("assistant", "text") for part in said)


def _cells(row: Mapping[str, Any]) -> JsonDict:
    cells = {name: plain(row.get(name)) for name in _CHANGEABLE}
    cells["prompt"] = to_wire(row.get("prompt"))
    return cells


def _differs(state: State, name: str, as_read: Any) -> bool:
    if name in state.lost:
        return False
    if name == "prompt" and isinstance(as_read, list):
        as_read = [without_gaps(message) for message in cast("list[JsonDict]", as_read)]
    return bool(state[name] != as_read)


@cache
def _restored_class(kind: type[Any]) -> type[Any]:
    return type(f"Restored{kind.__name__}", (kind,), {"__missing__": _missing})


def _missing(state: Any, name: str) -> Any:
    if name in state.bench_lost:
        raise StateLost(f"state[{name!r}] was not a JSON value, so the journal does not hold it")
    raise KeyError(name)


def _steps(theirs: Any, completion: Any, noted: list[JsonDict] | None) -> list[JsonDict]:
    """One step for each reply, with what had been noted about it."""
    prompt: Any = theirs["prompt"]
    parts: Sequence[Any] = [completion] if isinstance(completion, str) else completion
    steps: list[JsonDict] = [
        {
            "prompt": prompt if isinstance(part, str) else [*prompt, *parts[:index]],
            "completion": part if isinstance(part, str) else [part],
            "response": None,
            "tokens": None,
            "reward": None,
            "advantage": None,
            "is_truncated": False,
            "trajectory_id": theirs["trajectory_id"],
            "extras": {},
        }
        for index, part in enumerate(parts)
        if isinstance(part, str) or part["role"] in ("assistant", "text")
    ]
    for step, note in zip(steps, noted or (), strict=False):
        step.update(note)
    return steps


class _Gone:
    """The model of a rollout that is over."""

    def __init__(self, model: str) -> None:
        self._model = model

    @property
    def model(self) -> str:
        """The model's name at its endpoint."""
        return self._model

    async def __call__(self, prompt: Prompt, **options: Any) -> ModelResponse:
        """Refuse."""
        raise EnvironmentFault("the model can only be asked while the rollout runs")
