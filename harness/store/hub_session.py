"""How the Hub is spoken to, whatever is sent there: with whose token, one conversation at a time, tried again where
that helps, and without the library's own words on the terminal. Owns no repository and no message of success."""

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
"""The library has one session and one logger a process, and the runs of a suite often share a repository."""

LOG_IN = "set HF_TOKEN to a token with write access, or run `hf auth login`"


def login_token(token: str | None) -> str:
    """The token to speak with.

    Args:
        token: What the caller was given, if anything; else it is the logged-in user's.

    Raises:
        PublishError: there is none, or the Hub must not be asked.
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
    """The attempts at one thing."""

    patience: Patience
    deadline: float
    """`time.monotonic()` seconds after which no attempt begins."""
    notice: Callable[[str], None]
    """Told in one line whenever there is something to wait for."""
    subject: Callable[[], str]
    """What is spoken of in these lines."""
    advice: Mapping[int, str] = field(default_factory=lambda: ADVICE)
    """What the user can do, by HTTP status."""
    _met: dict[HubFailureKind, int] = field(default_factory=lambda: dict.fromkeys(HubFailureKind, 0))

    def until_done(self, attempt: Callable[[], Result], gave_up: Callable[[HubFailure], PublishError]) -> Result:
        """Call `attempt` until it returns, as often as its failures allow.

        Args:
            attempt: One attempt from its beginning: what the last one read is stale.
            gave_up: Makes the error of the last failure.

        Raises:
            PublishError: what `gave_up` has made.
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
            # Half of it by chance: the pushes of a suite must not meet again at the same instant.
            wait = self.patience.first_wait * 2 ** (self._met[failure.kind] - 1) * random.uniform(0.5, 1.0)
        return min(wait, self.patience.longest_wait)


def fetch(url: str, token: str, what: str, most: int) -> bytes | None:
    """A small file, read from the Hub itself: a cache could be older than the commit.

    Args:
        url: Its address, as `hf_hub_url` makes it.
        token: Whose it is asked as.
        what: What it is called if it is too large.
        most: Bytes that it may have.

    Returns:
        Its content; None if the repository has no such file.

    Raises:
        StoreError: it is larger than that. What the library raises is for `Tries`.
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
    """Keep other conversations of this process waiting, and the library's warnings and bars off the terminal: what
    matters is said by `notice` and by errors."""
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
