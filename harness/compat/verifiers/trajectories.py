"""What a classic environment puts into the steps of a trajectory (`extras`, step rewards, conversations of its own),
on its way through the journal. Owns which of it the transcript does not tell; a plain trajectory needs nothing kept."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

from harness.compat.verifiers.records import plain
from harness.types import JsonDict

_FIELDS = ("extras", "reward", "advantage", "is_truncated")


def kept(trajectory: Sequence[JsonDict]) -> list[JsonDict]:
    """What a journal must hold of these steps beside the transcript; nothing if that tells all."""
    notes = [{name: plain(step[name]) for name in _FIELDS if step.get(name)} for step in trajectory]
    if not _is_one_conversation(trajectory):
        for note, step in zip(notes, trajectory, strict=True):
            note.update(prompt=plain(step.get("prompt")), completion=plain(step.get("completion")))
    return notes if any(notes) else []


def put_back(trajectory: list[JsonDict], steps: object) -> None:
    """Lay what was kept over steps that were rebuilt from the transcript."""
    if not isinstance(steps, list):
        return
    notes = cast("list[JsonDict]", steps)
    if len(notes) != len(trajectory):
        shape: dict[str, Any] = dict.fromkeys(("response", "tokens", "reward", "advantage"))
        trajectory[:] = [{**shape, "is_truncated": False, "extras": {}} for note in notes if "prompt" in note]
    for step, note in zip(trajectory, notes, strict=False):
        step.update(note)


def _is_one_conversation(trajectory: Sequence[JsonDict]) -> bool:
    """Whether each step goes on where the one before ended."""
    for before, step in pairwise(trajectory):
        said, asked = before.get("completion"), step.get("prompt")
        if isinstance(said, str) or isinstance(asked, str):
            if not str(asked).startswith(f"{before.get('prompt')}{said}"):
                return False
            continue
        if not said or not isinstance(asked, list):
            return False
        end = len(before["prompt"]) + len(said)
        if len(cast("list[object]", asked)) < end or asked[end - 1] is not said[-1]:
            return False
    return True
