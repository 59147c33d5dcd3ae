"""The one redactor: takes secrets out of text before it reaches a log, an error, a file or the Hub. Owns the list of
known secrets and the patterns that look like one; owns no sink, and never decides what is written where."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import cast
from urllib.parse import quote

REDACTED = "[redacted]"

MIN_SECRET_LENGTH = 6
"""Shorter values ("EMPTY", "none") are placeholders; replacing them would shred ordinary text."""

PLACEHOLDERS = frozenset({"dummy-key", "lm-studio", "lm_studio", "no-key", "not-needed", "ollama", "placeholder"})
"""What people give to local servers that look at no key; an answer may well speak of ollama."""

_PATTERNS = re.compile(
    r"""
      \bsk-(?:ant-|proj-|or-)?(?=[A-Za-z0-9_-]*\d)[A-Za-z0-9_-]{16,}    # OpenAI, Anthropic, OpenRouter
    | \b(?:hf|gsk|xai|pplx|nvapi|r8|pit)[_-](?=[A-Za-z0-9_-]*\d)[A-Za-z0-9_-]{16,}
    | \bgh[pousr]_[A-Za-z0-9]{16,} | \bgithub_pat_[A-Za-z0-9_]{20,}
    | \b(?:AKIA|ASIA)[0-9A-Z]{16}\b
    | \bAIza[0-9A-Za-z_-]{20,}
    | \beyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]*         # JSON web token
    """,
    re.VERBOSE,
)
"""Shapes of keys. Those that begin like an English word must hold a digit, so that `sk-learn-documentation` stays."""

_KEY_NAMES = re.compile(r"(?:.*_)?(?:[A-Z]*KEY(?:_ID)?|[A-Z]*TOKEN|[A-Z]*SECRET|PASSWORD|PASSWD|PAT)", re.IGNORECASE)
"""Variables and arguments whose names say that their values are secrets."""

_KEY_LIKE = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])\S{12,}")
"""Such a value is taken for one where nothing but the name says so: to cut `postgres` or `1000000` out of
every answer would falsify what was said."""

_SECRET_HEADERS = frozenset(
    {"authorization", "auth", "key", "apikey", "accesskey", "secretkey", "token", "accesstoken", "authtoken", "secret",
     "signature", "cookie", "password", "passwd", "credential", "credentials", "bearer", "jwt", "pat", "sas"}
)  # fmt: skip
"""Words of header names whose values are taken for secrets. Whole words: `X-Monkey` has none."""

_HEADER_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")

_SHORTEST_HEADER_SECRET = 12
"""Characters. A shorter value of such a header (`X-Token-Limit: 100000`) would be cut out of every answer as well."""

_LABELLED = re.compile(
    r"""((?:authorization|(?:x-)?api[-_]?key)["']?\s*[:=]\s*["']?)(?:(bearer|basic|token)\s+)?[^\s"',;}]+""",
    re.IGNORECASE,
)
"""A header or setting whose name says that its value is a secret."""

_BEARER = re.compile(r"\b(bearer\s+)[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE)

_USERINFO = re.compile(r"""(://)[^\s/@?#"']+@""")
"""`scheme://user:password@host`."""


def names_secret(name: str) -> bool:
    """Whether a variable of this name is taken to hold a secret."""
    return _KEY_NAMES.fullmatch(name) is not None


class Redactor:
    """Replaces known secrets, and on request whatever looks like one, by `[redacted]`."""

    def __init__(self) -> None:
        self._secrets: list[str] = []

    @property
    def longest(self) -> int:
        """Characters of the longest known secret; 0 if none is known."""
        return len(self._secrets[0]) if self._secrets else 0

    def add(self, secret: str) -> None:
        """Make `secret` unsayable from now on, also in its JSON-escaped and percent-encoded forms and in `repr`'s.

        Args:
            secret: The value; surrounding white space and values shorter than `MIN_SECRET_LENGTH`, and
                `PLACEHOLDERS`, are ignored.
        """
        secret = secret.strip()
        if len(secret) < MIN_SECRET_LENGTH or secret.lower() in PLACEHOLDERS:
            return
        forms = {*_quoted(secret), *_percent(secret)}
        known = forms.union(self._secrets)
        # Longest first: a key that contains another one must not leave its remainder behind.
        self._secrets = sorted(known, key=lambda form: (-len(form), form))

    def add_named(self, values: Mapping[str, object]) -> None:
        """Make unsayable what a name says is a secret, in a process's environment or among arguments: a run may use one
        of them only, but a tool that is called, or code that fails, shows all.

        Args:
            values: Values by name, in tables at any depth. Those under names like `…_API_KEY`, `…_TOKEN` and
                `…_PASSWORD` are added if they look like a key.
        """
        for name, value in values.items():
            if isinstance(value, Mapping):
                self.add_named(cast("Mapping[str, object]", value))
            elif isinstance(value, str) and _KEY_NAMES.fullmatch(name) and _KEY_LIKE.fullmatch(value.strip()):
                self.add(value)

    def add_headers(self, headers: Mapping[str, str]) -> None:
        """Make unsayable the values of headers whose names say that they are secrets, with and without their scheme."""
        for name, value in headers.items():
            words = {word.lower() for word in _HEADER_WORDS.findall(name)}
            if len(value) >= _SHORTEST_HEADER_SECRET and not _SECRET_HEADERS.isdisjoint(words):
                self.add(value)
                self.add(value.partition(" ")[2])

    def text(self, s: str, *, patterns: bool = True) -> str:
        """`s` without secrets.

        Args:
            s: Any text.
            patterns: Also remove what merely looks like a secret. For logs and errors; off for model output and
                datasets, where a token-shaped string is data.

        Returns:
            The text; the same object when nothing had to go.
        """
        for secret in self._secrets:
            if secret in s:
                s = s.replace(secret, REDACTED)
        if not patterns:
            return s
        s = _USERINFO.sub(rf"\1{REDACTED}@", s)
        s = _LABELLED.sub(rf"\1{REDACTED}", s)
        s = _BEARER.sub(rf"\1{REDACTED}", s)
        return _PATTERNS.sub(REDACTED, s)


def _quoted(secret: str) -> set[str]:
    """How it stands within quotation marks, in JSON or in Python's `repr`, and where that is quoted once more."""
    once = {
        secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1],
        secret.replace("\\", "\\\\"),
    }  # fmt: skip
    return once.union(*({json.dumps(form)[1:-1], json.dumps(form, ensure_ascii=False)[1:-1]} for form in once))


def _percent(secret: str) -> Iterator[str]:
    """How a URL may hold it: clients agree neither on what needs no escape nor on the case of the digits."""
    for harmless in ("", "/", "=", "/=", "+"):
        form = quote(secret, safe=harmless)
        yield form
        yield re.sub("%..", lambda found: found.group().lower(), form)


redactor = Redactor()
"""The process's redactor: whoever reads a key tells it, every sink asks it."""
