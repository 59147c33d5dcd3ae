"""Connection check before the first paid request of a command. `models.preflight` sends the requests and reads the
replies."""

from __future__ import annotations

import asyncio
import os
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence

from harness.cli import labels
from harness.core.errors import SystemicError
from harness.models.pool import CallSettings, ClientPool
from harness.models.preflight import preflight_all
from harness.settings.resolved_run import ResolvedRun


def check_connections(
    runs: Sequence[tuple[ResolvedRun, bool]], keys: Mapping[str, str], say: Callable[[str], None]
) -> None:
    """Send one short request to every model of these runs, except to the embedded server.

    Args:
        runs: Pairs of a run, whose model is checked, and whether that model is the baseline.
        keys: Literal API keys by variable name.
        say: Called with a progress line at the start.

    Raises:
        SystemicError: an endpoint is unusable; no rollout was started.
    """
    wanted: list[tuple[ResolvedRun, bool]] = []
    for run, is_baseline in runs:
        if not run.is_reference and not any(run.endpoints == other.endpoints for other, _ in wanted):
            wanted.append((run, is_baseline))
    if wanted:
        say("Verifying provider connectivity...")
        asyncio.run(_ask(wanted, keys))


async def _ask(runs: Sequence[tuple[ResolvedRun, bool]], keys: Mapping[str, str]) -> None:
    pool = ClientPool(environ=ChainMap(dict(keys), os.environ))
    try:
        asked = [(pool.get(run.endpoints, _settings(run)), run.settings.model.model) for run, _ in runs]
        faults: list[SystemicError] = []
        for fault, (_, is_baseline) in zip(await preflight_all(asked), runs, strict=True):
            if fault is not None:
                fault.labels = labels.BASELINE if is_baseline else labels.EVAL
                faults.append(fault)
    finally:
        await pool.close()
    if len(faults) == 1:
        raise faults[0]
    if faults:
        raise SystemicError("\n".join(map(str, faults)))


def _settings(run: ResolvedRun) -> CallSettings:
    model = run.settings.model
    return CallSettings(request_timeout=model.request_timeout, headers=model.extra_headers)
