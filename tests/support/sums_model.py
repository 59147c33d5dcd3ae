"""A model that can add, as an OpenAI-compatible server: what an agent evaluation asks in tests. Its reply depends on
the request alone. It adds with the tool `calculate` where it is offered one, else in its head, and what else it does is
in its name:

    weak        is wrong about questions that end with 2
    looping     calls its tool for ever
    refusing    answers 401 to everything; `absent` answers 404
    stumbling   answers 500 to questions that end with 2
    turning     answers 401 to everything from `13 + 13` on, until it is forgiven

A prompt with the word `fail` gets a 500 from any model. Usage is 10 prompt and 5 completion tokens a reply."""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

from loopback_model import LoopbackModel


class SumsModel(LoopbackModel):
    """Serves on a free loopback port and keeps what it was asked; a context manager.

    Args:
        latency: Seconds before each answer.
        port: 0 picks a free one.
    """

    def __init__(self, latency: float = 0.0, port: int = 0) -> None:
        super().__init__(port)
        self.latency = latency
        self.requests: list[dict[str, Any]] = []
        """Bodies, in the order of arrival."""
        self.keys: list[str | None] = []
        """The Authorization header of each."""
        self.in_flight = self.peak = 0
        self._has_turned = self._is_forgiving = False
        self._lock = threading.Lock()

    @property
    def asked(self) -> list[dict[str, Any]]:
        """Requests of runs: those that only look whether anyone is there are left out."""
        return [body for body in self.requests if body["messages"][-1]["content"] != "hi"]

    def forgive(self) -> None:
        """Let `turning` models answer everything from now on."""
        self._is_forgiving = True

    def _answer(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if "turning" in body["model"]:
            self._has_turned |= "13 + 13" in json.dumps(body["messages"])
            if self._has_turned and not self._is_forgiving:
                return 401, _error("this key has been withdrawn")
        return answer(body)

    def reply(self, body: dict[str, Any], key: str | None) -> tuple[int, dict[str, Any]]:
        """After the latency, what `answer` says."""
        with self._lock:
            self.requests.append(body)
            self.keys.append(key)
            self.in_flight += 1
            self.peak = max(self.peak, self.in_flight)
        try:
            time.sleep(self.latency)
            return self._answer(body)
        finally:
            with self._lock:
                self.in_flight -= 1


def answer(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Status and body of the reply to a request."""
    model, messages = body["model"].rpartition("/")[2], body["messages"]
    if "refusing" in model:
        return 401, _error("Incorrect API key provided")
    if "absent" in model:
        return 404, _error(f"The model {model} does not exist")
    question = next(m["content"] for m in messages if m["role"] == "user")
    if "fail" in question or ("stumbling" in model and question.endswith("2")):
        return 500, _error("the machine behind it is out of order")
    tools = [tool["function"]["name"] for tool in body.get("tools") or []]
    answered = messages[-1]["role"] == "tool"
    if "calculate" in tools and ("looping" in model or not answered):
        return 200, _completion(body, None, {"expression": question})
    text = messages[-1]["content"] if answered else _sum(question)
    if "weak" in model and question.endswith("2"):
        text = "about five"
    return 200, _completion(body, text, None)


def _sum(question: str) -> str:
    parts = question.split("+")
    return str(sum(map(int, parts))) if all(part.strip().isdecimal() for part in parts) else "hello"


def _completion(body: dict[str, Any], text: str | None, arguments: dict[str, Any] | None) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if arguments is not None:
        function = {"name": "calculate", "arguments": json.dumps(arguments)}
        message["tool_calls"] = [{"id": f"call_{len(body['messages'])}", "type": "function", "function": function}]
    finish = "stop" if arguments is None else "tool_calls"
    return {
        "id": "sums-1", "object": "chat.completion", "created": 1, "model": body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    }  # fmt: skip


def _error(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "scripted", "code": None}}


if __name__ == "__main__":
    with SumsModel(float(sys.argv[1]) if len(sys.argv) > 1 else 0.0) as served:
        print(served.url, flush=True)
        threading.Event().wait()
