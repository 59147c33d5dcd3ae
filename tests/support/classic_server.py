"""A scripted model for the classic packages: an OpenAI-compatible server whose reply depends on nothing but the
request, so that a real old release and the harness can be told the same. Standard library only: it also runs where
the real releases are installed and nothing of ours is.

A play (`tests/plugins/classic/packages/plays/NAME.toml`) lists replies; the first whose conditions all hold is given:

    model  the model's name             any   a text that some message contains
    last   a text in the last message   turn  how many replies of the model there are with this one
    tools  the names of the tools on offer

`say` is the text, or a list of texts that equal requests get in turn; `call` is a list of [name, arguments]; `status`
makes it an error whose message is `say`."""

from __future__ import annotations

import json
import threading
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

from loopback_model import LoopbackModel

PACKAGES = Path(__file__).resolve().parents[1] / "plugins" / "classic" / "packages"
MODEL = "scripted"
"""The model under test; any other name is a judge's."""


class Play:
    """What a package is played with, and what is expected to differ."""

    def __init__(self, name: str) -> None:
        self.name = name
        whole = tomllib.loads((PACKAGES / "plays" / f"{name}.toml").read_text(encoding="utf-8"))
        self.package: str = whole.pop("package", name)
        self.generation: str = whole.pop("generation")
        self.rollouts: int = whole.pop("rollouts", 2)
        self.beside: list[str] = whole.pop("beside", [])
        """Other packages that it loads."""
        self.replies: list[dict[str, Any]] = whole.pop("reply")
        self.differs: list[dict[str, Any]] = whole.pop("differs", [])
        self.asked_differs: str = whole.pop("asked_differs", "")
        """Why the models are asked something else than by the release."""
        self._args: dict[str, Any] = whole.pop("args", {})
        self._environ: dict[str, str] = whole.pop("environ", {})
        assert not whole, f"{name}: unknown keys {sorted(whole)}"

    @property
    def places(self) -> list[str]:
        """The folders to import it from: its own, and those of the packages that it loads."""
        named = [PACKAGES / name for name in (self.package, *self.beside)]
        return [str(folder if folder.is_dir() else PACKAGES) for folder in named]

    @property
    def expected(self) -> dict[str, Any]:
        """What the real release did."""
        return json.loads((PACKAGES / "expected" / f"{self.name}.json").read_text(encoding="utf-8"))

    def args(self, server: str, log: Path) -> dict[str, Any]:
        """Arguments of its load_environment."""
        return {key: _filled(value, server, log) for key, value in self._args.items()}

    def environ(self, server: str, log: Path) -> dict[str, str]:
        """Environment variables that it is run with."""
        return {key: _filled(value, server, log) for key, value in self._environ.items()}


def plays() -> list[str]:
    """The names of all plays."""
    return sorted(path.stem for path in (PACKAGES / "plays").glob("*.toml"))


def _filled(value: Any, server: str, log: Path) -> Any:
    if not isinstance(value, str):
        return value
    return value.replace("{server}", server).replace("{log}", str(log))


class ScriptedModel(LoopbackModel):
    """Serves one or several plays on a free loopback port; keeps what it was asked. A context manager."""

    def __init__(self, *names: str) -> None:
        super().__init__(name=MODEL)
        self._replies = [reply for name in names for reply in Play(name).replies]
        self._said: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.requests: list[dict[str, Any]] = []

    def reply(self, body: dict[str, Any], key: str | None) -> tuple[int, dict[str, Any]]:
        """What the plays say."""
        messages = body.get("messages") or [{"role": "user", "content": body.get("prompt", "")}]
        key = json.dumps([body.get("model"), canonical(messages)], sort_keys=True)
        with self._lock:
            self.requests.append(body)
            number = self._said[key]
            self._said[key] += 1
        reply = next((reply for reply in self._replies if _holds(reply, body, messages)), None)
        if reply is None:
            return 400, {"error": {"message": f"the script has no reply to {messages[-1]}", "type": "script"}}
        said = reply.get("say")
        text = said[number % len(said)] if isinstance(said, list) else said
        if "status" in reply:
            return reply["status"], {"error": {"message": text, "type": "scripted", "code": None}}
        return 200, _completion(body, text, reply.get("call", []), _turn(messages))


def _text(message: dict[str, Any]) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else json.dumps(content or "")


def _turn(messages: list[dict[str, Any]]) -> int:
    """Which reply of the model this is; few-shot replies stand before the last question and are counted too."""
    return 1 + sum(message["role"] == "assistant" for message in messages)


def _holds(reply: dict[str, Any], body: dict[str, Any], messages: list[dict[str, Any]]) -> bool:
    names = [tool["function"]["name"] for tool in body.get("tools") or []]
    return (
        (body.get("model") == reply["model"] if "model" in reply else body.get("model") == MODEL)
        and reply.get("last", "") in _text(messages[-1])
        and any(reply.get("any", "") in _text(message) for message in messages)
        and reply.get("turn", _turn(messages)) == _turn(messages)
        and reply.get("tools", names) == names
    )


def _completion(body: dict[str, Any], text: str | None, calls: list[list[str]], turn: int) -> dict[str, Any]:
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    whole = {"id": "scripted-1", "created": 1, "model": body.get("model"), "usage": usage}
    if "messages" not in body:
        choice: dict[str, Any] = {"index": 0, "text": text, "finish_reason": "stop", "logprobs": None}
        return {**whole, "object": "text_completion", "choices": [choice]}
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {"id": f"call_{turn}_{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for number, (name, arguments) in enumerate(calls)
        ]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop", "logprobs": None}
    return {**whole, "object": "chat.completion", "choices": [choice]}


def canonical(messages: Any) -> Any:
    """Messages in the shape of the wire, without what says nothing: empty contents and calls, keys of None."""
    if isinstance(messages, str) or messages is None:
        return messages or ""
    return [_canonical(message) for message in messages]


def _canonical(message: Any) -> dict[str, Any]:
    if hasattr(message, "model_dump"):
        message = message.model_dump(exclude_none=True)
    whole = {"role": message["role"], "content": message.get("content") or ""}
    if message.get("tool_calls"):
        whole["tool_calls"] = [_call(call) for call in message["tool_calls"]]
    if message.get("tool_call_id"):
        whole["tool_call_id"] = message["tool_call_id"]
    return whole


def _call(call: Any) -> dict[str, Any]:
    if isinstance(call, str):
        call = json.loads(call)
    function = call.get("function") or call
    return {
        "id": call["id"], "type": "function",
        "function": {"name": function["name"], "arguments": function["arguments"]},
    }  # fmt: skip


IGNORED = ("model", "messages", "prompt", "tools", "n", "stream", "tool_choice")


def asked(requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the models were asked, in an order that no schedule changes: messages, tools, sampling arguments."""
    whole: list[dict[str, Any]] = []
    for body in requests:
        sampling = {key: value for key, value in body.items() if key not in IGNORED and value is not None}
        if "max_tokens" in sampling:  # both names are in use for one thing
            sampling["max_completion_tokens"] = sampling.pop("max_tokens")
        request: dict[str, Any] = {"model": body.get("model")}
        request["messages"] = canonical(body["messages"] if "messages" in body else body.get("prompt"))
        if body.get("tools"):
            request["tools"] = [tool["function"]["name"] for tool in body["tools"]]
        if sampling:
            request["sampling"] = sampling
        whole.append(request)
    return sorted(whole, key=lambda request: json.dumps(request, sort_keys=True))


def offered(requests: list[dict[str, Any]]) -> dict[str, Any]:
    """The tools that were on offer in any request: what a model can read of each."""
    found: dict[str, Any] = {}
    for body in requests:
        for tool in body.get("tools") or []:
            function = tool["function"]
            parameters = function.get("parameters") or {}
            properties = parameters.get("properties", {})
            found[function["name"]] = {
                "description": (function.get("description") or "").strip(),
                "parameters": {name: _schema(value) for name, value in sorted(properties.items())},
                "required": sorted(parameters.get("required", [])),
            }
    return dict(sorted(found.items()))


def _schema(value: dict[str, Any]) -> dict[str, Any]:
    """Of a parameter what two writers of schemas agree on: its description, and its type if that is a plain one."""
    kept = {key: value[key] for key in ("description", "type", "enum", "const") if key in value}
    return kept


def ordered(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Results in an order that no schedule changes."""
    return sorted(results, key=lambda result: (result["example_id"], json.dumps(result["completion"])))
