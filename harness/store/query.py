"""Query language that selects rollouts: parser, syntax tree, and the text of a tree. `query_match` evaluates a tree.

    query     = any
    any       = all ("or" all)*
    all       = condition (["and"] condition)*
    condition = ("-" | "not") condition | "(" any ")" | term | text
    term      = NAME (":" | "=" | "==" | "!=" | "<" | "<=" | ">" | ">=") (WORD | QUOTED)
    text      = WORD | QUOTED                 the same as text:WORD

Text is quoted with " or '; inside it, a quote or a backslash is escaped by a backslash. In a name, parts after a dot
may be quoted: `metric."two words"`."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from harness.core.errors import UsageError
from harness.core.messages import Labels
from harness.core.safe_text import OBEYED

TEXT = "text"
"""Column in which a word is searched for if the query names no column."""

DEEPEST = 50
"""Maximum nesting of parentheses and negations."""

LONGEST = 10_000
"""Maximum length of a query in characters."""

_OPERATOR = re.compile(r":|!=|<=|>=|<|>|==?")
_KEYWORD = re.compile(r"(and|or|not)(?=[\s()\"']|$)(?!\s*(?::|!=|<|>|=))", re.IGNORECASE)
_FOREIGN = {"&": "and", "&&": "and", "|": "or", "||": "or", "!": "not"}
"""Signs of other query languages, and the keyword for each."""

_SIMPLE = re.compile(r"[^\s()\"'\\=][^\s()\\]*")
"""Pattern of a value that needs no quotes."""

_PLAIN_NAME = re.compile(r"[\w./-]+")
"""Pattern of a part of a name, after the first dot, that needs no quotes."""

_QUOTES = ('"', "'")

_SHOWN = 60
"""Maximum number of characters of the query that a message shows on either side of an error."""


class QueryError(UsageError):
    """An invalid query. The message shows the query with carets below the mistake.

    Args:
        problem: The problem, in one sentence.
        query: The query.
        start: Position of the first wrong character; the length of the query if something is missing at its end.
        end: Position after the last wrong character.
    """

    def __init__(self, problem: str, query: str, start: int, end: int | None = None) -> None:
        super().__init__(problem)
        self.query = query
        self.start = max(0, min(start, len(query)))
        self.end = max(self.start, min(self.start + 1 if end is None else end, len(query)))

    def text(self, labels: Labels) -> str:
        """The message, the query, and the carets."""
        return "\n".join((super().text(labels), *pointer(self.query, self.start, self.end)))


@dataclass(frozen=True, slots=True)
class Term:
    """One condition: column, operator and value."""

    column: str
    operator: str
    value: str
    start: int = field(default=0, compare=False)
    """Position of the column in the query."""
    value_start: int = field(default=0, compare=False)
    end: int = field(default=0, compare=False)
    """Position after the end of the value."""


@dataclass(frozen=True, slots=True)
class Negation:
    """Condition that matches where its part does not match."""

    part: Node


@dataclass(frozen=True, slots=True)
class AllOf:
    """Condition that matches where all its parts match; without parts, it always matches."""

    parts: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Condition that matches where at least one of its parts matches."""

    parts: tuple[Node, ...]


Node: TypeAlias = Term | Negation | AllOf | AnyOf


def parse_query(text: str) -> Node:
    """Parse a query. A blank query selects everything.

    Raises:
        QueryError: the text is not a valid query.
    """
    if len(text) > LONGEST:
        raise QueryError(f"the query has more than {LONGEST:,} characters", text, LONGEST)
    return _Parser(text).query() if text.strip() else AllOf()


def query_text(node: Node) -> str:
    """Convert a syntax tree back to the text of a query; `parse_query` converts the text to an equal tree."""
    if isinstance(node, Term):
        return f"{name_text(node.column)}{node.operator}{_quoted(node.value)}"
    if isinstance(node, Negation):
        return f"-{_grouped(node.part)}"
    return (" or " if isinstance(node, AnyOf) else " ").join(map(_grouped, node.parts))


def terms_of(node: Node) -> Iterator[Term]:
    """All single conditions in a syntax tree, from left to right."""
    if isinstance(node, Term):
        yield node
    elif isinstance(node, Negation):
        yield from terms_of(node.part)
    else:
        for part in node.parts:
            yield from terms_of(part)


def _grouped(node: Node) -> str:
    return f"({query_text(node)})" if isinstance(node, AllOf | AnyOf) else query_text(node)


def _quoted(value: str) -> str:
    if _SIMPLE.fullmatch(value):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def name_text(name: str) -> str:
    """Format the name of a column as a query spells it."""
    head, dot, rest = name.partition(".")
    if not dot or _PLAIN_NAME.fullmatch(rest):
        return name
    return f"{head}." + '"' + rest.replace("\\", "\\\\").replace('"', '\\"') + '"'


def shown_name(name: str) -> str:
    """Format the name of a column for a message: in quotes, or as a query spells it if that has quotes of its own."""
    text = name_text(name)
    return text if '"' in text else f'"{text}"'


def pointer(query: str, start: int, end: int) -> Sequence[str]:
    """Two indented lines: the query, cut around the mistake if it is long, and carets below the mistake.

    Args:
        query: The query.
        start: Position of the first wrong character.
        end: Position behind the last one.
    """
    first, last = max(0, start - _SHOWN), min(len(query), max(start, min(end, start + _SHOWN)) + _SHOWN)
    before, wrong, after = (
        OBEYED.sub("\ufffd", re.sub(r"\s", " ", part))
        for part in (query[first:start], query[start : min(end, last)], query[min(end, last) : last])
    )
    left, right = "…" if first else "", "…" if last < len(query) else ""
    shown = f"  {left}{before}{wrong}{after}{right}"
    return shown.rstrip(), "  " + " " * _cells(left + before) + "^" * max(1, _cells(wrong))


def _cells(text: str) -> int:
    """Width of text in a terminal, in character cells."""
    return sum(
        0
        if unicodedata.category(char) in ("Mn", "Me", "Cf")
        else 2
        if unicodedata.east_asian_width(char) in "WF"
        else 1
        for char in text
    )


class _Parser:
    """Parser of one query by recursive descent."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def query(self) -> Node:
        """Parse the whole text."""
        node = self._any(0)
        if self._at < len(self._text):
            raise QueryError('")" has no "(" before it', self._text, self._at)
        return node

    def _any(self, depth: int) -> Node:
        parts = [self._all(depth)]
        while self._keyword("or"):
            parts.append(self._all(depth))
        return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))

    def _all(self, depth: int) -> Node:
        parts: list[Node] = []
        is_open = True
        while self._more() and self._peek() != "or":
            if self._peek() == "and":
                if is_open:
                    break
                self._keyword("and")
                is_open = True
                continue
            parts.append(self._condition(depth))
            is_open = False
        if is_open:
            found = f", not {self._text[self._at : self._at + 10].split()[0]!r}" if self._at < len(self._text) else ""
            raise QueryError(f"a condition such as reward<1 is expected here{found}", self._text, self._at)
        return parts[0] if len(parts) == 1 else AllOf(tuple(parts))

    def _condition(self, depth: int) -> Node:
        start = self._at
        if depth >= DEEPEST:
            raise QueryError(f"more than {DEEPEST} parentheses and negations are nested", self._text, start)
        if self._text[start] == "-" or self._peek() == "not":
            self._at += 1 if self._text[start] == "-" else len("not")
            if not self._more():
                raise QueryError("a condition is expected after the negation", self._text, start, self._at)
            if (word := self._peek()) in ("and", "or"):
                raise QueryError(
                    f"a condition is expected here, not {word!r}", self._text, self._at, self._at + len(word)
                )
            return Negation(self._condition(depth + 1))
        if self._text[start] == "(":
            self._at += 1
            node = self._any(depth + 1)
            if self._at >= len(self._text):
                raise QueryError('"(" has no ")" after it', self._text, start)
            self._at += 1
            return node
        return self._term(start)

    def _term(self, start: int) -> Term:
        text = self._text
        if text[start] in _QUOTES:
            return Term(TEXT, ":", self._quoted(), start, start, self._at)
        if _OPERATOR.match(text, start):
            raise QueryError("a column is expected before the operator", text, start)
        name = self._name()
        end = self._at
        self._blanks()
        operator = _OPERATOR.match(text, self._at)
        if operator is None:
            if word := _FOREIGN.get(text[start:end]):
                raise QueryError(f"write {word}, or quotes around a text to search for", text, start, end)
            self._at = end
            return Term(TEXT, ":", text[start:end], start, start, end)
        self._at = operator.end()
        self._blanks()
        value_start = self._at
        sign = "=" if operator[0] == "==" else operator[0]
        value = self._value(name, sign)
        return Term(name, sign, value, start, value_start, self._at)

    def _name(self) -> str:
        """Read the name of a column, or a keyword that needs none."""
        text, parts = self._text, list[str]()
        while self._at < len(text) and not text[self._at].isspace() and text[self._at] not in "()":
            if _OPERATOR.match(text, self._at):
                break
            if parts and parts[-1].endswith(".") and text[self._at] in _QUOTES:
                parts.append(self._quoted(in_name=True))
                continue
            parts.append(text[self._at])
            self._at += 1
        return "".join(parts)

    def _value(self, name: str, operator: str) -> str:
        text, start, depth = self._text, self._at, 0
        if start < len(text) and text[start] in _QUOTES:
            return self._quoted()
        if start >= len(text) or text[start] in "()":
            problem = f"a value is expected after {name}{operator}"
            if start < len(text) and text[start] == "(":
                problem += "; quote a text that begins with a parenthesis"
            raise QueryError(problem, text, start)
        while self._at < len(text) and not text[self._at].isspace():
            depth += {"(": 1, ")": -1}.get(text[self._at], 0)
            if depth < 0:
                break
            self._at += 1
        return text[start : self._at]

    def _quoted(self, *, in_name: bool = False) -> str:
        text, start, quote = self._text, self._at, self._text[self._at]
        parts: list[str] = []
        self._at += 1
        while self._at < len(text) and text[self._at] != quote:
            if text[self._at] == "\\" and text[self._at + 1 : self._at + 2] in ('"', "'", "\\"):
                self._at += 1
            parts.append(text[self._at])
            self._at += 1
        if self._at >= len(text):
            raise QueryError("the quote is not closed", text, start, len(text))
        self._at += 1
        if not in_name and self._at < len(text) and not text[self._at].isspace() and text[self._at] != ")":
            raise QueryError("a space is expected after the closing quote", text, self._at)
        return "".join(parts)

    def _blanks(self) -> None:
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1

    def _more(self) -> bool:
        """Skip blanks, and return whether a condition or a keyword follows."""
        self._blanks()
        return self._at < len(self._text) and self._text[self._at] != ")"

    def _peek(self) -> str:
        """The keyword at the current position; "" if there is none."""
        found = _KEYWORD.match(self._text, self._at)
        return found[1].lower() if found else ""

    def _keyword(self, word: str) -> bool:
        """Read a keyword if it follows, and return whether it did."""
        self._blanks()
        found = self._peek() == word
        self._at += len(word) if found else 0
        return found
