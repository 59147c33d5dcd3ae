"""Checks of API keys by the names of their variables: set, unset or malformed. No finding contains a key, a part of
one, or its length."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from harness.cli.doctor.findings import Diagnosis, note, ok, problem
from harness.settings.providers import PROVIDERS

_QUOTES = "\"'`\u2018\u2019\u201c\u201d\u00ab\u00bb"
_PLACEHOLDER = re.compile(r"<.*>|\.{3}|x{3,}|(?:your|my)[-_ ].*|.*[-_ ]here|change-?me|todo", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class WantedKey:
    """A variable that should hold an API key."""

    name: str
    whom: str
    """Name of the endpoint that uses the key, for messages."""
    is_asked: bool
    """Whether the user requested the endpoint: if so, an unset variable is a problem, else a note."""
    is_local: bool = False
    """Whether the endpoint is on this machine, and needs no key."""


def key_defect(value: str) -> str:
    """Describe a malformed key, as the rest of a sentence that names its variable; "" if no defect is visible."""
    text = value.strip()
    tests = (
        ("begins or ends with a quotation mark", bool(text) and (text[0] in _QUOTES or text[-1] in _QUOTES)),
        ("holds a line break", "\n" in text or "\r" in text),
        ("holds a space or tab", bool(re.search(r"\s", text)) and not text.lower().startswith("bearer ")),
        ("begins with the word Bearer, which is sent anyway", text.lower().startswith("bearer ")),
        ("holds a character that is not ASCII", not text.isascii()),
        ("holds a control character", not text.isprintable()),
        ("begins with a variable's name and =", bool(re.match(r"(?:export\s+)?[A-Z][A-Z0-9_]*_KEY\s*=", text))),
        ("is a placeholder, and no key", bool(_PLACEHOLDER.fullmatch(text))),
    )
    return next((words for words, holds in tests if holds), "")


def check_keys(
    wanted: Sequence[WantedKey], environ: Mapping[str, str], overruled: Collection[str] = ()
) -> list[Diagnosis]:
    """Check that each key is set and well-formed.

    Args:
        wanted: Variables to check.
        environ: Environment variables.
        overruled: Variables whose value in `.env` differs from the environment's.
    """
    found = [_check(each, environ) for each in _merged(wanted)]
    for name in sorted(set(overruled) & {each.name for each in wanted}):
        says = "the environment and .env hold two values; that of the environment counts"
        found.append(note("keys", name, says, f"unset {name} to use that of .env"))
    return [*found, *_others({each.name for each in wanted}, environ)]


def _merged(wanted: Sequence[WantedKey]) -> list[WantedKey]:
    """Merge duplicates into one entry per variable, with the strictest requirement."""
    merged: dict[str, WantedKey] = {}
    for each in wanted:
        known = merged.get(each.name)
        if known is None:
            merged[each.name] = each
            continue
        whom = known.whom if each.whom in known.whom.split(", ") else f"{known.whom}, {each.whom}"
        asked, local = known.is_asked or each.is_asked, known.is_local and each.is_local
        merged[each.name] = WantedKey(each.name, whom, asked, local)
    return list(merged.values())


def _check(wanted: WantedKey, environ: Mapping[str, str]) -> Diagnosis:
    value = environ.get(wanted.name, "")
    if not value.strip():
        state = "not set" if wanted.name not in environ else "set, but empty"
        says = f"{state}; it would be sent to {wanted.whom}"
        fix = f"export {wanted.name}, or put it into .env; or name another variable with -k, or another model with -m"
        if wanted.is_local:
            return ok("keys", wanted.name, f"{state}; {wanted.whom} is this machine, and may do without")
        return problem("keys", wanted.name, says, fix) if wanted.is_asked else note("keys", wanted.name, says, fix)
    if odd := key_defect(value):
        says = f"set, but odd: it {odd}; it would be sent to {wanted.whom}"
        return problem("keys", wanted.name, says, f"set {wanted.name} to the key alone, without anything around it")
    return ok("keys", wanted.name, f"set; sent to {wanted.whom}")


def _others(wanted: Collection[str], environ: Mapping[str, str]) -> list[Diagnosis]:
    """Findings on API keys that are set but unused by the target; malformed ones get a note."""
    names = sorted({name for provider in PROVIDERS.values() for name in provider.key_vars} - set(wanted))
    there = [name for name in names if environ.get(name, "").strip()]
    found = [ok("keys", "others", f"also set: {', '.join(there)}")] if there else []
    for name in there:
        if odd := key_defect(environ[name]):
            fix = f"set {name} to the key alone, without anything around it"
            found.append(note("keys", name, f"set, but odd: it {odd}; nothing here uses it", fix))
    return found
