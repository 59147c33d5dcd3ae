"""Reading of replies: what of one is shown to the judge, and how the reference judge compares two short answers, as
texts without what spelling alone decides. Owns no verdict of a real judge, which understands what it reads."""

from __future__ import annotations

import re
import unicodedata

_DECLINED = frozenset({"", "unknown", "not sure", "no idea"})
_NOT_KNOWING = re.compile(r"(i )?(am sorry |sorry )?(i )?(do not|dont|cannot|cant) (know|say|answer|tell)")
_ARTICLES = re.compile(r"^(the|a|an) ")


def without_thinking(text: str) -> str:
    """What a reply says in the end: what follows the last `</think>`, without a `<think>` that never closes."""
    return text.rpartition("</think>")[2].partition("<think>")[0].strip()


def normal(text: str) -> str:
    """Lower case, letters and digits in single spaces, no accents and no leading article."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(c))
    words = re.sub(r"[^\w\s]|_", " ", re.sub(r"(?<=\d),(?=\d{3})|['’]", "", plain))
    return _ARTICLES.sub("", " ".join(words.split()))


def is_same(response: str, answer: str) -> bool:
    """Whether both say the same, as texts."""
    return normal(response) == normal(answer)


def is_declined(response: str) -> bool:
    """Whether a response gives no answer at all."""
    said = normal(response)
    return said in _DECLINED or _NOT_KNOWING.match(said) is not None
