"""A model that tells everything it was told: an OpenAI-compatible server whose replies, and the bodies of whose errors,
hold all headers of the request, in every field that has room for text. It calls the tool `look` where it is offered one
and has not called it yet. A question with the word `refuse` gets a 400, one with `break` a 500, one with `deny` a 401.

Its replies also hold `KEY_SHAPED`, a text that looks like a key and is nobody's."""

from __future__ import annotations

import json
from typing import Any

from loopback_model import LoopbackModel

KEY_SHAPED = "sk-proj-0123456789nobodysKEY"

_STATUS = {"refuse": 400, "break": 500, "deny": 401}


class EchoModel(LoopbackModel):
    """Serves as long as the `with` block."""

    def __init__(self) -> None:
        super().__init__(name="echo")
        self.heard = ""
        """All headers of all requests."""

    def hear(self, body: dict[str, Any], headers: dict[str, str]) -> tuple[int, dict[str, Any]]:
        """A reply with all headers."""
        self.heard += (told := json.dumps(headers))
        return _reply(body, told)


def _reply(body: dict[str, Any], headers: str) -> tuple[int, dict[str, Any]]:
    question = " ".join(str(message["content"]) for message in body["messages"] if message["role"] == "user")
    for word, status in _STATUS.items():
        if word in question:
            return status, {"error": {"message": f"not with {headers}", "type": headers, "code": headers}}
    text = f"You sent {headers}. Not yours: {KEY_SHAPED}."
    message: dict[str, Any] = {"role": "assistant", "content": text, "reasoning_content": f"I saw {headers}"}
    offered = [tool["function"]["name"] for tool in body.get("tools") or []]
    if "look" in offered and body["messages"][-1]["role"] != "tool":
        function = {"name": "look", "arguments": json.dumps({"at": headers})}
        message["tool_calls"] = [{"id": f"call {headers}", "type": "function", "function": function}]
    return 200, {
        "id": f"id {headers}", "object": "chat.completion", "created": 1, "model": body["model"],
        "system_fingerprint": headers,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15, "note": headers},
    }  # fmt: skip
