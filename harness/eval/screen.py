"""What `bench eval` prints at the end, and its line for a run that ended. Owns the layout and words; computes nothing.

The report follows the documented one: rows, runs, time and tokens; time and tokens of each model; a table of the eval
functions. Behind it stands what the documented numbers hide: what failed, what got no score, how sure the numbers are,
and how far the models differ. Foreign text goes through `report.text`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from harness.eval.results import EvalEvalSummary, EvalModelSummary, EvalPaired, EvalResult, EvalRunResult
from harness.report import numerals
from harness.report.text import clean, fit
from harness.stats.intervals import Estimate
from harness.stats.paired import Paired

MOST_NAME = 40
"""Cells of a model's or function's name in a table; a longer one loses its middle."""

LEAST_NAME = 16
"""Cells below which a name tells nothing: rather than that, pass@k gets a table of its own."""

ERROR_LENGTH = 50
"""Characters of an error in a progress line, `...` included."""

GAP = 2

_Table: TypeAlias = list[list[str]]
"""Rows of cells, the heads first."""


def eval_screen(result: EvalResult, width: int = 80, *, ascii_only: bool = False) -> list[Text]:
    """The report as lines; bold marks its heads where the terminal can.

    Args:
        result: The evaluation.
        width: Of the terminal, in cells. Numbers are never cut: below about 70 cells, lines grow longer than it.
        ascii_only: Whether the terminal has no other characters.
    """
    lines = [*_overview(result, width), *_performance(result, width), *_scores(result, width)]
    lines += [*_certainty(result, width), *_differences(result, width), *_failures(result, width)]
    lines += _scorer_errors(result, width)
    return [_plain(line) for line in lines] if ascii_only else lines


def show(result: EvalResult, console: Console) -> None:
    """Print the report.

    Args:
        result: The evaluation.
        console: From `report.text.make_console`.
    """
    for line in eval_screen(result, console.width, ascii_only=console.options.ascii_only):
        console.print(line, soft_wrap=True)


def run_line(current: int, total: int, run: EvalRunResult) -> str:
    """`[1/18] [primary] OK (120ms, 30 tokens) [rewards:exact_match=1.000]`, as the documents have it.

    Args:
        current: Runs that have ended, this one counted.
        total: Runs of all models together.
        run: The run.
    """
    tag = f"[{run.model_tag}] " if run.model_tag else ""
    head = f"[{current}/{total}] {tag}{'OK' if run.success else 'FAILED'}"
    head += f" ({format_duration(run.duration_ms)}, {_tokens(run.tokens, run.unreported)} tokens)"
    if not run.success:
        error = clean(run.error or run.reason or "", 4 * ERROR_LENGTH)
        return f"{head} - {error if len(error) <= ERROR_LENGTH else error[: ERROR_LENGTH - 3] + '...'}"
    scores = [f"{clean(name, 80)}={score:.3f}" for name, score in run.scores.items()]
    scores += [f"{clean(name, 80)}=no score" for name in run.score_errors]
    return f"{head} [{', '.join(scores)}]" if scores else head


def format_duration(ms: float) -> str:
    """`562ms`, `1.2s`, `3m12.4s`."""
    if round(ms) < 1000:
        return f"{max(0, round(ms))}ms"
    tenths = round(ms / 100)
    if tenths < 600:
        return f"{tenths / 10:.1f}s"
    minutes, rest = divmod(tenths, 600)
    return f"{minutes}m{rest / 10:.1f}s"


def _overview(result: EvalResult, width: int) -> Iterator[Text]:
    yield _head("Evaluation Results:")
    yield Text(f"  Rows: {result.total_rows}")
    yield Text(f"  Runs per row: {result.n_runs}")
    made = sum(model.total_runs for model in result.models)
    each = f" ({' + '.join(str(model.total_runs) for model in result.models)})" if result.model_summaries else ""
    yield Text(f"  Total runs: {made}{each}")
    yield Text(f"  Duration: {format_duration(result.total_duration_ms)}")
    unreported = sum(model.unreported for model in result.models)
    yield Text(f"  Total tokens: {_tokens(result.total_tokens, unreported)}")
    if result.failed_runs:
        yield Text(f"  Failed runs: {result.failed_runs} of {made}; each counts 0.0 in the table", "red")
    if result.stopped_early:
        yield from _wrapped(f"Stopped early. Reason: {clean(result.stop_reason)}", width, "yellow")
    if result.interrupted:
        yield Text("  Interrupted: the numbers are of the runs made so far", "yellow")


def _performance(result: EvalResult, width: int) -> Iterator[Text]:
    if not result.total_runs:
        return
    table = [["Model", "Avg Latency", "Avg Tokens"]]
    for model in result.models:
        average = _tokens(round(model.mean_tokens), model.unreported)
        table.append([_model_name(result, model), format_duration(model.mean_duration_ms), average])
    yield Text()
    yield _head("Performance:")
    yield from _table(table, width, names=1)


def _scores(result: EvalResult, width: int) -> Iterator[Text]:
    if not result.total_runs or not result.eval_summaries:
        return
    ks = list(next(iter(result.eval_summaries.values())).pass_at_k)
    heads = ["Mean", "Min", "Max", "Std"]
    at_k = [f"pass@{k}" for k in ks]
    numbers: list[tuple[list[str], list[str], list[str]]] = []
    for name, model, one in _each(result):
        names = [name, model] if result.model_summaries else [name]
        values = [f"{value:.3f}" for value in (one.mean, one.min, one.max, one.std)]
        numbers.append((names, values, [f"{100 * one.pass_at_k[k]:.1f}%" for k in ks]))
    labels = ["Eval Function", "Model"] if result.model_summaries else ["Eval Function"]
    whole = [[*labels, *heads, *at_k], *([*n, *v, *p] for n, v, p in numbers)]
    yield Text()
    if not ks or _least_width(whole) <= width:
        yield from _table(whole, width, names=len(labels))
    else:
        yield from _table([[*labels, *heads], *([*n, *v] for n, v, _ in numbers)], width, names=len(labels))
        yield Text()
        yield from _table([[*labels, *at_k], *([*n, *p] for n, _, p in numbers)], width, names=len(labels))
    if ks:
        yield Text(f"A run passes with a score of at least {result.pass_threshold:g}.")


def _certainty(result: EvalResult, width: int) -> Iterator[Text]:
    """The mean of what has a score, with its interval: what the documented mean leaves open."""
    made = {model.model_tag: model.total_runs for model in result.models}
    table = [["Eval Function", *(["Model"] if result.model_summaries else []), "Mean", "95 % interval", "Scored runs"]]
    for name, model, one in _each(result):
        scored = f"{one.scored.count} of {made[model]}"
        estimate = one.scored.estimate
        cells = [numerals.score(estimate.mean), numerals.interval(estimate), scored]
        table.append([name, *([model] if result.model_summaries else []), *cells])
    if len(table) == 1 or not result.total_runs:
        return
    yield Text()
    missing = any(one.scored.count < made[model] for _, model, one in _each(result))
    yield _head("Scored runs alone, with intervals by row:" if missing else "With intervals by row:")
    yield from _table(table, width, names=len(table[0]) - 3)


def _differences(result: EvalResult, width: int) -> Iterator[Text]:
    if not result.paired:
        return
    table = [["Eval Function", "Diff", "95 % interval", "p", "Win", "Loss", "Tie"]]
    for name, pair in result.paired.items():
        table.append([clean(name, 80), *_difference(pair.counted)])
        if pair.zeros or pair.scored != pair.counted:
            table.append(["  scored runs alone", *_difference(pair.scored)])
    yield Text()
    yield _head("Primary minus baseline, row by row:")
    yield from _table(table, width, names=1)
    for name, pair in result.paired.items():
        if words := _left_out(pair):
            yield from _wrapped(f"{clean(name, 80)}: {words}", width)


def _difference(pair: Paired) -> list[str]:
    outcomes = [str(number) for number in (pair.wins, pair.losses, pair.ties)]
    return [_signed(pair.estimate.mean), _signed_interval(pair.estimate), _p_value(pair.p_value), *outcomes]


def _left_out(pair: EvalPaired) -> str:
    words: list[str] = []
    if pair.zeros:
        words.append(f"{_number(pair.zeros, 'run')} without a score counted as 0.0")
    if alone := pair.counted.only_first + pair.counted.only_second:
        words.append(f"{_number(alone, 'row')} that only one model has run left out")
    missing = pair.scored.only_first + pair.scored.only_second
    if missing and pair.scored != pair.counted:
        words.append(f"of scored runs alone, {_number(missing, 'row')} that only one model has a score for left out")
    return "; ".join(words)


def _failures(result: EvalResult, width: int) -> Iterator[Text]:
    if not result.failed_runs:
        return
    yield Text()
    yield _head("Failed runs:")
    examples = _first_failures(result)
    for model in result.models:
        for reason, number in model.failures.items():
            tag = f"{model.model_tag} " if result.model_summaries else ""
            error = examples.get((model.model_tag, reason), "")
            yield from _wrapped(f"{tag}{clean(reason, 60)}: {number} of {model.total_runs}; {error}", width)


def _first_failures(result: EvalResult) -> dict[tuple[str, str], str]:
    """(model tag, reason) → where it happened first and what was said."""
    found: dict[tuple[str, str], str] = {}
    alone = result.models[0].model_tag
    for row in result.rows:
        for run in row.runs:
            if not run.success:
                place = (run.model_tag or alone, run.reason or "unknown")
                if place not in found:
                    found[place] = f"e.g. row {row.row_index} run {run.run_index}: {clean(run.error)}"
    return found


def _scorer_errors(result: EvalResult, width: int) -> Iterator[Text]:
    if not result.score_errors:
        return
    made = sum(model.total_runs - model.failed_runs for model in result.models)
    yield Text()
    yield _head("Runs without a score (they count 0.0 in the table):")
    examples: dict[str, str] = {}
    for row in result.rows:
        for run in row.runs:
            for name, why in run.score_errors.items():
                if name not in examples:
                    tag = f"{run.model_tag} " if run.model_tag else ""
                    examples[name] = f"e.g. {tag}row {row.row_index} run {run.run_index}: {clean(why)}"
    for name, number in result.score_errors.items():
        yield from _wrapped(f"{clean(name, 80)}: {number} of {made} completed; {examples.get(name, '')}", width)


def _each(result: EvalResult) -> Iterator[tuple[str, str, EvalEvalSummary]]:
    """(function, model tag, statistics), the models of a function together."""
    for name in result.eval_summaries:
        for model in result.models:
            yield clean(name, 80), model.model_tag, model.eval_summaries[name]


def _model_name(result: EvalResult, model: EvalModelSummary) -> str:
    name = clean(model.model, 80)
    return f"[{model.model_tag}] {name}" if result.model_summaries else name


def _tokens(number: int, unreported: int) -> str:
    """`unknown` if no reply reported any, `>= n` if some did not."""
    if not unreported:
        return str(number)
    return f">= {number}" if number else "unknown"


def _signed(value: float | None, digits: int = 3) -> str:
    words = numerals.score(value, digits)
    return f"+{words}" if value is not None and float(words) > 0 else words


def _signed_interval(estimate: Estimate) -> str:
    words = numerals.interval(estimate)
    if estimate.low is None or estimate.high is None:
        return words
    digits = len(words.rpartition(".")[2].rstrip("]"))
    return f"[{_signed(estimate.low, digits)}, {_signed(estimate.high, digits)}]"


def _p_value(value: float | None) -> str:
    if value is None:
        return numerals.NONE
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def _number(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _table(rows: _Table, width: int, names: int) -> Iterator[Text]:
    """The first `names` columns are words, the others figures; the first column gives way where space is short."""
    widths = [max(cell_len(row[i]) for row in rows) for i in range(len(rows[0]))]
    others = sum(GAP + each for each in widths[1:])
    widths[0] = min(widths[0], MOST_NAME, max(LEAST_NAME, width - others))
    for position, row in enumerate(rows):
        first = fit(row[0], widths[0])
        cells = [
            _pad(cell, size, right=i + 1 >= names)
            for i, (cell, size) in enumerate(zip(row[1:], widths[1:], strict=True))
        ]
        line = (" " * GAP).join([first, *cells]).rstrip()
        yield _head(line) if position == 0 else Text(line)
        if position == 0:
            yield Text("─" * (widths[0] + others))


def _pad(cell: str, width: int, *, right: bool) -> str:
    space = " " * (width - cell_len(cell))
    return space + cell if right else cell + space


def _least_width(rows: _Table) -> int:
    widths = [max(cell_len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return min(widths[0], LEAST_NAME) + sum(GAP + each for each in widths[1:])


def _wrapped(words: str, width: int, style: str = "") -> Iterable[Text]:
    room = max(20, width)
    return [Text(line, style) for line in textwrap.wrap(words, room, initial_indent="  ", subsequent_indent="    ")]


def _head(words: str) -> Text:
    return Text(words, "bold")


def _plain(line: Text) -> Text:
    text = line.plain.replace("─", "-").replace(numerals.NONE, "-").replace("…", "~")
    return Text(text, line.style)
