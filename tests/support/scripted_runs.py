"""An environment that does in every rollout what a script says, against a server that does the same, and the outcomes
that the script must come to: worked out here, and not by the product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.plugins.faults.options import fault_script
from harness.plugins.faults.rules import Fault
from harness.reference.fault_sources import ObservedRequest

MODULE = '''
import json
import math
import pathlib

import numpy as np
from harness import Rubric, SingleTurnEnv

ODD = {
    "nan": math.nan, "inf": math.inf, "-inf": -math.inf, "none": None, "text": "0.5", "list": [1.0], "dict": {"a": 1},
    "array": np.array([0.5, 0.5]), "huge": 1e200, "complex": 1j, "true": True, "np": np.float32(0.25), "int": 2,
    "np0": np.int64(1), "npnan": np.float64("nan"),
}

def phase():
    return int(pathlib.Path("phase").read_text())

def value(word):
    if word == "raise":
        raise ValueError("the grader fell over")
    return ODD[word] if isinstance(word, str) else word

def act(info, state, what):
    return info["rollouts"][state["rollout_index"]][what][phase()]

def right(info, state):
    """What counts."""
    return value(act(info, state, "right"))

def side(info, state):
    """A metric."""
    return value(act(info, state, "side"))

def relative(infos, states):
    """A reward that is about the whole group."""
    values = [value(act(info, state, "right")) for info, state in zip(infos, states)]
    return {"whole": values, "short": values[:-1], "long": [*values, 1.0], "none": None}[infos[0]["group"][phase()]]

class Scripted(SingleTurnEnv):
    async def setup_state(self, state):
        does = act(state["info"], state, "says")
        if does == "raise":
            raise RuntimeError("no table is free")
        state["prompt"] = [*state["prompt"], {"role": "user", "content": f"[[{does}]]"}]

    def reference_reply(self, example, messages):
        return "an answer"

def load_environment(is_group=False, weight=1.0):
    rows = json.loads(pathlib.Path("rows.json").read_text())
    rubric = Rubric([relative if is_group else right, side], [weight, 0.0])
    return Scripted(dataset=rows, rubric=rubric)
'''

"""What happens to a rollout is in its row's `info`, by phase: what the model says, and what functions return."""

FAULTS = {
    "400": "bad_request", "429": "rate_limit", "500": "server_error", "no-choices": "bad_response",
    "invalid-json": "bad_response",
}  # fmt: skip
"""What the model may say that is no answer, and why such a rollout has no score."""

ANSWERS = ("answer", "null-content", "empty-content", "refusal", "length")

VALUES: dict[str, tuple[float | None, str]] = {
    "nan": (None, "returned nan"),
    "inf": (None, "returned inf"),
    "-inf": (None, "returned -inf"),
    "none": (None, "returned None"),
    "text": (None, "returned str"),
    "list": (None, "returned list"),
    "dict": (None, "returned dict"),
    "array": (None, "returned ndarray"),
    "complex": (None, "returned complex"),
    "npnan": (None, "returned nan"),
    "raise": (None, "raised ValueError"),
    "true": (1.0, ""),
    "np": (0.25, ""),
    "int": (2.0, ""),
    "np0": (1.0, ""),
    "huge": (1e200, ""),
}
"""What functions may return besides plain numbers: the number that it is, or why it is none."""

Value = float | str


class Switch:
    """The server's faults: what the prompt asks for in brackets. After `left` requests every one is refused.

    Args:
        left: Requests until then; −1 is never.
    """

    def __init__(self, left: int = -1) -> None:
        self.left = left
        self._script = fault_script(*(f"{name}@prompt=[[{name}]]" for name in (*FAULTS, *ANSWERS[1:])))

    def next(self, asked: ObservedRequest) -> Fault:
        if self.left == 0:
            return Fault("status", status=401, name="401")
        self.left -= 1
        return self._script.next(asked)


@dataclass(frozen=True)
class Act:
    """What happens to one rollout, in each of two phases."""

    says: tuple[str, str]
    right: tuple[Value, Value]
    side: tuple[Value, Value]


@dataclass
class Fate:
    """What has become of one rollout so far."""

    says: str = ""
    """What the model said; "" of a rollout that was not made."""
    reward: float | None = None
    reason: str | None = None
    side: float | None = None

    @property
    def is_made(self) -> bool:
        """Whether its last message is in."""
        return self.says in ANSWERS


@dataclass
class Script:
    """Rows of the environment, and what must become of their rollouts."""

    acts: list[list[Act]]
    """Of each example, of each rollout."""
    shapes: list[tuple[str, str]]
    """What group functions return, in each phase: `whole`, `short`, `long` or `none`."""
    is_group: bool = False
    weight: float = 1.0
    fates: dict[tuple[int, int], Fate] = field(default_factory=dict[tuple[int, int], Fate])

    def rows(self) -> list[dict[str, Any]]:
        """The dataset."""
        return [
            {
                "question": f"question {number}",
                "info": {"rollouts": [vars(act) for act in acts], "group": list(shape)},
            }
            for number, (acts, shape) in enumerate(zip(self.acts, self.shapes, strict=True))
        ]

    def play(
        self, phase: int, examples: int, rollouts: int, *, again: bool, refused: Sequence[tuple[int, int]] = ()
    ) -> None:
        """What a run over so many comes to that goes to its end.

        Args:
            phase: In which it happens.
            examples: Of the run.
            rollouts: Of each.
            again: Whether what failed is made, and what has no score is scored, again.
            refused: Rollouts that met a refused key, before the run was stopped.
        """
        for example in range(examples):
            places = [(example, rollout) for rollout in range(rollouts)]
            for place in places:
                self.fates.setdefault(place, Fate(reason="auth", says="401") if place in refused else Fate())
            made = [place for place in places if self._make(place, phase, again=again)]
            score = [place for place in places if self._wants_score(place, place in made, again=again)]
            if self.is_group and (made or score):
                self._score_group(places, phase)
            elif not self.is_group:
                for place in score:
                    self._score(place, phase)

    def told(self) -> dict[tuple[int, int], tuple[float | None, str | None, float | None]]:
        """Reward, reason and metric of every rollout."""
        return {place: (fate.reward, fate.reason, fate.side) for place, fate in self.fates.items()}

    def _make(self, place: tuple[int, int], phase: int, *, again: bool) -> bool:
        """Make a rollout that is to be made; returns whether it was."""
        fate = self.fates[place]
        if fate.says and (fate.is_made or not again):
            return False
        says = self.acts[place[0]][place[1]].says[phase]
        reason = None if says in ANSWERS else FAULTS.get(says, "environment_error")
        self.fates[place] = Fate(says, reason=reason)
        return True

    def _wants_score(self, place: tuple[int, int], is_new: bool, *, again: bool) -> bool:
        fate = self.fates[place]
        return fate.is_made and (is_new or (again and fate.reward is None))

    def _value(self, place: tuple[int, int], what: str, phase: int) -> tuple[float | None, str]:
        value: Value = getattr(self.acts[place[0]][place[1]], what)[phase]
        return VALUES[value] if isinstance(value, str) else (value, "")

    def _score(self, place: tuple[int, int], phase: int, name: str = "right", reason: str = "") -> None:
        """Score one rollout; with a reason, it is without a reward whatever its own value."""
        fate = self.fates[place]
        value, why = (None, reason) if reason else self._value(place, "right", phase)
        fate.side, _ = self._value(place, "side", phase)
        fate.side = fate.side if fate.side is None or abs(fate.side) <= 1e100 else None
        fate.reward, fate.reason = None, None
        if value is None:
            fate.reason = f"{name} {why}"
        elif not abs(value * self.weight) <= 1e100:
            fate.reason = "reward is not a usable number"
        else:
            fate.reward = value * self.weight

    def _score_group(self, places: Sequence[tuple[int, int]], phase: int) -> None:
        """Score a group as a whole: not at all if one of it failed."""
        whole = all(self.fates[place].is_made for place in places)
        shape = self.shapes[places[0][0]][phase]
        size = len(places) + {"short": -1, "long": 1}.get(shape, 0)
        raised = any(self.acts[example][rollout].right[phase] == "raise" for example, rollout in places)
        for place in places:
            fate = self.fates[place]
            if not fate.is_made:
                continue
            if not whole:
                fate.reward, fate.reason, fate.side = None, "group incomplete", None
            elif raised:
                self._score(place, phase, "relative", "raised ValueError")
            elif shape == "none":
                self._score(place, phase, "relative", "returned NoneType")
            elif shape != "whole":
                self._score(place, phase, "relative", f"returned {size} values for {len(places)} rollouts")
            else:
                self._score(place, phase, "relative")
