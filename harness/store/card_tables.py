"""Numbers of a run on a dataset card: its row in the leaderboard, and tables. All numbers come from `summary.json`. The
leaderboard of a repository is merged row by row: rows of other runs are kept unchanged."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal

from harness.core.types import JsonDict
from harness.store.card_text import escape
from harness.store.manifest import Manifest
from harness.store.values import count, ends, number, table

NONE = "–"

_MOST_DIGITS = 6

_READING = (
    "Means are over examples, of the scored rollouts. Two intervals do not show whether two means differ: use "
    "`bench compare`, which compares example by example."
)

_BEGIN, _END = "<!-- bench leaderboard -->", "<!-- end of bench leaderboard -->"

_HEAD = ("run", "environment", "model", "mean", "95 % interval", "scored", "pass@k", "pass^k")
_TAIL = ("tokens in", "tokens out", "cost", "without a score")


def leaderboard_row(manifest: Manifest, summary: JsonDict | None) -> str:
    """Leaderboard row of one run, with the same numbers as in a report."""
    summary = summary or {}
    reward, usage = table(summary.get("reward")), table(summary.get("usage"))
    k, at, hat = _largest_k(summary)
    used = [usage.get(key) for key in ("input_tokens", "output_tokens")]
    least = "≥ " if usage.get("unreported") else ""
    tokens = [f"{least}{each:,}" if isinstance(each, int) else "unknown" for each in used]
    cost = number(usage.get("cost"))
    dollars = NONE
    if cost is not None:
        # Two dollar signs in a line could become a formula.
        dollars = f"\\${cost:,.2f}" if cost >= 0.1 or cost == 0 else f"\\${Decimal(f'{cost:.2g}'):f}"
    cells = [
        escape(manifest.id),
        escape(manifest.env_id),
        escape(manifest.model),
        _score(reward.get("mean")),
        _span(reward),
        f"{count(summary.get('scored')):,} of {_total(summary):,}" if summary else NONE,
        f"{_score(at)}{_rate_span(summary, f'pass@{k}')} (k={k})" if k else NONE,
        f"{_score(hat)}{_rate_span(summary, f'pass^{k}')} (k={k})" if k > 1 else NONE,
        *tokens,
        dollars,
        escape(", ".join(f"{reason} {times}" for reason, times in table(summary.get("unscored")).items())) or NONE,
    ]
    return f"| {' | '.join(cells)} |"


def with_row(body: str, row: str, run_id: str) -> str:
    """Insert a run's row into the leaderboard of a card, which is created if missing.

    Rows are grouped by environment, best mean first.

    Args:
        body: The card without its head.
        row: Row from `leaderboard_row`.
        run_id: Run whose old row is replaced.
    """
    start, stop = body.find(_BEGIN), body.rfind(_END)
    former = [line for line in body[start:stop].splitlines() if line.startswith("| ")] if 0 <= start < stop else []
    rows = [line for line in former[1:] if _cells(line)[0] != escape(run_id)]
    rows = sorted([row, *rows], key=_place)
    rule = [":---" if place < 3 or name == _TAIL[-1] else "---:" for place, name in enumerate((*_HEAD, *_TAIL))]
    lines = [_BEGIN, f"| {' | '.join((*_HEAD, *_TAIL))} |", f"|{'|'.join(rule)}|", *rows]
    return with_block(body, _BEGIN, _END, "\n".join([*lines, "", _READING, _END]))


def with_block(body: str, begin: str, end: str, block: str) -> str:
    """Replace the text from marker `begin` to marker `end` by `block`. If `body` has no such markers, insert the block
    before the first section of a run, or append it."""
    start, stop = body.find(begin), body.rfind(end)
    if 0 <= start < stop:
        return body[:start] + block + (body[stop + len(end) :] or "\n")
    first = re.search(r"^<!-- bench run \S+ -->$", body, re.MULTILINE)
    if first:
        return f"{body[: first.start()]}{block}\n\n{body[first.start() :]}"
    return f"{body.rstrip()}\n\n{block}\n" if body.strip() else f"{block}\n"


def unscored_table(summary: JsonDict | None) -> list[str]:
    """Table of reasons for missing scores, followed by an empty line; empty if all rollouts have a score."""
    unscored = table((summary or {}).get("unscored"))
    if not unscored:
        return []
    rows = [f"| {escape(str(reason))} | {times} |" for reason, times in unscored.items()]
    return ["| without a score because | rollouts |", "|:---|---:|", *rows, ""]


def passes(summary: JsonDict | None) -> str:
    """pass@k for the largest k, as a table cell in Markdown."""
    k, at, _ = _largest_k(summary or {})
    return f"{_number(at)}{_rate_span(summary or {}, f'pass@{k}')} (k={k})" if k else NONE


def _cells(line: str) -> list[str]:
    # Split a row into cells. Bars in cells are escaped, so ` | ` only separates cells.
    return [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split(" | ")]


def _place(line: str) -> tuple[str, float, str]:
    """Sort key of a leaderboard row: environment, mean, run."""
    cells = [*_cells(line), *[""] * 4]
    try:
        mean = -float(cells[3])
    except ValueError:
        mean = math.inf
    return (cells[1], mean, cells[0])


def _largest_k(summary: Mapping[str, object]) -> tuple[int, object, object]:
    """Return the largest k of pass@k, and the values of pass@k and pass^k for it; 0 and None if there is no k."""
    at, hat = table(summary.get("pass_at_k")), table(summary.get("pass_hat_k"))
    k = max((int(name) for name in at if name.isdecimal()), default=0)
    return k, at.get(str(k)), hat.get(str(k))


def _score(value: object, digits: int = 3) -> str:
    known = number(value)
    if known is None:
        return NONE
    if known and (abs(known) >= 1e6 or abs(known) < 1e-5):
        return f"{known:.3g}"
    return f"{known + 0.0:.{digits}f}"


def _span(reward: Mapping[str, object]) -> str:
    known = ends(reward.get("ci95"))
    if known is None:
        return NONE
    low, high = known
    digits = 3
    while digits < _MOST_DIGITS and high - low < 2 * 10**-digits:
        digits += 1
    return f"\\[{_score(low, digits)}, {_score(high, digits)}\\]"


def _rate_span(summary: Mapping[str, object], name: str) -> str:
    """The interval of a pass rate after a space; "" if the summary has none, as those of earlier versions."""
    span = _span(table(table(summary.get("pass_estimates")).get(name)))
    return "" if span == NONE else f" {span}"


def _total(summary: Mapping[str, object]) -> int:
    return max(count(summary.get("planned")), count(summary.get("num_rollouts")))


def results(manifest: Manifest, summary: JsonDict | None) -> list[tuple[str, str]]:
    """Names and values of a run's results."""
    if summary is None:
        return [("scored", "no summary yet")]
    reward = table(summary.get("reward"))
    label = f"mean over {len(manifest.functions)} evaluation functions" if manifest.functions else "mean reward"
    interval = ends(reward.get("ci95"))
    shown = NONE if interval is None else " to ".join(map(_number, interval))
    results = [(label, _number(reward.get("mean"))), ("95 % interval", shown)]
    if early := table(summary.get("until_ci")):
        cause = "a sequential gate" if manifest.gate else "--until-ci"
        count_words = f"after {early.get('examples')} of {early.get('of_examples')} examples, by {cause}"
        results.append(
            ("ended early", f"{count_words}; the interval is a confidence sequence for the mean of all of them")
        )
    scored, unscored = count(summary.get("scored")), table(summary.get("unscored"))
    coverage = f"{scored} of {_total(summary)}"
    if unscored:
        coverage += f", unscored: {', '.join(f'{times} {reason}' for reason, times in unscored.items())}"
    if missing := count(summary.get("not_run")):
        coverage += f", not run: {missing}"
    results += [("standard deviation", _number(reward.get("std"))), ("scored", coverage)]
    for label, key in (("pass@{}", "pass_at_k"), ("pass^{}", "pass_hat_k")):
        results += [
            (label.format(k), _rate(label.format(k), v, summary))
            for k, v in table(summary.get(key)).items()
            if (k, key) != ("1", "pass_hat_k")
        ]
    bounds = ends(summary.get("bounds"))
    if unscored and bounds is not None:
        results.append(("mean if the unscored were worst, or best", ", or ".join(map(_number, bounds))))
    for key, words in (("truncated", "answers cut short"), ("empty", "empty answers"), ("refused", "refusals")):
        if times := count(summary.get(key)):
            results.append((words, f"{times} of {scored}"))
    for name, metric in table(summary.get("metrics")).items():
        if name in manifest.metric_names:
            results.append((escape(f"mean {name}"), _number(table(metric).get("mean"))))
    usage = table(summary.get("usage"))
    tokens_in, tokens_out = usage.get("input_tokens"), usage.get("output_tokens")
    is_known = tokens_in is not None and tokens_out is not None
    results.append(("tokens", f"{tokens_in} in, {tokens_out} out" if is_known else "not reported"))
    return results


def _rate(name: str, value: object, summary: Mapping[str, object]) -> str:
    """A pass rate with its interval, which summaries of earlier versions do not have."""
    interval = ends(table(table(summary.get("pass_estimates")).get(name)).get("ci95"))
    return _number(value) + ("" if interval is None else f" ({' to '.join(map(_number, interval))})")


def _number(value: object) -> str:
    known = number(value)
    return NONE if known is None else f"{known:.4g}"
