"""The first request of a command that pays for many: does each endpoint answer for its model? Owns when it is sent;
what counts as an answer is `clients.preflight`'s."""

from __future__ import annotations

import asyncio
import os
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence

from harness.core.errors import SystemicError
from harness.models.pool import CallSettings, ClientPool
from harness.models.preflight import preflight_all
from harness.settings.runs import ResolvedRun


def check_connections(
    runs: Sequence[tuple[ResolvedRun, bool]], keys: Mapping[str, str], say: Callable[[str], None]
) -> None:
    """Ask every model of these runs once, as briefly as can be; the embedded server needs none.

    Args:
        runs: Whose models are to be asked, each with whether it is the baseline.
        keys: Literal keys by variable name.
        say: Told that it begins.

    Raises:
        SystemicError: an endpoint cannot be used; nothing has been paid for.
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
        asked = [
            (pool.get(run.endpoints, _settings(run)), run.settings.model.model, is_baseline)
            for run, is_baseline in runs
        ]
        faults = [fault for fault in await preflight_all(asked) if fault is not None]
    finally:
        await pool.close()
    if len(faults) == 1:
        raise faults[0]
    if faults:
        raise SystemicError("\n".join(map(str, faults)))


def _settings(run: ResolvedRun) -> CallSettings:
    model = run.settings.model
    return CallSettings(request_timeout=model.request_timeout, headers=model.extra_headers)
