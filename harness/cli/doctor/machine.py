"""Checks of this machine: Python and the event loop, processors, memory and open files with a container's limits,
proxies and certificates, sandboxes. Sends no request."""

from __future__ import annotations

import os
import platform
import resource
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from harness.cli.doctor.findings import Diagnosis, note, ok, problem
from harness.core.errors import ConfigError
from harness.core.loopback import is_loopback_url, litellm_provider
from harness.models.pool import FILES_BESIDE
from harness.sandbox.engine_client import Engine
from harness.sandbox.find import ENGINES, find_engine

OLDEST = (3, 11)

LITTLE_MEMORY = 1 << 30
"""Minimum free bytes. With less memory, the system may kill a run with many rollouts or a large dataset."""

FILES_FEW = 1024

_CGROUP = Path("/sys/fs/cgroup")

_PROXIES = ("http_proxy", "https_proxy", "all_proxy")

_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""Variables with the certificates of OpenSSL, which all connections here use."""

_OTHERS_CERTIFICATES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")

BACKENDS = ("bubblewrap", *ENGINES)
"""Sandboxes in the order of `sandbox="auto"`."""


def check_python() -> list[Diagnosis]:
    """Check that bench supports this Python version."""
    version = platform.python_version()
    kind = platform.python_implementation()
    place = "in a virtual environment" if sys.prefix != sys.base_prefix else "not in a virtual environment"
    says = f"{version} ({kind}, {platform.system()} {platform.machine()}), {place}: {sys.executable}"
    if sys.version_info < OLDEST:
        return [problem("python", "python", says, "install Python 3.11 or newer, and bench for it")]
    found = [ok("python", "python", says)]
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        says = "this is a free-threaded build of Python, with which bench is not tested"
        found.append(note("python", "free threading", says, "use a standard build of Python"))
    if sys.flags.optimize:
        says = "Python runs with -O or PYTHONOPTIMIZE: environments' assertions are skipped"
        found.append(note("python", "assertions", says, "unset PYTHONOPTIMIZE"))
    return found


def check_event_loop() -> list[Diagnosis]:
    """Check that the event loop of the commands can be created."""
    try:
        import uvloop

        loop = uvloop.new_event_loop()
    except (ImportError, OSError) as error:
        fix = f"{sys.executable} -m pip install --force-reinstall uvloop"
        return [problem("python", "event loop", f"uvloop cannot be used: {error}", fix)]
    loop.close()
    return [ok("python", "event loop", f"uvloop {uvloop.__version__}")]


def check_processors() -> list[Diagnosis]:
    """Report the number of processors that this process may use."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    share = _processor_share()
    words = f"{count} processor{'s' if count != 1 else ''}"
    if share is not None and share < count:
        words += f", of which this container may use {share:g}"
    usable = min(float(count), share or float(count))
    if usable < 1:
        fix = "give the container a processor, or lower --max-concurrent"
        return [note("machine", "processors", f"{words}: scoring will be slow", fix)]
    return [ok("machine", "processors", words)]


def _processor_share() -> float | None:
    try:
        quota, period = (_CGROUP / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def check_memory() -> list[Diagnosis]:
    """Check the free memory."""
    total, free = _memory()
    limit = _memory_bound()
    if total is None and limit is None:
        return [ok("machine", "memory", "the amount of memory cannot be determined on this system")]
    if limit is not None and (total is None or limit[0] < total):
        total, free, whose = limit[0], min(limit[1], free if free is not None else limit[1]), " for this container"
    else:
        whose = ""
    words = f"{(total or 0) / 2**30:.1f} GiB{whose}" + ("" if free is None else f", {free / 2**30:.1f} GiB of it free")
    if free is not None and free < LITTLE_MEMORY:
        fix = "close other programs, or lower --max-concurrent and the number of concurrent runs"
        return [note("machine", "memory", f"{words}: the system may kill a run that needs more", fix)]
    return [ok("machine", "memory", words)]


def _memory() -> tuple[int | None, int | None]:
    """Return the total and free memory in bytes."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        fields = {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}
        return fields["MemTotal"], fields.get("MemAvailable")
    except (OSError, ValueError, KeyError, IndexError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), None
    except (OSError, ValueError):
        return None, None


def _memory_bound() -> tuple[int, int] | None:
    """Return the container's memory limit and its unused part, in bytes; None if it has no limit."""
    try:
        bound = (_CGROUP / "memory.max").read_text().strip()
        used = int((_CGROUP / "memory.current").read_text())
    except (OSError, ValueError):
        return None
    return None if not bound.isdecimal() else (int(bound), max(0, int(bound) - used))


def check_open_files(in_flight: int) -> list[Diagnosis]:
    """Check that the limit of open files allows one connection per request in flight.

    Args:
        in_flight: Concurrent requests of all runs together.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        return [ok("machine", "open files", "as many as bench needs")]
    wanted = in_flight + FILES_BESIDE
    words = f"{hard:,} at most" + (f" (now {soft:,}; runs raise it themselves)" if 0 <= soft < hard else "")
    if hard < wanted:
        says = f"{words}, but {in_flight:,} requests in flight need {wanted:,}"
        fix = f"raise the hard limit: ulimit -Hn {wanted} (or LimitNOFILE, --ulimit nofile), or lower --max-concurrent"
        return [problem("machine", "open files", says, fix)]
    if hard < FILES_FEW:
        fix = f"raise the hard limit (ulimit -Hn {FILES_FEW * 4}) before using a large --max-concurrent"
        return [note("machine", "open files", words, fix)]
    return [ok("machine", "open files", words)]


def check_network(urls: Sequence[str], environ: Mapping[str, str]) -> list[Diagnosis]:
    """Check the variables for proxies and certificates.

    Args:
        urls: Base URLs of the endpoints of the runs.
        environ: Environment variables.
    """
    found = _proxies(urls, environ)
    certificates = {name: path for name in _CERTIFICATES if (path := environ.get(name))}
    for name, path in certificates.items():
        if Path(path).exists():
            found.append(ok("network", name, f"certificates are read from {path}"))
        else:
            fix = f"unset {name}, or set it to the certificates of your network"
            found.append(problem("network", name, f"{path} does not exist, so no HTTPS connection is trusted", fix))
    for name in _OTHERS_CERTIFICATES:
        if environ.get(name) and not certificates:
            fix = f"if your network has certificates of its own: export SSL_CERT_FILE=${name}"
            found.append(note("network", name, "is used by other programs, but not for model requests", fix))
    return found


def _proxies(urls: Sequence[str], environ: Mapping[str, str]) -> list[Diagnosis]:
    names = [name for name in environ if name.lower() in _PROXIES and environ[name]]
    if not names:
        return []
    from yarl import URL

    from harness.models.transport import find_proxy

    through: dict[str, list[str]] = {}
    found: list[Diagnosis] = []
    for url in dict.fromkeys(urls):
        if is_loopback_url(url) or litellm_provider(url) is not None:
            continue
        try:
            proxy = find_proxy(URL(url))
        except (ConfigError, ValueError) as error:
            says, _, fix = str(error).partition(": ")
            found.append(problem("network", "proxy", says, fix or f"correct {', '.join(names)}"))
        else:
            way = f"through {proxy.host}:{proxy.port}" if proxy else "directly (NO_PROXY)"
            through.setdefault(way, []).append(urlsplit(url).netloc)
    for way, hosts in through.items():
        words = f"{', '.join(names)} set: requests to {', '.join(dict.fromkeys(hosts))} go {way}"
        found.append(ok("network", "proxy", words))
    if not found:
        found.append(ok("network", "proxy", f"{', '.join(names)} set; no request here goes through the proxy"))
    return found


def backend_findings(reasons: Sequence[str], wanted_by: Sequence[str] = ()) -> list[Diagnosis]:
    """Return the findings on all sandboxes together.

    Args:
        reasons: For each of `BACKENDS`, the reason why it does not work; "" if it does.
        wanted_by: Environments that may run code.
    """
    works = [name for name, reason in zip(BACKENDS, reasons, strict=True) if not reason]
    others = "; ".join(filter(None, reasons))
    if works:
        also = f"; {others}" if others else ""
        how = "a program was run in it" if works[0] == "bubblewrap" else "its engine answers"
        return [ok("sandbox", works[0], f"works: {how}{also}")]
    fix = "install docker or podman, and start it"
    if sys.platform == "linux":
        fix = "install bubblewrap, 0.7 or newer (apt-get install bubblewrap, dnf install bubblewrap), or start docker"
    if wanted_by:
        says = f"{', '.join(wanted_by)} may run code that a model has written, and no sandbox works: {others}"
        return [problem("sandbox", "sandbox", says, fix)]
    says = f"none works, so environments cannot run code that a model has written: {others}"
    return [note("sandbox", "sandbox", says, fix)]


def check_containers() -> list[Diagnosis]:
    """Report for each container engine that works how many containers bench has there, and those of processes that were
    killed."""
    found: list[Diagnosis] = []
    for name in ENGINES:
        engine = find_engine(name)
        if not isinstance(engine, Engine):
            continue  # `check_sandbox` reports it
        left, running = engine.leftovers(), engine.count()
        words = f"answers; {running or 'no'} container{'' if running == 1 else 's'} of bench"
        if not left:
            found.append(ok("sandbox", f"{name} containers", words))
            continue
        runs = ", ".join(dict.fromkeys(each.run or "no run" for each in left))
        ids = " ".join(each.container[:12] for each in left)
        says = f"{words}, {len(left)} of them left by processes that were killed ({runs})"
        fix = f"the next start of a container removes them; or now: {name} rm --force --volumes {ids}"
        found.append(note("sandbox", f"{name} containers", says, fix))
    return found
