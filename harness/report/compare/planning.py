"""Sample-size planning for a comparison of two models. Finds the smallest difference that a number of examples can
detect, and the cheapest design that detects a given difference. Formulas are in `stats.power`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from rich.text import Text

from harness.core.errors import UsageError
from harness.core.types import JsonDict
from harness.report import numerals
from harness.report.compare.sides import ComparedRun
from harness.report.layout import Column, grid, head, prose
from harness.report.text import clean
from harness.stats.paired import fewest_pairs
from harness.stats.power import Components, Split, components, components_of_one, detectable, splits
from harness.stats.summary import number

SHOWN = 5
"""Maximum number of designs in the table: the cheapest, and some whose rollouts per example are a power of two."""

ROUND = frozenset(1 << power for power in range(7))


@dataclass(frozen=True, slots=True)
class Question:
    """Parameters of a sample-size plan."""

    difference: float | None
    """Smallest difference to detect; None to report only the difference that the pilot's examples detect."""
    alpha: float = 0.05
    power: float = 0.8
    correlation: float = 0.0
    """Assumed correlation of two models' true scores over examples, used with only one pilot run."""
    most_examples: int | None = None


@dataclass(frozen=True, slots=True)
class SampleSizePlan:
    """Result of sample-size planning: the difference that the pilot can detect, and designs for the requested
    difference."""

    question: Question
    pilot: ComparedRun
    parts: Components
    examples: int
    """Examples of the pilot run."""
    rollouts: int
    """Rollouts per example of the pilot run."""
    clusters: int | None
    """Clusters of the pilot run's examples; None without clusters."""
    detectable: float
    """Smallest difference that the pilot's examples and rollouts can detect; NaN if they are too few for any."""
    ways: tuple[Split, ...]
    """Designs that detect the requested difference, cheapest first."""
    rollout_cost: float | None
    """Cost of one rollout in US dollars, for each of the two models. If None, the cost is unknown, and the design with
    the fewest rollouts counts as the cheapest."""


def plan(question: Question, pilot: ComparedRun, other: ComparedRun | None) -> SampleSizePlan:
    """Plan the sample size from one pilot run, or from two of the same examples.

    Raises:
        UsageError: too few examples have scores, both runs are the same, or the difference exceeds the possible range.
    """
    if other is not None and other.manifest.id == pilot.manifest.id:
        raise UsageError(f"--against {other.run.path}: this is the run of --from; give a run of another model")
    pilot.check_within_range("--mde", question.difference or 0.0)
    known = {key: cell.counted for key, cell in pilot.cells.items() if cell.counted}
    examples, rollouts, others = len(known), pilot.typical, pilot.typical
    owners = pilot.scores.clusters or {}
    if other is None:
        groups = list(known.values())
        parts = components_of_one(groups, question.correlation, [owners[key] for key in known] if owners else None)
        few = f"{pilot.run.path}: fewer than two examples have a score"
    else:
        theirs = {key: cell.counted for key, cell in other.cells.items() if cell.counted}
        both = [key for key in known if key in theirs]
        labels = [owners[key] for key in both] if owners else None
        parts = components([known[key] for key in both], [theirs[key] for key in both], labels)
        examples, others = len(both), other.typical
        few = f"{pilot.run.path} and {other.run.path} share fewer than two examples with a score"
    clusters = len({*owners.values()}) if owners else None
    if parts is None:
        few = few if clusters is None or clusters > 1 else f"{pilot.run.path}: all examples are in one cluster"
        raise UsageError(f"{few}, so the sample size cannot be planned")
    if not parts.variance(1):
        raise UsageError(
            f"{pilot.run.path}: every example has the same score, so it does not show how much scores vary; "
            "use a run of a model that is right only some of the time"
        )
    sides, cost = [pilot, pilot if other is None else other], None
    if all(side.usage.cost is not None and side.rollouts for side in sides):
        cost = sum((side.usage.cost or 0.0) / side.rollouts for side in sides)
    ways: list[Split] = []
    if question.difference is not None:
        ways = splits(
            parts, question.difference, rollout_cost=2.0 if cost is None else cost,
            most_examples=question.most_examples, alpha=question.alpha, power=question.power,
        )  # fmt: skip
    found = detectable(
        parts, examples, rollouts=rollouts, second_rollouts=others, alpha=question.alpha, power=question.power
    )
    # Skip designs with more rollouts and no fewer examples.
    fewest = {way.rollouts: way.examples for way in ways}
    worth = [way for way in ways if all(way.examples < n for k, n in fewest.items() if k < way.rollouts)]
    return SampleSizePlan(question, pilot, parts, examples, rollouts, clusters, found, tuple(worth), cost)


def plan_lines(planned: SampleSizePlan, width: int) -> Iterator[Text]:
    """The sample-size plan as lines for the terminal."""
    question = planned.question
    each = "one rollout each" if planned.rollouts == 1 else f"{planned.rollouts} rollouts each"
    words = f"{planned.examples:,} examples like those of {clean(planned.pilot.run.id)}, {each},"
    if math.isnan(planned.detectable):
        what = "" if planned.clusters is None else " clusters"
        words += f" are too few to tell two models apart: it takes {fewest_pairs(question.alpha)}{what} or more."
    else:
        words += f" find a difference of {numerals.score(planned.detectable)} or more between two models, "
        words += f"{numerals.percent(question.power)} of the time."
    yield from prose(words, width)
    if question.difference is not None:
        yield Text()
        yield from _ways(planned, question.difference, width)
    words = f"Two-sided test at the level {question.alpha:g}, the same examples for both models."
    if planned.clusters is not None:
        words += (
            f" Examples with the same {clean(planned.pilot.cluster_key)} are one cluster: "
            f"{numerals.counted(planned.clusters, 'cluster')} of {planned.parts.cluster_size:.3g} examples on average. "
            "Planned examples are in clusters of this size, so more of them are more clusters."
        )
    if planned.parts.assumed:
        words += f" Assumed: {planned.parts.assumed}."
    yield Text()
    yield from prose(words, width)


def _ways(planned: SampleSizePlan, difference: float, width: int) -> Iterator[Text]:
    if not planned.ways:
        most = planned.question.most_examples or 0
        words = (
            f"No number of rollouts of {numerals.count(most)} examples finds a difference of {difference:g}: they "
            "differ too much from one another. It takes more examples, or a larger difference."
        )
        if most < fewest_pairs(planned.question.alpha):
            words = f"{numerals.count(most)} examples are too few to tell two models apart."
        yield from prose(words, width)
        return
    cheapest, *others = planned.ways
    round_ones = [way for way in others if way.rollouts in ROUND][: SHOWN - 1]
    shown = [cheapest, *round_ones]
    yield head(f"To find a difference of {difference:g}, the cheapest first")
    columns = [
        Column("rollouts of each", [str(way.rollouts) for way in shown]),
        Column("in all, of both models", [numerals.count(2 * way.examples * way.rollouts) for way in shown]),
    ]
    if planned.rollout_cost is not None:
        columns.append(Column("cost", [numerals.dollars(way.cost) for way in shown]))
    yield from grid([numerals.count(way.examples) for way in shown], "examples", [columns], width)


def plan_json(planned: SampleSizePlan) -> JsonDict:
    """The sample-size plan as JSON, for `--json`."""
    question, parts = planned.question, planned.parts
    return {
        "schema_version": 1,
        "run": planned.pilot.run.id,
        "examples": planned.examples,
        "rollouts_per_example": planned.rollouts,
        "detectable": number(planned.detectable),
        "alpha": question.alpha,
        "power": question.power,
        "mde": question.difference,
        **(
            {}
            if planned.clusters is None
            else {
                "cluster_key": planned.pilot.cluster_key,
                "clusters": planned.clusters,
                "cluster_size": parts.cluster_size,
            }
        ),
        "components": {
            "omega2": parts.omega2, "first2": parts.first2, "second2": parts.second2, "assumed": parts.assumed,
        },
        "rollout_cost": planned.rollout_cost,
        "ways": [
            {
                "examples": way.examples,
                "rollouts_per_example": way.rollouts,
                "rollouts": 2 * way.examples * way.rollouts,
                "cost": None if planned.rollout_cost is None else way.cost,
                "detectable": way.detectable,
            }
            for way in planned.ways
        ],
    }  # fmt: skip
