"""Session with the Hub: token, retries, classification of errors, one session at a time, and no terminal output by the
library. `huggingface_hub` waits as long as `Retry-After` says, and forever for a server that does not answer; `bounded`
limits both during a push."""

from __future__ import annotations

import email.utils
import json
import logging
import random
import re
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC
from enum import Enum
from typing import TypeVar

from harness.core.errors import HarnessError, PublishError, StoreError
from harness.core.redact import redactor
from harness.core.size_limits import size_text

_WINDOW = re.compile(r";\s*r\s*=\s*0\b.*;\s*t\s*=\s*(\d+)")
"""Pattern of the Hub's header such as `RateLimit: "api";r=0;t=55`: no request is left until 55 seconds from now."""

MAX_CAUSE = 300
"""Maximum characters of an error message from the Hub, which may be an HTML page."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Time limits of a push."""

    total: float = 300.0
    """Seconds after which no new attempt or request begins; uploads extend it by `bytes_per_second`."""
    bytes_per_second: float = 250_000.0
    """Slowest upload speed for which the time limit is sufficient."""
    silence: float = 60.0
    """Timeout in seconds for a connection on which no data arrive."""
    longest_wait: float = 60.0
    """Maximum seconds of one pause, even if `Retry-After` is longer."""
    first_wait: float = 1.0
    """Seconds of the first pause after an error without `Retry-After`; doubles with each attempt."""

    def deadline(self, size: int) -> float:
        """Deadline, in `time.monotonic()` seconds, of a push of `size` bytes that begins now."""
        return time.monotonic() + self.total + size / self.bytes_per_second


class HubFailureKind(Enum):
    """Kind of failed attempt. The value is the number of failures of this kind after which a push gives up."""

    MOVED = 8
    """HTTP 412: another commit was made after the card was read, so the card must be read again."""
    BUSY = 5
    """HTTP 429: the Hub received too many requests and asks the client to wait."""
    UNWELL = 4
    """HTTP 5xx, no connection to the Hub, or an unreadable reply."""
    FINAL = 1
    """Permanent failure: a retry would fail in the same way."""


@dataclass(frozen=True, slots=True)
class HubFailure:
    """One failed attempt at a Hub operation."""

    kind: HubFailureKind
    cause: str
    """Description in one line."""
    advice: str = ""
    """Advice for the user, other than to try again."""
    wait: float | None = None
    """Seconds to wait, as requested by the Hub."""


ADVICE = {
    401: "The Hub does not accept the token: set HF_TOKEN to a valid one or run `hf auth login`.",
    403: "The token may not write there: use one with write access, or name a repository in a namespace of yours.",
    404: "The repository is gone, or the token cannot see it.",
    409: "The repository name is taken: choose another one.",
    412: "Others commit to this repository all the time: try again when they are done.",
    429: "The Hub's rate limit is used up: try again later.",
}


def foreign_errors() -> tuple[type[Exception], ...]:
    """Exception types that `huggingface_hub` raises for a failed request; imports the library."""
    from huggingface_hub.errors import HfHubHTTPError

    # The second base class is the root of the HTTP library's exceptions (httpx or its successor): connection errors and
    # timeouts are not wrapped. RuntimeError wraps a failed upload, ValueError an unreadable reply.
    return (HfHubHTTPError.__mro__[1], OSError, RuntimeError, ValueError)  # pyright: ignore[reportReturnType]


def read_failure(error: BaseException, advice: Mapping[int, str] = ADVICE) -> HubFailure:
    """Classify an error, or the error that it wraps.

    Args:
        error: The exception.
        advice: Advice for the user by HTTP status.
    """
    from huggingface_hub.errors import HfHubHTTPError

    chain: list[BaseException] = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    for link in chain:
        if isinstance(link, HarnessError):
            return HubFailure(HubFailureKind.FINAL, one_line(str(link)))
        if isinstance(link, HfHubHTTPError):
            message = str(link.server_message or link)
            return _refused(link.response.status_code, link.response.headers, message, advice)
    root = chain[-1]
    cause = f"{type(root).__name__}: {one_line(str(root))}"
    if isinstance(error, FileNotFoundError | PermissionError):
        return HubFailure(HubFailureKind.FINAL, cause)
    if isinstance(error, ValueError) and not isinstance(root, json.JSONDecodeError):
        # A ValueError means an invalid request; a JSON error, an invalid reply.
        return HubFailure(HubFailureKind.FINAL, cause)
    return HubFailure(HubFailureKind.UNWELL, cause, "Check the connection to the Hub (HF_ENDPOINT, proxies).")


def _refused(status: int, headers: Mapping[str, str], message: str, advices: Mapping[int, str]) -> HubFailure:
    cause = f"HTTP {status}: {one_line(message)}"
    advice = advices.get(status, "")
    if status == 412:
        return HubFailure(HubFailureKind.MOVED, cause, advice)
    if status == 429:
        return HubFailure(HubFailureKind.BUSY, cause, advice, retry_after(headers))
    if status == 408 or status >= 500:
        return HubFailure(HubFailureKind.UNWELL, cause, "The Hub has a problem: try again later.", retry_after(headers))
    return HubFailure(HubFailureKind.FINAL, cause, advice)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, from `Retry-After` (seconds or an HTTP date) or the Hub's rate-limit window; None without
    these."""
    value = headers.get("Retry-After", "").strip()
    with suppress(ValueError):
        return max(0.0, float(value))
    with suppress(ValueError):
        date = email.utils.parsedate_to_datetime(value)
        date = date if date.tzinfo else date.replace(tzinfo=UTC)
        return max(0.0, date.timestamp() - time.time())
    window = _WINDOW.search(headers.get("RateLimit", ""))
    return float(window.group(1)) if window else None


def one_line(text: str) -> str:
    """Clean text for one line: no line breaks or control characters, cut to `MAX_CAUSE`."""
    words = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return words if len(words) <= MAX_CAUSE else words[: MAX_CAUSE - 1] + "…"


@contextmanager
def bounded(patience: Patience, deadline: float) -> Generator[None]:
    """Limit how long the Hub library waits: for silent connections, for `Retry-After`, and beyond `deadline`.

    The library has one session per process, so only one such block may be open at a time.

    Raises:
        PublishError: inside the block, if this thread begins a request after `deadline`.
    """
    from huggingface_hub import get_session

    session, pushing = get_session(), threading.get_ident()

    def before(request: object) -> None:
        # Check the deadline, only in this thread: other threads may be loading datasets.
        if time.monotonic() > deadline and threading.get_ident() == pushing:
            raise PublishError("the push has exceeded its time limit")

    def after(response: object) -> None:
        headers = getattr(response, "headers", {})
        wait = retry_after(headers)
        if wait is not None and getattr(response, "status_code", 200) >= 400:
            # The library reads only whole seconds.
            headers["Retry-After"] = str(int(min(wait, patience.longest_wait)))
            headers.pop("RateLimit", None)

    hooks, timeout = session.event_hooks, session.timeout
    session.event_hooks = {"request": [*hooks["request"], before], "response": [*hooks["response"], after]}
    session.timeout = patience.silence
    try:
        yield
    finally:
        session.event_hooks, session.timeout = hooks, timeout


Result = TypeVar("Result")

_one_at_a_time = threading.Lock()
"""Lock for one push at a time: the library has one session per process, and suites often share a repository."""

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
        raise PublishError(f"you are not logged in to the Hub: {LOG_IN}")
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
    """Function that returns a description of the operation, with which the lines passed to `notice` begin."""
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
        StoreError: the file is too large. Errors of the library are left to `Tries`.
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
                        f"{what} is larger than the limit of {size_text(most)}; ask its owner to shorten the file"
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
