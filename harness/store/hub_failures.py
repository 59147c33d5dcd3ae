"""What an error of `huggingface_hub` means: may it heal, after how long, and what should the user do. Owns the reading
of foreign errors and the bounds that are put on the library's own patience; sends nothing itself.

The library waits for as long as a `Retry-After` says and for ever on a silent socket; `bounded` puts an end to both for
as long as a push lasts, through its public session."""

from __future__ import annotations

import email.utils
import json
import re
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC
from enum import Enum

from harness.core.errors import HarnessError, PublishError

_WINDOW = re.compile(r";\s*r\s*=\s*0\b.*;\s*t\s*=\s*(\d+)")
"""The Hub's `RateLimit: "api";r=0;t=55`: nothing remains, the window ends in 55 seconds."""

MAX_CAUSE = 300
"""Characters of a foreign message that are shown: the Hub may answer with a page of HTML."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a push tries."""

    total: float = 300.0
    """Seconds after which no further attempt or request is begun; uploading adds to it by `bytes_per_second`."""
    bytes_per_second: float = 250_000.0
    """The slowest upload that is waited for."""
    silence: float = 60.0
    """Seconds that the Hub may say nothing at all while a request is open."""
    longest_wait: float = 60.0
    """Seconds that one pause lasts at most, whatever `Retry-After` asks for."""
    first_wait: float = 1.0
    """Seconds of the first pause after an error that names none; doubles from try to try."""

    def deadline(self, size: int) -> float:
        """When to give up on a push of `size` bytes that begins now; `time.monotonic()` seconds."""
        return time.monotonic() + self.total + size / self.bytes_per_second


class HubFailureKind(Enum):
    """What may be done about a failure. The value is how often a push meets it before it gives up."""

    MOVED = 8
    """412: someone else committed since the card was read; read it again."""
    BUSY = 5
    """429: too many requests; wait as told."""
    UNWELL = 4
    """5xx, no connection, a reply that cannot be read."""
    FINAL = 1
    """Trying again would fail in the same way."""


@dataclass(frozen=True, slots=True)
class HubFailure:
    """One failed attempt."""

    kind: HubFailureKind
    cause: str
    """What happened, in one line."""
    advice: str = ""
    """What the user can do about it, beyond trying again."""
    wait: float | None = None
    """Seconds that the Hub asked us to wait."""


ADVICE = {
    401: "The Hub does not accept the token: set HF_TOKEN to a valid one or run `hf auth login`.",
    403: "The token may not write there: use one with write access, or name a namespace of yours with --repo.",
    404: "The repository is gone, or the token cannot see it.",
    409: "The name is taken: choose another with --repo.",
    412: "Others commit to this repository all the time: try again when they are done.",
    429: "The Hub's rate limit is used up: try again later.",
}


def foreign_errors() -> tuple[type[Exception], ...]:
    """What `huggingface_hub` raises when a request fails; imports it."""
    from huggingface_hub.errors import HfHubHTTPError

    # The second base is the HTTP library's own root (httpx or its successor): connection errors and timeouts derive
    # from it and are not translated. RuntimeError wraps a failed upload, ValueError an unreadable reply.
    return (HfHubHTTPError.__mro__[1], OSError, RuntimeError, ValueError)  # pyright: ignore[reportReturnType]


def read_failure(error: BaseException, advice: Mapping[int, str] = ADVICE) -> HubFailure:
    """What `error`, or the error that it wraps, means for the push.

    Args:
        error: What was raised.
        advice: What the user can do about a refusal, by its HTTP status.
    """
    from huggingface_hub.errors import HfHubHTTPError

    chain: list[BaseException] = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    for link in chain:
        if isinstance(link, HarnessError):
            return HubFailure(HubFailureKind.FINAL, one_line(str(link)))
        if isinstance(link, HfHubHTTPError):
            said = str(link.server_message or link)
            return _refused(link.response.status_code, link.response.headers, said, advice)
    root = chain[-1]
    cause = f"{type(root).__name__}: {one_line(str(root))}"
    if isinstance(error, FileNotFoundError | PermissionError):
        return HubFailure(HubFailureKind.FINAL, cause)
    if isinstance(error, ValueError) and not isinstance(root, json.JSONDecodeError):
        # A ValueError is the library's verdict on what was sent; a JSON error is about the reply.
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
        return HubFailure(HubFailureKind.UNWELL, cause, "The Hub is unwell: try again later.", retry_after(headers))
    return HubFailure(HubFailureKind.FINAL, cause, advice)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait by `Retry-After` (seconds or an HTTP date) or by the Hub's rate-limit window; None: unsaid."""
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
    """`text` without line breaks and control characters, cut to `MAX_CAUSE`."""
    words = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return words if len(words) <= MAX_CAUSE else words[: MAX_CAUSE - 1] + "…"


@contextmanager
def bounded(patience: Patience, deadline: float) -> Generator[None]:
    """Bound what the library does inside: silence of a socket, waits that a reply asks for, requests past `deadline`.

    The library has one session a process, so one such block may be open at a time.

    Raises:
        PublishError: from inside, when this thread was to begin a request after `deadline`.
    """
    from huggingface_hub import get_session

    session, pushing = get_session(), threading.get_ident()

    def before(request: object) -> None:
        # Other threads may be loading datasets meanwhile, which our deadline is nothing to.
        if time.monotonic() > deadline and threading.get_ident() == pushing:
            raise PublishError("the time for it is up")

    def after(response: object) -> None:
        headers = getattr(response, "headers", {})
        wait = retry_after(headers)
        if wait is not None and getattr(response, "status_code", 200) >= 400:
            # Whole seconds: the library reads no other form.
            headers["Retry-After"] = str(int(min(wait, patience.longest_wait)))
            headers.pop("RateLimit", None)

    hooks, timeout = session.event_hooks, session.timeout
    session.event_hooks = {"request": [*hooks["request"], before], "response": [*hooks["response"], after]}
    session.timeout = patience.silence
    try:
        yield
    finally:
        session.event_hooks, session.timeout = hooks, timeout
