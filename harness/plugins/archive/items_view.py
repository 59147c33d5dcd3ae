"""The output of `bench items`: lines for a terminal, JSON, CSV, and the suite file of a subset."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from harness.core.errors import UsageError
from harness.core.redact import REDACTED, redactor
from harness.core.types import JsonDict
from harness.plugins.archive.items_table import ItemTable, Subset
from harness.report import numerals
from harness.report.layout import Column, head, prose, table_lines
from harness.report.text import clean
from harness.store.export_plain import defused
from harness.store.values import table

if TYPE_CHECKING:
    from harness.stats.arrays import Floats

BARS = 10
_BAR_WIDTH = 30
LEVEL = 0.05
"""Level of significance, and of false discoveries."""

COLUMNS = (
    "example_id", "example_key", "models", "rollouts", "mean", "low", "high", "discrimination", "p_negative",
    "p_adjusted", "within_variance", "expected_variance", "solved_by_all", "solved_by_none", "in_subset", "text",
)  # fmt: skip


def item_lines(items: ItemTable, subset: Subset, notes: Sequence[str], top: int, width: int) -> Iterator[Text]:
    """Format the statistics as lines.

    Args:
        items: The scores.
        subset: The subset to recommend.
        notes: Sentences about runs that are left out.
        top: Maximum number of examples in each list.
        width: Width of a line in cells.
    """
    names = dict.fromkeys(run.manifest.env_id for run in items.runs)
    counts = f"{numerals.counted(len(items.models), 'model')}, {numerals.counted(len(items.keys), 'example')}"
    rollouts = numerals.counted(int(items.counts.sum()), "scored rollout")
    yield from prose(f"{clean(', '.join(names), 200)} · {items.measure}: {counts}, {rollouts}", width, "bold")
    yield from _models(items, width)
    yield from _difficulty(items, width)
    yield from _solved(items, top, width)
    yield from _suspects(items, top, width)
    yield from _flaky(items, top, width)
    yield from _subset_lines(items, subset, width)
    if notes:
        yield Text()
    for note in notes:
        yield from prose(f"note: {note}", width)


def _models(items: ItemTable, width: int) -> Iterator[Text]:
    estimates = [items.model_estimate(place) for place in range(len(items.models))]
    runs = [sum(run.manifest.model == model for run in items.runs) for model in items.models]
    yield from table_lines(
        [
            Column("model", [clean(model, 200) for model in items.models], True, shrink="middle", least=12),
            Column("mean", [numerals.score(each.mean) for each in estimates]),
            Column("95 % interval", [numerals.interval(each) for each in estimates]),
            Column("examples", [numerals.count(len(cells)) for cells in items.cells]),
            Column("rollouts", [numerals.count(sum(map(len, cells.values()))) for cells in items.cells]),
            Column("runs", [str(number) for number in runs]),
        ],
        width,
    )


def _difficulty(items: ItemTable, width: int) -> Iterator[Text]:
    """Histogram of the examples' means over models."""
    low, high = items.limits
    if high <= low:
        return
    counts = [0] * BARS
    for each in items.estimates:
        counts[min(BARS - 1, int(BARS * ((each.mean or 0.0) - low) / (high - low)))] += 1
    step = (high - low) / BARS
    ends = [f"{low + step * place:.3g} to {low + step * (place + 1):.3g}" for place in range(BARS)]
    yield from (Text(), head("Difficulty: mean of an example over models"))
    yield from table_lines(
        [
            Column("mean", ends),
            Column("examples", [numerals.count(count) for count in counts]),
            Column("", ["━" * math.ceil(_BAR_WIDTH * count / max(counts)) for count in counts], True),
        ],
        width,
    )


def _solved(items: ItemTable, top: int, width: int) -> Iterator[Text]:
    yield Text()
    for words, which in zip(("every model in every rollout", "no model in any rollout"), items.solved, strict=True):
        places = [int(place) for place in which.nonzero()[0]]
        listed = ", ".join(clean(items.name(place), 60) for place in places[:top])
        more = f" and {numerals.count(len(places) - top)} more" if len(places) > top else ""
        count = numerals.counted(len(places), "example is", "examples are")
        yield from prose(f"{count} solved by {words}{': ' if listed else ''}{listed}{more}.", width)


def _examples(items: ItemTable, places: Sequence[int], more: Sequence[Column], width: int) -> Iterator[Text]:
    """Table of some examples."""
    estimates = [items.estimates[place] for place in places]
    yield from table_lines(
        [
            Column("example", [clean(items.name(place), 60) for place in places], True, shrink="middle", least=8),
            Column("mean", [numerals.score(each.mean) for each in estimates]),
            *more,
            Column("text", [items.texts[items.keys[place]].text for place in places], True, shrink="end", least=12),
        ],
        width,
    )


def _suspects(items: ItemTable, top: int, width: int) -> Iterator[Text]:
    found = items.discrimination
    yield from (Text(), head("Likely wrong labels: weak models pass, strong models fail"))
    tested = sum(1 for p in found.p_negative if not math.isnan(p))
    if not tested:
        yield from prose("Unknown: it takes 3 models or more that differ on an example.", width)
        return
    order = [int(place) for place in found.p_negative.argsort(kind="stable")[:tested]]
    order.sort(key=lambda place: (found.p_negative[place], found.correlation[place]))
    sure = [place for place in order if found.adjusted[place] <= LEVEL]
    below = sum(1 for place in order if found.p_negative[place] <= LEVEL)
    by_chance = LEVEL * tested
    words = (
        f"{numerals.counted(len(sure), 'example is', 'examples are')} negatively related to the rest, with at most "
        f"5 % false finds expected among them (Benjamini–Hochberg over {numerals.count(tested)} examples). "
        f"p is at most 0.05 for {numerals.count(below)}, and by chance it would be for up to {by_chance:.0f}."
    )
    if not sure and tested / math.comb(len(items.models), len(items.models) // 2) > LEVEL:
        words += (
            f" With {len(items.models)} models hardly any pattern of passes is unlikely enough for a sure find: "
            "take the list as a reading list, or add models."
        )
    yield from prose(words, width)
    shown = [place for place in order if found.correlation[place] < 0][: max(top, len(sure)) if top else 0]
    columns = [
        Column("discrimination", [numerals.signed(float(found.correlation[place]), 2) for place in shown]),
        Column("p", [numerals.p_value(float(found.p_negative[place])) for place in shown]),
        Column("adjusted", [numerals.p_value(float(found.adjusted[place])) for place in shown]),
    ]
    if shown:
        yield from _examples(items, shown, columns, width)


def _flaky(items: ItemTable, top: int, width: int) -> Iterator[Text]:
    import numpy as np

    yield from (Text(), head("Flaky: a model's own answers differ more than on examples of this difficulty"))
    excess = items.flakiness.excess
    if np.isnan(excess).all():
        yield from prose("Unknown: every model has one rollout of each example; more come with -r.", width)
        return
    order = np.argsort(-np.nan_to_num(excess, nan=-np.inf), kind="stable")
    shown = [int(place) for place in order[:top] if excess[place] > 0]
    if not shown:
        yield from prose("None.", width)
        return
    found = items.flakiness
    columns = [
        Column("std", [numerals.score(math.sqrt(found.within[place])) for place in shown]),
        Column("expected", [numerals.score(math.sqrt(found.expected[place])) for place in shown]),
    ]
    yield from _examples(items, shown, columns, width)
    yield from prose(
        "std is within a model, over its rollouts, of scores from 0 to 1. This is a ranking, not a test.", width
    )


def _subset_lines(items: ItemTable, subset: Subset, width: int) -> Iterator[Text]:
    yield from (Text(), head("A subset that ranks the models, judged by models left out of its choice"))
    errors = subset.errors
    if errors:
        low, high = items.limits
        yield from table_lines(
            [
                Column("examples", [numerals.count(each.size) for each in errors]),
                Column("tau", [numerals.score(each.tau, 2) for each in errors]),
                Column("missed", [f"{each.missed} of {each.clear}" for each in errors]),
                Column("error", [numerals.score(each.error * (high - low)) for each in errors]),
                Column("chosen", [each.choice for each in errors], True),
                Column("random: tau", [numerals.score(each.random_tau, 2) for each in errors]),
                Column("error", [numerals.score(each.random_error * (high - low)) for each in errors]),
            ],
            width,
        )
        yield from prose(
            "tau is Kendall's; missed counts pairs of models that differ by more than two standard errors on all "
            "examples, and are equal or in the opposite order on the subset; error is that of a model's mean on all, "
            "predicted from the subset.",
            width,
        )
    if subset.without:
        few = numerals.counted(subset.without, "model has", "models have")
        yield from prose(f"{few} too few of the examples, and no part in this.", width)
    if subset.problem:
        yield from prose(f"{subset.problem[0].upper()}{subset.problem[1:]}.", width)
        return
    found, line = subset.error, subset.line
    if found is None or line is None:
        return
    spread = 1.96 * found.error * (items.limits[1] - items.limits[0])
    yield from prose(
        f"The subset has {len(subset.chosen)} of {numerals.count(subset.examples)} examples. The mean of all is about "
        f"{numerals.score(line.intercept)} + {line.slope:.3f} × its mean, ± {numerals.score(spread)} for a new model "
        "like these.",
        width,
    )


def items_json(items: ItemTable, subset: Subset, notes: Sequence[str]) -> JsonDict:
    """The statistics as JSON, for `--json`; undefined numbers are null."""
    return {
        "schema_version": 1,
        "measure": items.measure,
        "limits": list(items.limits),
        "runs": [run.entry.id for run in items.runs],
        "models": [
            {
                "model": model, "mean": each.mean, "ci95": each.ends, "method": each.method,
                "examples": len(items.cells[place]), "rollouts": sum(map(len, items.cells[place].values())),
                "runs": [run.entry.id for run in items.runs if run.manifest.model == model],
            }
            for place, (model, each) in enumerate(
                (model, items.model_estimate(place)) for place, model in enumerate(items.models)
            )
        ],
        "examples": list(_rows(items, subset)),
        "subset": _subset_json(items, subset),
        "notes": list(notes),
    }  # fmt: skip


def _subset_json(items: ItemTable, subset: Subset) -> JsonDict:
    width = items.limits[1] - items.limits[0]
    line = subset.line
    return {
        "of_examples": subset.examples,
        "models_left_out": subset.without,
        "example_ids": [items.texts[items.keys[place]].example_id for place in subset.chosen],
        "problem": subset.problem or None,
        "prediction": None if line is None else {"intercept": line.intercept, "slope": line.slope},
        "sizes": [
            {
                "size": each.size, "choice": each.choice, "tau": each.tau,
                "clear_pairs": each.clear, "missed": each.missed,
                "error": each.error * width, "random_tau": each.random_tau, "random_error": each.random_error * width,
            }
            for each in subset.errors
        ],
    }  # fmt: skip


def _rows(items: ItemTable, subset: Subset) -> Iterator[JsonDict]:
    """All statistics of each example."""
    relation, flaky = items.discrimination, items.flakiness
    by_all, by_none = items.solved
    chosen = set(subset.chosen)
    models = (items.counts > 0).sum(axis=0)
    for place, (key, estimate) in enumerate(zip(items.keys, items.estimates, strict=True)):
        values: tuple[object, ...] = (
            items.texts[key].example_id, key, int(models[place]), int(items.counts[:, place].sum()),
            estimate.mean, estimate.low, estimate.high,
            _known(relation.correlation, place), _known(relation.p_negative, place), _known(relation.adjusted, place),
            _known(flaky.within, place), _known(flaky.expected, place),
            bool(by_all[place]), bool(by_none[place]), place in chosen, items.texts[key].text,
        )  # fmt: skip
        yield dict(zip(COLUMNS, values, strict=True))


def _known(values: Floats, place: int) -> float | None:
    value = float(values[place])
    return None if math.isnan(value) else value


def items_csv(items: ItemTable, subset: Subset) -> str:
    """The statistics of each example as CSV; undefined numbers are empty."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in _rows(items, subset):
        writer.writerow("" if cell is None else _safe(cell) if isinstance(cell, str) else cell for cell in row.values())
    return stream.getvalue()


def _safe(text: str) -> str:
    return defused(redactor.text(text, patterns=False))


def suite_text(items: ItemTable, subset: Subset) -> str:
    """A suite file that runs the subset, for `bench run`.

    Raises:
        UsageError: there is no subset, or its examples have no ids of their own.
    """
    import tomli_w

    if not subset.chosen:
        few = f"; {subset.without} of {len(items.models)} have too few of the examples" if subset.without else ""
        remedy = "; choose a size with --subset N" if subset.errors else f"; name runs of more models{few}"
        raise UsageError(f"--write: {subset.problem or 'there is no subset'}{remedy}")
    names = [items.name(place) for place in range(len(items.keys))]
    chosen = [names[place] for place in subset.chosen]
    if twice := [name for name in chosen if names.count(name) > 1]:
        raise UsageError(
            f"--write: several examples have the id {twice[0]!r}, so ids do not tell them apart; name runs of one "
            "version of the dataset, or give its rows unique ids"
        )
    settings = items.runs[-1].manifest.settings
    args = table(settings.get("env.env_args"))
    if REDACTED in str(args):
        raise UsageError("--write: the arguments of the environment contain a secret, which runs do not record")
    entry: JsonDict = {
        "env_id": settings.get("env.env_id") or items.runs[-1].manifest.env_id,
        "num_examples": -1,
        "example_ids": chosen,
        **({"env_args": args} if args else {}),
    }
    runs = numerals.counted(len(items.runs), "run")
    models = numerals.counted(len(items.models), "model")
    first = f"# {len(chosen)} of {subset.examples} examples, chosen by bench items from {runs} of {models}.\n"
    line = subset.line
    if line is not None:
        first += f"# Mean of all examples: about {line.intercept:.4f} + {line.slope:.4f} * mean of these.\n"
    return first + "\n" + tomli_w.dumps({"eval": [entry]})
