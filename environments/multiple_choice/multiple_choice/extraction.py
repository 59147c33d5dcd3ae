"""Which choice a reply commits to, read strictly and read leniently. Owns both readings; knows no dataset and no score.

The rules, each against a way to be credited for a choice that was not made, or to be denied one that was:

- Thinking is no answer: only what follows the last `</think>` counts, and nothing of a `<think>` that never closes.
- Strict: the last line is `Answer: X` and nothing else, and no other line says so of another letter.
- Lenient: the last statement of the answer counts (`**Answer:** B`, `the answer is (B)`, `\\boxed{B}`, a line `(B)`);
  if there is none, the letter that labels choices (`option B`, a line that begins with `B)`), if it is always the same;
  if there is none of these either, the last line that holds the text of one choice and of no other.
- A letter in prose is nothing: `A` is an article and `I` a pronoun.
- What offers several letters (`A or B`, `B, C`) commits to none of them; what denies one (`B is wrong`) says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

LETTERS = "ABCDEFGHIJ"

MAX_LENGTH = 20_000
"""Of a reply's end; answers stand there, and patterns take their time."""

NEAR = 300
"""How far a sentence is looked at on either side of a letter."""

_STRICT = re.compile(r"Answer: ([A-J])")
_MARKUP = re.compile(r"[*_`$]|\\(?:text|textbf|mathrm|mathbf|mathbb)(?![A-Za-z])|\\[()\[\]]")
_LETTER = r"[\[({\s]*([A-J])(?![A-Za-z0-9'’])[\])}]*"
_NOUN = r"(?:answer|choice|option|solution)(?:\s+(?:choice|option|letter))?"
_ANSWERS = (
    re.compile(r"\\(?:boxed|fbox)\s*\{" + _LETTER),
    re.compile(
        rf"(?i:\b{_NOUN}\s*(?:is|would be|must be|should be|:|=)\s*:?\s*(?:(?:option|choice|letter)\s)?)" + _LETTER
    ),
    re.compile(
        r"(?i:\bI(?:['’]ll|\s+will|\s+would)?\s+(?:choose|pick|select|go\s+with)\s+(?:option|choice)?)" + _LETTER
    ),
    re.compile(r"(?<![\w'’])[\[(]?([A-J])[\])]?(?=\s+is\s+(?:the\s+)?(?:correct|right|best)\b)"),
    re.compile(r"^\s*[\[({]?([A-J])[\])}]?[.:]?\s*$", re.MULTILINE),
)
"""Statements of the answer."""
_LABELS = (
    re.compile(r"(?i:\b(?:option|choice)\s+)" + _LETTER),
    re.compile(r"^\s*(?:[-•>]\s*)?[\[(]?([A-J])[\]).:]\s", re.MULTILINE),
)
"""Letters that only label a choice: an answer if there is no other and all say the same."""
_NOT_A_WORD = re.compile(r"\s+(?!(?:because|since|as|which|for|due|based|is|and|or)\b)[a-z]")
"""After a letter that is also a word, `A dog` or `I think`."""
_MORE = re.compile(r"\s*(?:,|/|&|\+|\bor\b|\band\b)\s*(?:(?i:option|choice)\s+)?[\[(]?([A-J])(?![A-Za-z0-9'’])")
_DENIAL = re.compile(
    r"(?i)\b(?:not|isn['’]t|cannot|can['’]t|never|neither|nor|except|wrong|incorrect|false|eliminate[sd]?|"
    r"rule[sd]? out|unlike|instead of|rather than|unsure)\b"
)
_DENIED = re.compile(
    r"(?i)[\s:,]*(?:is|was|can|cannot|can['’]t)?\s*(?:also\s+)?(?:not|n['’]t|isn['’]t|wrong|incorrect|false)\b"
)
_SENTENCE = re.compile(r"[.!?](?=\s)|\n")


def spoken(reply: str) -> str:
    """What a reply says after its thinking."""
    return reply.rpartition("</think>")[2].partition("<think>")[0].strip()


def strict_choice(reply: str, count: int) -> int | None:
    """The choice of a reply that keeps to the format to the letter, or None.

    Args:
        reply: Text of the last assistant message.
        count: How many choices there are.
    """
    lines = [line.rstrip() for line in spoken(reply).splitlines()]
    last = _STRICT.fullmatch(lines[-1]) if lines else None
    said = {found[1] for line in lines if (found := _STRICT.fullmatch(line))}
    if last is None or len(said) > 1:
        return None
    index = LETTERS.index(last[1])
    return index if index < count else None


def lenient_choice(reply: str, choices: Sequence[str]) -> int | None:
    """The choice that a reply commits to in whatever form, or None if it is not clear.

    Args:
        reply: Text of the last assistant message.
        choices: The texts of the choices, in the order of their letters.
    """
    said = _MARKUP.sub("", spoken(reply)[-MAX_LENGTH:])
    answers = _marked(said, _ANSWERS, len(choices))
    if answers:
        return answers[max(answers)]
    labels = set(_marked(said, _LABELS, len(choices)).values())
    if labels:
        return labels.pop() if len(labels) == 1 else None
    return _by_text(said, choices)


def _marked(text: str, patterns: Sequence[re.Pattern[str]], count: int) -> dict[int, int | None]:
    """Where a letter is marked, and which; None where it is one of several. Denied ones are left out."""
    marks: dict[int, int | None] = {}
    for found in (found for pattern in patterns for found in pattern.finditer(text)):
        index, rest = LETTERS.index(found[1]), text[found.end() : found.end() + NEAR]
        if index >= count or (found[1] in "AI" and _NOT_A_WORD.match(rest)):
            continue
        before = _SENTENCE.split(text[max(0, found.start(1) - NEAR) : found.start(1)])[-1]
        if _DENIAL.search(before) or _DENIED.match(rest):
            continue
        marks[found.start(1)] = None if _MORE.match(rest) else index
    return marks


def _by_text(text: str, choices: Sequence[str]) -> int | None:
    """The choice whose text alone stands in the last line that holds any."""
    texts = [" ".join(_MARKUP.sub("", choice).casefold().split()).strip(" .") for choice in choices]
    for line in reversed(text.splitlines()):
        words = " ".join(line.casefold().split())
        held = [index for index, choice in enumerate(texts) if choice and _holds(words, choice)]
        # a choice inside another one that is held is not meant: "1" in "1 and 2"
        held = [i for i in held if not any(i != j and texts[i] != texts[j] and texts[i] in texts[j] for j in held)]
        if len(held) == 1:
            return None if _DENIAL.search(words.replace(texts[held[0]], " ")) else held[0]
        if held:
            return None
    return None


def _holds(words: str, choice: str) -> bool:
    return re.search(rf"(?<![\w.,-]){re.escape(choice)}(?![\w-]|[.,]\d)", words) is not None
