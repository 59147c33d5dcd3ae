"""The transcript of a sample: an event for every reply of the model and every answer of a tool. Inspect's viewer and
its `messages_df` read a conversation from these, not from the sample's messages.

What a reply was given is a range of one pool of messages, so that a transcript grows with its length, not its square.
When a turn took place is recorded nowhere: every event has the time of the rollout's start."""

from __future__ import annotations

from harness.core.types import JsonDict
from harness.plugins.exports.foreign import text_of


def transcript(messages: list[JsonDict], asked: int, *, model: str, started: str, output: JsonDict) -> JsonDict:
    """`events` and `events_data` of a sample.

    Args:
        messages: The whole conversation, as the log has it.
        asked: So many of them are the prompt.
        model: Who wrote the replies.
        started: When the rollout began.
        output: The sample's output, which is the event of the last reply.
    """
    events: list[JsonDict] = []
    calls: dict[str, JsonDict] = {}
    replies = [index for index, message in enumerate(messages) if message["role"] == "assistant" and index >= asked]
    for index, message in enumerate(messages[asked:], asked):
        base: JsonDict = {"uuid": f"{message['id']}e", "timestamp": started, "working_start": 0.0}
        calls |= {call["id"]: call for call in message.get("tool_calls", ())}
        if message["role"] == "assistant":
            told = output if index == replies[-1] else _output(message, model)
            events.append({**base, **_model_event(model, index, told)})
        elif message["role"] == "tool":
            events.append({**base, **_tool_event(message, calls.get(message.get("tool_call_id", ""), {}))})
    if not replies:
        return {"events": events}
    return {"events": events, "events_data": {"messages": messages[: replies[-1]], "calls": []}}


def _model_event(model: str, index: int, output: JsonDict) -> JsonDict:
    return {
        "event": "model", "model": model, "input": [], "input_refs": [[0, index]] if index else [], "tools": [],
        "tool_choice": "auto", "config": {}, "output": output,
    }  # fmt: skip


def _output(message: JsonDict, model: str) -> JsonDict:
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    choice = {"message": message, "stop_reason": reason}
    return {"model": model, "choices": [choice], "completion": text_of(message["content"])}


def _tool_event(message: JsonDict, call: JsonDict) -> JsonDict:
    return {
        "event": "tool", "type": "function", "id": message.get("tool_call_id", ""),
        "function": message.get("function", ""), "arguments": call.get("arguments", {}),
        "result": text_of(message["content"]), "events": [], "message_id": message["id"],
    }  # fmt: skip
