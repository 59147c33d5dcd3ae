"""Tools per row in the older way: `info["oai_tools"]`, OpenAI's shape."""

import json

import verifiers as vf
from datasets import Dataset

PHONE = {
    "type": "function",
    "function": {
        "name": "phone",
        "description": "Call somebody.",
        "parameters": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    },
}


def called(completion, info) -> float:
    for message in completion:
        for call in message.get("tool_calls") or []:
            if call["function"]["name"] == "phone":
                return float(json.loads(call["function"]["arguments"])["name"] == info["name"])
    return 0.0


def load_environment():
    rows = [
        {"question": "Phone Mia.", "answer": "", "info": json.dumps({"oai_tools": [PHONE], "name": "Mia"})},
        {"question": "Phone nobody.", "answer": "", "info": json.dumps({"oai_tools": [], "name": ""})},
    ]
    return vf.SingleTurnEnv(dataset=Dataset.from_list(rows), rubric=vf.Rubric(funcs=[called]))
