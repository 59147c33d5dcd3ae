"""Reverse text: write a text backwards, letter by letter.

Owns the prompt, the rewards and the reference policy. `texts` makes the texts.
"""

from __future__ import annotations

from harness import Example, Messages, Parser, Prompt, Rubric, SingleTurnEnv
from harness.errors import ConfigError
from reverse_text.texts import MAX_COUNT, make_rows

SYSTEM_PROMPT = (
    "Write the text you are given backwards, character by character, including spaces and punctuation. "
    "Put the result in <reversed> tags, for example: stop it -> <reversed>ti pots</reversed>."
)

MAX_CHARACTERS = 20_000
"""Longer replies score 0. No text is a tenth as long, and a grader's time must not be a model's to decide."""


class ReverseTextEnv(SingleTurnEnv):
    """One text, one reply."""

    def reference_reply(self, example: Example, messages: Messages) -> str:
        """The text backwards."""
        return f"<reversed>{example.answer}</reversed>"


def lcs_ratio(completion: Prompt, answer: str, parser: Parser) -> float:
    """Twice the length of the longest common subsequence over the sum of the lengths: 1 for the exact text, 0 for one
    without a common character. Missing, added and misplaced characters all lower it."""
    reply = read_reversed(parser.parse_answer(completion) or "")
    return 2 * longest_common_subsequence(reply, answer) / (len(reply) + len(answer))


def exact(completion: Prompt, answer: str, parser: Parser) -> float:
    """1 if the text is exactly right, else 0."""
    return float(read_reversed(parser.parse_answer(completion) or "") == answer)


def read_reversed(reply: str) -> str:
    """The text in a reply's `<reversed>` tags, without space around it; "" unless there is exactly one text.

    Texts inside thinking do not count. A reply that repeats its text is fine, one with two different texts has none.
    """
    said = reply.rpartition("</think>")[2].partition("<think>")[0]
    parts = [part.partition("</reversed>") for part in said.split("<reversed>")[1:]]
    found = {inner.strip() for inner, closed, _ in parts if closed}
    text = found.pop() if len(found) == 1 else ""
    return text if len(text) <= MAX_CHARACTERS else ""


def longest_common_subsequence(one: str, other: str) -> int:
    """Length of the longest sequence of characters that occurs in both, in order, with or without gaps.

    One row of the usual table is kept as the bits of one integer: O(n·m) bit operations, a machine word at a time
    (Hyyrö 2004, "Bit-parallel LCS-length computation revisited").
    """
    places: dict[str, int] = {}
    for position, character in enumerate(one):
        places[character] = places.get(character, 0) | 1 << position
    full = (1 << len(one)) - 1
    row = full
    for character in other:
        matches = row & places.get(character, 0)
        row = (row + matches | row - matches) & full
    return len(one) - row.bit_count()


def load_environment(
    num_examples: int = 1000, seed: int = 0, sentences: int = 1, system_prompt: str = SYSTEM_PROMPT
) -> ReverseTextEnv:
    """The environment; an example depends on its index and these arguments alone.

    Args:
        num_examples: How many texts there are, at most 100,000.
        seed: Another seed gives other texts.
        sentences: How many sentences a text has, 1 to 20: the longer, the harder.
        system_prompt: Asks for the text backwards in tags.

    Raises:
        ConfigError: an argument is out of range or of the wrong type.
    """
    check_count("num_examples", num_examples, 1, MAX_COUNT)
    check_count("seed", seed, 0)
    check_count("sentences", sentences, 1, 20)
    return ReverseTextEnv(
        eval_dataset=lambda: make_rows(num_examples, seed, sentences),
        system_prompt=system_prompt,
        rubric=Rubric(funcs=[lcs_ratio, exact], weights=[1.0, 0.0]),
    )


def check_count(name: str, value: object, least: int, most: int | None = None) -> None:
    """Refuse an argument that is no whole number in its range.

    Raises:
        ConfigError: names the argument, its range and what it was.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        bounds = f"from {least} to {most}" if most is not None else f"of at least {least}"
        raise ConfigError(f"{name} must be a whole number {bounds}, not {value!r}")
