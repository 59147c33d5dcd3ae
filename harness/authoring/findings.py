"""Results of checking an environment, called findings, and their output as text and JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal, TypeAlias

from harness.core.types import JsonDict

Status: TypeAlias = Literal["ok", "FAIL", "skipped"]

_SHOWN = 3
"""Number of faulty examples to name in a line, after their total number."""

_NAME_CELLS = 13
_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Finding:
    """Outcome of one check; its fields are those of an entry of `checks` in `bench env check --json`."""

    name: str
    status: Status
    says: str
    """Description of the result; for a skipped check, the reason why it was skipped."""
    advice: str = ""
    """Advice on how to repair a failure."""


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
        """Add findings, and call `on_finding` with each."""
        for finding in findings:
            self.findings.append(finding)
            if self.on_finding is not None:
                self.on_finding(finding)

    def _of(self, status: Status) -> list[Finding]:
        return [finding for finding in self.findings if finding.status == status]

    @property
    def failed(self) -> list[Finding]:
        """Findings of failed checks."""
        return self._of("FAIL")

    @property
    def skipped(self) -> list[Finding]:
        """Findings of skipped checks."""
        return self._of("skipped")

    def counts(self) -> str:
        """Number of findings by status, such as `12 ok, 1 failed, 2 skipped`."""
        skipped = f", {len(self.skipped)} skipped" if self.skipped else ""
        return f"{len(self._of('ok'))} ok, {len(self.failed)} failed{skipped}"

    def text(self) -> str:
        """All findings as text, for the failure message of a test."""
        return "\n".join(["", *(line for finding in self.findings for line in finding_lines(finding, _WIDTH))])

    def to_json(self) -> JsonDict:
        """JSON of `bench env check --json`."""
        return {
            "environment": self.env_id,
            "version": self.version or None,
            "failed": len(self.failed),
            "skipped": len(self.skipped),
            "checks": [asdict(finding) for finding in self.findings],
        }


def finding_lines(finding: Finding, width: int) -> list[str]:
    """Format a finding as lines of at most `width` cells: status, name and result, with the advice below."""
    head = f"{finding.status:<9}{finding.name:<{_NAME_CELLS}}"
    below = " " * len(head)
    room = max(width, len(head) + 24)
    text = textwrap.wrap(finding.says, room, initial_indent=head, subsequent_indent=below) or [head.rstrip()]
    if finding.advice:
        text += textwrap.wrap(finding.advice, room, initial_indent=f"{below}→ ", subsequent_indent=f"{below}  ")
    return text


def first_few(things: Sequence[str]) -> str:
    """The first few of `things` and the number of the others."""
    more = len(things) - _SHOWN
    return "; ".join([*things[:_SHOWN], *([f"and {more:,} more"] if more > 0 else [])])


def count(number: int, noun: str, plural: str = "") -> str:
    """Number and noun, such as `1 row` or `1,200 rows`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
