"""Choice of the controls of a run, and its mean with and without them, for a terminal or as JSON. Statistics are in
`stats.controls`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rich.text import Text

from harness.core.errors import UsageError
from harness.core.types import JsonDict
from harness.report import numerals
from harness.report.compare.screen import missing
from harness.report.compare.sides import ComparedRun
from harness.report.layout import Column, grid, prose
from harness.report.text import clean
from harness.stats.controls import FEWEST, Controlled, controlled_mean
from harness.stats.difference import limits_of
from harness.stats.intervals import Estimate
from harness.stats.methods import describe
from harness.stats.summary import number
from harness.store.manifest import Manifest
from harness.store.values import table

LEAST_KNOWN = 0.98
"""Minimum share of the population on which a control has a score; its mean stands for the others."""


@dataclass(frozen=True, slots=True)
class ControlledRun:
    """A run's mean with and without controls."""

    side: ComparedRun
    controls: tuple[ComparedRun, ...]
    left_out: tuple[str, ...]
    """Sentences about runs that cannot be controls."""
    found: Controlled
    is_assumed: bool
    """Whether the user says that the examples are a random sample, which the run does not record."""

    @property
    def examples(self) -> int:
        """Number of examples with a score in the run."""
        return self.found.plain.examples


def dataset_of(manifest: Manifest) -> tuple[object, object, object]:
    """Everything in a run's identity that says which dataset it draws its examples from."""
    known = table(manifest.identity.get("env"))
    return manifest.env_id, known.get("env_args") or {}, known.get("extra_env_kwargs") or {}


def check_sample(side: ComparedRun, *, assume_random: bool) -> None:
    """Check that a run's examples are a random sample, and enough of them have a score.

    Raises:
        UsageError: they are not, or the number of examples depended on the scores.
    """
    is_shuffled = table(side.manifest.identity.get("order")).get("shuffle") is True
    if not is_shuffled and not assume_random:
        raise UsageError(
            f"{side.run.path}: its examples are not recorded as a random sample: without --shuffle a run takes the "
            "first ones of the dataset, which may be easier or harder. Run it with --shuffle, or say --assume-random "
            "if the dataset itself is in random order"
        )
    if side.ended_early is not None:
        raise UsageError(
            f"{side.run.path}: it ended early because of --until-ci, so its number of examples depends on its scores; "
            "its own table has the interval for that"
        )
    if len(side.means) < FEWEST:
        scored = numerals.counted(len(side.means), "example")
        raise UsageError(f"{side.run.path}: {scored} with a score; controls need {FEWEST} or more")


def controlled_run(side: ComparedRun, others: Sequence[ComparedRun], *, assume_random: bool) -> ControlledRun:
    """Estimate a run's mean with the other runs as controls. The population are the examples of the control with the
    most; the others must have a score on nearly all of these.

    Args:
        side: The run, checked by `check_sample`.
        others: Possible controls, each once.
        assume_random: Whether the user says that the examples are a random sample.

    Raises:
        UsageError: no run can be a control.
    """
    left: list[str] = []
    able: list[ComparedRun] = []
    for other in others:
        lacking = sum(key not in other.cells for key in side.means)
        if other.run.id == side.run.id:
            left.append(f"{other.run.id} is the run itself.")
        elif dataset_of(other.manifest) != dataset_of(side.manifest):
            left.append(f"{_name(other)} is of another environment, or has other arguments.")
        elif lacking:
            left.append(f"{_name(other)} lacks {numerals.count(lacking)} of the run's examples.")
        elif len(other.cells) <= len(side.cells):
            left.append(f"{_name(other)} has no more examples than the run.")
        else:
            able.append(other)
    keys = list(max(able, key=lambda each: len(each.cells)).cells) if able else []
    controls: list[ComparedRun] = []
    rows: list[list[float]] = []
    for other in able:
        means = other.means
        known = [means[key] for key in keys if key in means]
        if len(known) < LEAST_KNOWN * len(keys):
            scored = f"{numerals.count(len(known))} of the {numerals.count(len(keys))} examples"
            left.append(f"{_name(other)} has a score on {scored}, and controls need {numerals.percent(LEAST_KNOWN)}.")
            continue
        controls.append(other)
        middle = math.fsum(known) / len(known)
        rows.append([means.get(key, middle) for key in keys])
    if not controls:
        why = "".join(f" {each}" for each in left)
        none = " there is no other finished run with its environment and arguments, and with more examples"
        raise UsageError(f"no run can be a control of {side.run.path}:{why or none}")
    places = {key: place for place, key in enumerate(keys)}
    means = side.means
    sample = [places[key] for key in means]
    found = controlled_mean(list(means.values()), sample, rows, limits=limits_of(side.scores))
    found = replace(found, plain_new=side.spread.estimate)  # as in the run's own table
    if side.cluster_key:
        found = replace(found, corrected_new=Estimate(found.corrected.mean, examples=found.corrected.examples))
    return ControlledRun(side, tuple(controls), tuple(left), found, assume_random)


def _name(side: ComparedRun) -> str:
    return f"{clean(side.label, 80)} ({side.run.id})"


def controlled_lines(made: ControlledRun, width: int) -> Iterator[Text]:
    """The estimates as lines for the terminal."""
    side, found = made.side, made.found
    population = numerals.count(found.population)
    title = f"{clean(side.manifest.env_id)} · {clean(side.label, 80)} · {clean(side.measure)}"
    yield from prose(f"{title} · {numerals.count(made.examples)} of {population} examples", width, "bold")
    rows = [(found.plain, found.plain_new), (found.corrected, found.corrected_new)]
    worths = [numerals.count(made.examples), _worth(found)]
    columns = [
        [
            Column("mean", [numerals.score(whole.mean) for whole, _ in rows]),
            Column(f"95 % of all {population}", [numerals.interval(whole) for whole, _ in rows]),
        ],
        [Column("95 % of new examples", [numerals.interval(new) for _, new in rows])],
        [Column("as good as", worths)],
    ]
    names = ["plain", f"with {numerals.counted(found.controls, 'control')}"]
    yield from grid(names, "estimate", columns, width)
    yield Text()
    for words in _explained(made):
        yield from prose(words, width)


def _worth(found: Controlled) -> str:
    return numerals.NONE if found.worth is None else numerals.count(round(found.worth))


def _explained(made: ControlledRun) -> Iterator[str]:
    found, population = made.found, numerals.count(made.found.population)
    if found.worth is None or found.explained is None:
        yield "Every example has the same score, so the controls have nothing to predict."
    else:
        share = max(0.0, found.explained)
        helps = (
            "They do not help here."
            if found.explained <= 0
            else f"They predict {numerals.percent(share)} of the variance."
        )
        yield (
            f"As good as {_worth(found)} examples without controls: the controls say how hard the "
            f"{numerals.count(made.examples)} sampled examples are beside all {population}. {helps}"
        )
    yield (
        f"The first interval is for the mean that a run of all {population} examples would have, the second for new "
        "examples of the same kind. Choose one of the two rows before you see them."
    )
    if made.side.cluster_key:
        yield (
            f"Examples with the same {clean(made.side.cluster_key)} are one cluster. It is unknown how much "
            "the controls help for new clusters, so the corrected mean has no interval for new examples."
        )
    if made.is_assumed:
        yield "That the examples are a random sample is your assumption (--assume-random); the run does not record it."
    yield from missing("The run", made.side)
    if made.side.planned > made.side.scored:
        yield "The mean is of the examples that have a score; the missing ones may be harder or easier."
    methods = dict.fromkeys(
        describe(each.method) for each in (found.plain, found.plain_new, found.corrected) if each.method is not None
    )
    if methods:
        how = "; ".join(methods)
        yield f"Method: regression on the controls, cross-fitted; the first interval has √(1 − n/N). {how}."
    if made.left_out:
        yield f"Not used: {' '.join(made.left_out)}"


def controlled_json(made: ControlledRun) -> JsonDict:
    """The estimates as JSON, for `--json`."""
    side, found = made.side, made.found
    return {
        "schema_version": 1,
        "run": side.run.id,
        "path": str(side.run.path),
        "env_id": side.manifest.env_id,
        "model": side.manifest.model,
        "measure": side.measure,
        "examples": made.examples,
        "population": found.population,
        "rollouts": side.rollouts,
        "planned": side.planned,
        "scored": side.scored,
        "is_random_assumed": made.is_assumed,
        "controls": [{"run": each.run.id, "path": str(each.run.path), "model": each.label} for each in made.controls],
        "not_used": list(made.left_out),
        "plain": {"population": _json(found.plain), "new_examples": _json(found.plain_new)},
        "corrected": {"population": _json(found.corrected), "new_examples": _json(found.corrected_new)},
        "explained": number(found.explained),
        "as_good_as": number(found.worth),
    }


def _json(estimate: Estimate) -> JsonDict:
    return {
        "mean": number(estimate.mean),
        "stderr": number(estimate.stderr),
        "ci95": estimate.ends,
        "method": estimate.method,
    }
