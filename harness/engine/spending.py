"""Sum the spending of a run on the rollouts in its journal and on abandoned rollouts that are not in its journal.
`engine.budget` enforces limits, and `engine.prices` computes prices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, cast

from harness.core.records import JUDGEMENTS
from harness.core.types import JsonDict, Usage
from harness.engine.derived import UNSCORED, Derivation
from harness.engine.prices import Pricing
from harness.store.journal import JournalReader, scan

Charge: TypeAlias = Callable[[Usage, Pricing, str], None]
"""Function that is called for each reply with its usage, its pricing and the model's name."""


@dataclass(slots=True)
class SpendTracker:
    """Tracker of one run's spending, which sums the usage of all replies and reports it to the budget."""

    pay: Charge
    check: Callable[[], None] | None = None
    """Raises `BudgetSpent` if the budget allows no further call; None without limits."""
    usage: Usage = field(default_factory=Usage)

    def charge(self, pricing: Pricing, model: str, usage: Usage) -> Usage:
        """Add the usage of one reply to the run and to the budget, and return the usage with its cost."""
        usage = pricing.priced(usage)
        if not pricing.is_free:
            self.usage += usage
        self.pay(usage, pricing, model)
        return usage


def given_up(paid: Usage, recorded: Iterator[tuple[Usage, bool]], earlier: JsonDict) -> JsonDict:
    """Sum the usage of replies that were paid for but are not in the journal, such as those of cancelled rollouts.

    Args:
        paid: Usage of all replies of this attempt at the run.
        recorded: Each usage in the journal, and whether it was free, as yielded by `spent_in`.
        earlier: Usage that earlier attempts paid for but did not record.

    Returns:
        A `Usage` as JSON; empty if nothing was lost.
    """
    held = sum((usage for usage, is_free in recorded if not is_free), Usage())
    if paid.requests <= held.requests:
        return earlier
    lost = {name: max(0, value - getattr(held, name)) for name, value in asdict(paid).items() if name != "cost"}
    cost = None if paid.cost is None else max(0.0, paid.cost - (held.cost or 0.0))
    return asdict(sum((usage for usage, _ in priced_usages([earlier])), Usage()) + Usage(**lost, cost=cost))


def spent_in(
    journal: Path,
    model: Pricing | None = None,
    judge: Pricing | None = None,
    *,
    derivation: Derivation | None = None,
    start: int = 0,
) -> Iterator[tuple[Usage, bool]]:
    """Yield the usage of every recorded attempt, including judge replies and retried attempts.

    Args:
        journal: Journal of the run.
        model: Pricing for records without a cost.
        judge: Pricing for judge replies without a cost.
        derivation: How the run is derived from a parent run, whose spending is excluded; None for an ordinary run.
        start: Include only lines that begin at this offset or later.

    Yields:
        Usage, and whether it was free.

    Raises:
        JournalDamaged: a line cannot be read.
        StoreError: the file cannot be read.
    """
    asked = derivation is None or derivation.asks_model
    played = asked or (derivation is not None and derivation.how == "replay")
    judged: dict[str, int] = {}
    """Number of judge replies in each rollout's `generated` line, by key. Score lines repeat these replies, but they
    are counted only once."""
    with ExitStack() as stack:
        taken = None
        if derivation is not None and derivation.only == UNSCORED:
            taken = stack.enter_context(JournalReader(derivation.recorded.path))
        for offset, _, line in scan(journal):
            kind, key, is_new = line.get("type"), str(line.get("key")), offset >= start
            if kind in ("generated", "failed"):
                judged.pop(key, None)
                yield from priced_usages([line.get("usage")] if asked and is_new else [], model)
            if kind == "generated":
                entries = _judgements(line.get("state"))
                yield from priced_usages(entries if played and is_new else [], judge)
                if entries:
                    judged[key] = len(entries)
            elif kind == "scored" and is_new:
                entries = _judgements(line.get("extra"))[judged.get(key, 0) :]
                if entries and not _is_taken_over(line, derivation, taken):
                    yield from priced_usages(entries, judge)


def _is_taken_over(line: JsonDict, derivation: Derivation | None, parent: JournalReader | None) -> bool:
    """Return whether a score in a rescored run's journal is an unchanged copy from the parent run."""
    if derivation is None or parent is None:
        return False
    offset = derivation.recorded.scored_at(str(line.get("key")))
    return offset is not None and parent.document(offset) == line


def priced_usages(usages: Sequence[object], pricing: Pricing | None = None) -> Iterator[tuple[Usage, bool]]:
    """Parse usages from JSON and add their cost; yields each usage with whether it was free."""
    for value in usages:
        try:
            usage = Usage(**cast("dict[str, Any]", value))
        except TypeError:  # an environment may store other values under the judges' name
            continue
        if usage.requests:
            yield (usage if pricing is None else pricing.priced(usage)), pricing is not None and pricing.is_free


def _judgements(held: object) -> list[object]:
    """Return the usage of each judge reply that is stored in the state of a journal line."""
    value = cast("dict[str, object]", held).get(JUDGEMENTS) if isinstance(held, dict) else None
    entries = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("dict[str, object]", each).get("usage") if isinstance(each, dict) else None for each in entries]
