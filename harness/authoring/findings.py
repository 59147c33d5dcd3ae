"""What a check found, and all findings about an environment. Owns their words as text and as JSON; checks nothing."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from harness.core.types import JsonDict

Status: TypeAlias = Literal["ok", "FAIL", "skipped"]

_SHOWN = 3
"""Examples of one fault that a line names; the number of all stands before them."""

_NAME_CELLS = 13
_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check."""

    name: str
    status: Status
    says: str
    """What was found; of a skipped check, why it could not be made."""
    advice: str = ""
    """What to do about a failure."""

    def to_json(self) -> JsonDict:
        """As `bench env check --json` prints it."""
        return {"name": self.name, "status": self.status, "says": self.says, "advice": self.advice}


def ok(name: str, says: str) -> Finding:
    """A check that found nothing wrong."""
    return Finding(name, "ok", says)


def fail(name: str, says: str, advice: str) -> Finding:
    """A check that found a fault."""
    return Finding(name, "FAIL", says, advice)


def skipped(name: str, why: str) -> Finding:
    """A check that could not be made: not a pass."""
    return Finding(name, "skipped", why)


@dataclass(slots=True)
class Report:
    """All findings about one environment, in the order in which they were made."""

    env_id: str
    version: str = ""
    findings: list[Finding] = field(default_factory=list[Finding])
    on_finding: Callable[[Finding], None] | None = None
    """Called with each finding as soon as it is there."""

    def add(self, *findings: Finding) -> None:
        """Note what was found."""
        for finding in findings:
            self.findings.append(finding)
            if self.on_finding is not None:
                self.on_finding(finding)

    @property
    def failed(self) -> list[Finding]:
        """The faults."""
        return [finding for finding in self.findings if finding.status == "FAIL"]

    @property
    def skipped(self) -> list[Finding]:
        """The checks that could not be made."""
        return [finding for finding in self.findings if finding.status == "skipped"]

    def counts(self) -> str:
        """`12 ok, 1 failed, 2 skipped`."""
        passed = len(self.findings) - len(self.failed) - len(self.skipped)
        parts = [f"{passed} ok", f"{len(self.failed)} failed"]
        return ", ".join([*parts, *([f"{len(self.skipped)} skipped"] if self.skipped else [])])

    def text(self) -> str:
        """The findings as a test's message shows them."""
        return "\n".join(["", *(line for finding in self.findings for line in lines(finding, _WIDTH))])

    def to_json(self) -> JsonDict:
        """As `bench env check --json` prints it."""
        return {
            "environment": self.env_id,
            "version": self.version or None,
            "failed": len(self.failed),
            "skipped": len(self.skipped),
            "checks": [finding.to_json() for finding in self.findings],
        }


def lines(finding: Finding, width: int) -> list[str]:
    """A finding as lines of at most `width` cells: status, name and words; what to do stands below."""
    head = f"{finding.status:<9}{finding.name:<{_NAME_CELLS}}"
    below = " " * len(head)
    room = max(width, len(head) + 24)
    text = textwrap.wrap(finding.says, room, initial_indent=head, subsequent_indent=below) or [head.rstrip()]
    if finding.advice:
        text += textwrap.wrap(finding.advice, room, initial_indent=f"{below}→ ", subsequent_indent=f"{below}  ")
    return text


def some(things: Sequence[str], total: int | None = None) -> str:
    """The first of `things`, and that there are more."""
    shown = list(things[:_SHOWN])
    more = (len(things) if total is None else total) - len(shown)
    return "; ".join([*shown, *([f"and {more:,} more"] if more > 0 else [])])


def count(number: int, noun: str, plural: str = "") -> str:
    """`1 row`, `1,200 rows`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
