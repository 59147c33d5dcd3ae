"""A model that says what its replies took, and counts who asked what; and an environment whose rollouts ask it once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any

from loopback_model import LoopbackModel

ECHO = """
from harness import JudgeRubric, Rubric, SingleTurnEnv

def fine(completion):
    return 1.0

def load_environment(size=20, grader=None, url=None):
    rows = [{"question": f"question {n}", "answer": "yes"} for n in range(size)]
    rubric = Rubric([fine]) if grader is None else JudgeRubric(judge_model=grader, judge_base_url=url)
    return SingleTurnEnv(dataset=rows, rubric=rubric)
"""

TENTH = "{ input = 8000.0, output = 4000.0 }"
"""A price at which a reply of 10 + 5 tokens costs $0.10."""


class PaidModel(LoopbackModel):
    """Answers "yes", and as a judge "CORRECT".

    Args:
        usage: What every reply says that it took; None says nothing.
        together: Requests that are answered only when so many wait for an answer.
        silent: Replies that say nothing of what they took, by the order of requests, from 1.
        empty: Replies that cannot be used, in the same way.
    """

    def __init__(
        self,
        usage: Mapping[str, object] | None = None,
        *,
        together: int = 1,
        silent: frozenset[int] = frozenset(),
        empty: frozenset[int] = frozenset(),
    ) -> None:
        super().__init__()
        self.usage = {"prompt_tokens": 10, "completion_tokens": 5, **(usage or {})}
        self.asked: Counter[str] = Counter()
        """Requests by the text of their last message."""
        self.by_model: Counter[str] = Counter()
        self._silent, self._empty = silent, empty
        self._barrier = threading.Barrier(together, timeout=60)
        self._lock = threading.Lock()

    @property
    def requests(self) -> int:
        """How many there were."""
        return self.asked.total()

    def reply(self, body: dict[str, Any], key: str | None) -> tuple[int, dict[str, Any]]:
        """A short answer."""
        with self._lock:
            self.asked[str(body["messages"][-1]["content"])] += 1
            self.by_model[str(body["model"])] += 1
            says, is_empty = self.requests not in self._silent, self.requests in self._empty
        self._barrier.wait()
        message = {"role": "assistant", "content": "CORRECT" if "judge" in body["model"] else "yes"}
        reply: dict[str, Any] = {
            "id": "x", "object": "chat.completion", "created": 0, "model": body["model"],
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        }  # fmt: skip
        if is_empty:
            reply["choices"] = []
        return 200, {**reply, "usage": self.usage} if says else reply


def registry(url: str, price: str | None = TENTH, name: str = "paid") -> str:
    """An `[[endpoint]]` for a suite or a registry."""
    entry = f'[[endpoint]]\nendpoint_id = "{name}"\nmodel = "{name}-model"\nurl = "{url}"\n'
    return entry + (f"price = {price}\n" if price else "")
