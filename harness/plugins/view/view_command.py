"""Implement `bench view`: start the server, print the link, and stop at Ctrl-C or SIGTERM; or write a static site."""

from __future__ import annotations

import getpass
import os
import shlex
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from harness.cli.grouped import flag, output_dir_flag, positional
from harness.core.errors import UsageError
from harness.core.loopback import is_loopback
from harness.plugins.view.run_list import MOST_COMPARED, RunList
from harness.report.text import clean
from harness.store.find_runs import choose
from harness.store.notes import LONGEST_NAME
from harness.store.rundir import RunDir
from harness.usercode.event_loop import stop_signals

_LOOPBACK = "127.0.0.1"

_MMAP_THRESHOLD = -3
"""Number of the setting of `mallopt` in glibc: bytes from which on an array gets memory of its own."""

_RUNS_HELP = (
    "Show only these: runs or suites by id, the beginning of an id, a path, or `latest`. Two runs or more are compared "
    "with the first. [all]"
)


def view(  # noqa: PLR0913 - a command's options are its parameters
    runs: list[str] | None = positional("RUN|SUITE", _RUNS_HELP),
    host: str = flag("--host HOST", "Address to listen on.", _LOOPBACK),
    port: int = flag("--port N", "Port to listen on; 0 picks a free one.", 0, min=0, max=65535),
    author: str | None = flag("--author NAME", "Author of the notes that you write. [your user name]"),
    no_open: bool = flag("--no-open", "Print the link without opening a browser.", False),
    bundle: Path | None = flag("--bundle DIR", "Write the named runs as a static site into this folder, and exit."),
    allow_private: bool = flag("--allow-private", "Bundle also a run that was made with --private.", False),
    output_dir: Path = output_dir_flag(),
) -> None:
    """Read runs and their transcripts in a browser, also while a run is in progress.

    The first line on stdout is a link that contains a token; Ctrl-C ends the server. Only this machine can reach the
    server, unless --host is given, and only with the token. Nothing in the run folders is changed except for
    notes.jsonl, in which the notes that you write are kept, and no code of an environment is run.

    With --bundle, the pages and the data of the runs become a folder that any web server can serve. Known secrets are
    removed again; a bundle that is there is replaced.
    """
    if bundle is not None:
        if host != _LOOPBACK or port or no_open or author is not None:
            raise UsageError(
                "--host, --port, --author and --no-open have no effect with --bundle, which starts no server"
            )
        _bundle(bundle, runs or [], output_dir, allow_private=allow_private)
        return
    if allow_private:
        raise UsageError("--allow-private has no effect without --bundle: the server shows private runs to you")
    if not runs and not output_dir.is_dir():
        raise UsageError(f"no folder {output_dir}: make a run with bench run, or name the output folder with -o")
    paths = choose(output_dir, runs).runs if runs else None
    together = paths or []
    place = _comparison(together) if len(together) == len(runs or []) else ""
    if not is_loopback(host):
        _say(
            f"warning: {host} is not a loopback address: everybody who gets the link and can reach this machine over "
            "the network can read the runs; the connection is not encrypted"
        )
    who = _author(author)
    _serve(RunList(output_dir, paths), (host, port), place, who, opens=not no_open and sys.stdout.isatty())


def _bundle(folder: Path, names: list[str], output_dir: Path, *, allow_private: bool) -> None:
    """Write runs as a static site, and print its size."""
    from harness.plugins.view.bundle import write_bundle
    from harness.report.numerals import counted
    from harness.report.run_facts import size_text
    from harness.store.catalogue import read_entry

    if not names:
        raise UsageError("name the runs to bundle, for example: bench view --bundle site latest")
    chosen = choose(output_dir, names)
    for each in chosen.gone:
        _say(f"note: not in the bundle: {clean(each, 1000)}: this run of the suite no longer exists")
    entries = [read_entry(path) for path in chosen.runs]
    private = [entry.id for entry in entries if entry.manifest is not None and entry.manifest.is_private]
    if private and not allow_private:
        raise UsageError(
            f"made with --private, but a bundle is for other people to read: {', '.join(private)}. To bundle "
            "private runs anyway, add --allow-private"
        )
    ids = [entry.id for entry in entries]
    if twice := [each for each in ids if ids.count(each) > 1]:
        raise UsageError(f"two of the runs have the id {twice[0]}; name one of them")
    for entry in entries:
        if entry.state == "running":
            _say(f"note: {entry.id} has not ended: the bundle has its rollouts until now")
    site = write_bundle(folder, entries)
    sys.stdout.write(f"{folder}\n")
    sys.stdout.flush()
    counts = ((site.runs, "run"), (site.rollouts, "rollout"), (site.files, "file"))
    _say(", ".join([*(counted(number, noun) for number, noun in counts), size_text(site.size)]))
    if site.unreadable:
        _say(f"note: the transcripts of {counted(site.unreadable, 'rollout')} cannot be read")
    if site.is_private:
        _say("note: the bundle has a private run, so only you can read the folder")
    _say(f"Look at it: python -m http.server -d {shlex.quote(str(folder))}")


def _comparison(paths: Sequence[Path]) -> str:
    """Address of the page that compares runs, within the pages; "" if there are too few or too many."""
    return (
        f"#/compare/{quote(','.join(RunDir(path).id for path in paths), safe=',')}"
        if 2 <= len(paths) <= MOST_COMPARED
        else ""
    )


def _author(given: str | None) -> str:
    """The author of notes: as given, or the user name of the system, which has none in some containers."""
    name = given or ""
    if given is None:
        with suppress(OSError, KeyError, ImportError):
            name = getpass.getuser()
    name = " ".join(name.split())
    if given is not None and not 0 < len(name) <= LONGEST_NAME:
        raise UsageError(f"--author NAME has 1 to {LONGEST_NAME} characters")
    return name[:LONGEST_NAME] or "unknown"


def _serve(runs: RunList, address: tuple[str, int], place: str, author: str, *, opens: bool) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        runs: The runs to show.
        address: Host and port.
        place: Page to open; "" for the list of runs.
        author: Author of new notes.
        opens: Whether to open a browser.

    Raises:
        UsageError: the address is in use, or is not an address of this machine.
    """
    import uvloop

    _return_memory()
    host, port = address
    from harness.plugins.view.server import ViewServer

    async def main() -> None:
        server = ViewServer(runs, author)
        with stop_signals() as stop:
            try:
                link = await server.start(host, port) + place
            except OSError as error:
                where = f"{host}, port {port}" if port else host
                raise UsageError(
                    f"cannot listen on {where}: {os.strerror(error.errno) if error.errno else error}; choose another "
                    "address with --host, or another port with --port"
                ) from None
            try:
                sys.stdout.write(f"{link}\n")
                sys.stdout.flush()
                _say("Ctrl-C ends the server.")
                if opens:
                    threading.Thread(target=_open, args=(link,), daemon=True).start()
                await stop.wait()
            finally:
                await server.stop()

    uvloop.run(main())


def _return_memory() -> None:
    """Let the C library give the memory of each large array back at once, where it has a setting for that. By default
    it keeps gaps of many megabytes after the arrays of a long run."""
    import ctypes

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, 1 << 18)


def _open(link: str) -> None:
    import webbrowser

    webbrowser.open(link)


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
