"""Fast failure of Hugging Face Hub requests while environments load. If the Hub is unreachable, `huggingface_hub` and
`datasets` use the cached copy or fail within two seconds, instead of retrying for 25 seconds. To find out whether it is
reachable, one HEAD request is sent without retries before the first request."""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import queue
import sys
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

SECONDS = 2.0
"""Seconds to wait for the Hub's answer, unless HF_HUB_ETAG_TIMEOUT is set."""

REMEMBERED = 60.0
"""Seconds for which the result of the reachability check is reused, since a suite may load many environments."""

_open_blocks: list[list[str]] = []
"""Reasons why requests were rejected, for each open `failing_fast` block."""
_results: dict[str, tuple[float, str]] = {}
_asking = threading.Lock()
_own = threading.local()


@contextmanager
def failing_fast() -> Generator[None]:
    """Make requests to an unreachable Hub fail at once inside the block."""
    refusals: list[str] = []
    _open_blocks.append(refusals)
    if "huggingface_hub" in sys.modules:
        _watch()
    elif _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    try:
        yield
    finally:
        _open_blocks[:] = [block for block in _open_blocks if block is not refusals]
        if not _open_blocks and _FINDER in sys.meta_path:
            sys.meta_path.remove(_FINDER)


def refusal() -> str:
    """Reason why a request to the Hub was rejected in the innermost `failing_fast` block; "" if none was rejected.

    The error messages of the libraries do not contain the reason."""
    return next(iter(_open_blocks[-1]), "") if _open_blocks else ""


def ask_once(method: str, url: str, headers: dict[str, str]) -> tuple[int, str]:
    """Send one request to the Hub without retries. Uses a thread, since name resolution may block for longer than the
    timeout.

    Returns:
        The HTTP status and "", or 0 and the error.
    """
    from huggingface_hub import constants, get_session

    session = get_session()
    seconds = float(constants.HF_HUB_ETAG_TIMEOUT) if os.environ.get("HF_HUB_ETAG_TIMEOUT") else SECONDS
    results: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()

    def ask() -> None:
        _own.asking = True
        try:
            reply = session.request(method, url, headers=headers, timeout=seconds, follow_redirects=False)
        except Exception as error:  # HTTP libraries may raise any exception
            results.put((0, str(error) or type(error).__name__))
        else:
            results.put((int(reply.status_code), ""))

    threading.Thread(target=ask, daemon=True, name="bench-hub").start()
    try:
        status, why = results.get(timeout=seconds + 0.1)
    except queue.Empty:
        status, why = 0, ""
    if status or (why and "timed out" not in why):
        return status, why
    return 0, f"no answer within {seconds:g} s; set HF_HUB_ETAG_TIMEOUT=10 to wait longer"


def _refuse_unreachable(request: Any) -> None:
    """Event hook of the Hub library's HTTP session: fail at once if the Hub is unreachable."""
    if not _open_blocks or getattr(_own, "asking", False):
        return
    from huggingface_hub import constants
    from huggingface_hub.errors import OfflineModeIsEnabled

    endpoint = str(constants.ENDPOINT)
    if urlsplit(str(request.url)).netloc != urlsplit(endpoint).netloc:
        return
    with _asking:
        asked_at, why = _results.get(endpoint, (0.0, ""))
        if not asked_at or time.monotonic() - asked_at > REMEMBERED:
            status, why = ask_once("HEAD", str(request.url), dict(request.headers))
            why = f"HTTP {status}" if status >= 500 else why
            _results[endpoint] = time.monotonic(), why
    if why:
        refused = f"{endpoint} cannot be reached ({why})"
        for block in _open_blocks:
            block.append(refused)
        raise OfflineModeIsEnabled(refused)


def _watch() -> None:
    from huggingface_hub import get_session

    session: Any = get_session()
    hooks = session.event_hooks
    if _refuse_unreachable not in hooks["request"]:
        session.event_hooks = {**hooks, "request": [*hooks["request"], _refuse_unreachable]}


class _Finder(importlib.abc.MetaPathFinder):
    """Import hook that makes requests of `huggingface_hub` fail fast as soon as an environment imports that library.
    Importing it for every run would take 0.3 s."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the module spec of `huggingface_hub`, with a loader that also makes its requests fail fast."""
        if fullname != "huggingface_hub":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                _watch()

            spec.loader.exec_module = exec_module
        return spec


_FINDER = _Finder()
