"""Session with the Hub: token, retries, one session at a time, and no terminal output of the library."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from harness.core.errors import HarnessError, PublishError, StoreError
from harness.core.redact import redactor
from harness.core.size_limits import size_words
from harness.store.hub_failures import (
    ADVICE,
    HubFailure,
    HubFailureKind,
    Patience,
    bounded,
    foreign_errors,
    read_failure,
)

Result = TypeVar("Result")

_one_at_a_time = threading.Lock()
"""The library has one session and one logger per process, and runs of a suite often share a repository."""

LOG_IN = "set HF_TOKEN to a token with write access, or run `hf auth login`"


def login_token(token: str | None) -> str:
    """Find the token to use.

    Args:
        token: Token given by the caller; default: that of the logged-in user.

    Raises:
        PublishError: there is no token, or offline mode is on.
    """
    from huggingface_hub import constants, get_token

    if constants.HF_HUB_OFFLINE:
        raise PublishError("HF_HUB_OFFLINE is set, so nothing may be sent: unset it to push")
    try:
        token = token or get_token()
    except foreign_errors() as error:
        raise PublishError(read_failure(error).cause) from error
    if token is None:
        raise PublishError(f"nobody is logged in to the Hub: {LOG_IN}")
    redactor.add(token)
    return token


@dataclass(slots=True)
class Tries:
    """Retry loop of one operation."""

    patience: Patience
    deadline: float
    """`time.monotonic()` seconds after which no attempt begins."""
    notice: Callable[[str], None]
    """Called with one line before each wait."""
    subject: Callable[[], str]
    """Function that returns the subject of these lines."""
    advice: Mapping[int, str] = field(default_factory=lambda: ADVICE)
    """Advice for the user by HTTP status."""
    _met: dict[HubFailureKind, int] = field(default_factory=lambda: dict.fromkeys(HubFailureKind, 0))

    def until_done(self, attempt: Callable[[], Result], gave_up: Callable[[HubFailure], PublishError]) -> Result:
        """Call `attempt` until it succeeds or its failures exceed the limits.

        Args:
            attempt: One complete attempt, which reads all its inputs again.
            gave_up: Function that converts the last failure to an error.

        Raises:
            PublishError: the error from `gave_up`.
        """
        while True:
            try:
                with bounded(self.patience, self.deadline):
                    return attempt()
            except (HarnessError, *foreign_errors()) as error:
                failure = read_failure(error, self.advice)
                self._met[failure.kind] += 1
                wait = self._wait(failure)
                if self._met[failure.kind] >= failure.kind.value or time.monotonic() + wait > self.deadline:
                    raise gave_up(failure) from error
            self.notice(redactor.text(f"{self.subject()}: {failure.cause}; trying again in {wait:.0f} s"))
            time.sleep(wait)

    def _wait(self, failure: HubFailure) -> float:
        """Seconds until the next attempt."""
        wait = failure.wait
        if wait is None:
            # Jitter, so that the pushes of a suite do not retry at the same time.
            wait = self.patience.first_wait * 2 ** (self._met[failure.kind] - 1) * random.uniform(0.5, 1.0)
        return min(wait, self.patience.longest_wait)


def fetch(url: str, token: str, what: str, most: int) -> bytes | None:
    """Download a small file from the Hub, without the cache, which may be outdated.

    Args:
        url: Its URL, from `hf_hub_url`.
        token: Token for the request.
        what: Name of the file in the error message.
        most: Maximum size in bytes.

    Returns:
        Its content; None if the repository has no such file.

    Raises:
        StoreError: it is too large. Errors of the library are left to `Tries`.
    """
    from huggingface_hub import get_session
    from huggingface_hub.errors import EntryNotFoundError
    from huggingface_hub.utils import hf_raise_for_status

    content = bytearray()
    try:
        with get_session().stream("GET", url, headers={"Authorization": f"Bearer {token}"}) as reply:
            hf_raise_for_status(reply)
            for part in reply.iter_bytes():
                content += part
                if len(content) > most:
                    raise StoreError(
                        f"{what} is larger than {size_words(most)}, and no more is read: its owner can shorten it"
                    )
    except EntryNotFoundError:
        return None
    return bytes(content)


@contextmanager
def conversation() -> Generator[None]:
    """Hold the process-wide Hub lock, and suppress the library's warnings and progress bars. Messages are printed by
    `notice` and errors instead."""
    from huggingface_hub import constants
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    with _one_at_a_time:
        logger = logging.getLogger("huggingface_hub")
        level = logger.level
        bars = constants.HF_HUB_DISABLE_PROGRESS_BARS is None and not are_progress_bars_disabled()
        logger.setLevel(logging.ERROR)
        if bars:
            disable_progress_bars()
        try:
            yield
        finally:
            logger.setLevel(level)
            if bars:
                enable_progress_bars()
