"""Figures of `bench judge check`: agreement of a judge with people, its bias as a whole and by kind of rollout."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.core.types import JsonDict
from harness.report import numerals
from harness.report.labels import LabelledRollout, LabelledRun, corrected_json, estimate_json
from harness.report.rollout_columns import RunRollout
from harness.report.text import clean
from harness.stats.hypotheses import holm, p_of_interval
from harness.stats.intervals import ALPHA, Estimate
from harness.stats.labels import Corrected, labelled_mean, weighted_kappa
from harness.stats.summary import Summary, number, usage_json
from harness.store.query import QueryError
from harness.store.query_match import QueryColumn

LENGTH = "length"
"""Kind of rollouts: characters of the last message."""

PARTS = 3
"""Number of groups of about equal size into which rollouts are divided by numbers."""

FEW_VALUES = 6
"""Maximum number of different numbers that are groups of their own."""

MOST_GROUPS = 20
"""Maximum number of groups of a kind; those with the fewest labels, or with only one, are joined."""

OTHERS = "others"


@dataclass(frozen=True, slots=True)
class Group:
    """Bias of the judge on one kind of rollouts."""

    kind: str
    value: str
    labels: int
    agreement: Estimate
    bias: Estimate
    """Score minus label: above 0 if the judge is too mild."""
    judge: float
    people: float
    p_value: float | None = None
    """Adjusted for all groups (Holm)."""

    @property
    def words(self) -> str:
        """Direction of a bias that is more than noise; else ""."""
        return direction(self.bias) if self.p_value is not None and self.p_value < ALPHA else ""


@dataclass(frozen=True, slots=True)
class Checked:
    """All that `bench judge check` says."""

    runs: list[tuple[LabelledRun, Corrected, Summary]]
    table: Counter[tuple[bool, bool]]
    """Number of labelled rollouts by (whether the judge passes it, whether people do)."""
    tied: int
    agreement: Estimate
    kappa: Estimate
    bias: Estimate
    groups: list[Group]


def direction(bias: Estimate) -> str:
    """Direction of a bias whose interval leaves 0 out; else ""."""
    if bias.low is None or bias.high is None or bias.low <= 0 <= bias.high:
        return ""
    return "too mild" if bias.low > 0 else "too strict"


def kinds_of(columns: Mapping[str, QueryColumn[RunRollout]]) -> Callable[[RunRollout], Mapping[str, object]]:
    """Make a function that reads the kinds of a rollout.

    Args:
        columns: Columns by the name of the kind, besides the length of the reply.
    """

    def read(rollout: RunRollout) -> Mapping[str, object]:
        return {LENGTH: len(rollout.reply), **{name: column.read(rollout) for name, column in columns.items()}}

    return read


def check_runs(runs: Sequence[tuple[LabelledRun, Summary]], kinds: Sequence[str], default: Sequence[str]) -> Checked:
    """Compare the scores of runs with labels.

    Args:
        runs: The runs, each with labels.
        kinds: Kinds by which bias is shown.
        default: Further kinds, shown if their rollouts have more than one value.
    """
    rows = [(run, each) for run, _ in runs for each in run.labelled]
    table = Counter((each.score >= run.threshold, _passes(run, each)) for run, each in rows if not each.is_tied)
    groups: list[Group] = []
    for kind in dict.fromkeys([*kinds, *default]):
        found = _divided(rows, kind)
        if kind in kinds or len(found) > 1:
            groups += [_group(kind, value, members) for value, members in found]
    p_values = holm([p_of_interval(group.bias) for group in groups])
    groups = [replace(group, p_value=p_value) for group, p_value in zip(groups, p_values, strict=True)]
    sides = [(run, each) for run, each in rows if not each.is_tied]
    return Checked(
        [(run, run.corrected, summary) for run, summary in runs],
        table,
        len(rows) - len(sides),
        _agreement(rows),
        weighted_kappa(
            [each.score >= run.threshold for run, each in sides],
            [_passes(run, each) for run, each in sides],
            [each.weight for _, each in sides],
            [each.cluster for _, each in sides],
        ),
        _bias(rows),
        groups,
    )


_Rows = Sequence[tuple[LabelledRun, LabelledRollout]]


def _passes(run: LabelledRun, each: LabelledRollout) -> bool:
    return each.label is not None and each.label >= run.threshold


def _agreement(rows: _Rows) -> Estimate:
    """Share of rollouts that the judge and people both pass, or both fail; without those on which people are tied."""
    kept = [(run, each) for run, each in rows if not each.is_tied]
    values = [float((each.score >= run.threshold) == _passes(run, each)) for run, each in kept]
    return labelled_mean(values, *_weights(kept), limits=(0.0, 1.0))


def _bias(rows: _Rows) -> Estimate:
    widths = [None if run.limits is None else run.limits[1] - run.limits[0] for run, _ in rows]
    known = [width for width in widths if width is not None]
    widest = max(known) if known and len(known) == len(widths) else None
    values = [each.score - (each.label or 0.0) for _, each in rows]
    return labelled_mean(values, *_weights(rows), limits=None if widest is None else (-widest, widest))


def _weights(rows: _Rows) -> tuple[list[float], list[str]]:
    return [each.weight for _, each in rows], [each.cluster for _, each in rows]


def _group(kind: str, value: str, rows: _Rows) -> Group:
    total = sum(each.weight for _, each in rows)
    judge, people = (
        sum(each.weight * (side or 0.0) for (_, each), side in zip(rows, sides, strict=True)) / total
        for sides in ([each.score for _, each in rows], [each.label for _, each in rows])
    )
    return Group(kind, value, len(rows), _agreement(rows), _bias(rows), judge, people)


def _divided(rows: _Rows, kind: str) -> list[tuple[str, _Rows]]:
    """Divide rollouts by a kind: by its values, or a number into parts of about equal size."""
    values = [each.kinds.get(kind) for _, each in rows]
    numbers = [float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    if len({*numbers}) > FEW_VALUES and len(numbers) == sum(v is not None for v in values):
        ordered = sorted(numbers)
        ends = sorted({ordered[len(ordered) * n // PARTS - 1] for n in range(1, PARTS)} | {ordered[-1]})
        names = [f"up to {end:,.4g}" for end in ends[:-1]]
        names.append(f"over {ends[-2]:,.4g}" if len(ends) > 1 else f"up to {ends[0]:,.4g}")

        def name(value: object) -> str:
            if not isinstance(value, int | float):
                return numerals.NONE
            return names[next(n for n, end in enumerate(ends) if value <= end)]

        order = [*names, numerals.NONE]
    else:
        name, order = _text, []
    found: dict[str, list[tuple[LabelledRun, LabelledRollout]]] = {each: [] for each in order}
    for row, value in zip(rows, values, strict=True):
        found.setdefault(name(value), []).append(row)
    listed = [(value, members) for value, members in found.items() if members]
    if not order:
        listed.sort(key=lambda pair: -len(pair[1]))
        shown = min(MOST_GROUPS, sum(len(members) > 1 for _, members in listed))
        if len(listed) > shown + 1:  # a group of one says nothing
            rest = [row for _, members in listed[shown:] for row in members]
            listed = [*listed[:shown], (OTHERS, rest)]
    return list(listed)


def _text(value: object) -> str:
    if value is None or value == "":
        return numerals.NONE
    if isinstance(value, list | tuple):
        return clean(", ".join(map(str, value)), 60) or numerals.NONE  # pyright: ignore[reportUnknownArgumentType]
    return clean(value, 60)


def column_of(name: str, find: Callable[[str], QueryColumn[RunRollout]]) -> QueryColumn[RunRollout]:
    """The column of a kind: a column of queries, or else a key of the examples' `info`.

    Raises:
        QueryError: there is no such column.
    """
    try:
        return find(name)
    except QueryError:
        if "." in name:
            raise
        return find(f"info.{name}")


def checked_json(checked: Checked) -> JsonDict:
    """The figures as JSON; the keys are documented in docs/reference/judges.md."""
    return {
        "schema_version": 1,
        "runs": [_run_json(*each) for each in checked.runs],
        "agreement": estimate_json(checked.agreement),
        "kappa": estimate_json(checked.kappa),
        "bias": {**estimate_json(checked.bias), "direction": direction(checked.bias)},
        "table": [
            {"judge": ours, "people": theirs, "rollouts": checked.table[ours, theirs]}
            for ours in (True, False)
            for theirs in (True, False)
        ],
        "tied": checked.tied,
        "kinds": [
            {
                "kind": group.kind, "value": group.value, "labels": group.labels, "judge": number(group.judge),
                "people": number(group.people), "agreement": estimate_json(group.agreement),
                "bias": estimate_json(group.bias), "p_adjusted": group.p_value, "direction": group.words,
            }
            for group in checked.groups
        ],
    }  # fmt: skip


def _run_json(run: LabelledRun, corrected: Corrected, summary: Summary) -> JsonDict:
    alpha, several = run.alpha
    usage = summary.judge_usage
    return {
        "run": run.run.id,
        "model": run.manifest.model,
        "env_id": run.manifest.env_id,
        "measure": run.measure,
        "scored": len(run.rollouts),
        "labels": corrected.labels,
        "people": run.people,
        "alpha": number(alpha),
        "labelled_by_several": several,
        "drawn": run.is_drawn,
        "mean": estimate_json(plain_mean(run, summary)),
        "corrected": corrected_json(corrected),
        "cautions": run.cautions(corrected),
        "judge_usage": None if usage is None else {**usage_json(usage), "unpriced": summary.judge_unpriced},
    }


def plain_mean(run: LabelledRun, summary: Summary) -> Estimate:
    """The mean score as it stands in tables."""
    if run.measure == "reward":
        return summary.reward.estimate
    found = summary.metrics.get(run.measure)
    return Estimate() if found is None else found.estimate
