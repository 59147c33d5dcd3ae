"""The transcript of a sample in an Inspect log: one event for each model reply and each tool result. Inspect's viewer
and its `messages_df` read conversations from events, not from the sample's messages. The input of a reply is a range in
a shared list of messages, so that the size grows linearly with the conversation. The times of single turns are not
recorded: every event has the start time of the rollout."""

from __future__ import annotations

from harness.core.types import JsonDict
from harness.store.rows import content_text


def transcript(messages: list[JsonDict], asked: int, *, model: str, started: str, output: JsonDict) -> JsonDict:
    """Create the fields `events` and `events_data` of a sample in an Inspect log.

    Args:
        messages: The whole conversation, in Inspect's format.
        asked: Number of leading messages that are the prompt.
        model: Model that wrote the replies.
        started: Start time of the rollout.
        output: The sample's output, used as the event of the last reply.
    """
    events: list[JsonDict] = []
    calls: dict[str, JsonDict] = {}
    replies = [index for index, message in enumerate(messages) if message["role"] == "assistant" and index >= asked]
    for index, message in enumerate(messages[asked:], asked):
        base: JsonDict = {"uuid": f"{message['id']}e", "timestamp": started, "working_start": 0.0}
        calls |= {call["id"]: call for call in message.get("tool_calls", ())}
        if message["role"] == "assistant":
            told = output if index == replies[-1] else _output(message, model)
            events.append({
                **base, "event": "model", "model": model, "input": [], "input_refs": [[0, index]] if index else [],
                "tools": [], "tool_choice": "auto", "config": {}, "output": told,
            })  # fmt: skip
        elif message["role"] == "tool":
            call_id, result = message.get("tool_call_id", ""), content_text(message["content"]) or ""
            events.append({
                **base, "event": "tool", "type": "function", "id": call_id, "function": message.get("function", ""),
                "arguments": calls.get(call_id, {}).get("arguments", {}), "result": result,
                "events": [], "message_id": message["id"],
            })  # fmt: skip
    if not replies:
        return {"events": events}
    return {"events": events, "events_data": {"messages": messages[: replies[-1]], "calls": []}}


def _output(message: JsonDict, model: str) -> JsonDict:
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    choice = {"message": message, "stop_reason": reason}
    return {"model": model, "choices": [choice], "completion": content_text(message["content"]) or ""}
