"""All checks, side by side, each with a time limit. Owns their order, what is sent off this process, and that a check
which fails itself is a finding and not the end."""

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
from harness.usercode.threads import offload

AREAS = (
    "python", "packages", "machine", "disk", "sandbox", "settings", "environments", "keys",
    "network", "endpoints", "hub",
)  # fmt: skip
"""In the order of the report."""

CHECK_SECONDS = 45.0
"""For a check that sends nothing: a file system that has gone away answers nobody."""

Check = Callable[[], Sequence[Diagnosis]]

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Manner:
    """How to examine."""

    offline: bool = False
    """Send nothing."""
    hub: bool = False
    """Ask the Hub about its token, also when nothing is to be pushed."""
    seconds: float = 10.0
    """How long each request may take."""
    environ: Mapping[str, str] = field(default_factory=dict[str, str])
    """Where keys are looked up."""
    overruled: Collection[str] = ()
    """Variables that `.env` sets to something else than the environment does."""


def examine(subject: Subject, manner: Manner, announce: Callable[[Sequence[str]], None]) -> DoctorReport:
    """Make every check.

    Args:
        subject: What to look at.
        manner: How.
        announce: Told what is about to be sent off this process, if anything is.
    """
    return asyncio.run(_examine(subject, manner, announce))


class _Abandoned(ThreadPoolExecutor):
    """Where the event loop looks up names, and waits for whoever does at its end: for minutes where the resolver is
    dead. Here nobody is waited for."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call it in a thread of its own, which the end of the process ends."""
        future = Future[T]()

        def call() -> None:
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:  # told to whoever waits for it, as every executor does
                future.set_exception(error)
            else:
                future.set_result(result)

        if future.set_running_or_notify_cancel():
            threading.Thread(target=call, daemon=True).start()
        return future


async def _examine(subject: Subject, manner: Manner, announce: Callable[[Sequence[str]], None]) -> DoctorReport:
    asyncio.get_running_loop().set_default_executor(_Abandoned())
    asked, unasked = _sorted(subject, manner)
    is_hub_wanted = manner.hub or bool(subject.pushes)
    silent: Sequence[Diagnosis] = await _silent_hub(manner) if is_hub_wanted else ()
    asks_hub = is_hub_wanted and not silent
    requests = [redactor.text(each.request) for each in asked] + ([hub.request()] if asks_hub else [])
    offline = "--offline" if manner.offline else "HF_HUB_OFFLINE" if datasets.is_offline() else ""
    loaded = list(subject.datasets.values())
    requests += [] if offline else [datasets.request(each) for each in loaded]
    if requests:
        announce(requests)
    async with asyncio.TaskGroup() as tasks:
        local = [tasks.create_task(_guarded(*each)) for each in _local_checks(subject, manner)]
        ways = [tasks.create_task(_way(name)) for name in sandboxes.WAYS]
        answering = tasks.create_task(ask_all(asked, manner.environ, manner.seconds)) if asked else None
        hubs = tasks.create_task(_hub(subject, manner)) if asks_hub else None
        rows = tasks.create_task(_guarded("hub", partial(datasets.check_datasets, loaded, offline=offline)))
    findings = [*subject.findings, *(finding for task in local for finding in task.result())]
    findings += sandboxes.judge_ways(
        [task.result() for task in ways], environments.wanting_sandbox(subject.environments)
    )
    answers = answering.result() if answering is not None else ()
    findings += [*unasked, *answers, *silent, *(hubs.result() if hubs is not None else ()), *rows.result()]
    return DoctorReport(sorted(findings, key=lambda finding: AREAS.index(finding.area)), requests)


def _sorted(subject: Subject, manner: Manner) -> tuple[list[EndpointQuery], list[Diagnosis]]:
    """Which models are asked, and what is to be said of the others."""
    asked: list[EndpointQuery] = []
    said: list[Diagnosis] = []
    for each in subject.asked:
        finding = unaskable(each, manner.environ)
        if finding is not None:
            said.append(finding)
        elif manner.offline:
            said.append(note("endpoints", each.name, "not asked, because of --offline", "look again without it"))
        else:
            asked.append(each)
    return asked, said


def _local_checks(subject: Subject, manner: Manner) -> list[tuple[str, Check, float]]:
    """Those that send nothing, with their areas and how long each may take."""
    importing = CHECK_SECONDS + PATIENCE * len(subject.environments)
    imports = ("environments", partial(environments.check_environments, subject.environments), importing)
    checks: list[tuple[str, Check]] = [
        ("python", check_python),
        ("python", check_event_loop),
        ("packages", check_packages),
        ("machine", check_processors),
        ("machine", check_memory),
        ("machine", partial(check_open_files, subject.in_flight)),
        ("keys", partial(credentials.check_keys, subject.keys, manner.environ, manner.overruled)),
        ("network", partial(network.check_network, subject.urls, manner.environ)),
    ]
    checks += [("disk", partial(check_disk, folder)) for folder in subject.output_dirs]
    return [imports, *((area, check, CHECK_SECONDS) for area, check in checks)]


async def _guarded(
    area: str, check: Check, seconds: float = CHECK_SECONDS, late: Diagnosis | None = None
) -> Sequence[Diagnosis]:
    """What a check finds. One that fails or hangs is a problem of its area; `late` says it better of the latter."""
    try:
        async with asyncio.timeout(seconds):
            return await offload.run(check)
    except TimeoutError:
        held = problem(area, area, f"looking took more than {seconds:g} s", "see what holds this machine up")
        return [late or held]
    except Exception as error:  # the boundary around whatever this machine has in store
        says = f"could not be looked at: {type(error).__name__}: {error}"
        return [problem(area, area, says, "report this as a fault of bench")]


async def _way(name: str) -> str:
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            return await offload.run(sandboxes.check_way, name)
    except TimeoutError:
        return f"{name} does not answer"
    except (HarnessError, OSError) as error:
        return f"{name} could not be tried: {error}"


async def _silent_hub(manner: Manner) -> Sequence[Diagnosis]:
    """What is to be said where the Hub is not asked about its token; nothing if it is."""
    if manner.offline:
        return [note("hub", "token", "not asked, because of --offline", "look again without it")]

    def check() -> list[Diagnosis]:
        finding = hub.unaskable()
        return [finding] if finding is not None else []

    return await _guarded("hub", check)


async def _hub(subject: Subject, manner: Manner) -> Sequence[Diagnosis]:
    # A little longer than the request itself may take: it then says what went wrong.
    check = partial(hub.check_hub, subject.pushes, manner.seconds)
    return await _guarded("hub", check, 2.0 * manner.seconds + 5.0, hub.silent(manner.seconds))
