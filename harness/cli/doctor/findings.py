"""What a check says. Owns the three verdicts and the report that they make up; lays nothing out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from harness.core.redact import redactor
from harness.core.types import JsonDict

Status: TypeAlias = Literal["ok", "note", "problem"]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One thing that was looked at. Its texts never hold a secret, whoever wrote them."""

    area: str
    """What it belongs to: `packages`, `disk`, …"""
    name: str
    """What was looked at: a package, a variable, an endpoint."""
    status: Status
    """`problem`: a run would fail or mislead; `note`: worth knowing; `ok`."""
    says: str
    fix: str = ""
    """What to do; never empty for a problem."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", redactor.text(self.name))
        object.__setattr__(self, "says", redactor.text(self.says))
        object.__setattr__(self, "fix", redactor.text(self.fix))

    def to_json(self) -> JsonDict:
        """As `bench doctor --json` prints it."""
        return {"area": self.area, "name": self.name, "status": self.status, "says": self.says, "fix": self.fix or None}


def ok(area: str, name: str, says: str) -> Diagnosis:
    """Nothing to do."""
    return Diagnosis(area, name, "ok", says)


def note(area: str, name: str, says: str, fix: str = "") -> Diagnosis:
    """Worth knowing; runs work all the same."""
    return Diagnosis(area, name, "note", says, fix)


def problem(area: str, name: str, says: str, fix: str) -> Diagnosis:
    """A run would fail, or its results mislead."""
    return Diagnosis(area, name, "problem", says, fix)


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """All findings of one examination."""

    findings: Sequence[Diagnosis]
    requests: Sequence[str] = ()
    """What was sent off this process, one line each; nothing else was."""

    @property
    def is_well(self) -> bool:
        """Whether nothing is a problem."""
        return not any(finding.status == "problem" for finding in self.findings)

    def count(self, status: Status) -> int:
        """How many findings say so."""
        return sum(finding.status == status for finding in self.findings)

    def to_json(self) -> JsonDict:
        """As `bench doctor --json` prints it."""
        return {
            "ok": self.is_well,
            "problems": self.count("problem"),
            "notes": self.count("note"),
            "requests": list(self.requests),
            "findings": [finding.to_json() for finding in self.findings],
        }
