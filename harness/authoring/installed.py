"""What is installed, told by a process that began after the installation. Owns that process alone: run as a module, it
prints one JSON list. Distributions that are named are imported; of the others, metadata is all that is read."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.authoring.catalogue import Entry, catalogue, normal
from harness.errors import HarnessError
from harness.loader import find_function


def _main(wanted: Sequence[str]) -> None:
    entries = [entry for entry in catalogue(Path(os.devnull)) if entry.status != "not installed"]
    if wanted:
        names = {normal(name) for name in wanted}
        entries = [entry for entry in entries if normal(entry.distribution) in names]
    with contextlib.redirect_stdout(sys.stderr):
        told = [
            {
                "name": entry.name,
                "distribution": entry.distribution,
                "version": entry.version,
                "path": entry.path,
                "problem": _problem(entry) if wanted else "",
            }
            for entry in entries
        ]
    sys.stdout.write(json.dumps(told))


def _problem(entry: Entry) -> str:
    """Why the environment cannot be used; "" if its function is there."""
    try:
        find_function(entry.name)
    except HarnessError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    _main(sys.argv[1:])
