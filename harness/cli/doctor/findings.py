"""Findings of checks, each with a status (ok, note or problem), and the report that contains them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from harness.core.redact import redactor
from harness.core.types import JsonDict

Status: TypeAlias = Literal["ok", "note", "problem"]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One finding of a check. Secrets in its texts are redacted."""

    area: str
    """Area of the finding: `packages`, `disk`, …"""
    name: str
    """Name of the checked package, variable or endpoint."""
    status: Status
    """`problem`: a run would fail or mislead; `note`: worth knowing; `ok`."""
    says: str
    fix: str = ""
    """Advice; never empty for a problem."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", redactor.text(self.name))
        object.__setattr__(self, "says", redactor.text(self.says))
        object.__setattr__(self, "fix", redactor.text(self.fix))

    def to_json(self) -> JsonDict:
        """Return the finding as `bench doctor --json` prints it."""
        return {"area": self.area, "name": self.name, "status": self.status, "says": self.says, "fix": self.fix or None}


def ok(area: str, name: str, says: str) -> Diagnosis:
    """Make a finding that needs no action."""
    return Diagnosis(area, name, "ok", says)


def note(area: str, name: str, says: str, fix: str = "") -> Diagnosis:
    """Make a finding that is worth knowing but does not stop runs."""
    return Diagnosis(area, name, "note", says, fix)


def problem(area: str, name: str, says: str, fix: str) -> Diagnosis:
    """Make a finding about a problem that makes a run fail or its results misleading."""
    return Diagnosis(area, name, "problem", says, fix)


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """All findings of one examination."""

    findings: Sequence[Diagnosis]
    requests: Sequence[str] = ()
    """All requests sent to other hosts, one line each."""

    @property
    def is_well(self) -> bool:
        """Whether the report has no problem."""
        return not any(finding.status == "problem" for finding in self.findings)

    def count(self, status: Status) -> int:
        """Return the number of findings with this status."""
        return sum(finding.status == status for finding in self.findings)

    def to_json(self) -> JsonDict:
        """Return the report as `bench doctor --json` prints it."""
        return {
            "ok": self.is_well,
            "problems": self.count("problem"),
            "notes": self.count("note"),
            "requests": list(self.requests),
            "findings": [finding.to_json() for finding in self.findings],
        }
