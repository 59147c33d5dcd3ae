"""Python itself, the event loop and the terminal. Owns these checks; they look at this process alone."""

from __future__ import annotations

import codecs
import locale
import os
import platform
import shutil
import sys
import sysconfig

from harness.cli.doctor.findings import Diagnosis, note, ok, problem

OLDEST = (3, 11)
NARROW = 60
"""Columns below which tables are cut."""

_DRAWN = "\u00b1 \u00d7 \u2502"
"""What tables are drawn with."""


def check_python() -> list[Diagnosis]:
    """Whether this interpreter is one that bench is made for."""
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
    """Whether the event loop of the commands can be made."""
    try:
        import uvloop

        loop = uvloop.new_event_loop()
    except (ImportError, OSError) as error:
        fix = f"{sys.executable} -m pip install --force-reinstall uvloop"
        return [problem("python", "event loop", f"uvloop cannot be used: {error}", fix)]
    loop.close()
    return [ok("python", "event loop", f"uvloop {uvloop.__version__}")]


def check_terminal(encoding: str | None = None) -> list[Diagnosis]:
    """Whether what is printed can be read.

    Args:
        encoding: Of stdout; by default what it is.
    """
    encoding = encoding or str(getattr(sys.stdout, "encoding", "") or locale.getpreferredencoding(False))
    found: list[Diagnosis] = []
    if _can_write(encoding):
        found.append(ok("terminal", "encoding", f"{encoding.lower()} can write all that tables are drawn with"))
    else:
        says = f"{encoding} cannot write what tables are drawn with: it is shown as ?"
        found.append(note("terminal", "encoding", says, "export PYTHONUTF8=1, or LANG=C.UTF-8"))
    width = shutil.get_terminal_size().columns
    if sys.stdout.isatty() and width < NARROW:
        says = f"{width} columns: names in tables are cut"
        found.append(note("terminal", "width", says, f"make the window {NARROW} columns wide or more"))
    if "COLUMNS" in os.environ and not os.environ["COLUMNS"].isdecimal():
        found.append(note("terminal", "COLUMNS", "is no number and is ignored", "unset COLUMNS"))
    return found


def _can_write(encoding: str) -> bool:
    try:
        codecs.encode(_DRAWN, encoding)
    except (LookupError, UnicodeError):
        return False
    return True
