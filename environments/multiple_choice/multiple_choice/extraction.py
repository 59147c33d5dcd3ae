"""Which choice a reply commits to, read strictly and read leniently. Owns both readings; knows no dataset and no score.

The rules, each against a way to be credited for a choice that was not made, or to be denied one that was:

- Thinking is no answer: only what follows the last `</think>` counts, and nothing of a `<think>` that never closes.
- Strict: the last line is `Answer: X` and nothing else, and no other line says so of another letter.
- Lenient: the last statement of the answer counts (`**Answer:** B`, `the answer is (B)`, `\\boxed{B}`, a line `(B)`);
  if there is none, the letter that labels choices (`option B`, a line that begins with `B)`), if it is always the same;
  if there is none of these either, the last line that holds the text of one choice and of no other.
- A letter in prose is nothing: `A` is an article and `I` a pronoun.
- What offers several letters (`A or B`, `B, C`) commits to none of them.
- A statement that its own clause denies (`I doubt the answer is A`), that asks (`the answer is A?`) or only
  supposes says nothing.
- A letter that is denied later (`not A`, `A is wrong`) is not meant any more. If it was the last one stated, what was
  stated before it does not come back: the reply is unclear.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

LETTERS = "ABCDEFGHIJ"

MAX_LENGTH = 20_000
"""Of a reply's end; answers stand there, and patterns take their time."""

NEAR = 300
"""How far a sentence is looked at on either side of a letter."""

_STRICT = re.compile(r"Answer: ([A-J])")
_MARKUP = re.compile(r"[*_`$]|\\(?:text|textbf|mathrm|mathbf|mathbb)(?![A-Za-z])|\\[()\[\]]")
_SPACES, _BLANK = re.compile(r"[^\S\n]+"), re.compile(r"\n[ \n]+")
"""Runs of whitespace say nothing, and patterns that begin with some would take quadratic time over them."""
_QUOTES = "\"'“”‘’"
_END = r"(?![A-Za-z0-9]|['’][A-Za-z])"
_LETTER = rf"[\[({{\s{_QUOTES}]*([A-J]){_END}[\])}}{_QUOTES}]*"
_NOUN = (
    r"(?:(?:answer|choice|option|solution|letter)(?:\s+(?:choice|option|letter))?|"
    r"(?:correct|right|best|true)\s+(?:statement|response|one))"
)
_OPTION = r"(?:(?i:option|choice|letter|answer)\s+)?"
_ALONE = r"(?=\s*(?:[.,;:!]|\n|\Z|(?:because|since|as|for|which|not|rather|instead)\b))"
"""What follows a letter that is no word of a sentence: `It's B.`, but not `It's B flat`."""
_ANSWERS = (
    re.compile(r"\\(?:boxed|fbox)\s*\{" + _LETTER),
    re.compile(r"<(?:final_)?answer>" + _LETTER, re.IGNORECASE),
    re.compile(
        rf"(?i:\b{_NOUN}[{_QUOTES}]?\s*(?:is|would be|must be|should be|has to be|:|=)\s*:?\s*"
        rf"(?:(?:option|choice|letter)\s)?)" + _LETTER
    ),
    re.compile(
        r"(?i:\bI(?:['’](?:ll|d)|\s+will|\s+would)?\s+(?:choose|pick|select|say|go\s+with)\s+)" + _OPTION + _LETTER
    ),
    re.compile(r"(?<![\w'’])[\[(]?([A-J])[\])]?(?=\s+is\s+(?:the\s+)?(?:correct|right|best)\b)"),
    re.compile(r"^\s*[\[({]?([A-J])[\])}]?[.:]?\s*$", re.MULTILINE),
    re.compile(
        r"^[^\w\n]{0,9}(?:(?:the|my)\s)?(?:(?:final|correct)\s)?answer\s*[:=]\s*[\[(]?([a-j])[\])]?[^\w\n]{0,9}$",
        re.MULTILINE | re.IGNORECASE,
    ),
    re.compile(r"(?i:\bit(?:['’]s|\s+(?:is|must\s+be|has\s+to\s+be)))\s+" + _OPTION + _LETTER + _ALONE),
    re.compile(r"(?i:\b(?:therefore|thus|hence|so)\b)[,:]?\s+" + _OPTION + _LETTER + _ALONE),
    re.compile(r"(?:^|(?<=[.!?;,])\s)\s*(?i:choose|select|pick)\s+" + _OPTION + _LETTER + _ALONE, re.MULTILINE),
)
"""Statements of the answer."""
_LABELS = (
    re.compile(r"(?i:\b(?:option|choice)\s+)" + _LETTER),
    re.compile(r"^\s*(?:[-•>]\s*)?[\[(]?([A-J])[\]).:]\s", re.MULTILINE),
)
"""Letters that only label a choice: an answer if there is no other and all say the same."""
_NOT_A_WORD = re.compile(
    r"\s+(?!(?:because|since|as|which|for|due|based|is|and|or|not|rather|instead|but|so|cannot|can['’]t|isn['’]t)\b)[a-z]"
)
"""After a letter that is also a word, `A dog` or `I think`."""
_MORE = re.compile(rf"\s*(?:,|/|&|\+|\bor\b|\band\b)\s*(?:(?i:option|choice)\s+)?[\[({_QUOTES}]*([A-J]){_END}")

_DENIAL = re.compile(
    r"(?i)\b(?:not|\w+n['’]t|cannot|never|neither|nor|except|wrong|incorrect|false|eliminate[sd]?|rule[sd]? out|unlike|"
    r"instead of|rather than|unsure|unlikely|hardly|mistake\w*|no way|(?<!no )(?<!without )doubt|tempting|"
    r"(?:might|may|could) (?:say|think|argue|guess)|at first|initially)\b"
)
"""What makes a statement in the same clause none."""
_DENIED = re.compile(
    r"(?i)(?:[ \t:]*(?:(?:is|was|can|would|could)\s+)?(?:also\s+|clearly\s+)?"
    r"(?:(?:not|cannot|(?:is|was|ca|could|would|wo)n['’]t)\b(?!\s+(?:wrong|incorrect|false)\b)|(?:wrong|incorrect|false)\b)|"
    r"[ \t:]*(?:is|was|can be)\s+(?:eliminated|ruled out|excluded)\b|"
    r",?\s*(?:which|but that|and that)\s+(?:is|was)\s+(?:not\b|wrong\b|incorrect\b|false\b))"
)
"""After a letter: it is denied."""
_OTHERS = rf"((?:[\s,/&]|\b(?:or|and|nor|not|option|choice)\b|[\[({_QUOTES}]*\b[A-J]{_END}[\])}}{_QUOTES}]*)*)"
_REJECTED = re.compile(
    r"(?i:\b(?:not|\w+n['’]t|cannot|never|neither|nor|eliminat\w+|exclud\w+|reject\w*|discard\w*|rul\w+\s+out|unlike|except|"
    r"instead\s+of|rather\s+than))\s+(?i:be\s+)?(?i:the\s+)?" + _OPTION + _LETTER + _OTHERS
)
"""Letters that are rejected by what stands before them: `not A`, `eliminate A and C`."""
_NAMED = re.compile(rf"(?<![A-Za-z0-9'’\\])([A-J]){_END}[\])}}{_QUOTES}]*")
_RETRACTED = re.compile(
    r"(?i)\b(?:that|this|it)(?:\s+(?:is|was|would\s+be)|['’]s)\s+(?:clearly\s+)?(?:wrong|incorrect|false|not\s+(?:right|correct|true))"
    r"\b(?!\s+(?:that|to|of|for)\b)|\b(?:scratch|strike)\s+that\b|\bI\s+was\s+(?:wrong|mistaken)\b|(?<=[.!?\n])\s*no(?=[.,!]|\s+wait)"
)
"""What takes back everything before it."""
_SENTENCE = re.compile(r"[.!?](?=\s)|\n")
_CLAUSE = re.compile(r"[,;—]|\s-\s|\b(?:so|therefore|thus|hence|but|however|yet|because|since)\b", re.IGNORECASE)
_ASKED = re.compile(r"[^\n.!?,;]{0,60}\?")
_SUPPOSED = re.compile(r"(?i)\s*(?:had|if|were)\b")


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
    said = _BLANK.sub(r"\n", _SPACES.sub(" ", _MARKUP.sub("", spoken(reply)[-MAX_LENGTH:])))
    answers = _marked(said, _ANSWERS, len(choices))
    if answers:
        left = _kept(said, answers)
        if max(answers) in left:
            return answers[max(answers)]
        if left:
            return None  # what was stated last is denied, and nothing says that what came before it counts again
        said = said[max(answers) + 1 :]
    labels = _marked(said, _LABELS, len(choices))
    named = {labels[place] for place in _kept(said, labels)}
    if named:
        return named.pop() if len(named) == 1 else None
    return None if answers else _by_text(said, choices)


def _marked(text: str, patterns: Sequence[re.Pattern[str]], count: int) -> dict[int, int | None]:
    """Where a letter is marked, and which; None where it is one of several. Denied ones are left out."""
    marks: dict[int, int | None] = {}
    for found in (found for pattern in patterns for found in pattern.finditer(text)):
        index, rest = LETTERS.index(found[1].upper()), text[found.end() : found.end() + NEAR]
        if index >= count or (found[1] in "AI" and _NOT_A_WORD.match(rest)):
            continue
        mark = text[found.start() : found.start(1)].lstrip()
        begin = found.start(1) - len(mark)
        sentence = _SENTENCE.split(text[max(0, begin - NEAR) : begin])[-1]
        clause = _REJECTED.sub(" ", _CLAUSE.split(sentence)[-1])  # what is said of other letters
        if _DENIAL.search(clause + mark) or _DENIED.match(rest) or _ASKED.match(rest):
            continue
        if "would" in mark and _SUPPOSED.match(sentence):
            continue
        marks[found.start(1)] = None if _MORE.match(rest) else index
    return marks


def _kept(text: str, marks: Mapping[int, int | None]) -> set[int]:
    """The places of the marks whose letter is not denied later on."""
    denied: dict[int, int] = {}
    for found in _REJECTED.finditer(text):
        if not (found[1] in "AI" and _NOT_A_WORD.match(text[found.end(1) : found.end(1) + NEAR])):
            for letter in (found[1], *re.findall(rf"\b([A-J]){_END}", found[2])):
                denied[LETTERS.index(letter)] = found.start()
    for found in _NAMED.finditer(text):
        if _DENIED.match(text[found.end() : found.end() + NEAR]):
            index = LETTERS.index(found[1])
            denied[index] = max(found.start(), denied.get(index, 0))
    back = max((found.start() for found in _RETRACTED.finditer(text)), default=-1)
    return {
        place for place, index in marks.items() if place > max(back, -1 if index is None else denied.get(index, -1))
    }


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
