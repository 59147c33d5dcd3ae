"""Labels of people about the rollouts of a run, beside the scores of its judge: read from notes or as given, combined
over people, with the probability with which each rollout was drawn, and the mean that they correct."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from harness.core.errors import StoreError, UsageError
from harness.core.types import JsonDict
from harness.report import numerals
from harness.report.rollout_columns import RunRollout
from harness.report.text import clean
from harness.stats.agreement import krippendorff_alpha
from harness.stats.intervals import INFORMATIVE, Estimate
from harness.stats.labels import Corrected, prediction_powered
from harness.stats.passk import THRESHOLD_SLACK
from harness.stats.summary import number
from harness.stats.target import finite_limits
from harness.store.clusters import label_of
from harness.store.draws import read_draws
from harness.store.journal_index import Recorded
from harness.store.manifest import Manifest
from harness.store.notes import Notes, read_notes
from harness.store.outcomes import Outcome, in_order, outcomes
from harness.store.rundir import RunDir
from harness.store.score_table import aim_of

REWARD = "reward"

RIGHT, WRONG = ("right", "correct"), ("wrong", "incorrect")
"""Tags of a note that label the reply of its rollout: the highest and the lowest possible score."""

UNLIKELY = 0.001
"""p-value of `Corrected.p_random` below which the labelled rollouts are no random part."""

FEW = 100
"""Number of labels below which an interval without added labels is only approximate, as measured in
docs/concepts/statistics.md."""

ByAuthor = Mapping[str, float]


@dataclass(slots=True)
class LabelledRollout:
    """A scored rollout, with the labels of people if it has some."""

    number: int
    """Number of the rollout in the journal."""
    key: str
    example_key: str
    cluster: str
    """Name of the cluster of its example, if the run declares clusters; else the key of the example."""
    example_id: int | str
    rollout_index: int
    score: float
    labels: ByAuthor = field(default_factory=dict[str, float])
    """The label of each person."""
    label: float | None = None
    """The label of all: the majority of passes and failures, else the mean; None without one."""
    is_tied: bool = False
    """Whether as many people pass it as fail it, so that the label is halfway."""
    probability: float | None = None
    """Probability with which it was drawn for labelling; None if unknown."""
    weight: float = 0.0
    """Weight of its label in means over labelled rollouts: its share in the mean of all, by its probability."""
    kinds: Mapping[str, object] = field(default_factory=dict[str, object])
    """Values of columns by which labelled rollouts are grouped."""


@dataclass(slots=True)
class LabelledRun:
    """The scored rollouts of a run with the labels of people."""

    run: RunDir
    manifest: Manifest
    measure: str
    rollouts: list[LabelledRollout]
    limits: tuple[float, float] | None
    """Lowest and highest possible score; None if unknown."""
    is_drawn: bool
    """Whether rollouts were drawn for labelling, on record."""
    unlabelled: int
    """Number of drawn rollouts without a label."""
    not_drawn: int
    """Number of rollouts whose labels are left out, since they are not among the drawn ones."""
    not_scored: int
    """Number of rollouts with a label and without a score."""
    unseen: int
    """Number of rollouts that were scored after the draw, so that they could not be drawn."""

    @property
    def labelled(self) -> list[LabelledRollout]:
        """The rollouts with a label."""
        return [each for each in self.rollouts if each.label is not None]

    @property
    def people(self) -> list[str]:
        """Everybody who labelled a rollout, those with most labels first."""
        return [name for name, _ in Counter(name for each in self.labelled for name in each.labels).most_common()]

    @property
    def is_two_valued(self) -> bool:
        """Whether all labels are at one of the limits."""
        return self.limits is not None and all(
            value in self.limits for each in self.labelled for value in each.labels.values()
        )

    @property
    def threshold(self) -> float:
        """The lowest score that passes."""
        known = self.manifest.settings.get("env.pass_threshold")
        return (known if isinstance(known, int | float) else 1.0) - THRESHOLD_SLACK

    @property
    def corrected(self) -> Corrected:
        """The mean score corrected by the labels."""
        is_known = any(each.probability is not None for each in self.rollouts)
        return prediction_powered(
            [each.score for each in self.rollouts],
            [each.label for each in self.rollouts],
            clusters=[each.example_key for each in self.rollouts],
            groups=[each.cluster for each in self.rollouts] if self.manifest.cluster_key else None,
            probabilities=[each.probability or 0.0 for each in self.rollouts] if is_known else None,
            limits=self.limits,
        )

    @property
    def alpha(self) -> tuple[float | None, int]:
        """Krippendorff's alpha among people, and the number of rollouts with labels of several."""
        rows = [[each.labels.get(name) for name in self.people] for each in self.labelled if len(each.labels) > 1]
        return krippendorff_alpha(rows, "nominal" if self.is_two_valued else "interval"), len(rows)

    def cautions(self, corrected: Corrected) -> list[str]:
        """Sentences about facts that weaken a corrected mean."""
        said: list[str] = []
        count, counted = numerals.count, numerals.counted
        if (p := corrected.p_random) is not None and p < UNLIKELY:
            labelled = self.labelled
            theirs = math.fsum(each.score * each.weight for each in labelled)
            mean = theirs / math.fsum(each.weight for each in labelled)
            said.append(
                f"the labelled rollouts have a mean score of {numerals.score(mean)}, unlike all: they are no random "
                "part, so that nothing can be said of the others; label rollouts that are drawn at random"
            )
        elif not self.is_drawn and corrected.labels and any(each.probability is None for each in self.labelled):
            said.append("it is taken that the labelled rollouts are a random part of all; no draw is on record")
        method, examples = corrected.estimate.method, corrected.estimate.clusters or corrected.estimate.examples
        if method == "ppi" and examples < FEW and self.limits is None:
            said.append(f"with fewer than {FEW} labels, and scores without a known range, the interval is approximate")
        if method == "ppi_added":
            units = "clusters" if self.manifest.cluster_key else "examples"
            seen = f"fewer than {INFORMATIVE} labelled {units} show how the judge errs"
            said.append(f"{seen}, so two errors were added, one in either direction: the interval is cautious")
        if self.unlabelled:
            said.append(f"{counted(self.unlabelled, 'drawn rollout')} without a label: leave out none for being hard")
        if self.not_drawn:
            said.append(f"labels of {counted(self.not_drawn, 'rollout')} left out, which were not drawn")
        if self.not_scored:
            said.append(f"labels of {counted(self.not_scored, 'rollout')} left out, which have no score")
        if self.unseen:
            said.append(
                f"{count(self.unseen)} rollouts were scored after the draw, and are taken to be like the others"
            )
        if corrected.labels and aim_of(self.manifest) is not None:
            said.append("the number of examples is taken as set beforehand, although the run could end early")
        return said


def ends_of(manifest: Manifest, measure: str = REWARD) -> tuple[float, float]:
    """Score of a wrong and of a right reply: the range of scores, or 0 and 1 if it is unknown."""
    return finite_limits(manifest.range_of(measure)) or (0.0, 1.0)


def labels_of_notes(notes: Notes, ends: tuple[float, float]) -> dict[str, dict[str, float]]:
    """Labels in the notes of a run, by rollout and author: the score of a note, or the tag `right` or `wrong`.

    Raises:
        UsageError: a note has tags for both.
    """
    found: dict[str, dict[str, float]] = {}
    for key, held in notes.by_rollout.items():
        for note in held:
            is_right, is_wrong = (any(tag.casefold() in words for tag in note.tags) for words in (RIGHT, WRONG))
            value = note.score
            if value is None and is_right and is_wrong:
                raise UsageError(
                    f"a note of {clean(note.author, 80)} has the tags {RIGHT[0]} and {WRONG[0]}; remove one"
                )
            if value is None and (is_right or is_wrong):
                value = ends[1] if is_right else ends[0]
            if value is not None:
                found.setdefault(key, {})[note.author] = value
    return found


def read_labelled(
    run: RunDir,
    recorded: Recorded,
    *,
    measure: str = REWARD,
    given: Mapping[str, ByAuthor] | None = None,
    probabilities: Mapping[str, float] | None = None,
    look: Callable[[RunRollout], Mapping[str, object]] | None = None,
) -> LabelledRun:
    """Read the scores of a run with the labels of its rollouts.

    Args:
        run: The run.
        recorded: Content of its journal.
        measure: Score to compare with labels: the reward, or a metric.
        given: Labels by the key of the rollout and by author; None for those of the notes.
        probabilities: By key, the probability with which a rollout was drawn, where the run has no draw on record.
        look: Function that returns the kinds of a labelled rollout.

    Raises:
        UsageError: a label is out of range, or only some of the labels have a probability.
        StoreError: a file of the run cannot be read.
    """
    manifest = run.read_manifest()
    by_key = labels_of_notes(read_notes(run), ends_of(manifest, measure)) if given is None else given
    draws = read_draws(run)
    drawn = draws.probabilities({*by_key}) if draws.newest is not None else (probabilities or {})
    found = LabelledRun(run, manifest, measure, [], None, draws.newest is not None, 0, 0, 0, 0)
    for place, outcome in zip(in_order(recorded), outcomes(recorded), strict=True):
        _take(found, place, outcome if measure == REWARD else outcome.measured(measure), by_key, drawn, look)
    found.limits = _limits(found)
    _check(found, is_partial=bool(drawn))
    combine(found)
    if draws.newest is not None:
        found.unseen = max(0, len(found.rollouts) - sum(draws.newest.sizes))
    return found


def corrected_mean(run: RunDir, recorded: Recorded) -> tuple[Corrected | None, list[str]]:
    """The mean reward of a run corrected by the labels in its notes, for reports, with sentences about it; None if
    there are fewer than two labelled examples, or if they cannot be used."""
    try:
        found = read_labelled(run, recorded) if read_notes(run).by_rollout else None
    except (UsageError, StoreError) as error:
        return None, [f"no correction by labels of people: {error}"]
    if found is None or len({each.example_key for each in found.labelled}) < 2:
        return None, []
    corrected = found.corrected
    said = [f"labels of people: {each}" for each in found.cautions(corrected)]
    if corrected.estimate.low is None or (corrected.p_random is not None and corrected.p_random < UNLIKELY):
        return None, said
    return corrected, said


def corrected_text(corrected: Corrected) -> str:
    """A corrected mean as text, with its interval and the number of labels."""
    estimate = corrected.estimate
    labels = numerals.counted(corrected.labels, "label")
    return f"{numerals.score(estimate.mean)} {numerals.interval(estimate)}, {labels}"


def estimate_json(estimate: Estimate) -> JsonDict:
    """An estimate as JSON."""
    return {
        "mean": number(estimate.mean), "stderr": number(estimate.stderr), "ci95": estimate.ends,
        "method": estimate.method,
    }  # fmt: skip


def corrected_json(corrected: Corrected) -> JsonDict:
    """A corrected mean as JSON; the keys are documented in docs/reference/judges.md."""
    return {
        **estimate_json(corrected.estimate), "labels": corrected.labels, "examples": corrected.estimate.examples,
        "weight_of_judge": number(corrected.weight), "p_random": number(corrected.p_random),
    }  # fmt: skip


def _take(
    found: LabelledRun,
    place: int,
    outcome: Outcome,
    by_key: Mapping[str, ByAuthor],
    drawn: Mapping[str, float],
    look: Callable[[RunRollout], Mapping[str, object]] | None,
) -> None:
    """Add a rollout to a run."""
    key, example = outcome.base.key, outcome.example
    labels, score = by_key.get(key, dict[str, float]()), outcome.reward
    if score is None:
        found.not_scored += bool(labels)
        return
    probability = drawn.get(key)
    if found.is_drawn and probability is None and labels:
        found.not_drawn += 1
        labels = dict[str, float]()
    found.unlabelled += found.is_drawn and probability is not None and not labels
    kinds: Mapping[str, object] = {}
    if look is not None and labels:
        kinds = look(RunRollout(found.run.id, found.manifest, outcome))
    found.rollouts.append(
        LabelledRollout(
            place, key, example.key, label_of(example, found.manifest.cluster_key) or example.key,
            example.example_id, outcome.base.rollout_index, score, labels,
            probability=probability, kinds=kinds,
        )
    )  # fmt: skip


def _limits(found: LabelledRun) -> tuple[float, float] | None:
    """Range of scores as declared; of undeclared ones 0 and 1 if all scores and labels are one of these."""
    known = finite_limits(found.manifest.range_of(found.measure))
    values = {each.score for each in found.rollouts} | {v for each in found.rollouts for v in each.labels.values()}
    return known or ((0.0, 1.0) if values and values <= {0.0, 1.0} else None)


def _check(found: LabelledRun, *, is_partial: bool) -> None:
    """Check the labels of a run.

    Raises:
        UsageError: a label is out of range, or only some of the labels have a probability.
    """
    for each in found.rollouts:
        name = f"example {clean(each.example_id, 80)}, rollout {each.rollout_index}"
        for author, value in each.labels.items():
            if found.limits is not None and not found.limits[0] <= value <= found.limits[1]:
                low, high = found.limits
                raise UsageError(
                    f"{name}: the label {value:g} of {clean(author, 80)} is not between {low:g} and {high:g}, the "
                    "range of scores; give labels in units of the score"
                )
        if each.labels and is_partial and each.probability is None:
            raise UsageError(f"{name} has a label and no probability, which others have; give all of them one, or none")


def combine(found: LabelledRun) -> None:
    """Combine the labels of people, and weigh them."""
    sizes = Counter(each.example_key for each in found.rollouts)
    labelled = [each for each in found.rollouts if each.labels]
    limits = found.limits
    two = limits is not None and all(value in limits for each in labelled for value in each.labels.values())
    for each in labelled:
        values = [*each.labels.values()]
        mean = math.fsum(values) / len(values)
        if two and limits is not None:
            middle = (limits[0] + limits[1]) / 2
            each.is_tied = 2 * values.count(limits[1]) == len(values)
            mean = middle if each.is_tied else limits[mean > middle]
        each.label = mean
        each.weight = 1 / (sizes[each.example_key] * (each.probability or 1.0))
