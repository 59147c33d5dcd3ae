"""The examples: seeded draws of tool calls, and how calls compare. Owns the wording of requests; runs no tool."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import cast

from harness import JsonDict, Prompt

MAX_CALLS = 10

CITIES = (
    "Accra", "Bergen", "Cusco", "Dakar", "Galway", "Hanoi", "Izmir", "Kyoto", "Lima", "Nairobi", "Oslo", "Porto",
    "Quito", "Riga", "Seville", "Tallinn", "Utrecht", "Vienna", "Windhoek", "Zagreb",
)  # fmt: skip
NAMES = (
    "Amara", "Bruno", "Clara", "Dmitri", "Esther", "Felix", "Grace", "Hugo", "Ingrid", "Jonas", "Kofi", "Laila",
    "Mateo", "Nadia", "Omar", "Priya", "Rosa", "Stefan", "Tara", "Yusuf",
)  # fmt: skip
LABELS = (
    "bread", "laundry", "parking meter", "pasta", "phone call", "piano practice", "plants", "pottery kiln", "rice",
    "stretching", "tea", "tram",
)  # fmt: skip
RESTAURANTS = (
    "Blue Heron", "Copper Kettle", "Garden Gate", "Harbour Light", "Lemon Tree", "Night Owl", "Old Forge",
    "Paper Lantern", "Salt & Smoke", "Two Rivers",
)  # fmt: skip
TEXTS = (
    "I am running ten minutes late.", "Is the meeting still on?", "Please bring the blue folder.",
    "The keys are under the mat.", "Happy birthday!", "Dinner is at my place.", "I found your umbrella.",
    "Can you water the plants?",
)  # fmt: skip
CURRENCIES = ("EUR", "GBP", "JPY", "USD")


def make_rows(count: int, seed: int, min_calls: int, max_calls: int) -> list[JsonDict]:
    """The rows of the dataset.

    Args:
        count: How many, all different; a longer dataset begins with the shorter one.
        seed: Another seed gives other rows.
        min_calls: Fewest calls of a row.
        max_calls: Most calls of a row.
    """
    rows: dict[str, JsonDict] = {}  # a dict keeps the order
    for index in range(count):
        # a text seed goes through sha512, so it depends neither on PYTHONHASHSEED nor on the platform
        rng = Random(f"tool-test {seed} {index}")
        row = _row(rng, min_calls, max_calls)
        while row["question"] in rows:
            row = _row(rng, min_calls, max_calls)
        rows[row["question"]] = row
    return list(rows.values())


def calls_of(completion: Prompt) -> list[JsonDict]:
    """The calls of the first reply: name and arguments, which are None if they are no JSON object."""
    first = completion[0] if completion and not isinstance(completion, str) else {}
    calls = cast("Sequence[JsonDict]", first.get("tool_calls") or ())
    return [
        {"name": call["function"]["name"], "arguments": _arguments(call["function"]["arguments"])} for call in calls
    ]


def matching(made: Sequence[JsonDict], wanted: Sequence[JsonDict]) -> int:
    """How many calls are in both, each counted as often as it is in both."""
    return (Counter(map(_canonical, made)) & Counter(map(_canonical, wanted))).total()


def _arguments(text: object) -> object:
    try:
        value: object = json.loads(text) if isinstance(text, str) else text
    except (ValueError, RecursionError):
        return None
    return cast(object, value) if isinstance(value, dict) else None


def _canonical(call: JsonDict) -> str:
    """A call as a text that is the same for equal calls: 12 is 12.0, but neither is "12" nor true."""
    return json.dumps([call["name"], _with_floats(call["arguments"])], sort_keys=True)


def _with_floats(value: object) -> object:
    if isinstance(value, dict):
        return {name: _with_floats(part) for name, part in cast(JsonDict, value).items()}
    if isinstance(value, list):
        return [_with_floats(part) for part in cast("list[object]", value)]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53:
        return float(value)
    return value


def _row(rng: Random, min_calls: int, max_calls: int) -> JsonDict:
    wanted: dict[str, JsonDict] = {}
    count = rng.randint(min_calls, max_calls)
    while len(wanted) < count:
        name, draw = rng.choice(DRAWS)
        call: JsonDict = {"name": name, "arguments": draw(rng)}
        wanted[_canonical(call)] = call
    calls = list(wanted.values())
    lines = [f"{number}. {_words(call)}" for number, call in enumerate(calls, 1)]
    return {
        "question": "Make these tool calls:\n\n" + "\n".join(lines),
        "answer": json.dumps(calls, sort_keys=True),
        "info": {"calls": calls},
    }


def _words(call: JsonDict) -> str:
    arguments = cast(JsonDict, call["arguments"])
    return f"{call['name']} with " + ", ".join(f"{name} = {json.dumps(value)}" for name, value in arguments.items())


def _timer(rng: Random) -> JsonDict:
    return {"minutes": rng.randint(2, 180), "label": rng.choice(LABELS)}


def _currency(rng: Random) -> JsonDict:
    source, target = rng.sample(CURRENCIES, 2)
    return {"amount": rng.randint(100, 99_999) / 100, "source": source, "target": target}


def _table(rng: Random) -> JsonDict:
    return {"restaurant": rng.choice(RESTAURANTS), "guests": rng.randint(1, 12), "outdoors": rng.random() < 0.5}


def _message(rng: Random) -> JsonDict:
    return {"recipients": rng.sample(NAMES, rng.randint(1, 4)), "text": rng.choice(TEXTS)}


def _weather(rng: Random) -> JsonDict:
    return {"city": rng.choice(CITIES), "unit": rng.choice(("celsius", "fahrenheit"))}


def _flights(rng: Random) -> JsonDict:
    origin, destination = rng.sample(CITIES, 2)
    passengers = {"adults": rng.randint(1, 4), "children": rng.randint(0, 3)}
    return {"origin": origin, "destination": destination, "passengers": passengers}


DRAWS: tuple[tuple[str, Callable[[Random], JsonDict]], ...] = (
    ("set_timer", _timer),
    ("convert_currency", _currency),
    ("book_table", _table),
    ("send_message", _message),
    ("get_weather", _weather),
    ("search_flights", _flights),
)
"""The arguments of a call, by tool."""
