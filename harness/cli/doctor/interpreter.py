"""Checks of Python and the event loop in this process."""

from __future__ import annotations

import platform
import sys
import sysconfig

from harness.cli.doctor.findings import Diagnosis, note, ok, problem

OLDEST = (3, 11)


def check_python() -> list[Diagnosis]:
    """Check that bench supports this Python version."""
    version = platform.python_version()
    kind = platform.python_implementation()
    place = "in a virtual environment" if sys.prefix != sys.base_prefix else "not in a virtual environment"
    says = f"{version} ({kind}, {platform.system()} {platform.machine()}), {place}: {sys.executable}"
    if sys.version_info < OLDEST:
        return [problem("python", "python", says, "install Python 3.11 or newer, and bench into it")]
    found = [ok("python", "python", says)]
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        found.append(
            note("python", "free threading", "this is a free-threaded build, which bench is not tested with",
                 "use a usual build of Python")
        )  # fmt: skip
    if sys.flags.optimize:
        found.append(
            note("python", "assertions", "Python runs with -O or PYTHONOPTIMIZE: environments' assertions are skipped",
                 "unset PYTHONOPTIMIZE")
        )  # fmt: skip
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
