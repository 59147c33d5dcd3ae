"""The verdicts of runs with a sequential gate, below the table of their results: `bench gate --sequential`, `bench run
--gate`, and both when they are resumed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.cli.output import width_of
from harness.cli.view import View
from harness.core.errors import StoreError
from harness.core.messages import Message
from harness.core.types import JsonDict
from harness.engine.prepare import LiveRun
from harness.report.compare.sides import match, read_side
from harness.report.compare.verdicts import (
    EXIT_CODES,
    GateRule,
    Ruling,
    apply_rules,
    gate_json,
    junit,
    markdown,
    overall,
    verdict_lines,
)
from harness.report.layout import print_lines
from harness.report.text import PlainConsole
from harness.stats.difference import adjust
from harness.store.atomic import atomic_write
from harness.store.manifest import Manifest
from harness.store.rundir import RunDir
from harness.store.values import number

COVERAGE = 0.98
"""Default share of rollouts that must be scored, and of examples that must be paired."""


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """Verdicts of the runs of one invocation that have the same margin."""

    rule: GateRule
    rulings: Sequence[Ruling]


def verdicts_of(runs: Sequence[tuple[RunDir, Manifest]], min_coverage: float = COVERAGE) -> list[GateVerdict]:
    """Apply the gate to runs that ended, each compared with its own baseline.

    Args:
        runs: The runs; those without a sequential gate of their own are ignored.
        min_coverage: Minimum share of rollouts with a score.

    Raises:
        StoreError: a run cannot be read.
    """
    by_margin: dict[float, list[tuple[RunDir, Manifest]]] = {}
    for run, manifest in runs:
        margin = number(manifest.gate.get("margin"))
        if margin is not None and margin >= 0 and not manifest.derived:
            by_margin.setdefault(margin, []).append((run, manifest))
    found: list[GateVerdict] = []
    for margin, group in by_margin.items():
        rule = GateRule(margin, min_coverage)
        matches = [
            match(manifest.name or manifest.env_id, read_side(run), read_side(_baseline(run, manifest)))
            for run, manifest in group
        ]
        found.append(GateVerdict(rule, apply_rules(adjust(matches), rule)))
    return found


def _baseline(run: RunDir, manifest: Manifest) -> RunDir:
    """The recorded baseline of a run.

    Raises:
        StoreError: it is not where it was.
    """
    baseline = RunDir(Path(str(manifest.gate.get("path"))))
    if not baseline.path.is_dir():
        margin = number(manifest.gate.get("margin"))
        raise StoreError(
            Message("the baseline {baseline} of {run} is not there any more", baseline=baseline.path, run=run.path),
            remedy=f"if it was moved, name it: bench gate {{run}} --baseline RUN --margin {margin:g}",
            run=shlex.quote(str(run.path)),
        )
    return baseline


def exit_code_of(found: Sequence[GateVerdict]) -> int:
    """The exit code of `bench gate` for all verdicts together; 0 without any."""
    rulings = [ruling for each in found for ruling in each.rulings]
    return EXIT_CODES[overall(rulings)] if rulings else 0


def print_verdicts(found: Sequence[GateVerdict], console: PlainConsole) -> None:
    """Print a table of verdicts for each margin."""
    for each in found:
        console.print()
        print_lines(verdict_lines(each.rulings, each.rule, width_of(console)), console)


def write_reports(
    rulings: Sequence[Ruling], rule: GateRule, junit_file: Path | None, markdown_file: Path | None
) -> None:
    """Write the verdicts for CI systems and pull requests; private if one of the runs is."""
    for file, text in ((junit_file, junit), (markdown_file, markdown)):
        if file is not None:
            sides = (side for ruling in rulings for side in (ruling.match.candidate, ruling.match.baseline))
            atomic_write(file, text(rulings, rule), private=any(side.manifest.is_private for side in sides))


class GateView(View):
    """View of `bench gate --sequential`.

    Args:
        min_coverage: Minimum share of rollouts with a score.
        junit_file: File for a JUnit report; None for none.
        markdown_file: File for a comment; None for none.
    """

    def __init__(self, min_coverage: float, junit_file: Path | None, markdown_file: Path | None) -> None:
        self.min_coverage = min_coverage
        self._files = junit_file, markdown_file

    def json_fields(self, runs: Sequence[LiveRun]) -> JsonDict:
        """Return the verdicts in the form that `bench gate --json` has."""
        fields = super().json_fields(runs)
        return {**{name: value for name, value in fields.items() if name != "gate"}, **fields.get("gate", {})}

    def show_more(self, runs: Sequence[LiveRun], console: PlainConsole) -> None:
        """Write the reports."""
        for each in self.verdicts:
            write_reports(each.rulings, each.rule, *self._files)


def json_of(found: Sequence[GateVerdict]) -> JsonDict:
    """The verdicts as JSON, in the form that `bench gate --json` has. Each environment has its margin."""
    documents = [gate_json(each.rulings, each.rule) for each in found]
    rulings = [ruling for each in found for ruling in each.rulings]
    environments = [
        {**environment, "margin": document["margin"]}
        for document in documents
        for environment in document["environments"]
    ]
    return {**documents[0], "verdict": overall(rulings), "environments": environments}
