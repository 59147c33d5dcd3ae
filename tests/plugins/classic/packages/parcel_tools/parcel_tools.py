import verifiers as vf
from datasets import Dataset
from verifiers.types import ToolCall, ToolMessage

PRICES = {"letter": 1.0, "parcel": 4.5}


async def price(kind: str, count: int = 1) -> float:
    """What it costs to send something.

    Args:
        kind: "letter" or "parcel".
        count: How many.
    """
    return PRICES[kind] * count


def track(codes: list[str], detail: bool = False) -> list[dict]:
    """Where parcels are.

    Args:
        codes: Their codes.
        detail: Whether to tell more.
    """
    return [{"code": code, "place": "Bonn" if detail else "?"} for code in codes]


def picture(code: str) -> list[dict]:
    """A picture of the parcel."""
    return [{"type": "text", "text": f"a box called {code}"}]


def returned(reason: str | None = None) -> str:
    """Send it back."""
    raise RuntimeError(f"no way back: {reason}")


def calls(completion: vf.Messages, info) -> float:
    made = []
    for message in completion:
        if message.role == "assistant" and message.tool_calls:
            for call in message.tool_calls:
                assert isinstance(call, ToolCall)
                assert call.name == call["name"] == call.get("name")
                made.append(call.name)
    return float(made == info["calls"])


def last_is(completion: vf.Messages, answer: str) -> float:
    return float(completion[-1].content == answer)


def told(completion: vf.Messages) -> float:
    return float(len([m for m in completion if isinstance(m, ToolMessage) and m.tool_call_id.startswith("call_")]))


def load_environment():
    rows = [
        {"question": "A: two parcels", "answer": "9", "info": {"calls": ["price"]}},
        {"question": "B: both at once", "answer": "ok", "info": {"calls": ["track", "price"]}},
        {"question": "C: a camel", "answer": "none", "info": {"calls": ["price"]}},
        {"question": "D: a picture", "answer": "box", "info": {"calls": ["picture"]}},
        {"question": "E: back", "answer": "", "info": {"calls": ["returned"]}},
        {"question": "F: nothing", "answer": "hello", "info": {"calls": []}},
        {"question": "G: odd arguments", "answer": "odd", "info": {"calls": ["price", "nope"]}},
    ]
    env = vf.ToolEnv(
        dataset=Dataset.from_list(rows),
        tools=[price, track],
        rubric=vf.Rubric(funcs=[calls, last_is, told], weights=[0.5, 0.5, 0.0]),
        stop_errors=[RuntimeError],
    )
    env.add_tool(picture)
    env.add_tool(returned)
    return env
