import json

import verifiers as vf
from datasets import Dataset

SOUP = vf.Tool(
    name="soup",
    description="Order soup.",
    parameters={"type": "object", "properties": {"kind": {"type": "string"}}, "required": ["kind"]},
)
CAKE = {
    "name": "cake",
    "description": "Order cake.",
    "parameters": {"type": "object", "properties": {"pieces": {"type": "integer"}}, "required": ["pieces"]},
}


def orders(completion: vf.Messages) -> list[tuple[str, dict]]:
    return [
        (call.name, json.loads(call.arguments))
        for message in completion
        if message.role == "assistant"
        for call in message.tool_calls or []
    ]


def ordered(completion: vf.Messages, info) -> float:
    return float([list(order) for order in orders(completion)] == info["wanted"])


def menu_length(state) -> float:
    return float(len(state["tool_defs"] or []))


def load_environment():
    menus = [[SOUP.model_dump()], [SOUP.model_dump(exclude_none=True), CAKE], []]
    wanted = [[["soup", {"kind": "leek"}]], [["cake", {"pieces": 2}], ["soup", {"kind": "pea"}]], []]
    rows = [
        {"question": f"Table {i}", "answer": "", "info": json.dumps({"tool_defs": menu, "wanted": want})}
        for i, (menu, want) in enumerate(zip(menus, wanted))
    ]
    return vf.SingleTurnEnv(
        dataset=Dataset.from_list(rows), rubric=vf.Rubric(funcs=[ordered, menu_length], weights=[1, 0])
    )
