"""Check that an environment's rows are readable, unique and not empty, and have the same keys whenever they are loaded.
The format of a row is defined in `envs.dataset`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from harness.authoring.findings import Finding, count, fail, first_few, ok, skipped
from harness.core.errors import EnvironmentFault
from harness.core.keys import ExampleKeys, digest
from harness.envs.environment import Environment
from harness.envs.single_turn import SingleTurnEnv

_KEY = 20
"""Number of characters of each key to store: enough to be unique, and few enough for a million rows."""


@dataclass(slots=True)
class DatasetScan:
    """Results of one pass over a dataset."""

    total: int = 0
    wrong: list[str] = field(default_factory=list[str])
    """Error messages of rows that cannot be read."""
    keys: list[str] = field(default_factory=list[str])
    ids: list[str] = field(default_factory=list[str])
    """Example ids as text, in the order of `keys`."""
    repeated: list[str] = field(default_factory=list[str])
    """Rows whose prompt, answer, task and info equal those of an earlier row; `17 (as 3)` is row 17, equal to row 3."""
    contradicting: list[str] = field(default_factory=list[str])
    """Rows with the prompt of an earlier row but other content; `17 (as 3)` is row 17, with the prompt of row 3."""
    blank: list[str] = field(default_factory=list[str])
    """Ids of rows with an empty prompt."""
    unanswered: list[str] = field(default_factory=list[str])
    """Ids of rows with neither answer nor info."""


def scan_rows(environment: Environment) -> DatasetScan:
    """Read every row once.

    Raises:
        EnvironmentFault: the dataset cannot be read at all.
    """
    seen = DatasetScan(total=environment.row_count)
    keys = ExampleKeys()
    whole: dict[str, str] = {}
    prompts: dict[str, str] = {}
    for index in range(seen.total):
        try:
            row = environment.row(index)
            key = keys.example(row, index).key
        except EnvironmentFault as error:
            seen.wrong.append(str(error))
            continue
        name = str(row.example_id)
        seen.keys.append(key[:_KEY])
        seen.ids.append(name)
        content = digest([row.prompt, row.answer, row.task, row.info])[:_KEY]
        prompt = digest(row.prompt)[:_KEY]
        if content in whole:
            seen.repeated.append(f"{name} (as {whole[content]})")
        elif prompt in prompts:
            seen.contradicting.append(f"{name} (as {prompts[prompt]})")
        whole.setdefault(content, name)
        prompts.setdefault(prompt, name)
        texts = [row.prompt] if isinstance(row.prompt, str) else [
            message.get("content") for message in row.prompt if message.get("role") != "system"
        ]  # fmt: skip
        if not any(text.strip() if isinstance(text, str) else text for text in texts):
            seen.blank.append(name)
        if not row.answer.strip() and not row.info:
            seen.unanswered.append(name)
    return seen


def findings_of(rows: DatasetScan, environment: Environment) -> Iterable[Finding]:
    """Findings about the rows of a dataset."""
    if rows.wrong:
        yield fail("rows", f"{len(rows.wrong):,} of {count(rows.total, 'row')} cannot be used: {first_few(rows.wrong)}",
                   "correct these rows, or remove them from the dataset")  # fmt: skip
    else:
        yield ok("rows", f"{count(rows.total, 'row')}, all well formed")
    yield _duplicates(rows, environment)
    yield _empty(rows)


def _duplicates(rows: DatasetScan, environment: Environment) -> Finding:
    if rows.repeated:
        words = f"{count(len(rows.repeated), 'example')} equal to an earlier one: {first_few(rows.repeated)}"
        return fail("duplicates", words, "remove them: a repeated example counts twice in the mean")
    if not rows.contradicting:
        return ok("duplicates", "all prompts differ")
    number = count(len(rows.contradicting), "example")
    words = f"{number} with the prompt of an earlier one: {first_few(rows.contradicting)}"
    if isinstance(environment, SingleTurnEnv):
        return fail("duplicates", f"{words}, but with another answer or info",
                    "a question must have one answer: remove or reword them")  # fmt: skip
    return ok("duplicates", f"{words}; their other columns differ")


def _empty(rows: DatasetScan) -> Finding:
    if rows.blank:
        return fail("empty", f"{count(len(rows.blank), 'example')} with an empty prompt: {first_few(rows.blank)}",
                    "give every example a prompt")  # fmt: skip
    if rows.unanswered and len(rows.unanswered) < len(rows.keys):
        words = f"{count(len(rows.unanswered), 'example')} with neither answer nor info: {first_few(rows.unanswered)}"
        return fail("empty", words, "fill in the values that rewards compare with, or remove these rows")
    if rows.unanswered:
        return ok("empty", "no empty prompt; no row has an answer or info, so rewards can only use the prompt")
    return ok("empty", "no empty prompt, and every row has an answer or info")


def compare_keys(first: DatasetScan, others: Iterable[tuple[str, list[str]]]) -> Finding:
    """Check that every load has the same examples in the same order.

    Args:
        first: Scan to compare with.
        others: For each other load, its description and its keys in the order of the rows.
    """
    places = list(others)
    if not first.keys:
        return skipped("keys", "no row can be used")
    for where, keys in places:
        if keys == first.keys:
            continue
        known = set(first.keys)
        if len(keys) != len(first.keys):
            what = f"{count(len(keys), 'example')} instead of {len(first.keys):,}"
        elif set(keys) == known:
            what = "the same examples in another order"
        else:
            differing = [name for name, a, b in zip(first.ids, first.keys, keys, strict=True) if a != b]
            what = f"{count(len(differing), 'other example')}: {first_few(differing)}"
        return fail("keys", f"{where} has {what}", "a row must depend only on the arguments and its index: seed "
                    "every random.Random, sort sets and folder listings, and use no dates or generated ids; otherwise "
                    "runs cannot be resumed or compared")  # fmt: skip
    return ok("keys", "the same in a second load and in processes with other values of PYTHONHASHSEED")
