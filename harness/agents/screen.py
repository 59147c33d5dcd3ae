"""The report of `bench eval`, and its line for each finished run. The documented parts of the report are the totals
(rows, runs, duration, tokens), duration and tokens of each model, and a table of the eval functions. Confidence
intervals, the comparison of the models, failures and missing scores are additional."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from harness.agents.results import EvalPaired, EvalResult, EvalRunResult
from harness.agents.tables import (
    ScoreTables,
    each_summary,
    is_whole,
    natural_width,
    score_cell,
    score_tables,
    table_lines,
)
from harness.report import numerals
from harness.report.layout import head, plain, prose
from harness.report.text import clean
from harness.settings.schema import ROLLOUT_LIMITS

ERROR_LENGTH = 50
"""Maximum length of an error in a progress line, including `...`."""

_ERRORS = 5
"""Maximum number of error messages shown per reason of failure. The most frequent ones are shown."""


def eval_screen(result: EvalResult, width: int = 80, *, ascii_only: bool = False) -> list[Text]:
    """Format the report of an agent evaluation as lines, with bold headings.

    Args:
        result: The evaluation.
        width: Width of the terminal in cells. Numbers are never cut, so lines may exceed a width below about 70 cells.
        ascii_only: Convert all characters to ASCII.
    """
    tables = score_tables(result, width)
    lines = [*_overview(result, width), *_performance(result, width), *_scores(result, width, tables)]
    lines += [*_differences(result, width, tables), *_failures(result, width), *_scorer_errors(result, width)]
    return [plain(line) for line in lines] if ascii_only else lines


def show(result: EvalResult, console: Console) -> None:
    """Print the report of an agent evaluation.

    Args:
        result: The evaluation.
        console: The console, from `report.text.make_console`.
    """
    for line in eval_screen(result, console.width, ascii_only=console.options.ascii_only):
        console.print(line, soft_wrap=True)


def run_line(current: int, total: int, run: EvalRunResult) -> str:
    """Format the documented line about a finished run: `[1/18] [primary] OK (120ms, 30 tokens)
    [rewards:exact_match=1.000]`.

    Args:
        current: Number of finished runs, including this one.
        total: Number of runs of all models together.
        run: The finished run.
    """
    tag = f"[{run.model_tag}] " if run.model_tag else ""
    head = f"[{current}/{total}] {tag}{'OK' if run.success else 'FAILED'}"
    head += f" ({format_duration(run.duration_ms)}, {_tokens(run.tokens, run.unreported)} tokens)"
    if not run.success:
        error = clean(run.error or run.reason or "", 4 * ERROR_LENGTH)
        return f"{head} - {error if len(error) <= ERROR_LENGTH else error[: ERROR_LENGTH - 3] + '...'}"
    scores = [f"{clean(name, 80)}={score_cell(score)}" for name, score in run.scores.items()]
    scores += [f"{clean(name, 80)}=no score" for name in run.score_errors]
    return f"{head} [{', '.join(scores)}]" if scores else head


def format_duration(ms: float) -> str:
    """Format a duration in ms: `562ms`, `1.2s`, `3m12.4s`."""
    if round(ms) < 1000:
        return f"{max(0, round(ms))}ms"
    tenths = round(ms / 100)
    if tenths < 600:
        return f"{tenths / 10:.1f}s"
    minutes, rest = divmod(tenths, 600)
    return f"{minutes}m{rest / 10:.1f}s"


def _overview(result: EvalResult, width: int) -> Iterator[Text]:
    yield head("Evaluation Results:")
    yield Text(f"  Rows: {result.total_rows}")
    yield Text(f"  Runs per row: {result.n_runs}")
    made = sum(model.total_runs for model in result.models)
    each = f" ({' + '.join(str(model.total_runs) for model in result.models)})" if result.model_summaries else ""
    yield Text(f"  Total runs: {made}{each}")
    new = _counted(made - result.resumed_runs, "new run")
    note = f" ({new}, {result.resumed_runs} from earlier)" if result.resumed_runs else ""
    yield Text(f"  Duration: {format_duration(result.total_duration_ms)}{note}")
    unreported = sum(model.unreported for model in result.models)
    yield Text(f"  Total tokens: {_tokens(result.total_tokens, unreported)}")
    if result.failed_runs:
        yield Text(f"  Failed runs: {result.failed_runs} of {made}; each counts 0.0 in the table", "red")
    ends = Counter(run.finish_reason for row in result.rows for run in row.runs if run.finish_reason in ROLLOUT_LIMITS)
    if ends:
        words = " and ".join(f"{count} by {name}" for name, count in ends.items())
        yield Text(f"  Ended by a limit: {words} of {made} runs", "yellow")
    for model in result.models:
        of = f" of [{model.model_tag}] {clean(model.model, 80)}" if result.model_summaries else ""
        faults = [f"No run{of} has a score from {clean(name, 80)}" for name in model.without_scores]
        if model.failed_runs == model.total_runs:
            faults = [f"No run{of} completed"] if model.total_runs else []
        for fault in faults:  # both cases also make the exit code a failure
            yield from prose(fault, width, "red", indent=2)
    if result.stopped_early:
        yield from prose(f"Stopped early. Reason: {clean(result.stop_reason)}", width, "yellow", indent=2)
    if result.interrupted:
        yield Text("  Interrupted: the numbers include only the runs until then", "yellow")


def _performance(result: EvalResult, width: int) -> Iterator[Text]:
    if not result.total_runs:
        return
    table = [["Model", "Avg Latency", "Avg Tokens"]]
    for model in result.models:
        average = _tokens(round(model.mean_tokens), model.unreported)
        name = f"[{model.model_tag}] {clean(model.model, 1000)}" if result.model_summaries else clean(model.model, 1000)
        table.append([name, format_duration(model.mean_duration_ms), average])
    yield Text()
    yield head("Performance:")
    yield from table_lines(table, width, names=1)


def _scores(result: EvalResult, width: int, tables: ScoreTables) -> Iterator[Text]:
    """Format the documented score table, with an interval for each mean.

    On narrow terminals the intervals are in a second table. If runs lack a score, the second table has the means of the
    scored runs."""
    if tables.is_empty:
        return
    names, whole = len(tables.labels[0]), is_whole(result)
    yield Text()
    if whole and natural_width(tables.with_intervals()) <= width:
        yield from table_lines(tables.with_intervals(), width, names)
        yield from _threshold(result)
    else:
        for position, table in enumerate(tables.documented(width)):
            yield from [Text()] if position else []
            yield from table_lines(table, width, names)
        yield from _threshold(result)
        yield Text()
        yield head("With intervals:" if whole else "Scored runs alone:")
        yield from table_lines(tables.intervals(counted=not whole), width, names)
    yield from prose(_method(result), width)


def _threshold(result: EvalResult) -> Iterator[Text]:
    if any(one.pass_at_k for _, _, one in each_summary(result)):
        yield Text(f"A run passes with a score of at least {result.pass_threshold:g}.")


def _method(result: EvalResult) -> str:
    """Describe how the intervals in the score tables are computed."""
    estimates = [one.scored.estimate for _, _, one in each_summary(result)]
    methods = {estimate.method for estimate in estimates if estimate.method is not None}
    if not methods:
        return f"95 % interval: {numerals.NONE} where there is too little data."
    named = {
        "t": "Student's t over the rows' means",
        "wilson": "Wilson's over the rows",
        "adjusted_t": "Student's t with a row added at 0 and at 1",
    }
    words = ", ".join(word for method, word in named.items() if method in methods)
    none = f"; {numerals.NONE} where there is too little data" if any(each.low is None for each in estimates) else ""
    return f"95 % interval: {words}{none}."


def _differences(result: EvalResult, width: int, tables: ScoreTables) -> Iterator[Text]:
    if not result.paired or tables.is_empty:
        return
    yield Text()
    yield head("Primary minus baseline, row by row:")
    yield from table_lines(tables.differences, width, names=1)
    if any(each.p_value is not None for pair in result.paired.values() for each in (pair.counted, pair.scored)):
        yield from prose("Interval and p: Student's t with one won and one lost row added.", width)
    for name, pair in result.paired.items():
        if words := _left_out(pair):
            yield from prose(f"{clean(name, 80)}: {words}", width, indent=2)


def _left_out(pair: EvalPaired) -> str:
    words: list[str] = []
    if pair.zeros:
        words.append(f"{_counted(pair.zeros, 'run')} without a score counted as 0.0")
    if alone := pair.counted.only_first + pair.counted.only_second:
        words.append(f"left out: {_counted(alone, 'row')} that only one model has run")
    missing = pair.scored.only_first + pair.scored.only_second
    if pair.scored != pair.counted and not pair.scored.pairs:
        words.append("no row has a score of both models")
    elif missing and pair.scored != pair.counted:
        words.append(f"in scored runs alone, left out: {_counted(missing, 'row')} with a score of only one model")
    return "; ".join(words)


def _failures(result: EvalResult, width: int) -> Iterator[Text]:
    if not result.failed_runs:
        return
    yield Text()
    yield head("Failed runs:")
    alone = result.models[0].model_tag
    found: dict[tuple[str | None, str], dict[str, list[str]]] = {}
    for row in result.rows:
        for run in row.runs:
            if not run.success:
                errors = found.setdefault((run.model_tag or alone, run.reason or "unknown"), {})
                errors.setdefault(clean(run.error), []).append(f"row {row.row_index} run {run.run_index}")
    for model in result.models:
        tag = f"{model.model_tag} " if result.model_summaries else ""
        for reason, number in model.failures.items():
            errors = found.get((model.model_tag, reason), {})
            frequent = sorted(errors.items(), key=lambda each: -len(each[1]))
            name, of = f"{tag}{clean(reason, 60)}", f"of {model.total_runs}"
            lines = [f"{len(runs)} {of}; e.g. {runs[0]}: {error}" for error, runs in frequent[:_ERRORS]]
            if rest := sum(len(runs) for _, runs in frequent[_ERRORS:]):
                lines.append(f"{rest} {of} with other messages")
            for line in lines or [f"{number} {of}"]:
                yield from prose(f"{name}: {line}", width, indent=2)


def _scorer_errors(result: EvalResult, width: int) -> Iterator[Text]:
    if not result.score_errors:
        return
    made = sum(model.total_runs - model.failed_runs for model in result.models)
    yield Text()
    yield head("Runs without a score (they count 0.0 in the table):")
    examples: dict[str, str] = {}
    for row in result.rows:
        for run in row.runs:
            for name, why in run.score_errors.items():
                if name not in examples:
                    tag = f"{run.model_tag} " if run.model_tag else ""
                    examples[name] = f"e.g. {tag}row {row.row_index} run {run.run_index}: {clean(why)}"
    for name, number in result.score_errors.items():
        words = f"{number} of {made} completed runs; {examples.get(name, '')}"
        yield from prose(f"{clean(name, 80)}: {words}", width, indent=2)


def _tokens(number: int, unreported: int) -> str:
    """Format a number of tokens: `unknown` if no reply reported its tokens, `>= n` if some did not."""
    if not unreported:
        return str(number)
    return f">= {number}" if number else "unknown"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
