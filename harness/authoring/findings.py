"""Findings of the checks of an environment, and their form as text and JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from harness.core.types import JsonDict

Status: TypeAlias = Literal["ok", "FAIL", "skipped"]

_SHOWN = 3
"""Number of faulty examples that a line names; the total stands before them."""

_NAME_CELLS = 13
_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Finding:
    """Outcome of one check."""

    name: str
    status: Status
    says: str
    """The result in words; for a skipped check, why it was skipped."""
    advice: str = ""
    """Advice on how to repair a failure."""

    def to_json(self) -> JsonDict:
        """One entry of `checks` in `bench env check --json`."""
        return {"name": self.name, "status": self.status, "says": self.says, "advice": self.advice}


def ok(name: str, says: str) -> Finding:
    """Finding of a check that passed."""
    return Finding(name, "ok", says)


def fail(name: str, says: str, advice: str) -> Finding:
    """Finding of a check that failed."""
    return Finding(name, "FAIL", says, advice)


def skipped(name: str, why: str) -> Finding:
    """Finding of a check that could not run. It does not count as passed."""
    return Finding(name, "skipped", why)


@dataclass(slots=True)
class Report:
    """All findings about one environment, in the order of the checks."""

    env_id: str
    version: str = ""
    findings: list[Finding] = field(default_factory=list[Finding])
    on_finding: Callable[[Finding], None] | None = None
    """Called with each finding as soon as it is added."""

    def add(self, *findings: Finding) -> None:
        """Add findings, and notify `on_finding` of each."""
        for finding in findings:
            self.findings.append(finding)
            if self.on_finding is not None:
                self.on_finding(finding)

    @property
    def failed(self) -> list[Finding]:
        """Findings of failed checks."""
        return [finding for finding in self.findings if finding.status == "FAIL"]

    @property
    def skipped(self) -> list[Finding]:
        """Findings of skipped checks."""
        return [finding for finding in self.findings if finding.status == "skipped"]

    def counts(self) -> str:
        """Number of findings by status, such as `12 ok, 1 failed, 2 skipped`."""
        passed = len(self.findings) - len(self.failed) - len(self.skipped)
        parts = [f"{passed} ok", f"{len(self.failed)} failed"]
        return ", ".join([*parts, *([f"{len(self.skipped)} skipped"] if self.skipped else [])])

    def text(self) -> str:
        """All findings as text, for the failure message of a test."""
        return "\n".join(["", *(line for finding in self.findings for line in lines(finding, _WIDTH))])

    def to_json(self) -> JsonDict:
        """JSON of `bench env check --json`."""
        return {
            "environment": self.env_id,
            "version": self.version or None,
            "failed": len(self.failed),
            "skipped": len(self.skipped),
            "checks": [finding.to_json() for finding in self.findings],
        }


def lines(finding: Finding, width: int) -> list[str]:
    """Format a finding as lines of at most `width` cells: status, name and result, with the advice below."""
    head = f"{finding.status:<9}{finding.name:<{_NAME_CELLS}}"
    below = " " * len(head)
    room = max(width, len(head) + 24)
    text = textwrap.wrap(finding.says, room, initial_indent=head, subsequent_indent=below) or [head.rstrip()]
    if finding.advice:
        text += textwrap.wrap(finding.advice, room, initial_indent=f"{below}→ ", subsequent_indent=f"{below}  ")
    return text


def some(things: Sequence[str], total: int | None = None) -> str:
    """The first few of `things` and the number of the others."""
    shown = list(things[:_SHOWN])
    more = (len(things) if total is None else total) - len(shown)
    return "; ".join([*shown, *([f"and {more:,} more"] if more > 0 else [])])


def count(number: int, noun: str, plural: str = "") -> str:
    """Number and noun, such as `1 row` or `1,200 rows`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
