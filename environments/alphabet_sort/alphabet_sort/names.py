"""The examples: seeded draws of names. Owns which names come when, the first question and the right order."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from harness import JsonDict

SORT_BY = ("first", "last", "any")

# Plain ASCII, capital letter first, no spaces or hyphens: the order of such names is the same in every locale.
FIRST_NAMES = (
    "Abigail", "Adrian", "Amara", "Andrei", "Anika", "Astrid", "Beatriz", "Benjamin", "Bianca", "Bruno", "Camila",
    "Carlos", "Chiara", "Clara", "Dalia", "Daniel", "Diego", "Dmitri", "Eleanor", "Elias", "Emeka", "Esther",
    "Fatima", "Felix", "Fiona", "Gabriel", "Grace", "Gustav", "Hana", "Harriet", "Hassan", "Hugo", "Ingrid", "Isabel",
    "Ivan", "Jamal", "Jasmine", "Jonas", "Julia", "Kaito", "Karin", "Kofi", "Laila", "Lars", "Leon", "Lucia",
    "Magnus", "Maria", "Mateo", "Mei", "Miriam", "Nadia", "Nikolai", "Nora", "Oliver", "Olga", "Omar", "Paula",
    "Pedro", "Priya", "Quentin", "Rachel", "Rafael", "Rosa", "Samuel", "Sofia", "Stefan", "Tara", "Theo", "Tomas",
    "Ursula", "Valentina", "Victor", "Wanda", "William", "Ximena", "Yara", "Yusuf", "Zainab", "Zoe",
)  # fmt: skip
LAST_NAMES = (
    "Abbott", "Adeyemi", "Ahmed", "Andersson", "Bauer", "Becker", "Bianchi", "Brown", "Carter", "Castillo", "Chen",
    "Cohen", "Costa", "Davies", "Diaz", "Dubois", "Edwards", "Eriksen", "Fernandez", "Fischer", "Foster", "Fujita",
    "Garcia", "Gomez", "Green", "Gupta", "Haddad", "Hansen", "Hughes", "Ibrahim", "Ivanov", "Jackson", "Jansen",
    "Johnson", "Kapoor", "Keller", "Khan", "Kim", "Kowalski", "Larsen", "Lee", "Lopez", "Martin", "Mensah", "Meyer",
    "Moreau", "Murphy", "Nakamura", "Nguyen", "Novak", "Okafor", "Olsen", "Ortiz", "Park", "Patel", "Petrov", "Quinn",
    "Ramirez", "Reed", "Ricci", "Rossi", "Sato", "Schmidt", "Silva", "Singh", "Suzuki", "Tanaka", "Taylor", "Torres",
    "Underwood", "Vargas", "Vogel", "Walker", "Weber", "Wright", "Xu", "Yamamoto", "Young", "Zhang", "Zimmermann",
)  # fmt: skip


def make_rows(count: int, seed: int, turns: tuple[int, int], max_names: int, sort_by: str) -> list[JsonDict]:
    """The rows of the dataset.

    Args:
        count: How many; a longer dataset begins with the shorter one.
        seed: Another seed gives other rows.
        turns: Fewest and most turns of a row.
        max_names: Most names that one turn brings.
        sort_by: One of `SORT_BY`.
    """
    # a text seed goes through sha512, so it depends neither on PYTHONHASHSEED nor on the platform
    return [_row(Random(f"alphabet-sort {seed} {index}"), turns, max_names, sort_by) for index in range(count)]


def right_lists(info: JsonDict) -> list[list[str]]:
    """The right list of every turn."""
    turns: list[list[str]] = info["turns"]
    so_far: list[str] = []
    lists: list[list[str]] = []
    for names in turns:
        so_far = sorted([*so_far, *names], key=lambda name: sort_key(name, info["sort_by"]))
        lists.append(so_far)
    return lists


def sort_key(name: str, sort_by: str) -> str:
    """What a full name is sorted by."""
    first, _, last = name.partition(" ")
    return (first if sort_by == "first" else last).casefold()


def _row(rng: Random, turns: tuple[int, int], max_names: int, sort_by: str) -> JsonDict:
    by = rng.choice(("first", "last")) if sort_by == "any" else sort_by
    sizes = [rng.randint(1 if turn else 2, max_names) for turn in range(rng.randint(*turns))]
    # no first and no last name occurs twice in an example, so there is one right order
    drawn = zip(rng.sample(FIRST_NAMES, sum(sizes)), rng.sample(LAST_NAMES, sum(sizes)), strict=True)
    names = [f"{first} {last}" for first, last in drawn]
    batches = _split(names, sizes)
    info: JsonDict = {"sort_by": by, "turns": batches}
    question = (
        f"Sort these names alphabetically by {by} name:\n\n" + "\n".join(batches[0]) + "\n\n"
        "Reply with the whole list, one name a line, in <sorted> tags, like this:\n\n"
        "<sorted>\nFirst Last\nFirst Last\n</sorted>"
    )
    return {"question": question, "answer": "\n".join(right_lists(info)[-1]), "info": info}


def _split(names: Sequence[str], sizes: Sequence[int]) -> list[list[str]]:
    ends = [sum(sizes[: turn + 1]) for turn in range(len(sizes))]
    return [list(names[end - size : end]) for end, size in zip(ends, sizes, strict=True)]
