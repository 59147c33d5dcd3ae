"""One run as JSON: headline, outcomes, distribution of rewards, columns, settings."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any, cast

import numpy as np

from harness.core.errors import StoreError
from harness.core.records import Example
from harness.core.types import JsonDict
from harness.plugins.view.index_columns import LARGEST
from harness.plugins.view.run_index import Array, RunIndex
from harness.plugins.view.run_list import run_json
from harness.plugins.view.tables import estimate, limits_of, measured, plain
from harness.report.rollout_columns import COLUMNS, FLAGS
from harness.report.run_facts import commit_of, settings_of
from harness.report.runs import origin_text
from harness.stats.distributions import nearest_rank
from harness.store.catalogue import ListedRun
from harness.store.values import ends, number, table

BINS = 40
"""Maximum number of bins of a histogram."""

_EXAMPLES = 40
"""Number of examples whose `info` is read for the names of its columns."""

_TOKENS = ("input_tokens", "output_tokens", "reasoning_tokens")


def run_info(index: RunIndex, entry: ListedRun, siblings: list[str]) -> JsonDict:
    """A run as JSON; the keys are documented in docs/reference/view.md.

    Args:
        index: The index of the run.
        entry: The run.
        siblings: Ids of the other runs of the invocation.
    """
    manifest, final = index.manifest, entry.final
    threshold = number(manifest.settings.get("env.pass_threshold"))
    chosen, rest = settings_of(manifest)
    return {
        "run": run_json(entry) | (live_counts(index) if final is None else {}),
        "index": index.status(),
        "pass_threshold": 1.0 if threshold is None else threshold,
        "range": [end if math.isfinite(end) else None for end in manifest.reward_range],
        "summary": final,
        "metrics": metrics_json(index, final),
        "outcomes": outcomes_json(index),
        "histogram": histogram(index),
        "columns": columns_json(index),
        "settings": [[*row] for row in (*chosen, *rest)],
        "chosen": len(chosen),
        "versions": manifest.versions,
        "git": commit_of(manifest),
        "command": manifest.command,
        "made": origin_text(manifest.derived, manifest.parent) if manifest.derived else "",
        "siblings": siblings,
        "examples": len(index.starts),
        "rollouts": index.count,
        "usage": usage_json(index, final),
        "judge_usage": (final or {}).get("judge_usage"),
        "latency": latency(index),
        "noted": int(index.flag("noted").sum()),
    }


def live_counts(index: RunIndex) -> JsonDict:
    """Figures of a run that has no final summary, from its index."""
    if not index.count:
        return {"scored": 0, "failed": 0}
    found, scored = estimate(index, np.arange(index.count), limits_of(index))
    tokens, cost = _total(index.numbers("tokens")), _total(index.numbers("cost"))
    return {
        "mean": found.mean, "low": found.low, "high": found.high, "scored": scored,
        "failed": int((np.isnan(index.numbers("reward")) & ~index.flag("waiting")).sum()),
        "cost": cost, "tokens": None if tokens is None else int(tokens),
    }  # fmt: skip


def _total(values: Array) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.sum()) if len(known) else None


def metrics_json(index: RunIndex, final: JsonDict | None) -> list[JsonDict]:
    """Mean of each metric with its interval: from the summary, or from the index."""
    recorded = table((final or {}).get("metrics"))
    found: list[JsonDict] = []
    for name in index.manifest.metric_names:
        if final is not None and name in recorded:
            metric = table(recorded[name])
            low, high = ends(metric.get("ci95")) or (None, None)
            figures = {"mean": number(metric.get("mean")), "scored": number(metric.get("count"))}
        elif index.storage(f"metric.{name}") == "number" and index.count:
            values = index.numbers(f"metric.{name}")
            known, count = measured(index, values, index.array("place"), None)
            low, high, figures = known.low, known.high, {"mean": known.mean, "scored": count}
        else:
            low, high, figures = None, None, {"mean": None, "scored": None}
        found.append({"name": name, **figures, "low": low, "high": high})
    return found


def outcomes_json(index: RunIndex) -> list[JsonDict]:
    """Numbers of rollouts by outcome and reason, the most frequent first, those that were not run last."""
    columns = [(index.codes(name), index.words(name)) for name in ("outcome", "reason")]
    width = max(1, len(columns[1][1]) + 1)
    pairs, counts = np.unique((columns[0][0] + 1) * width + columns[1][0] + 1, return_counts=True)
    rows: list[JsonDict] = []
    for pair, count in sorted(zip(pairs.tolist(), counts.tolist(), strict=True), key=lambda row: -row[1]):
        outcome, reason = (
            "" if code == 0 else words[code - 1] for code, (_, words) in zip(divmod(pair, width), columns, strict=True)
        )
        rows.append({"outcome": outcome, "reason": reason, "count": count})
    missing = (index.entry.planned or 0) - index.count
    if missing > 0:
        rows.append({"outcome": "not_run", "reason": "", "count": missing})
    return rows


def histogram(index: RunIndex) -> JsonDict | None:
    """Distribution of the rewards; a bin for each value if there are few. None without rewards."""
    rewards, passed = index.numbers("reward"), index.flag("passed")
    has = ~np.isnan(rewards)
    rewards, passed = rewards[has], passed[has]
    if not len(rewards):
        return None
    unique, codes = np.unique(rewards, return_inverse=True)
    if len(unique) <= BINS // 2:
        bins, edges, count = codes, unique, len(unique)
    else:
        low, high = float(unique[0]), float(unique[-1])
        edges, count = np.linspace(low, high, BINS + 1), BINS
        bins = np.clip(np.searchsorted(edges, rewards, "right") - 1, 0, BINS - 1)
    return {
        "edges": edges.tolist(), "discrete": len(unique) <= BINS // 2,
        "counts": np.bincount(bins, minlength=count).tolist(),
        "passed": np.bincount(bins[passed], minlength=count).tolist(),
        "queries": bin_queries(edges.tolist(), is_discrete=len(unique) <= BINS // 2),
    }  # fmt: skip


def bin_queries(edges: list[float], *, is_discrete: bool) -> list[str]:
    """The queries that select the rollouts of each bin of a histogram."""
    texts = [str(int(edge)) if edge.is_integer() and abs(edge) < LARGEST else repr(edge) for edge in edges]
    if is_discrete:
        return [f"reward={text}" for text in texts]
    last = len(texts) - 2
    return [
        f"reward>={texts[place]} reward{'<=' if place == last else '<'}{texts[place + 1]}" for place in range(last + 1)
    ]


def columns_json(index: RunIndex) -> list[JsonDict]:
    """The columns that queries, sorting and grouping can name, and the properties."""
    found = [(each.name, each.kind, each.doc.replace("`", "")) for each in COLUMNS]
    found += [(f"metric.{name}", "number", "a metric") for name in index.manifest.metric_names]
    found += [(f"state.{name}", "any", "a value of the state") for name in index.manifest.state_columns]
    found += [(f"info.{name}", "any", "a value of the example's info") for name in info_names(index)]
    rows: list[JsonDict] = [
        {"name": name, "kind": kind, "doc": doc, "indexed": bool(index.storage(name))} for name, kind, doc in found
    ]
    flags = [{"name": f"is:{name}", "kind": "flag", "doc": doc, "indexed": True} for name, (_, doc) in FLAGS.items()]
    return rows + flags


def info_names(index: RunIndex) -> list[str]:
    """Names in the `info` of the first examples."""
    key = "info names"
    if key not in index.derived:
        names: dict[str, None] = {}
        with suppress(StoreError):
            numbers = index.order[index.starts[:_EXAMPLES]].tolist()
            if numbers:
                with index.reader() as reader:
                    for each in numbers:
                        info: Any = cast(Example, reader.record(index.lines(each).example)).info
                        names.update(dict.fromkeys(map(str, table(info))))
        index.derived[key] = list(names)
    return index.derived[key]


def usage_json(index: RunIndex, final: JsonDict | None) -> JsonDict:
    """Tokens, requests and cost of the run's model."""
    recorded = table((final or {}).get("usage"))
    names = (*_TOKENS, "cached_tokens", "requests", "cost")
    if recorded:
        return {name: number(recorded.get(name)) for name in names}
    found = {name: _total(index.numbers(name)) for name in (*_TOKENS, "requests", "cost")}
    return {name: found.get(name) for name in names}


def latency(index: RunIndex) -> JsonDict | None:
    """Median and 95th percentile of the seconds of a rollout, without those of waiting; None without rollouts."""
    seconds = index.numbers("seconds") - np.nan_to_num(index.numbers("waiting_seconds"))
    known = np.sort(np.maximum(seconds[~np.isnan(seconds)], 0.0)).tolist()
    if not known:
        return None
    return {"p50": plain(nearest_rank(known, 0.5)), "p95": plain(nearest_rank(known, 0.95))}
