"""An environment whose scoring is work for the processor: as parsers, provers and simulators are."""

from __future__ import annotations

import time

from harness import Environment, Example, Messages, Rubric, SingleTurnEnv


def busy(info: dict[str, float]) -> float:
    """A reward that takes so much of the processor's time in Python."""
    until, number = time.thread_time() + info["seconds"], 0
    while time.thread_time() < until:
        number = (number * 31 + 7) % 1_000_003
    return 1.0


class Busy(SingleTurnEnv):
    """Asks once."""

    def reference_reply(self, example: Example, messages: Messages) -> str:
        """Anything."""
        return "yes"


def load_environment(rows: int = 40, seconds: float = 0.05, tag: str = "") -> Environment:
    """`tag` tells one of a suite from another."""
    questions = [{"question": f"{tag} {number}", "info": {"seconds": seconds}} for number in range(rows)]
    return Busy(dataset=questions, rubric=Rubric([busy]))
