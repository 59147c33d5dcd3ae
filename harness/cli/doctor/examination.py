"""Run all checks concurrently, each with a timeout. If a check itself fails, this is reported as a finding."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import ParamSpec, TypeVar

from harness.cli.doctor import hub
from harness.cli.doctor.disk import check_disk
from harness.cli.doctor.endpoints import EndpointQuery, ask_all, check_keys, unaskable
from harness.cli.doctor.findings import Diagnosis, DoctorReport, note, problem
from harness.cli.doctor.machine import (
    BACKENDS,
    backend_findings,
    check_containers,
    check_event_loop,
    check_memory,
    check_network,
    check_open_files,
    check_processors,
    check_python,
)
from harness.cli.doctor.packages import PATIENCE, check_environments, check_packages, wanting_sandbox
from harness.cli.doctor.subject import Subject
from harness.core.errors import HarnessError
from harness.core.redact import redactor
from harness.sandbox.find import unavailable_reason
from harness.usercode.threads import offload

AREAS = (
    "python", "packages", "machine", "disk", "sandbox", "settings", "environments", "keys",
    "network", "endpoints", "hub",
)  # fmt: skip
"""Areas in the order of the report."""

CHECK_SECONDS = 45.0
"""Timeout in seconds of a check that sends no request, which may hang on an unreachable file system, for example."""

Check = Callable[[], Sequence[Diagnosis]]

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """Options of the checks."""

    offline: bool = False
    """Send no request."""
    hub: bool = False
    """Ask the Hub about the token, even if no run pushes to the Hub."""
    seconds: float = 10.0
    """Timeout of each request, in seconds."""
    environ: Mapping[str, str] = field(default_factory=dict[str, str])
    """Environment variables with the API keys."""
    overruled: Collection[str] = ()
    """Variables whose value in `.env` differs from the environment's."""


def examine(subject: Subject, options: CheckOptions, announce: Callable[[Sequence[str]], None]) -> DoctorReport:
    """Run every check.

    Args:
        subject: Endpoints, folders and environments to check.
        options: Options of the examination.
        announce: Called with descriptions of the requests before they are sent, if there are any.
    """
    return asyncio.run(_examine(subject, options, announce))


class _Abandoned(ThreadPoolExecutor):
    """Executor for the event loop's name resolution. Its threads are not joined at the end, which would take minutes if
    the name server does not answer."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call the function in a daemon thread."""
        future = Future[T]()

        def call() -> None:
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:  # passed on to the future's reader, as by every executor
                future.set_exception(error)
            else:
                future.set_result(result)

        if future.set_running_or_notify_cancel():
            threading.Thread(target=call, daemon=True).start()
        return future


async def _examine(subject: Subject, options: CheckOptions, announce: Callable[[Sequence[str]], None]) -> DoctorReport:
    asyncio.get_running_loop().set_default_executor(_Abandoned())
    asked, unasked = _sorted(subject, options)
    is_hub_wanted = options.hub or bool(subject.pushes)
    silent: Sequence[Diagnosis] = ()
    if is_hub_wanted and options.offline:
        silent = [note("hub", "token", "no request sent, because of --offline", "repeat without --offline")]
    elif is_hub_wanted:
        silent = await _guarded("hub", lambda: [found] if (found := hub.unaskable()) else [])
    asks_hub = is_hub_wanted and not silent
    requests = [redactor.text(each.request) for each in asked] + ([hub.token_request()] if asks_hub else [])
    offline = "--offline" if options.offline else "HF_HUB_OFFLINE" if hub.is_offline() else ""
    datasets = list(subject.datasets.values())
    requests += [] if offline else [hub.dataset_request(each) for each in datasets]
    if requests:
        announce(requests)
    checks = _local_checks(subject, options)
    checks.append(("hub", partial(hub.check_datasets, datasets, offline=offline), CHECK_SECONDS))
    async with asyncio.TaskGroup() as tasks:
        local = [tasks.create_task(_guarded(*each)) for each in checks]
        backends = [tasks.create_task(_try_backend(name)) for name in BACKENDS]
        answering = tasks.create_task(ask_all(asked, options.environ, options.seconds)) if asked else None
        if asks_hub:
            # Slightly longer than the request's own timeout, whose error is more precise.
            seconds, late = 2.0 * options.seconds + 5.0, hub.silent(options.seconds)
            check = partial(hub.check_hub, subject.pushes, options.seconds)
            local.insert(-1, tasks.create_task(_guarded("hub", check, seconds, late)))
    findings = [*subject.findings, *unasked, *silent, *(finding for task in local for finding in task.result())]
    findings += backend_findings([task.result() for task in backends], wanting_sandbox(subject.environments))
    findings += answering.result() if answering is not None else ()
    return DoctorReport(sorted(findings, key=lambda finding: AREAS.index(finding.area)), requests)


def _sorted(subject: Subject, options: CheckOptions) -> tuple[list[EndpointQuery], list[Diagnosis]]:
    """Split the models into those to which a request is sent, and findings about the others."""
    asked: list[EndpointQuery] = []
    said: list[Diagnosis] = []
    for each in subject.asked:
        finding = unaskable(each, options.environ)
        if finding is not None:
            said.append(finding)
        elif options.offline:
            said.append(note("endpoints", each.name, "no request sent, because of --offline", "omit --offline"))
        else:
            asked.append(each)
    return asked, said


def _local_checks(subject: Subject, options: CheckOptions) -> list[tuple[str, Check, float]]:
    """Return the checks that send no request, each with its area and timeout."""
    checks: list[tuple[str, Check]] = [
        ("python", check_python),
        ("python", check_event_loop),
        ("packages", check_packages),
        ("machine", check_processors),
        ("machine", check_memory),
        ("machine", partial(check_open_files, subject.in_flight)),
        ("sandbox", check_containers),
        *(("disk", partial(check_disk, folder)) for folder in subject.output_dirs),
        ("keys", partial(check_keys, subject.asked, options.environ, options.overruled)),
        ("network", partial(check_network, subject.urls, options.environ)),
    ]
    importing = CHECK_SECONDS + PATIENCE * len(subject.environments)
    imports = ("environments", partial(check_environments, subject.environments), importing)
    return [imports, *((area, check, CHECK_SECONDS) for area, check in checks)]


async def _guarded(
    area: str, check: Check, seconds: float = CHECK_SECONDS, late: Diagnosis | None = None
) -> Sequence[Diagnosis]:
    """Run a check. An exception or timeout becomes a problem of its area; `late` replaces the finding for a timeout."""
    try:
        async with asyncio.timeout(seconds):
            return await offload.run(check)
    except TimeoutError:
        held = problem(
            area, area, f"the check took more than {seconds:g} s", "find out why this machine is slow, then check again"
        )
        return [late or held]
    except Exception as error:  # a check may fail in any way on an unknown machine
        says = f"the check failed: {type(error).__name__}: {error}"
        return [problem(area, area, says, "report this as a bug in bench")]


async def _try_backend(name: str) -> str:
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            return await offload.run(unavailable_reason, name)
    except TimeoutError:
        return f"{name} does not answer"
    except (HarnessError, OSError) as error:
        return f"{name} could not be tried: {error}"
