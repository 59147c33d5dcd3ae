"""What is in stock, and the questions about it: seeded, so that server and questions agree without talking. Owns no
tool."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from random import Random

from harness import JsonDict

MATERIALS = ("brass", "cedar", "copper", "glass", "linen", "marble", "paper", "silver", "slate", "wicker")
THINGS = ("bells", "bowls", "boxes", "combs", "frames", "hinges", "lamps", "trays")
SHELVES = ("Alder", "Birch", "Cherry", "Elm", "Hazel", "Larch", "Maple", "Oak")

MAX_EXAMPLES = 2000
"""There are 80 items on 8 shelves, so 3,520 questions: drawing this many different ones takes few repeats."""


@dataclass(frozen=True)
class Stockroom:
    """One stockroom."""

    numbers: dict[str, str]
    """Item number by name."""
    prices: dict[str, int]
    """Coins a piece, by number."""
    stock: dict[tuple[str, str], int]
    """Pieces, by number and shelf."""


def make_stockroom(seed: int) -> Stockroom:
    """The stockroom of a seed."""
    # a text seed goes through sha512, so it depends neither on PYTHONHASHSEED nor on the platform
    rng = Random(f"mcp-demo stockroom {seed}")
    names = [f"{material} {thing}" for material, thing in product(MATERIALS, THINGS)]
    drawn = rng.sample(range(10_000, 100_000), len(names))
    numbers = {name: f"K-{number}" for name, number in zip(names, drawn, strict=True)}
    prices = {number: rng.randint(11, 499) for number in numbers.values()}
    stock: dict[tuple[str, str], int] = {key: rng.randint(101, 999) for key in product(numbers.values(), SHELVES)}
    return Stockroom(numbers, prices, stock)


def make_rows(count: int, seed: int) -> list[JsonDict]:
    """The rows of the dataset.

    Args:
        count: How many, all different, at most `MAX_EXAMPLES`; a longer dataset begins with the shorter one.
        seed: Another seed gives another stockroom and other rows.
    """
    stockroom = make_stockroom(seed)
    rows: dict[str, JsonDict] = {}  # a dict keeps the order
    for index in range(count):
        rng = Random(f"mcp-demo {seed} {index}")
        row = _row(rng, stockroom)
        while row["question"] in rows:
            row = _row(rng, stockroom)
        rows[row["question"]] = row
    return list(rows.values())


def _row(rng: Random, stockroom: Stockroom) -> JsonDict:
    item = rng.choice(tuple(stockroom.numbers))
    number = stockroom.numbers[item]
    asks = rng.choice(("count", "sum", "sum", "worth"))  # there are twice as many pairs to ask about
    shelves = sorted(rng.sample(SHELVES, 2 if asks == "sum" else 1))
    there = sum(stockroom.stock[number, shelf] for shelf in shelves)
    if asks == "worth":
        question = f"What are all the {item} on shelf {shelves[0]} worth together, in coins?"
    else:
        where = f"shelf {shelves[0]}" if asks == "count" else f"shelves {shelves[0]} and {shelves[1]} together"
        question = f"How many {item} are there on {where}?"
    answer = there * stockroom.prices[number] if asks == "worth" else there
    return {"question": question, "answer": str(answer), "info": {"asks": asks, "item": item, "shelves": shelves}}
