"""The texts: seeded sentences from a small grammar, so that no model has seen them. Owns nothing else."""

from __future__ import annotations

from random import Random

from harness import JsonDict

SUBJECTS = (
    "the lighthouse keeper", "a retired astronomer", "my neighbour's cat", "the night baker",
    "a travelling piano tuner", "the youngest apprentice", "our geography teacher", "a flock of starlings",
    "the harbour pilot", "an old clockmaker", "the museum guard", "a girl in a yellow raincoat",
    "the village choir", "a pair of mountain goats", "the new librarian", "an unhurried gardener",
)  # fmt: skip
VERBS = (
    "carried", "quietly repaired", "forgot", "painted", "discovered", "borrowed", "followed", "described", "hid",
    "polished", "sketched", "almost dropped", "traded away", "examined", "wrapped up", "kept an eye on",
)  # fmt: skip
OBJECTS = (
    "a copper kettle", "the broken compass", "seven glass marbles", "an unsigned letter", "the last jar of honey",
    "a map of the canals", "two wooden oars", "the emperor's portrait", "a box of candles", "the wrong umbrella",
    "a very small telescope", "the spare key", "three crates of oranges", "a moth-eaten flag",
    "the evening newspaper", "an atlas without a cover",
)  # fmt: skip
PLACES = (
    "behind the greenhouse", "on the frozen lake", "in the station hall", "under the stone bridge",
    "near the old mill", "at the edge of the forest", "above the tailor's shop", "beside the empty fountain",
    "between two fishing boats", "outside the theatre", "along the railway line", "in the attic",
)  # fmt: skip
TIMES = (
    "before sunrise", "during the storm", "on a Tuesday", "just after lunch", "at the end of October",
    "for the second time", "while nobody was looking", "as the bells rang", "without saying a word",
    "to everyone's surprise",
)  # fmt: skip


MAX_COUNT = 100_000
"""There are 1.4 million sentences, so drawing this many different ones takes few repeats."""


def make_rows(count: int, seed: int, sentences: int) -> list[JsonDict]:
    """The rows of the dataset.

    Args:
        count: How many, all different, at most `MAX_COUNT`; a longer dataset begins with the shorter one.
        seed: Another seed gives other texts.
        sentences: How many sentences each text has.
    """
    texts: dict[str, None] = {}  # a dict keeps the order
    for index in range(count):
        # a text seed goes through sha512, so it depends neither on PYTHONHASHSEED nor on the platform
        rng = Random(f"reverse-text {seed} {index}")
        text = _text(rng, sentences)
        while text in texts:
            text = _text(rng, sentences)
        texts[text] = None
    return [{"question": text, "answer": text[::-1]} for text in texts]


def _text(rng: Random, sentences: int) -> str:
    return " ".join(_sentence(rng) for _ in range(sentences))


def _sentence(rng: Random) -> str:
    core = f"{rng.choice(SUBJECTS)} {rng.choice(VERBS)} {rng.choice(OBJECTS)}"
    place, time = rng.choice(PLACES), rng.choice(TIMES)
    order = rng.randrange(3)
    if order == 0:
        text = f"{core} {place} {time}"
    elif order == 1:
        text = f"{place}, {core} {time}"
    else:
        text = f"{time}, {core} {place}"
    return text[0].upper() + text[1:] + "."
