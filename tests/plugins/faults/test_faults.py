"""Injected latency and failures come at the rates and in the order that was asked for."""

from __future__ import annotations

import statistics
from collections import Counter
from typing import Any

import pytest
from tables import for_each_row

from harness.core.errors import ConfigError
from harness.plugins.faults.options import fault_script, faults_of_options
from harness.plugins.faults.rules import MALFORMED, Fault, ScriptedFaults
from harness.reference.fault_sources import ObservedRequest

ASKED = ObservedRequest()


def test_rates_are_kept_and_seeds_repeat() -> None:
    settings: dict[str, Any] = {
        "latency": 200, "sigma": 0.8, "fail_rate": 0.2, "fail_status": "429,500", "retry_after": "1",
        "reset_rate": 0.1, "hang_rate": 0.1, "malformed_rate": 0.1, "seed": 5,
    }  # fmt: skip
    source, again = faults_of_options(**settings), faults_of_options(**settings)
    assert source is not None and again is not None
    drawn = [source.next(ASKED) for _ in range(10_000)]
    assert drawn == [again.next(ASKED) for _ in range(10_000)]
    counts = Counter(fault.act for fault in drawn)
    for act, share in {"status": 0.2, "reset": 0.1, "hang": 0.1, "body": 0.1, "answer": 0.5}.items():
        assert abs(counts[act] / 10_000 - share) < 0.02  # pyright: ignore[reportArgumentType]
    assert {fault.status for fault in drawn if fault.act == "status"} == {429, 500}
    assert {fault.headers for fault in drawn if fault.act == "status"} == {(("Retry-After", "1"),)}
    assert {fault.body for fault in drawn if fault.act == "body"} == set(MALFORMED)
    assert abs(statistics.median(fault.latency for fault in drawn) - 0.2) < 0.01


def test_nothing_is_asked_for_nothing_happens() -> None:
    assert faults_of_options() is None
    source = fault_script()
    assert {source.next(ASKED) for _ in range(100)} == {Fault()}


def test_a_script_is_followed_then_left() -> None:
    source = ScriptedFaults([Fault("reset"), Fault("status", status=500)], then=Fault("hang"))
    assert [source.next(ASKED).act for _ in range(4)] == ["reset", "status", "hang", "hang"]


@for_each_row(
    ("settings", "words"),
    [
        ({"fail_rate": 1.5}, "--fail-rate: share must be a number from 0 to 1"),
        ({"reset_rate": -0.1}, "--reset-rate"),
        ({"fail_rate": 0.6, "hang_rate": 0.6}, "must not exceed 1"),
        ({"fail_status": "200"}, "--fail-rate: 200 is not an HTTP error"),
        ({"fail_status": ","}, "--fail-status must be a list of HTTP statuses"),
        ({"latency": -1.0}, "latency"),
        ({"sigma": float("nan")}, "sigma"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        faults_of_options(**settings)
