"""The gate: decide whether a candidate may replace its baseline, and print the verdict for a terminal or as JSON,
Markdown or JUnit. The interval comes from `sides`, the test from `stats.hypotheses`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from rich.text import Text

from harness.core.types import JsonDict
from harness.report import numerals
from harness.report.compare.comparison_json import match_json
from harness.report.compare.sequential import (
    GateRule,
    Verdict,
    early_cause,
    edge,
    retry_command,
    saved_by,
    sequential_ruling,
)
from harness.report.compare.sides import ComparedRun, Match, worst_scores
from harness.report.layout import Column, grid, prose
from harness.report.text import clean
from harness.stats.difference import LEAST_COMMON, difference_of, limits_of
from harness.stats.hypotheses import is_above, non_inferiority
from harness.stats.intervals import Estimate
from harness.stats.power import passing_examples
from harness.store.card_text import escape

_NO_XML = re.compile("[^\t\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

EXIT_CODES: dict[Verdict, int] = {"pass": 0, "fail": 1, "inconclusive": 3}


@dataclass(frozen=True, slots=True)
class Ruling:
    """Verdict of the gate on one environment."""

    match: Match
    verdict: Verdict
    why: str
    """Reason for the verdict, in one sentence."""


def apply_rules(matches: Sequence[Match], rule: GateRule) -> list[Ruling]:
    """Apply the gate's rule to every environment.

    Raises:
        UsageError: the margin is so large that nothing could fail.
    """
    for match in matches:
        match.candidate.check_within_range("--margin", rule.margin)
    return [apply_rule(match, rule) for match in matches]


def apply_rule(match: Match, rule: GateRule) -> Ruling:
    """Apply the gate's rule to one environment: check that enough rollouts have scores, then test the difference."""
    ruled = sequential_ruling(match, rule)
    if ruled is not None:
        return Ruling(*ruled)
    unfit = _too_little(match, rule)
    if unfit is not None:
        return Ruling(match, *unfit)
    estimate = match.paired.estimate
    verdict = non_inferiority(estimate, rule.margin)
    interval = numerals.signed_interval(estimate)
    if verdict == "pass":
        why = _unsafe(match, rule, interval)
        if why is not None:
            return Ruling(match, "inconclusive", why)
        missing = match.candidate.planned - match.candidate.scored
        ignored = f"; {numerals.count(missing)} of its rollouts have no score and are left out" if missing else ""
        return Ruling(match, verdict, f"the whole interval {interval} lies above {edge(rule)}{ignored}")
    if verdict == "fail":
        return Ruling(match, verdict, f"the whole interval {interval} lies below {edge(rule)}")
    if estimate.low is None or match.units < LEAST_COMMON:
        why = "all examples have the same difference, so its variance is unknown, and the scores have no bounds"
        if match.paired.pairs < LEAST_COMMON:
            why = "one example is not enough"
        elif estimate.clusters == 1:
            why = "all examples are in one cluster, so the variance between clusters is unknown"
        return Ruling(match, verdict, why)
    return Ruling(match, verdict, f"the interval {interval} contains {edge(rule)}{_outlook(match, rule)}")


def _unsafe(match: Match, rule: GateRule, interval: str) -> str | None:
    """Explain why a candidate may not pass although its interval is within the margin: rare losses could have been
    missed, or scores are missing. None if it may pass."""
    if not is_above(match.paired.cautious_low, rule.margin):
        return (
            f"the interval {interval} lies above {edge(rule)}, but {numerals.count(match.units)} "
            f"{'examples' if match.paired.estimate.clusters is None else 'clusters'} could miss rare losses that reach "
            f"{numerals.difference(Estimate(mean=match.paired.cautious_low))}{_outlook(match, rule)}"
        )
    short = [side for side in (match.candidate, match.baseline) if side.scored < side.planned]
    if not short:
        return None
    worst = difference_of(*worst_scores(match.candidate, match.baseline)).paired
    if non_inferiority(worst.estimate, rule.margin) == "pass" and is_above(worst.cautious_low, rule.margin):
        return None
    missing, resume = sum(side.planned - side.scored for side in short), " or ".join(map(retry_command, short))
    return (
        f"the interval {interval} lies above {edge(rule)}, but {numerals.count(missing)} rollouts have no score, and "
        f"with the worst case for these it would be {numerals.signed_interval(worst.estimate)}; {resume} runs them "
        "again"
    )


def _outlook(match: Match, rule: GateRule) -> str:
    """Describe how many examples, or which margin, would let the gate reach a decision."""
    if not rule.margin:
        return "; with a margin of 0, only a better candidate can pass"
    limits = limits_of(match.candidate.scores, match.baseline.scores)
    needed = passing_examples(match.paired, rule.margin, None if limits is None else limits[1] - limits[0])
    if match.verdict == "worse":
        return "; it is worse than the baseline, and how much takes more examples"
    if needed and needed > match.paired.pairs:
        return f"; about {numerals.count(needed)} examples would settle it if the true difference is 0"
    if (match.paired.estimate.mean or 0.0) < 0.0:
        return "; the loss is so near to the margin that it takes many more examples"
    return "; a few more examples would settle it if the true difference is 0"


def _too_little(match: Match, rule: GateRule) -> tuple[Verdict, str] | None:
    """Verdict of the gate if too few rollouts or examples have scores; None if there are enough."""
    candidate, baseline = match.candidate, match.baseline
    wanted = numerals.percent(rule.min_coverage)
    if candidate.ended_early is not None or baseline.ended_early is not None:
        which, side = ("it", candidate) if candidate.ended_early is not None else ("the baseline", baseline)
        return "inconclusive", (
            f"{which} ended early because of {early_cause(side.manifest)}, but a gate needs all examples: run it "
            "without that option"
        )
    ways: list[tuple[ComparedRun, Verdict, str]] = [
        (candidate, "fail", "its"), (baseline, "inconclusive", "the baseline's"),
    ]  # fmt: skip
    for side, verdict, what in ways:
        if not side.scored or side.coverage < rule.min_coverage:
            scored = f"{numerals.count(side.scored)} of {what} {numerals.count(side.planned)} rollouts have a score"
            return verdict, f"{scored}, but the gate requires {wanted}; {retry_command(side)} runs them again"
    examples = max(candidate.examples, baseline.examples)
    pairs = match.paired.pairs
    if match.unpaired is not None or not pairs or pairs < rule.min_coverage * examples:
        parts = [
            (match.only_candidate, "of the candidate alone"),
            (match.only_baseline, "of the baseline alone"),
            (match.lost, f"{match.lack} on one side"),
        ]
        detail = ", ".join(f"{numerals.count(number)} {words}" for number, words in parts if number)
        attempts, remedy = candidate.attempts, "run both on the same examples"
        if attempts is not None and min(candidate.planned_each, baseline.planned_each) < attempts.k:
            remedy = f"run both with -r {attempts.k} or more"
        return "inconclusive", (
            f"{numerals.count(pairs)} of {numerals.count(examples)} examples can be compared, but the gate requires "
            f"{wanted}{f' ({detail})' if detail else ''}; {remedy}"
        )
    return None


def overall(rulings: Sequence[Ruling]) -> Verdict:
    """Verdict of the gate over all environments. All must pass, so no correction for their number is needed."""
    verdicts = [ruling.verdict for ruling in rulings]
    if "fail" in verdicts:
        return "fail"
    return "inconclusive" if "inconclusive" in verdicts or not verdicts else "pass"


def verdict_lines(rulings: Sequence[Ruling], rule: GateRule, width: int) -> Iterator[Text]:
    """The gate's verdicts as lines for the terminal."""
    estimates = [ruling.match.paired.estimate for ruling in rulings]
    columns = [
        [
            Column("verdict", [ruling.verdict for ruling in rulings]),
            Column("difference", [numerals.difference(estimate) for estimate in estimates]),
            Column("95 % interval", [numerals.signed_interval(estimate) for estimate in estimates]),
        ],
        [Column("pairs", [numerals.count(ruling.match.paired.pairs) for ruling in rulings])],
    ]
    names = [clean(name) for name in _names(rulings)]
    yield from grid(names, "environment", columns, width)
    yield Text()
    for name, ruling in zip(names, rulings, strict=True):
        yield from prose(f"{name}: {ruling.verdict}: {clean(ruling.why, 1000)}.", width)
    yield Text()
    yield from prose(
        f"{overall(rulings).upper()}: {clean(_sides(rulings), 1000)}, margin {rule.margin:g}.", width, "bold"
    )


def _names(rulings: Sequence[Ruling]) -> list[str]:
    """Label of each verdict: the environment, with the measure and the model if there are several."""
    measures = len({ruling.match.candidate.measure for ruling in rulings})
    names = [
        ruling.match.name if measures < 2 else f"{ruling.match.name} · {ruling.match.candidate.measure}"
        for ruling in rulings
    ]
    return [
        name if names.count(name) == 1 else f"{name} · {ruling.match.candidate.label}"
        for name, ruling in zip(names, rulings, strict=True)
    ]


def _sides(rulings: Sequence[Ruling]) -> str:
    """Text that names the compared models and, if there is only one comparison, the two runs."""
    pairs = [(ruling.match.candidate, ruling.match.baseline) for ruling in rulings]
    if len(pairs) == 1:
        [(candidate, baseline)] = pairs
        return f"{candidate.label} ({candidate.run.id}) against {baseline.label} ({baseline.run.id})"
    candidates, baselines = (dict.fromkeys(side.label for side in sides) for sides in zip(*pairs, strict=True))
    return f"{', '.join(candidates)} against {', '.join(baselines)}, {len(rulings)} comparisons"


def markdown(rulings: Sequence[Ruling], rule: GateRule) -> str:
    """The gate's verdicts as Markdown, for a comment on a pull request."""
    rows = [
        f"**Gate: {overall(rulings)}** · {escape(clean(_sides(rulings), 1000))} · margin {rule.margin:g}",
        "",
        "| environment | verdict | difference | 95 % interval | pairs | why |",
        "|---|---|---:|---:|---:|---|",
    ]
    for name, ruling in zip(_names(rulings), rulings, strict=True):
        estimate = ruling.match.paired.estimate
        rows.append(
            f"| {escape(clean(name))} | {ruling.verdict} | {numerals.difference(estimate)} "
            f"| {numerals.signed_interval(estimate)} | {numerals.count(ruling.match.paired.pairs)} "
            f"| {escape(clean(ruling.why, 1000))} |"
        )
    runs = ", ".join(
        f"{escape(clean(each.match.candidate.run.id))} against {escape(clean(each.match.baseline.run.id))}"
        for each in rulings
    )
    return "\n".join([*rows, "", f"Runs: {runs}", ""])


def junit(rulings: Sequence[Ruling], rule: GateRule) -> str:
    """The gate's verdicts as a JUnit report for CI systems, with one test case per environment."""
    verdicts = [ruling.verdict for ruling in rulings]
    suite = ElementTree.Element(
        "testsuite",
        {
            "name": "bench gate",
            "tests": str(len(rulings)),
            "failures": str(verdicts.count("fail")),
            "errors": str(verdicts.count("inconclusive")),
        },
    )
    for name, ruling in zip(_names(rulings), rulings, strict=True):
        case = ElementTree.SubElement(suite, "testcase", {"classname": "bench.gate", "name": _xml(name), "time": "0"})
        if ruling.verdict != "pass":
            tag = "failure" if ruling.verdict == "fail" else "error"
            detail = ElementTree.SubElement(case, tag, {"type": ruling.verdict, "message": _xml(ruling.why)})
            detail.text = _xml(f"margin {rule.margin:g}; {ruling.match.candidate.run.path}")
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def _xml(words: str) -> str:
    """Remove characters that XML does not allow."""
    return _NO_XML.sub("\ufffd", clean(words, 500))


def gate_json(rulings: Sequence[Ruling], rule: GateRule) -> JsonDict:
    """The gate's verdicts as JSON, for `--json`."""
    return {
        "schema_version": 1,
        "verdict": overall(rulings),
        "margin": rule.margin,
        "min_coverage": rule.min_coverage,
        "environments": [
            {
                **match_json(ruling.match, 0),
                "verdict": ruling.verdict,
                "why": ruling.why,
                **({"sequential": saved} if (saved := saved_by(ruling.match)) else {}),
            }
            for ruling in rulings
        ],
    }
