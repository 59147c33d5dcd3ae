"""Budget of one invocation: limits on dollars, tokens and time. Parses limits from the command line and from the table
`[budget]` of a suite file, and merges them. The engine tracks the spending."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, cast

from harness.core.errors import ConfigError
from harness.settings.checks import NONE_WORD
from harness.settings.schema import SHORTCUT_BY_KEY
from harness.settings.sections import Place
from harness.settings.values import number
from harness.settings.wording import shown, suggestion, use_set

BUDGET = "budget"
"""Name of the table in a suite file, and first part of a `--set` path."""

Bound: TypeAlias = Literal["max_cost", "max_tokens_total", "max_time"]

BOUNDS: tuple[Bound, ...] = ("max_cost", "max_tokens_total", "max_time")

FLAGS: Mapping[Bound, str] = {bound: SHORTCUT_BY_KEY[bound].flag for bound in BOUNDS}

NO_RUN = "a budget applies to all runs of the file together: set it once, in a table [budget] at the top of the file"

_SPENT: Mapping[Bound, str] = {"max_cost": "cost", "max_tokens_total": "tokens", "max_time": "seconds"}
"""Name in a manifest of the amount spent, for each limit."""

_ROUNDED_UP = 1 + 1e-6
"""Tolerance, since a rounded sum of dollars may be slightly less than a limit that was reached."""

DOUBLE = 2
"""Factor by which the resume command raises a limit that was reached."""

_MOST = 1e15
"""Largest valid limit. TOML integers may be too large for a float."""

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)([smhd]))+")
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhd])")


@dataclass(frozen=True, slots=True)
class BudgetLimits:
    """Limits on the spending and time of one invocation; None means no limit."""

    max_cost: float | None = None
    """Maximum cost in US dollars."""
    max_tokens_total: int | None = None
    """Maximum number of input and output tokens together."""
    max_time: float | None = None
    """Maximum time in seconds."""
    sources: Mapping[Bound, str] = field(default_factory=dict[Bound, str])
    """Origin of each limit, for messages: an option such as `--max-cost 5`, or a file and key."""

    def __bool__(self) -> bool:
        """Return whether any limit is set."""
        return any(self.of(bound) is not None for bound in BOUNDS)

    @property
    def may_refuse(self) -> bool:
        """Whether the budget may refuse calls, because money or tokens are limited."""
        return self.max_cost is not None or self.max_tokens_total is not None

    def of(self, bound: Bound) -> float | None:
        """Return the limit with this name, such as `max_cost`; None means no limit."""
        return cast("float | None", getattr(self, bound))


@dataclass(frozen=True, slots=True)
class WrittenBound:
    """One limit that was set by an option, in a file or with `--set`."""

    value: float | None
    """The limit; None removes a limit."""
    source: str


Written: TypeAlias = dict[Bound, WrittenBound]


def read_flags(flags: Mapping[str, object], *, is_call: bool = False) -> Written:
    """Parse the limits among command-line values.

    Args:
        flags: Values by key, as typed; None for an option that was not given.
        is_call: Whether the values are arguments of a Python call; messages then spell them as `max_cost=5`.

    Raises:
        ConfigError: a value is not a valid limit.
    """
    found: Written = {}
    for bound in BOUNDS:
        value = flags.get(bound)
        if value is not None:
            where = f"{bound}={value}" if is_call else f"{FLAGS[bound]} {value}"
            found[bound] = WrittenBound(_READERS[bound](number(value), where), where)
    return found


def read_table(value: object, place: Place) -> Written:
    """Parse the table `[budget]` of a suite file.

    Raises:
        ConfigError: the value is not a table, or the table has an unknown key or an invalid limit.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError(f"{place.of(BUDGET)}: must be a table: [budget], with {', '.join(BOUNDS)}")
    found: Written = {}
    for key, item in cast("dict[str, object]", value).items():
        if key not in BOUNDS:
            raise ConfigError(f"{place.of(BUDGET, key)}: unknown key; {suggestion(key, BOUNDS)}")
        where = f"{place.of(BUDGET, key)} = {shown(item)}"
        found[key] = WrittenBound(None if item == NONE_WORD else _READERS[key](item, where), where)
    return found


def read_set(path: Sequence[str], value: str, where: str) -> Written:
    """Parse one `--set budget.max_cost=5`; the value `none` removes the limit.

    Args:
        path: Parts of the dotted path of `--set`.
        value: The value as typed.
        where: Beginning of messages, such as `--set budget.max_cost`.

    Raises:
        ConfigError: no limit has this name, or the value is invalid.
    """
    key = path[1] if len(path) == 2 else ""
    if key not in BOUNDS:
        raise ConfigError(f"{where}: unknown setting; {suggestion(key, [f'{BUDGET}.{bound}' for bound in BOUNDS])}")
    text = value.strip().strip("\"'")
    source = f"{where}={value}"
    return {key: WrittenBound(None if text == NONE_WORD else _READERS[key](number(text), source), source)}


def settle(flags: Written, file: Written, overrides: Sequence[Written]) -> tuple[BudgetLimits, list[str]]:
    """Determine each budget limit: a value of `--set` has precedence; otherwise the smaller of option and suite file
    applies.

    Returns:
        The limits, and a notice for each option without effect.
    """
    values: dict[Bound, float] = {}
    sources: dict[Bound, str] = {}
    notices: list[str] = []
    for bound in BOUNDS:
        chosen = next((each[bound] for each in reversed(overrides) if bound in each), None)
        if chosen is None:
            flag, filed = flags.get(bound), file.get(bound)
            chosen = _smaller(flag, filed)
            if flag is not None and filed is not None and chosen is filed and filed.value != flag.value:
                advice = use_set(f"{BUDGET}.{bound}", flag.source.partition(" ")[2])
                notices.append(f"{flag.source} has no effect: {filed.source} is smaller; {advice}")
        if chosen is not None and chosen.value is not None:
            values[bound], sources[bound] = chosen.value, chosen.source
    tokens = values.get("max_tokens_total")
    limits = BudgetLimits(
        values.get("max_cost"), None if tokens is None else int(tokens), values.get("max_time"), sources
    )
    return limits, notices


def flags_of(recorded: Mapping[str, object]) -> list[str]:
    """Return the options that repeat a recorded budget, with a larger amount for the limit that was reached.

    Args:
        recorded: Limits and amounts spent, as in a manifest's `budget`.
    """
    spent: object = recorded.get("spent")
    spent = cast("dict[str, object]", spent) if isinstance(spent, dict) else {}
    words: list[str] = []
    for bound in BOUNDS:
        limit, amount = _figure(recorded.get(bound)), _figure(spent.get(_SPENT[bound]))
        if limit > 0:
            grown = limit
            while bound == recorded.get("reached") != "max_time" and grown <= amount * _ROUNDED_UP:
                grown *= DOUBLE
            words += [FLAGS[bound], f"{grown:.6g}" if bound != "max_tokens_total" else str(int(grown))]
    return words


def _figure(value: object) -> float:
    """Return an amount from a manifest; 0 if it is invalid, since the file may have been edited."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= _MOST:
        return 0
    return value


def _smaller(flag: WrittenBound | None, filed: WrittenBound | None) -> WrittenBound | None:
    if flag is None or filed is None or filed.value is None:
        return flag or filed
    return flag if flag.value is not None and flag.value < filed.value else filed


def _cost(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _MOST:
        raise ConfigError(f"{where}: must be an amount of US dollars greater than 0, such as 2.50")
    return float(value)


def _tokens(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST:
        raise ConfigError(f"{where}: must be a whole number of tokens, at least 1")
    return value


def _time(value: object, where: str) -> float:
    seconds = math.nan
    if isinstance(value, int | float) and not isinstance(value, bool) and value <= _MOST:
        seconds = float(value)
    elif isinstance(value, str) and _DURATION.fullmatch(value.strip()):
        seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(value))
    if not 0 < seconds <= _MOST:
        raise ConfigError(f"{where}: must be a duration above 0: a number of seconds, or e.g. 90s, 30m, 1h30m or 2d")
    return seconds


_READERS: Mapping[str, Callable[[object, str], float]] = {
    "max_cost": _cost, "max_tokens_total": _tokens, "max_time": _time,
}  # fmt: skip
