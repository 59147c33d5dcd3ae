"""Catalogue of faults: names, parameters, and the `Fault` of each. `rules` chooses requests; `script` parses user
input."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import orjson

from harness.core.errors import ConfigError
from harness.plugins.faults.rules import MALFORMED, Delivery, Fault
from harness.plugins.faults.spoil import EDITS, ERROR_PLACES, GARBLINGS, ROUTER_ERROR
from harness.settings.wording import suggestion

MEGABYTE = 2**20

HTML = (
    b"<!doctype html>\n<html><head><title>502 Bad Gateway</title></head>\n"
    b"<body><center><h1>502 Bad Gateway</h1></center><hr><center>nginx</center></body></html>\n"
)

EVENTS = b'data: {"id": "x", "choices": [{"index": 0, "delta": {"content": "4"}}]}\n\n' * 2
"""Body of a faulty reply: an event stream that the client did not request, with a repeated event and no end."""

Given = Mapping[str, object]
"""Parameters as the user wrote them: TOML values, or strings from a command line."""


@dataclass(frozen=True, slots=True)
class FaultKind:
    """One kind of fault: its description, its parameters, and the function that creates a `Fault`."""

    says: str
    """One-line description for the list of faults."""
    make: Callable[[Given], Fault]
    parameters: tuple[str, ...] = ()


def _act(says: str, fault: Fault) -> FaultKind:
    return FaultKind(says, lambda given: fault)


def _text(given: Given, name: str, default: str) -> str:
    value = given.get(name, default)
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise ConfigError(f"{name} must be a string, not {value!r}")
    return str(value)


def number(value: object, name: str, low: float = 0.0, high: float = math.inf) -> float:
    """Parse the number that is given for a parameter.

    Raises:
        ConfigError: the value is not a number from `low` to `high`.
    """
    try:
        parsed = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else math.nan
    except ValueError:
        parsed = math.nan
    if not (low <= parsed <= high and math.isfinite(parsed)):
        span = f"from {low:g} to {high:g}" if math.isfinite(high) else f"of at least {low:g}"
        raise ConfigError(f"{name} must be a number {span}, not {value!r}")
    return parsed


def _edit(says: str, edit: str, parameter: str = "", default: str = "") -> FaultKind:
    assert edit in EDITS, edit

    def make(given: Given) -> Fault:
        return Fault(edit=edit, value=_text(given, parameter, default) if parameter else "")

    return FaultKind(says, make, (parameter,) if parameter else ())


def _garbled(given: Given) -> Fault:
    form = _text(given, "form", "cut")
    if form not in GARBLINGS:
        raise ConfigError(f"unknown form {form!r} of a garbled tool call; {suggestion(form, GARBLINGS)}")
    return Fault(edit="bad-tool-call", value=form)


def _broken(delivery: Delivery) -> Callable[[Given], Fault]:
    def make(given: Given) -> Fault:
        status = _status(given)
        act = "answer" if status < 400 else "status"
        return Fault(act, status=status, delivery=delivery, sent=number(given.get("sent", 0.5), "sent", high=1.0))

    return make


def _trickle(given: Given) -> Fault:
    return Fault(delivery="trickle", seconds=number(given.get("seconds", 10.0), "seconds"))


def _slow(given: Given) -> Fault:
    return Fault(latency=number(given.get("seconds", 5.0), "seconds"))


def _huge(given: Given) -> Fault:
    size = int(number(given.get("megabytes", 100.0), "megabytes") * MEGABYTE)
    packed = given.get("gzip", False)
    if packed not in (True, False, "true", "false"):
        raise ConfigError(f"gzip must be true or false, not {packed!r}")
    return Fault("huge", status=_status(given), size=size, gzip=packed in (True, "true"))


def _body(given: Given) -> Fault:
    text = _text(given, "text", "")
    return Fault(
        "body", status=_status(given), body=text.encode("utf-8", "surrogatepass"),
        content_type=_text(given, "content_type", "application/json"),
    )  # fmt: skip


def _wrapped(given: Given) -> Fault:
    """Create a reply with status 200 that contains an error object, alone or with the normal answer (`form`)."""
    words, form = _text(given, "code", "429"), _text(given, "form", "alone")
    code = int(words) if words.isdecimal() else words
    if form == "alone":
        return Fault("body", body=json.dumps({"error": {**ROUTER_ERROR, "code": code}}).encode())
    if form not in ERROR_PLACES:
        raise ConfigError(
            f"unknown form {form!r} of an error in a 200 reply; {suggestion(form, ['alone', *ERROR_PLACES])}"
        )
    finish = _text(given, "finish", "error" if form == "finish" else "stop")
    value = orjson.dumps([form, code, None if finish == "null" else finish])
    return Fault(edit="error-beside", value=value.decode())


def _status(given: Given) -> int:
    return int(number(given.get("status", 200), "status", 200, 599))


_SENT = ("sent", "status")

KINDS: dict[str, FaultKind] = {
    "reset": _act("the connection is reset before any byte of the reply", Fault("reset")),
    "close": _act("the connection is closed normally, without a reply", Fault("close")),
    "hang": _act("no reply, and the connection stays open", Fault("hang")),
    "reset-body": FaultKind("the connection is reset in the middle of the reply", _broken("reset"), _SENT),
    "close-body": FaultKind("the connection is closed in the middle of the reply", _broken("close"), _SENT),
    "hang-body": FaultKind("the reply stops in the middle, and the connection stays open", _broken("hang"), _SENT),
    "trickle": FaultKind("the normal reply, a few bytes at a time, within `seconds` (10)", _trickle, ("seconds",)),
    "slow": FaultKind("the normal reply after `seconds` (5)", _slow, ("seconds",)),
    "truncated": FaultKind("200 with JSON that ends in the middle", _broken("truncated"), ("sent",)),
    "invalid-json": _act(
        "200 with text that looks like JSON but is not valid", Fault("body", body=b"{'choices': [None]}")
    ),
    "html": FaultKind(
        "a proxy's error page, with `status` (200)",
        lambda given: Fault("body", status=_status(given), body=HTML, content_type="text/html"),
        ("status",),
    ),
    "empty-body": _act("200 with an empty body", Fault("body", body=b"")),
    "event-stream": _act(
        "200 with an event stream that was not requested and is cut off",
        Fault("body", body=EVENTS, content_type="text/event-stream"),
    ),
    "bad-gzip": _act(
        "200 with `Content-Encoding: gzip`, but a body that is not gzip",
        Fault("body", body=b"\x1f\x8bnot gzip at all", headers=(("Content-Encoding", "gzip"),)),
    ),
    "cut-gzip": _act("the normal reply with gzip, without the last 8 bytes", Fault(edit="cut-gzip")),
    "partial": _act("the normal reply with the status 206 (partial content)", Fault(edit="partial")),
    "two-choices": _edit("an extra choice with index 1 before the normal one with index 0", "two-choices"),
    "malformed": _act(
        "200 with cut JSON, an HTML page, no choices or an empty body, in turn", Fault("body", body=MALFORMED[0])
    ),
    "wrapped-error": FaultKind(
        f"an error with `code` (429) in a 200 reply; `form` is alone, or next to an answer: {', '.join(ERROR_PLACES)}; "
        "`finish` is the finish reason",
        _wrapped,
        ("code", "form", "finish"),
    ),
    "no-max-tokens": _act(
        "a request with max_tokens is refused, as by OpenAI's reasoning models; max_completion_tokens is accepted",
        Fault(edit="no-max-tokens"),
    ),
    "body": FaultKind("a body of `text`, with `status` and `content_type`", _body, ("text", "status", "content_type")),
    "huge": FaultKind(
        "a reply of `megabytes` (100), with `status` (200); `gzip = true` compresses it",
        _huge,
        ("megabytes", "status", "gzip"),
    ),
    "no-choices": _edit("a reply without choices", "no-choices"),
    "null-content": _edit("a reply whose content is null", "null-content"),
    "empty-content": _edit("a reply whose content is empty", "empty-content"),
    "no-usage": _edit("the normal reply, without usage", "no-usage"),
    "wrong-model": _edit(
        "the normal reply, from a model called `name` (another-model)", "wrong-model", "name", "another-model"
    ),
    "refusal": _edit("the model refuses with `text`", "refusal", "text", "I cannot help with that."),
    "content-filter": _edit("an empty, filtered reply: `finish_reason` is content_filter", "content-filter"),
    "length": FaultKind(
        "the reply is cut after `tokens` (2); `finish_reason` is length",
        lambda given: Fault(edit="length", value=str(int(number(given.get("tokens", 2), "tokens")))),
        ("tokens",),
    ),
    "bad-tool-call": FaultKind(f"a garbled tool call; `form` is {', '.join(GARBLINGS)}", _garbled, ("form",)),
}
"""Fault kinds by name. Three digits are an HTTP error (`429`); `500|502|503` means one of these, drawn at random."""

STATUS_PARAMETERS = ("retry_after", "message", "code")
"""Parameters of an HTTP error. `retry_after = "date+30"` is the HTTP-date of 30 seconds from now."""

COMMON = ("delay",)
"""Parameters of every fault: `delay`, in seconds."""

_STATUSES = re.compile(r"\d{3}(?:\|\d{3})*")


def make_faults(name: str, given: Given, headers: Mapping[str, str]) -> tuple[Fault, ...]:
    """Create the faults with a name such as `429` or `reset`. A name such as `500|503` yields several, one of which is
    drawn for each request.

    Args:
        name: A key of `KINDS`, or HTTP statuses.
        given: Parameters of the fault.
        headers: Headers of the reply, if the fault sends one.

    Raises:
        ConfigError: the fault or a parameter is unknown, or a value is invalid.
    """
    if _STATUSES.fullmatch(name):
        allowed = STATUS_PARAMETERS
    elif name in KINDS:
        allowed = KINDS[name].parameters
    else:
        raise ConfigError(f"unknown fault {name!r}; use an HTTP status or a name ({suggestion(name, KINDS)})")
    for parameter in given:
        if parameter not in (*allowed, *COMMON):
            raise ConfigError(
                f"fault {name} has no parameter {parameter!r}; {suggestion(parameter, (*allowed, *COMMON))}"
            )
    delay = number(given.get("delay", 0.0), "delay")
    if name == "malformed":
        made = tuple(Fault("body", body=body) for body in MALFORMED)
    elif name in KINDS:
        made = (KINDS[name].make(given),)
    else:
        made = tuple(_error(status, given) for status in name.split("|"))
    for key, value in headers.items():
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", key) or not value.isprintable():
            raise ConfigError(f"{key}: {value!r} is not a valid HTTP header")
    if headers and made[0].act not in ("status", "body", "huge"):
        raise ConfigError(f"fault {name} cannot have headers; only HTTP errors and faults with a body can")
    return tuple(
        replace(fault, name=fault.name or name, latency=fault.latency + delay,
                headers=(*fault.headers, *headers.items()))
        for fault in made
    )  # fmt: skip


def _error(digits: str, given: Given) -> Fault:
    status = int(digits)
    if not 400 <= status <= 599:
        raise ConfigError(f"{status} is not an HTTP error; use 400 to 599")
    headers: tuple[tuple[str, str], ...] = ()
    if "retry_after" in given:
        asked = _text(given, "retry_after", "")
        if not asked.isprintable():
            raise ConfigError(f"retry_after {asked!r} is not a valid HTTP header")
        headers = (("Retry-After", asked),)
    body = None
    if "message" in given or "code" in given:
        words = _text(given, "message", f"injected fault: {status}")
        body = orjson.dumps({"error": {"message": words, "code": _text(given, "code", "injected")}})
    return Fault("status", status=status, headers=headers, body=body, name=digits)
