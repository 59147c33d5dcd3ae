"""Evaluation of a query: columns with their types, and the function that decides whether an object matches.

A comparison with a missing value is false, even with `!=`; its negation is true. Text is compared ignoring case and
the kind and number of blanks. Numbers that differ by less than 1e-9 of the larger one (of 1 for smaller
numbers) are equal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeAlias, TypeVar, cast

from harness.settings.wording import nearest
from harness.store.codec import to_text
from harness.store.query import AllOf, Negation, Node, QueryError, Term, name_text, parse_query, shown_name, terms_of

T = TypeVar("T")

ColumnKind: TypeAlias = Literal["number", "text", "name", "choice", "any"]
"""Type of a column: a number; text, in which `:` searches; a name, which `:` compares as a whole; one word of a fixed
list; or any JSON value, which is compared according to its own type."""

ORDERINGS = ("<", "<=", ">", ">=")

SAME = 1e-9
"""Difference, relative to the larger number or to 1, below which numbers are equal: rounding errors."""

HAS, IS = "has", "is"
"""Names before `:` that are not columns. One tests whether a column has a value, the other whether a property holds."""


@dataclass(frozen=True, slots=True)
class QueryColumn(Generic[T]):
    """A column that queries can name."""

    name: str
    kind: ColumnKind
    read: Callable[[T], object]
    """Function that returns the value for an object: a number, a string, or a list of strings, any of which may match;
    None if missing."""
    doc: str = ""
    choices: tuple[str, ...] = ()
    """The possible values, for a column of kind `choice`."""


@dataclass(frozen=True, slots=True)
class QueryColumns(Generic[T]):
    """All names that a query may use."""

    columns: Mapping[str, QueryColumn[T]]
    families: Mapping[str, Callable[[str], QueryColumn[T] | None]] = field(
        default_factory=dict[str, Callable[[str], QueryColumn[T] | None]]
    )
    """By prefix, a function that returns the column `prefix.name` for a name, or None if there is no such column."""
    known: Sequence[str] = ()
    """Known column names of the form `prefix.name`, for suggestions."""
    flags: Mapping[str, Callable[[T], bool]] = field(default_factory=dict[str, Callable[[T], bool]])
    """Properties by name, for `is:NAME`."""
    synonyms: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names of columns by common alternative names, for suggestions."""
    grouped_as: Mapping[str, str] = field(default_factory=dict[str, str])
    """By name of a column, the column to sort and group by in its place."""

    def find(self, name: str) -> QueryColumn[T] | None:
        """The column with this name; None if there is no such column."""
        if name in self.columns:
            return self.columns[name]
        prefix, _, rest = name.partition(".")
        return self.families[prefix](rest) if rest and prefix in self.families else None

    def advice(self, name: str) -> str:
        """Text that suggests columns in place of an unknown name."""
        names = [*self.columns, *self.known]
        prefix, dot, rest = name.partition(".")
        if name.casefold() in self.synonyms:
            return f"did you mean {shown_name(self.synonyms[name.casefold()])}?"
        if dot and prefix in self.families:
            members = [each for each in self.known if each.startswith(f"{prefix}.")]
            near = nearest(rest, [each.removeprefix(f"{prefix}.") for each in members])
            if near:
                return f"did you mean {shown_name(f'{prefix}.{near}')}?"
            return (
                f"there is {', '.join(map(name_text, members))}"
                if members
                else f"the runs have no column {prefix}.NAME"
            )
        near = next((each for each in self.known if each.partition(".")[2] == name), None) or nearest(name, names)
        if near:
            return f"did you mean {shown_name(near)}?"
        return f"there are {', '.join([*self.columns, *(f'{prefix}.NAME' for prefix in self.families)])}"

    def column(self, name: str) -> QueryColumn[T]:
        """The column with a name that is given outside a query, as for sorting and grouping. The part of the name after
        the dot may be quoted as in a query.

        Raises:
            QueryError: there is no such column.
        """
        prefix, _, rest = name.partition(".")
        quoted = rest[:1] in ("'", '"') and rest[-1:] == rest[:1]
        found = self.find(name) or (self.find(f"{prefix}.{rest[1:-1]}") if quoted else None)
        if found is None:
            raise QueryError(f'there is no column "{name}"; {self.advice(name)}', name, 0, len(name))
        return self.columns[self.grouped_as[found.name]] if found.name in self.grouped_as else found


@dataclass(frozen=True, slots=True)
class Query(Generic[T]):
    """A parsed query whose names and values were checked against the columns."""

    text: str
    tree: Node
    matches: Callable[[T], bool]
    columns: tuple[QueryColumn[T], ...]
    """The columns that the query names, each once."""
    words: tuple[tuple[QueryColumn[T], str], ...]
    """Words that the query searches for outside negations, with their columns."""


def compile_query(text: str, columns: QueryColumns[T]) -> Query[T]:
    """Parse a query and check its names and values.

    Args:
        text: The query; a blank one matches everything.
        columns: The columns that the query may name.

    Raises:
        QueryError: the query is invalid, or has an unknown name or a value of the wrong type.
    """
    tree = parse_query(text)
    compiler = _Compiler(text, columns)
    matches = compiler.node(tree)
    named = {term.column: columns.find(term.column) for term in terms_of(tree)}
    used = tuple(column for column in named.values() if column is not None)
    words = tuple((column, term.value) for term in _asserted(tree) if (column := named[term.column]) is not None)
    return Query(text, tree, matches, used, words)


def _asserted(node: Node) -> Iterator[Term]:
    """Conditions outside negations that compare text."""
    if isinstance(node, Term):
        if node.operator == ":" and node.column not in (HAS, IS):
            yield node
    elif not isinstance(node, Negation):
        for part in node.parts:
            yield from _asserted(part)


def fold(text: str) -> str:
    """Normalize text as queries compare it: case-folded, with single blanks."""
    return " ".join(text.casefold().split())


def is_missing(value: object) -> bool:
    """Return whether a value counts as missing: None, an empty string or list, or a number that is not finite."""
    return value is None or value in ("", [], ()) or (isinstance(value, float) and not math.isfinite(value))


def finite_number(text: str) -> float | None:
    """Parse a string as a finite number; None if it is not one."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and "_" not in text else None


def compare_numbers(left: float, operator: str, right: float) -> bool:
    """Compare two finite numbers by an operator of the query language."""
    if abs(left - right) <= SAME * max(1.0, abs(left), abs(right)):
        return operator in (":", "=", "<=", ">=")
    return operator == "!=" or (operator in ("<", "<=") and left < right) or (operator in (">", ">=") and left > right)


class _Compiler(Generic[T]):
    """Builds the matching functions of one query's conditions."""

    def __init__(self, text: str, columns: QueryColumns[T]) -> None:
        self._text, self._columns = text, columns

    def node(self, node: Node) -> Callable[[T], bool]:
        if isinstance(node, Term):
            return self._term(node)
        if isinstance(node, Negation):
            inner = self.node(node.part)
            return lambda each: not inner(each)
        parts = [self.node(part) for part in node.parts]
        if isinstance(node, AllOf):
            return lambda each: all(part(each) for part in parts)
        return lambda each: any(part(each) for part in parts)

    def _term(self, term: Term) -> Callable[[T], bool]:
        column, columns = self._columns.find(term.column), self._columns
        if column is None and term.column in (HAS, IS):
            return self._property(term)
        if column is None:
            problem = f'there is no column "{term.column}"; {columns.advice(term.column)}'
            raise QueryError(problem, self._text, term.start, term.start + self._width(term))
        if not term.value.strip():
            problem = f"the value is empty; -has:{term.column} finds rollouts without a value"
            raise QueryError(problem, self._text, term.value_start, term.end)
        if column.kind == "number":
            return self._number(term, column)
        if term.operator in ORDERINGS and column.kind in ("text", "choice"):
            problem = f"{column.name} is a column of text: use :, = or != here, not {term.operator}"
            raise QueryError(problem, self._text, term.start, term.end)
        if column.kind == "choice" and fold(term.value) not in column.choices:
            near = nearest(term.value, column.choices)
            instead = f'did you mean "{near}"?' if near else f"it is one of {', '.join(column.choices)}"
            problem = f'{column.name} is never "{term.value}"; {instead}'
            raise QueryError(problem, self._text, term.value_start, term.end)
        test = self._test(term, column)
        return lambda each: not is_missing(value := column.read(each)) and test(value)

    def _width(self, term: Term) -> int:
        """Length of the column's name as written in the query."""
        written = self._text[term.start : term.value_start].rstrip()
        return max(1, len(written.removesuffix(term.operator).rstrip()))

    def _property(self, term: Term) -> Callable[[T], bool]:
        """Build the function for a condition `has:COLUMN` or `is:PROPERTY`."""
        if term.operator != ":":
            problem = f"{term.column} takes a colon: {term.column}:NAME"
            raise QueryError(problem, self._text, term.start, term.end)
        if term.column == IS:
            test = self._columns.flags.get(fold(term.value))
            if test is None:
                near = nearest(term.value, self._columns.flags)
                instead = f'did you mean "{near}"?' if near else f"there are {', '.join(self._columns.flags)}"
                problem = f'there is no property "{term.value}"; {instead}'
                raise QueryError(problem, self._text, term.value_start, term.end)
            return test
        column = self._columns.find(term.value)
        if column is None:
            problem = f'there is no column "{term.value}"; {self._columns.advice(term.value)}'
            raise QueryError(problem, self._text, term.value_start, term.end)
        return lambda each: not is_missing(column.read(each))

    def _wanted_number(self, term: Term) -> float:
        wanted = finite_number(term.value)
        if wanted is None:
            problem = f'{term.column}{term.operator} takes a finite number, not "{term.value}"'
            raise QueryError(problem, self._text, term.value_start, term.end)
        return wanted

    def _number(self, term: Term, column: QueryColumn[T]) -> Callable[[T], bool]:
        wanted, operator = self._wanted_number(term), term.operator

        def matches(each: T) -> bool:
            value = _number_of(column.read(each))
            return value is not None and compare_numbers(value, operator, wanted)

        return matches

    def _test(self, term: Term, column: QueryColumn[T]) -> Callable[[object], bool]:
        """Make a function that compares a value (not a missing one) of a column that may contain text."""
        operator, whole = term.operator, column.kind in ("name", "choice")
        if operator in ORDERINGS:
            limit = self._wanted_number(term)
            return lambda value: _any_number(value, operator, limit)
        wanted, number = fold(term.value), finite_number(term.value)

        def equals(part: object) -> bool:
            if isinstance(part, int | float) and not isinstance(part, bool) and number is not None:
                found = _number_of(part)
                return found is not None and compare_numbers(found, "=", number)
            text = fold(part if isinstance(part, str) else to_text(part))
            return (
                wanted == text if whole or operator != ":" or isinstance(part, bool | int | float) else wanted in text
            )

        if operator == "!=":
            return lambda value: not any(map(equals, _parts(value)))
        return lambda value: any(map(equals, _parts(value)))


def _parts(value: object) -> Sequence[object]:
    return cast("Sequence[object]", value) if isinstance(value, list | tuple) else (value,)


def _any_number(value: object, operator: str, limit: float) -> bool:
    numbers = (_number_of(part) for part in _parts(value))
    return any(number is not None and compare_numbers(number, operator, limit) for number in numbers)


def _number_of(value: object) -> float | None:
    """Convert a number, or a string that represents one, to a finite number; None for anything else."""
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        return finite_number(value)
    try:
        number = float(cast(float, value))
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
