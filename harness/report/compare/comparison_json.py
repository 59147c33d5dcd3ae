"""Runs and their differences as JSON, for `--json`."""

from __future__ import annotations

from harness.core.types import JsonDict
from harness.report.compare.sides import ComparedRun, Match
from harness.stats.summary import tokens_known


def side_json(side: ComparedRun) -> JsonDict:
    """The run's scores and usage as JSON, for `--json`."""
    p50, p95 = side.latency(0.5), side.latency(0.95)
    return {
        "run": side.run.id,
        "path": str(side.run.path),
        "name": side.manifest.name,
        "env_id": side.manifest.env_id,
        "model": side.manifest.model,
        "measure": side.measure,
        **({"cluster_key": side.cluster_key, "without_cluster_key": side.alone} if side.cluster_key else {}),
        "status": side.manifest.status,
        "score": side.spread.to_json(),
        "rollouts": side.rollouts,
        "planned": side.planned,
        "scored": side.scored,
        "unscored": dict(side.unscored.most_common()),
        "tokens": [side.usage.input_tokens, side.usage.output_tokens] if tokens_known(side.usage) else None,
        "cost": side.usage.cost,
        "seconds": {"p50": p50, "p95": p95},
    }


def match_json(match: Match, most_flips: int | None = None) -> JsonDict:
    """The comparison of two runs as JSON, for `--json`."""
    equal: JsonDict = {} if match.equality is None else {"equality": match.equality.to_json()}
    return {
        "name": match.name,
        "measure": match.candidate.measure,
        "candidate": match.candidate.run.id,
        "baseline": match.baseline.run.id,
        **match.paired.full_json(),
        "p_adjusted": match.adjusted,
        "verdict": match.verdict,
        "unpaired": None if match.unpaired is None else match.unpaired.to_json(),
        "only_candidate": match.only_candidate,
        "only_baseline": match.only_baseline,
        "without_value_on_one_side": match.lost,
        "detectable": match.detectable,
        "settling_examples": match.settling,
        **equal,
        "flips": [
            {
                "example_id": flip.first.example_id,
                "example_key": flip.key,
                "candidate": flip.first.mean,
                "baseline": flip.second.mean,
                "difference": flip.difference,
            }
            for flip in match.flips[:most_flips]
        ],
        "flipped": len(match.flips),
    }
