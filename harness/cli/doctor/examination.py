"""Run all checks concurrently, each with a timeout. A check that fails itself is reported as a finding."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import ParamSpec, TypeVar

from harness.cli.doctor import credentials, datasets, environments, hub, network, sandboxes
from harness.cli.doctor.disk import check_disk
from harness.cli.doctor.endpoints import EndpointQuery, ask_all, unaskable
from harness.cli.doctor.findings import Diagnosis, DoctorReport, note, problem
from harness.cli.doctor.imports import PATIENCE
from harness.cli.doctor.interpreter import check_event_loop, check_python
from harness.cli.doctor.machine import check_memory, check_open_files, check_processors
from harness.cli.doctor.packages import check_packages
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
"""Timeout in seconds of a check that sends nothing, such as one of an unreachable file system."""

Check = Callable[[], Sequence[Diagnosis]]

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """Options of an examination."""

    offline: bool = False
    """Send nothing."""
    hub: bool = False
    """Query the Hub about its token, even if no run pushes to it."""
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
    """Executor for name resolution by the event loop whose threads are not joined at the end: with a dead resolver, a
    join would take minutes."""

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
    silent: Sequence[Diagnosis] = await _silent_hub(options) if is_hub_wanted else ()
    asks_hub = is_hub_wanted and not silent
    requests = [redactor.text(each.request) for each in asked] + ([hub.request()] if asks_hub else [])
    offline = "--offline" if options.offline else "HF_HUB_OFFLINE" if datasets.is_offline() else ""
    loaded = list(subject.datasets.values())
    requests += [] if offline else [datasets.request(each) for each in loaded]
    if requests:
        announce(requests)
    async with asyncio.TaskGroup() as tasks:
        local = [tasks.create_task(_guarded(*each)) for each in _local_checks(subject, options)]
        backends = [tasks.create_task(_try_backend(name)) for name in sandboxes.BACKENDS]
        answering = tasks.create_task(ask_all(asked, options.environ, options.seconds)) if asked else None
        hubs = tasks.create_task(_hub(subject, options)) if asks_hub else None
        rows = tasks.create_task(_guarded("hub", partial(datasets.check_datasets, loaded, offline=offline)))
    findings = [*subject.findings, *(finding for task in local for finding in task.result())]
    findings += sandboxes.backend_findings(
        [task.result() for task in backends], environments.wanting_sandbox(subject.environments)
    )
    answers = answering.result() if answering is not None else ()
    findings += [*unasked, *answers, *silent, *(hubs.result() if hubs is not None else ()), *rows.result()]
    return DoctorReport(sorted(findings, key=lambda finding: AREAS.index(finding.area)), requests)


def _sorted(subject: Subject, options: CheckOptions) -> tuple[list[EndpointQuery], list[Diagnosis]]:
    """Separate the models to query from the findings about all others."""
    asked: list[EndpointQuery] = []
    said: list[Diagnosis] = []
    for each in subject.asked:
        finding = unaskable(each, options.environ)
        if finding is not None:
            said.append(finding)
        elif options.offline:
            said.append(note("endpoints", each.name, "not asked, because of --offline", "look again without it"))
        else:
            asked.append(each)
    return asked, said


def _local_checks(subject: Subject, options: CheckOptions) -> list[tuple[str, Check, float]]:
    """Checks that send nothing, each with its area and timeout."""
    importing = CHECK_SECONDS + PATIENCE * len(subject.environments)
    imports = ("environments", partial(environments.check_environments, subject.environments), importing)
    checks: list[tuple[str, Check]] = [
        ("python", check_python),
        ("python", check_event_loop),
        ("packages", check_packages),
        ("machine", check_processors),
        ("machine", check_memory),
        ("machine", partial(check_open_files, subject.in_flight)),
        ("keys", partial(credentials.check_keys, subject.keys, options.environ, options.overruled)),
        ("network", partial(network.check_network, subject.urls, options.environ)),
    ]
    checks += [("disk", partial(check_disk, folder)) for folder in subject.output_dirs]
    return [imports, *((area, check, CHECK_SECONDS) for area, check in checks)]


async def _guarded(
    area: str, check: Check, seconds: float = CHECK_SECONDS, late: Diagnosis | None = None
) -> Sequence[Diagnosis]:
    """Run a check. An exception or timeout becomes a problem of its area; `late` replaces the finding for a timeout."""
    try:
        async with asyncio.timeout(seconds):
            return await offload.run(check)
    except TimeoutError:
        held = problem(area, area, f"looking took more than {seconds:g} s", "see what holds this machine up")
        return [late or held]
    except Exception as error:  # a check may fail in any way on an unknown machine
        says = f"could not be looked at: {type(error).__name__}: {error}"
        return [problem(area, area, says, "report this as a fault of bench")]


async def _try_backend(name: str) -> str:
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            return await offload.run(unavailable_reason, name)
    except TimeoutError:
        return f"{name} does not answer"
    except (HarnessError, OSError) as error:
        return f"{name} could not be tried: {error}"


async def _silent_hub(options: CheckOptions) -> Sequence[Diagnosis]:
    """Findings that replace the query of the Hub's token when offline or not requested; empty if the token is
    usable."""
    if options.offline:
        return [note("hub", "token", "not asked, because of --offline", "look again without it")]

    def check() -> list[Diagnosis]:
        finding = hub.unaskable()
        return [finding] if finding is not None else []

    return await _guarded("hub", check)


async def _hub(subject: Subject, options: CheckOptions) -> Sequence[Diagnosis]:
    # Slightly longer than the request's own timeout, whose error is more precise.
    check = partial(hub.check_hub, subject.pushes, options.seconds)
    return await _guarded("hub", check, 2.0 * options.seconds + 5.0, hub.silent(options.seconds))
