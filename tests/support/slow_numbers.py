"""The numbers of a run a second time: slow, obvious, and without a line of the product. It reads the journal as JSON
and counts on fingers (fractions, every choice of k rollouts, scipy for quantiles), as the design and docs/concepts say
what each number is. Then it holds against that whatever shows numbers: `summary.json`, tables, cards, frames, rows."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations, takewhile
from pathlib import Path
from statistics import NormalDist
from typing import Any

LARGEST = 1e100
"""A greater reward is no usable number."""

ROUNDING = 1e-12
"""Values that differ by less than this part of their size are equal."""

FEW = 300
"""Examples. Below, an interval of 0/1 scores is one of proportions."""

HARDLY_ANY = 20
"""Passes, or failures, of independent attempts: fewer are no normal distribution."""

SEEN = 15
"""Examples, n over the kurtosis, that show a spread."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """What a run was asked for."""

    examples: int
    rollouts: int
    threshold: float = 1.0
    low: float = 0.0
    """Worst reward that the rubric can give."""
    high: float = 1.0


@dataclass
class Rollout:
    """One rollout and its newest outcome."""

    example: str
    """Its example's key."""
    index: int
    reward: float | None = None
    reason: str | None = None
    """Why there is no reward; None if there is one."""
    metrics: dict[str, float | None] = field(default_factory=dict[str, float | None])
    truncated: bool = False
    empty: bool = False
    refused: bool = False
    usage: Json = field(default_factory=dict[str, Any])
    judged: list[Json] | None = None
    """Usage of each reply of a judge."""
    seconds: float = 0.0


# --- From the journal to rollouts --------------------------------------------------------------------------------


def lines_of(journal: Path) -> list[Json]:
    """The whole lines. A torn last one is none."""
    if not journal.exists():
        return []
    return [json.loads(line) for line in journal.read_bytes().rpartition(b"\n")[0].split(b"\n") if line]


def rollouts_of(journal: Path) -> list[Rollout]:
    """Every rollout that has a line, with what its newest lines say, by example and index."""
    place: dict[str, int] = {}
    bases: dict[str, Json] = {}
    scores: dict[str, Json] = {}
    for line in lines_of(journal):
        if line["type"] == "example":
            index = line.get("index", 0)
            # Two examples with one place in the dataset (it got new rows) are two examples: the later goes behind all.
            free = index if index >= 0 and index not in place.values() else max(place.values(), default=-1) + 1
            place.setdefault(line["example_key"], free)
        elif line["type"] == "scored":
            scores[line["key"]] = line
        else:
            bases[line["key"]] = line
            scores.pop(line["key"], None)  # it was a score of what was generated before
    found = [_rollout(base, scores.get(key)) for key, base in bases.items()]
    return sorted(found, key=lambda each: (place[each.example], each.index))


def usable(value: object) -> float | None:
    """A number that means something; None otherwise."""
    if value is None or isinstance(value, str | list | dict):
        return None
    number = float(value)  # type: ignore[arg-type]
    return number if -LARGEST <= number <= LARGEST else None


def _rollout(base: Json, score: Json | None) -> Rollout:
    found = Rollout(base["example_key"], base["rollout_index"], usage=base["usage"])
    timing = base["timing"]
    found.seconds = max(0.0, timing["generation"] - timing.get("waiting", 0.0))
    if base["type"] == "failed":
        found.reason = base["reason"]
        return found
    found.truncated = base["is_truncated"]
    found.refused = _said(base["completion"], "refusal")
    found.empty = not found.refused and not _said(base["completion"], "content", "tool_calls")
    judgements = base["state"].get("judgements")
    if score is None:
        found.reason = "not scored"
    else:
        found.reward = usable(score["reward"])
        found.metrics = {name: usable(value) for name, value in score["metrics"].items()}
        judgements = score.get("extra", {}).get("judgements", judgements)
        if found.reward is None:
            found.reason = _reason(score)
    if isinstance(judgements, list) and judgements:
        found.judged = [each["usage"] for each in judgements if isinstance(each, dict) and "usage" in each]
    return found


def _said(completion: object, *names: str) -> bool:
    """Whether the last message of the assistant has anything under one of these names."""
    if isinstance(completion, str):
        return bool(completion.strip()) if "content" in names else False
    said = [message for message in completion if message["role"] == "assistant"]  # type: ignore[attr-defined]
    values = [said[-1].get(name) for name in names] if said else []
    return any(value.strip() if isinstance(value, str) else value for value in values)


def _reason(score: Json) -> str:
    if score["reward"] is not None:
        return "reward is not a usable number"
    if not score["reasons"]:
        return "no reason given"
    function, words = next(iter(score["reasons"].items()))
    kind = words.split(":")[0]
    return kind if function == "*" else f"{function} {kind}"


# --- From rollouts to numbers ------------------------------------------------------------------------------------


def exact(values: Iterable[float]) -> list[Fraction]:
    return [Fraction(value) for value in values]


def mean(values: Sequence[Fraction]) -> Fraction:
    return sum(values, Fraction(0)) / len(values)


def variance(values: Sequence[Fraction]) -> Fraction:
    """Of a sample: n − 1."""
    middle = mean(values)
    return sum(((value - middle) ** 2 for value in values), Fraction(0)) / (len(values) - 1)


def level(values: Sequence[Fraction]) -> bool:
    """Whether they are all the same, but for rounding."""
    return max(values) - min(values) <= Fraction(ROUNDING) * max(abs(max(values)), abs(min(values)))


def groups_of(rollouts: Sequence[Rollout]) -> list[list[Rollout]]:
    """The rollouts of each example that has any."""
    found: dict[str, list[Rollout]] = {}
    for each in rollouts:
        found.setdefault(each.example, []).append(each)
    return list(found.values())


def passes(reward: float, threshold: float) -> bool:
    return reward >= threshold - 1e-9


def pass_rates(rollouts: Sequence[Rollout], asked: Asked) -> dict[str, tuple[float | None, float | None, int]]:
    """k → (pass@k, pass^k, examples without enough scored rollouts), by going through every choice of k rollouts."""
    found: dict[str, tuple[float | None, float | None, int]] = {}
    k = 1
    while k <= asked.rollouts:
        at: list[Fraction] = []
        hat: list[Fraction] = []
        short = 0
        for group in groups_of(rollouts):
            passed = [passes(each.reward, asked.threshold) for each in group if each.reward is not None]
            choices = list(combinations(passed, k))
            if not choices:
                short += 1
                continue
            at.append(Fraction(sum(any(choice) for choice in choices), len(choices)))
            hat.append(Fraction(sum(all(choice) for choice in choices), len(choices)))
        found[str(k)] = (float(mean(at)), float(mean(hat)), short) if at else (None, None, short)
        k *= 2
    return found


def bounds(rollouts: Sequence[Rollout], asked: Asked) -> list[float] | None:
    """The mean with the worst, and with the best, in place of what is missing."""
    known = exact(each.reward for each in rollouts if each.reward is not None)
    if not rollouts:
        return None
    if len(known) == len(rollouts):
        groups = [mean(exact(each.reward or 0.0 for each in group)) for group in groups_of(rollouts)]
        return [float(mean(groups))] * 2
    if not (math.isfinite(asked.low) and math.isfinite(asked.high)):
        return None
    ends: list[float] = []
    for filling in (min([Fraction(asked.low), *known]), max([Fraction(asked.high), *known])):
        filled = [
            mean([filling if each.reward is None else Fraction(each.reward) for each in group])
            for group in groups_of(rollouts)
        ]
        ends.append(float(mean(filled)))
    return ends


def tokens(usages: Sequence[Json]) -> Json:
    """The sum of all that was used; what nobody reported is unknown."""
    names = ("input_tokens", "output_tokens", "reasoning_tokens", "cached_tokens")
    total = {name: sum(each.get(name, 0) for each in usages) for name in (*names, "requests", "unreported")}
    costs = [each["cost"] for each in usages if each.get("cost") is not None]
    known = total["requests"] == 0 or total["unreported"] < total["requests"]
    return {
        **{name: total[name] if known else None for name in names},
        "requests": total["requests"],
        "unreported": total["unreported"],
        "cost": math.fsum(costs) if costs else None,
    }


def seconds(rollouts: Sequence[Rollout]) -> Json | None:
    """Times of generation; the p-th percentile is the least that p percent do not exceed."""
    known = sorted(each.seconds for each in rollouts if each.seconds > 0)
    if not known:
        return None

    def rank(percent: int) -> float:
        return next(value for place, value in enumerate(known, 1) if 100 * place >= percent * len(known))

    return {"mean": math.fsum(known) / len(known), "p50": rank(50), "p95": rank(95), "max": known[-1]}


# --- Against what the product says -------------------------------------------------------------------------------

CHECKED = {
    "num_examples", "num_rollouts", "planned", "scored", "unscored", "not_run", "coverage", "reward", "bounds",
    "metrics", "pass_threshold", "pass_at_k", "pass_hat_k", "pass_excluded", "truncated", "empty", "refused", "usage",
    "judge_usage", "wall_s", "resumed", "rollouts_per_s", "rollout_seconds", "methods", "until_ci",
    "pass_estimates",
}  # fmt: skip
"""What `check_summary` looks at: a number that is added there needs a slow twin here."""

SPREAD = {"mean", "stderr", "ci95", "std", "min", "max", "count", "examples", "method"}


def close(found: object, expected: float | None, what: str, *, relative: float = 1e-9) -> None:
    """The same number, or both none."""
    if expected is None:
        assert found is None, f"{what}: {found!r}, and there is none"
        return
    assert isinstance(found, int | float) and not isinstance(found, bool), f"{what}: {found!r}, not {expected}"
    assert math.isclose(found, expected, rel_tol=relative, abs_tol=1e-12), f"{what}: {found!r}, not {expected!r}"


def check_summary(found: Json, rollouts: Sequence[Rollout], asked: Asked) -> None:
    """Hold a summary, as JSON, against the rollouts."""
    assert found["until_ci"] is None, "none of these runs ends early"
    assert set(found) == CHECKED, f"without a slow twin, or gone: {set(found) ^ CHECKED}"
    scored = [each for each in rollouts if each.reward is not None]
    unscored = Counter(each.reason for each in rollouts if each.reward is None)
    planned = asked.examples * asked.rollouts
    counts = {
        "num_examples": len({each.example for each in rollouts}),
        "num_rollouts": len(rollouts),
        "planned": planned,
        "scored": len(scored),
        "not_run": planned - len(rollouts),
        "truncated": sum(each.truncated for each in scored),
        "empty": sum(each.empty for each in scored),
        "refused": sum(each.refused for each in scored),
    }
    assert {name: found[name] for name in counts} == counts
    assert found["unscored"] == dict(unscored)
    assert list(found["unscored"].values()) == sorted(unscored.values(), reverse=True), "the commonest first"
    assert found["scored"] + sum(found["unscored"].values()) + found["not_run"] == planned
    close(found["coverage"], len(scored) / planned if planned else None, "coverage")
    close(found["pass_threshold"], asked.threshold, "pass_threshold")
    groups = groups_of(rollouts)
    rewards = [[each.reward for each in group] for group in groups]
    check_spread(found["reward"], rewards, "reward", limits=(asked.low, asked.high))
    names = {name for each in rollouts for name in each.metrics}
    assert set(found["metrics"]) == names
    for name in names:
        values = [[each.metrics.get(name) for each in group] for group in groups]
        limits = (asked.low, asked.high) if values == rewards else None
        check_spread(found["metrics"][name], values, name, limits=limits)
    rates = pass_rates(rollouts, asked)
    assert list(found["pass_at_k"]) == list(found["pass_hat_k"]) == list(found["pass_excluded"]) == list(rates)
    for k, (at, hat, short) in rates.items():
        close(found["pass_at_k"][k], at, f"pass@{k}")
        close(found["pass_hat_k"][k], hat, f"pass^{k}")
        assert found["pass_excluded"][k] == short, f"examples that are no part of pass@{k}"
        for name, rate in ((f"pass@{k}", at), (f"pass^{k}", hat)):
            if name == "pass^1":  # the same as pass@1
                assert name not in found["pass_estimates"]
                continue
            estimate = found["pass_estimates"][name]
            close(estimate["mean"], rate, name)
            assert estimate["excluded"] == short
            if rate is not None and estimate["ci95"] is not None:
                low, high = estimate["ci95"]
                assert 0 <= low <= rate + 1e-9 and rate - 1e-9 <= high <= 1, name
                assert found["methods"][estimate["method"]], "a method that nobody explains"
    _check_bounds(found, rollouts, asked)
    _check_usage(found, rollouts)
    for each in (found["reward"], *found["metrics"].values()):
        assert each["method"] is None or found["methods"][each["method"]], "a method that nobody explains"


def check_spread(
    found: Json, groups: list[list[float | None]], what: str, *, limits: tuple[float, float] | None = None
) -> None:
    """Hold the reward, or a metric (which has no limits), against the values of each example."""
    assert set(found) == SPREAD, f"without a slow twin, or gone: {set(found) ^ SPREAD}"
    known = [[value for value in group if value is not None] for group in groups]
    known = [group for group in known if group]
    flat = [value for group in known for value in group]
    assert (found["count"], found["examples"]) == (len(flat), len(known)), what
    if not flat:
        assert {found[name] for name in ("mean", "stderr", "ci95", "std", "min", "max", "method")} == {None}, what
        return
    means = [mean(exact(group)) for group in known]
    close(found["mean"], float(mean(means)), f"{what}: mean")
    close(found["min"], min(flat), f"{what}: min")
    close(found["max"], max(flat), f"{what}: max")
    spread = None if len(flat) < 2 else 0.0 if level(exact(flat)) else math.sqrt(variance(exact(flat)))
    close(found["std"], spread, f"{what}: std")
    stderr = None if len(means) < 2 or level(means) else math.sqrt(variance(means) / len(means))
    close(found["stderr"], stderr, f"{what}: stderr")
    check_interval(found, known, means, what, limits)


def check_interval(
    found: Json,
    groups: list[list[float]],
    means: Sequence[Fraction],
    what: str,
    limits: tuple[float, float] | None,
) -> None:
    """Whether the interval is what its method gives, and its method the right one."""
    method, ends = found["method"], found["ci95"]
    expected, limits = method_for(groups, means, limits)
    assert method == expected, f"{what}: {method}, where {expected} is right"
    if method is None:
        assert ends is None, what
        return
    low, high = ends_by(method, means, limits)
    close(ends[0], low, f"{what}: low end ({method})")
    close(ends[1], high, f"{what}: high end ({method})")
    assert ends[0] <= found["mean"] <= ends[1] and ends[0] < ends[1], f"{what}: no interval of {found['mean']}: {ends}"


def method_for(
    groups: list[list[float]], means: Sequence[Fraction], limits: tuple[float, float] | None
) -> tuple[str | None, tuple[float, float] | None]:
    """How an interval has to be made, and within which limits: those named, widened to what was seen; else 0 and 1 of
    zeros and ones, and the two values of ten examples or more with one rollout each."""
    n, flat = len(means), [value for group in groups for value in group]
    single = all(len(group) == 1 for group in groups)
    if n < 2:
        return None, None
    if limits is not None and all(map(math.isfinite, limits)):
        low, high = min(limits[0], *flat), max(limits[1], *flat)
    elif {*flat} == {0.0, 1.0}:
        low, high = 0.0, 1.0
    elif single and n >= 10 and len({*flat}) == 2:
        low, high = min(flat), max(flat)
    else:
        return (None if level(means) else "t"), None
    if level(means):
        return ("wilson" if flat[0] in (low, high) else "adjusted_t"), (low, high)
    ends = ends_by("t", means, None)
    outside = ends[0] < low or ends[1] > high
    if single and {*flat} <= {low, high}:
        uneven = min(flat.count(low), flat.count(high)) < HARDLY_ANY
        return ("wilson" if n < FEW or uneven or outside else "t"), (low, high)
    away = [float(value - mean(means)) for value in means]
    seen = sum(d * d for d in away) ** 2 / sum(d**4 for d in away)
    return ("adjusted_t" if outside or seen < SEEN else "t"), (low, high)


def ends_by(method: str, means: Sequence[Fraction], limits: tuple[float, float] | None) -> tuple[float, float]:
    """The ends of a 95 % interval."""
    from scipy import stats

    n, middle = len(means), float(mean(means))
    low, high = limits or (0.0, 1.0)
    if method == "wilson":
        passed = round(n * (middle - low) / (high - low))
        least, most = _proportion(passed / n, n, NormalDist().inv_cdf(0.975))
        if 0 < passed < HARDLY_ANY:
            least = min(least, float(stats.beta.ppf(0.03, passed, n - passed + 1)))
        if 0 < n - passed < HARDLY_ANY:
            most = max(most, float(stats.beta.ppf(0.97, passed + 1, n - passed)))
        return low + least * (high - low), low + most * (high - low)
    t = float(stats.t.ppf(0.975, n - 1))
    if method == "t":
        half = t * math.sqrt(variance(means) / n)
        return middle - half, middle + half
    assert method == "adjusted_t", f"no slow twin of the method {method!r}"
    every = [*map(float, means), low, high]
    centre = sum(every) / (n + 2)
    half = t * math.sqrt(sum((value - centre) ** 2 for value in every)) / (n + 2)
    return max(low, centre - half), min(high, centre + half)


def _proportion(p: float, n: float, z: float) -> tuple[float, float]:
    """Wilson's: every q that lies within z standard errors, its own ones, of p."""
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(max(0.0, p * (1 - p)) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(0.0, centre - half), min(1.0, centre + half)


def _check_bounds(found: Json, rollouts: Sequence[Rollout], asked: Asked) -> None:
    expected = bounds(rollouts, asked)
    if expected is None:
        assert found["bounds"] is None
        return
    close(found["bounds"][0], expected[0], "lower bound")
    close(found["bounds"][1], expected[1], "upper bound")
    middle = found["reward"]["mean"]
    assert middle is None or expected[0] - 1e-12 <= middle <= expected[1] + 1e-12, "the mean is outside of its bounds"


def _check_usage(found: Json, rollouts: Sequence[Rollout]) -> None:
    for name, value in tokens([each.usage for each in rollouts]).items():
        close(found["usage"][name], value, f"usage: {name}")
    judged = [usage for each in rollouts for usage in each.judged or ()]
    if any(each.judged is not None for each in rollouts):
        for name, value in tokens(judged).items():
            close(found["judge_usage"][name], value, f"judge_usage: {name}")
        unpriced = sum(each["requests"] for each in judged if each.get("cost") is None)
        assert found["judge_usage"]["unpriced"] == unpriced
    else:
        assert found["judge_usage"] is None
    times = seconds(rollouts)
    if times is None:
        assert found["rollout_seconds"] is None
    else:
        for name, value in times.items():
            close(found["rollout_seconds"][name], value, f"rollout_seconds: {name}", relative=1e-6)
    made = len(rollouts) - found["resumed"]
    wall = found["wall_s"]
    close(found["rollouts_per_s"], made / wall if wall and made > 0 else None, "rollouts_per_s")


# --- Against what people are shown -------------------------------------------------------------------------------

NONE = "–"


def shows(cell: str, expected: float | None, what: str) -> None:
    """Whether a figure is the rounded number; a dash is none."""
    if expected is None:
        assert cell == NONE, f"{what}: {cell!r}, and there is none"
        return
    assert cell != NONE, f"{what}: a dash for {expected}"
    digits = re.fullmatch(r"[+-]?[\d,]+(?:\.(\d+))?(e[+-]\d+)?", cell)
    assert digits, f"{what}: {cell!r} is no number"
    unit = 10.0 ** -len(digits[1] or "") * (10.0 ** int(digits[2][1:]) if digits[2] else 1.0)
    assert abs(float(cell.replace(",", "")) - expected) <= unit * 0.5000001 + 1e-9 * abs(expected), (
        f"{what}: {cell!r}, not {expected!r}"
    )


def shows_interval(cell: str, ends: Sequence[float] | None, what: str) -> None:
    """The same of `[low, high]`."""
    if ends is None:
        assert cell == NONE, f"{what}: {cell!r}, and there is none"
        return
    pair = re.fullmatch(r"\[(\S+), (\S+)\]", cell)
    assert pair, f"{what}: {cell!r} is no interval"
    assert pair[1] != pair[2] or ends[1] - ends[0] < 2e-6, f"{what}: an interval without a width"
    for end, expected in zip(pair.groups(), ends, strict=True):
        shows(end, expected, what)


def columns_of(text: str, first: str) -> list[dict[str, str]]:
    """The rows of the tables whose heads begin with the column `first`, joined by that; cells are two spaces apart."""
    lines = text.split("\n")
    heads = [place for place, line in enumerate(lines) if re.match(rf"{first}(?:  |$)", line)]
    assert heads, f"no table of {first!r} in:\n{text}"
    rows: dict[str, dict[str, str]] = {}
    for at in heads:
        names = re.split(r" {2,}", lines[at].strip())
        for line in takewhile(str.strip, lines[at + 2 :]):
            cells = re.split(r" {2,}", line.strip())
            assert len(cells) == len(names), f"{cells} under {names}"
            rows.setdefault(cells[0], {}).update(zip(names, cells, strict=True))
    return list(rows.values())


def check_table(text: str, summary: Json) -> None:
    """Hold the final table of one run, on a wide screen, against its (checked) summary."""
    if not summary["num_rollouts"]:
        return
    [row] = columns_of(text, "run")
    reward, planned = summary["reward"], max(summary["planned"], summary["num_rollouts"])
    shows(row["mean"], reward["mean"], "table: mean")
    shows_interval(row["95 % interval"], reward["ci95"], "table: interval")
    shows(row["std"], reward["std"], "table: std")
    assert row["scored"] == f"{summary['scored']:,} of {planned:,}"
    for k, value in summary["pass_at_k"].items():
        shows(row[f"pass@{k}"], value, f"table: pass@{k}")
    for k, value in summary["pass_hat_k"].items():
        if k != "1":
            shows(row[f"pass^{k}"], value, f"table: pass^{k}")
    usage = summary["usage"]
    assert {"tokens in", "tokens out"} <= set(row), f"no tokens in:\n{text}"
    for name, key in (("tokens in", "input_tokens"), ("tokens out", "output_tokens")):
        lead = "≥ " if usage["unreported"] else ""
        assert row[name] == ("unknown" if usage[key] is None else f"{lead}{usage[key]:,}")
    _check_remarks(text, summary)
    _check_metrics(text, summary)


def _check_remarks(text: str, summary: Json) -> None:
    prose = " ".join(text.split())
    unscored = sum(summary["unscored"].values())
    found = re.search(r"(\S+) unscored \((.*?)\)(?:; mean (\S+) if all were worst, (\S+) if all best)?", prose)
    assert (found is not None) == bool(unscored), prose
    if found:
        assert found[1] == f"{unscored:,}"
        told = [part.rpartition(" ") for part in found[2].split(", ")]
        top = list(summary["unscored"].items())
        for (reason, _, number), (expected, count) in zip(told, top, strict=False):
            if "other reasons" not in reason:
                assert (reason, number) == (expected, f"{count:,}")
        assert sum(int(number.replace(",", "")) for _, _, number in told) == unscored
        assert (found[3] is None) == (summary["bounds"] is None)
        if summary["bounds"] is not None:
            shows(found[3], summary["bounds"][0], "table: lower bound")
            shows(found[4], summary["bounds"][1], "table: upper bound")
    missing = re.search(r"(\S+) of (\S+) not run", prose)
    assert (missing and missing.groups()) == (
        (f"{summary['not_run']:,}", f"{summary['planned']:,}") if summary["not_run"] else None
    )
    for key, words in (("truncated", "were cut short by a limit"), ("empty", "are empty"), ("refused", "are refusals")):
        told = re.search(rf"(\S+) of (\S+) answers {words}", prose)
        number, scored = summary[key], summary["scored"]
        assert (told and told.groups()) == ((f"{number:,}", f"{scored:,}") if number and scored else None), words


def _check_metrics(text: str, summary: Json) -> None:
    if not any(line.startswith("metric  ") for line in text.split("\n")):
        same = [(each["mean"], each["std"]) for each in summary["metrics"].values()]
        assert same in ([], [(summary["reward"]["mean"], summary["reward"]["std"])]), "metrics that are not shown"
        return
    rows = {row["metric"]: row for row in columns_of(text, "metric")}
    assert set(rows) == set(summary["metrics"])
    for name, metric in summary["metrics"].items():
        row = rows[name]
        shows(row["mean"], metric["mean"], f"table: {name}")
        shows_interval(row["95 % interval"], metric["ci95"], f"table: {name}")
        shows(row["min"], metric["min"], f"table: {name} min")
        shows(row["max"], metric["max"], f"table: {name} max")
        assert row["values"] == f"{metric['count']:,}"


def check_end(text: str, name: str, summary: Json) -> None:
    """Hold the last line of the live display, whose numbers come from memory, against the (checked) summary."""
    pattern = rf"^{name}: \w+, (\d+)/(\d+)(?:, mean (\S+)(?: ±(\S+))?)?(?:, (\S+) unscored \((.*)\))?, [^,]* tokens"
    found = re.search(pattern, text, re.MULTILINE)
    assert found, text
    unscored = {reason: number for reason, number in summary["unscored"].items() if reason != "not scored"}
    done = summary["scored"] + sum(unscored.values())
    assert (int(found[1]), int(found[2])) == (done, summary["planned"])
    reward = summary["reward"]
    shows(found[3] or NONE, reward["mean"], "live: mean")
    half = reward["ci95"] and max(reward["ci95"][1] - reward["mean"], reward["mean"] - reward["ci95"][0])
    shows(found[4] or NONE, half, "live: half of the interval")
    assert found[5] == (f"{sum(unscored.values()):,}" if unscored else None), "live: unscored"


def check_card(card: str, run_id: str, summary: Json) -> None:
    """Hold the dataset card against the (checked) summary of one of its runs."""
    plain = re.sub(r"\\([\\`*_\[\]|~$])", r"\1", card)
    [line] = [line for line in plain.split("\n") if line.startswith(f"| {run_id} |")]
    _, _, _, _, middle, ends, coverage, *_ = (cell.strip() for cell in line.split("|"))
    _card_result(middle, ends, coverage, summary)
    section = next((part for part in plain.split("\n## ")[1:] if part.split("\n")[0].endswith(run_id)), None)
    assert (section is not None) == bool(summary["num_rollouts"]), "a section is for runs that have rows"
    if section is None:
        return
    told = dict(re.findall(r"^\| (.+?) \| (.*?) \|$", section, re.MULTILINE))
    _card_result(told["mean reward"], told["95 % interval"], told["scored"], summary)
    _card_shows(told["standard deviation"], summary["reward"]["std"], "card: std")
    for key, lead in (("pass_at_k", "pass@"), ("pass_hat_k", "pass^")):
        for k, value in summary[key].items():
            if (key, k) != ("pass_hat_k", "1"):
                _card_shows(told[f"{lead}{k}"].partition(" (")[0], value, f"card: {lead}{k}")
    for name, metric in summary["metrics"].items():
        if f"mean {name}" in told:
            _card_shows(told[f"mean {name}"], metric["mean"], f"card: {name}")
    worst = told.get("mean if the unscored were worst, or best")
    assert (worst is not None) == bool(summary["unscored"] and summary["bounds"])
    if worst is not None:
        for end, expected in zip(worst.split(", or "), summary["bounds"], strict=True):
            _card_shows(end, expected, "card: bounds")
    for key, label in (("truncated", "answers cut short"), ("empty", "empty answers"), ("refused", "refusals")):
        expected = f"{summary[key]} of {summary['scored']}" if summary[key] else None
        assert told.get(label) == expected, label
    usage = summary["usage"]
    known = f"{usage['input_tokens']} in, {usage['output_tokens']} out"
    assert told["tokens"] == ("not reported" if usage["input_tokens"] is None else known)


def _card_result(middle: str, ends: str, coverage: str, summary: Json) -> None:
    reward = summary["reward"]
    _card_shows(middle, reward["mean"], "card: mean")
    parts = ends.split(" to ") if reward["ci95"] else [ends]
    for end, expected in zip(parts, reward["ci95"] or [None], strict=True):
        _card_shows(end, expected, "card: interval")
    expected = f"{summary['scored']} of {max(summary['planned'], summary['num_rollouts'])}"
    reasons = ", ".join(f"{number} {reason}" for reason, number in summary["unscored"].items())
    expected += f", unscored: {reasons}" if reasons else ""
    expected += f", not run: {summary['not_run']}" if summary["not_run"] else ""
    assert coverage == expected


def _card_shows(cell: str, expected: float | None, what: str) -> None:
    """Four digits, wherever the point is."""
    if expected is None:
        assert cell == NONE, f"{what}: {cell!r}, and there is none"
        return
    assert math.isclose(float(cell), expected, rel_tol=5.001e-4, abs_tol=1e-12), f"{what}: {cell!r}, not {expected!r}"


def check_rows(rows: Sequence[Mapping[str, Any]], rollouts: Sequence[Rollout]) -> None:
    """Hold rows of a dataset, in the order of every table, against the rollouts."""
    assert len(rows) == len(rollouts)
    for row, each in zip(rows, rollouts, strict=True):
        assert row["rollout_index"] == each.index
        assert row["outcome"] == ("unscored" if each.reward is None else "scored")
        close(no_nan(row["reward"]), each.reward, "row: reward")
        for name, value in each.metrics.items():
            close(no_nan(row[name]), value, f"row: {name}")
        assert each.reward is not None or row["error"], "a rollout without a score and without a word why"


def no_nan(value: Any) -> Any:
    """pandas has NaN where there is nothing."""
    return None if isinstance(value, float) and math.isnan(value) else value
