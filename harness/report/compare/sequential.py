"""The gate's verdict on a candidate with a sequential gate, which ended once the comparison with its baseline was
decided (`stats.paired_target`). Its interval is valid at any stopping time; an ordinary one would not be."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace

from harness.core.types import JsonDict
from harness.report import numerals
from harness.report.compare.sides import ComparedRun, Match
from harness.stats.hypotheses import Verdict, non_inferiority
from harness.store.manifest import Manifest

__all__ = ["GateRule", "Verdict", "early_cause", "edge", "retry_command", "saved_by", "sequential_ruling"]


@dataclass(frozen=True, slots=True)
class GateRule:
    """Requirements of a gate, which decides whether a candidate may replace its baseline."""

    margin: float
    """Largest loss of mean reward that is tolerated."""
    min_coverage: float
    """Minimum share of planned rollouts that must have a score."""


def early_cause(manifest: Manifest) -> str:
    """Name of what ended a run early, for sentences about runs that did."""
    return "a sequential gate" if manifest.gate else "--until-ci"


def edge(rule: GateRule) -> str:
    """The difference that decides, as text."""
    return f"-{rule.margin:g}" if rule.margin else "0"


def retry_command(side: ComparedRun) -> str:
    """Command that runs rollouts of a run without a score again."""
    return f"{_resume(side)} --retry-failed"


def _resume(side: ComparedRun) -> str:
    return f"bench resume {shlex.quote(str(side.run.path))}"


def sequential_ruling(match: Match, rule: GateRule) -> tuple[Match, Verdict, str] | None:
    """Apply the gate's rule to a candidate with a sequential gate that does not have all of its examples.

    Returns:
        The comparison with the interval that is valid at any stopping time, the verdict and its reason; None for other
        candidates, to which the ordinary rule applies.
    """
    candidate, found = match.candidate, match.candidate.sequential
    if found is None:
        return None
    after = f"after {numerals.count(found.used)} of {numerals.count(found.gate.examples)} examples"
    if match.baseline.manifest.id != found.gate.baseline:
        own = f"so it has a verdict only against its own baseline {found.gate.baseline}"
        return match, "inconclusive", f"it ended early, {after}, {own}"
    if match.paired.estimate.clusters is not None:
        why = "which is valid only if examples are independent; --cluster none takes them as such"
        return match, "inconclusive", f"it ended early, {after}, {why}"
    estimate = found.difference
    paired = replace(
        match.paired, estimate=estimate, p_value=None, t_p_value=None, mcnemar=None, cautious_low=None, sums=()
    )
    match = replace(match, paired=paired, unpaired=None, adjusted=None)
    verdict = non_inferiority(estimate, rule.margin)
    if verdict != "inconclusive" and candidate.scored < rule.min_coverage * candidate.rollouts:
        scored = f"{numerals.count(candidate.scored)} of its {numerals.count(candidate.rollouts)} rollouts have a score"
        wanted = numerals.percent(rule.min_coverage)
        return match, "fail", f"{scored}, but the gate requires {wanted}; {retry_command(candidate)} runs them again"
    interval, line = numerals.signed_interval(estimate), edge(rule)
    if verdict == "inconclusive":
        where = f"the interval {interval} contains {line}" if estimate.low is not None else "there is no interval"
        return match, verdict, f"{where} {after}; {_resume(candidate)} goes on"
    where = "above" if verdict == "pass" else "below"
    words = f"the interval {interval} of the difference over all examples lies {where} {line} {after}"
    return match, verdict, f"{words}; {_saved_words(match)}"


def saved_by(match: Match) -> JsonDict:
    """Examples and rollouts that a sequential gate did not run, as JSON; the cost is an estimate from those that ran,
    None if prices are unknown."""
    found, candidate = match.candidate.sequential, match.candidate
    if found is None:
        return {}
    examples = max(0, found.gate.examples - len(candidate.cells))
    rollouts = examples * found.gate.rollouts
    cost, made = candidate.usage.cost, candidate.rollouts
    return {
        "examples": found.used,
        "of_examples": found.gate.examples,
        "examples_saved": examples,
        "rollouts_saved": rollouts,
        "cost_saved": None if cost is None or not made else cost / made * rollouts,
    }


def _saved_words(match: Match) -> str:
    saved = saved_by(match)
    words = numerals.counted(saved["examples_saved"], "example")
    if saved["rollouts_saved"] != saved["examples_saved"]:
        words += f" with {numerals.counted(saved['rollouts_saved'], 'rollout')}"
    cost = saved["cost_saved"]
    return f"{words} saved" + ("" if cost is None else f", about {numerals.dollars(cost)}")
