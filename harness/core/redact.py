"""Redaction of secrets in text before it goes to a log, an error message, a file or the Hub."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Literal, TypeAlias, cast
from urllib.parse import quote

REDACTED = "[redacted]"

MIN_SECRET_LENGTH = 6
"""Minimum length of a secret in characters. Shorter values ("EMPTY", "none") are placeholders, and replacing them would
damage ordinary text."""

PLACEHOLDERS = frozenset({"dummy-key", "lm-studio", "lm_studio", "no-key", "not-needed", "ollama", "placeholder"})
"""Placeholder keys for local servers, which ignore the key. They are not redacted, since some are ordinary words such
as "ollama"."""

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
"""Patterns of API keys. Patterns that may also match English words require a digit, so that `sk-learn-documentation` is
not redacted."""

_KEY_NAMES = re.compile(r"(?:.*_)?(?:[A-Z]*KEY(?:_ID)?|[A-Z]*TOKEN|[A-Z]*SECRET|PASSWORD|PASSWD|PAT)", re.IGNORECASE)
"""Pattern of the names of variables and arguments that contain secrets."""

_KEY_LIKE = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])\S{12,}")
"""Pattern that a value must match to be redacted just because of its name. Redacting values such as `postgres` or
`1000000` in every answer would falsify the results."""

_SECRET_HEADERS = frozenset(
    {"authorization", "auth", "key", "apikey", "accesskey", "secretkey", "token", "accesstoken", "authtoken", "secret",
     "signature", "cookie", "password", "passwd", "credential", "credentials", "bearer", "jwt", "pat", "sas"}
)  # fmt: skip
"""Words in the names of headers whose values are secrets. Only whole words count, so that `X-Monkey` does not match."""

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
"""Pattern of the words in a name in any spelling: `apiKey`, `API_KEY`, `api-key`."""

_SHORTEST_HEADER_SECRET = 12
"""Minimum length of a header value, in characters, to be considered a secret. Otherwise, the number in `X-Token-Limit:
100000` would be redacted in every answer."""

_LABELLED = re.compile(
    r"""((?:authorization|(?:x-)?api[-_]?key)["']?\s*[:=]\s*["']?)(?:(bearer|basic|token)\s+)?[^\s"',;}]+""",
    re.IGNORECASE,
)
"""Pattern of a header or setting, with its value, whose name says that it contains a secret."""

_BEARER = re.compile(r"\b(bearer\s+)[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE)

_USERINFO = re.compile(r"""(://)[^\s/@?#"']+@""")
"""Pattern of the credentials in `scheme://user:password@host`."""


def names_secret(name: str) -> bool:
    """Return whether a variable of this name contains a secret."""
    return _KEY_NAMES.fullmatch(name) is not None


class Redactor:
    """Replaces known secrets in text by `[redacted]`, and on request also strings that look like secrets."""

    def __init__(self) -> None:
        self._secrets: list[str] = []
        self._encoded: list[bytes] = []
        """The secrets in UTF-8."""

    @property
    def longest(self) -> int:
        """Length of the longest known secret in characters; 0 if none is known."""
        return len(self._secrets[0]) if self._secrets else 0

    def add(self, secret: str) -> None:
        """Redact `secret` from now on, including its JSON-escaped, percent-encoded and `repr` forms.

        Args:
            secret: The secret. Surrounding white space is removed. A value that is in `PLACEHOLDERS` or shorter than
                `MIN_SECRET_LENGTH` is ignored.
        """
        secret = secret.strip()
        if len(secret) < MIN_SECRET_LENGTH or secret.lower() in PLACEHOLDERS:
            return
        forms = {*_quoted(secret), *_percent(secret)}
        known = forms.union(self._secrets)
        # Longest first: if one secret contains another, the whole of it must be replaced.
        self._secrets = sorted(known, key=lambda form: (-len(form), form))
        self._encoded = [form.encode("utf-8", "surrogatepass") for form in self._secrets]

    def add_named(self, values: Mapping[str, object]) -> None:
        """Redact, from now on, the values of environment variables or arguments whose names mark them as secrets.
        The run may use only one of them, but a tool or a traceback may print all of them.

        Args:
            values: Values by name, nested to any depth. A value with a name such as `…_API_KEY`, `…_TOKEN` or
                `…_PASSWORD` is redacted if it looks like a key.
        """
        for name, value in values.items():
            if isinstance(value, Mapping):
                self.add_named(cast("Mapping[str, object]", value))
            elif isinstance(value, str) and _KEY_NAMES.fullmatch(name) and _KEY_LIKE.fullmatch(value.strip()):
                self.add(value)

    def add_headers(self, headers: Mapping[str, str]) -> None:
        """Redact, from now on, the values of headers whose names mark them as secrets, with and without a scheme
        such as `Bearer`."""
        for name, value in headers.items():
            words = {word.lower() for word in _WORDS.findall(name)}
            if len(value) >= _SHORTEST_HEADER_SECRET and not _SECRET_HEADERS.isdisjoint(words):
                self.add(value)
                self.add(value.partition(" ")[2])

    def is_clean(self, encoded: bytes) -> bool:
        """Return whether a text in UTF-8 contains no known secret."""
        return not any([secret in encoded for secret in self._encoded])

    def text(self, s: str, *, patterns: bool = True) -> str:
        """Remove secrets from `s`.

        Args:
            s: Any text.
            patterns: Whether to also remove strings that only look like secrets. Should be true for logs and errors,
                and false for model output and datasets, where such a string is data.

        Returns:
            The text without secrets; the same object if nothing was removed.
        """
        for secret in self._secrets:
            if secret in s:
                s = s.replace(secret, REDACTED)
        if not patterns:
            return s
        s = _hide_userinfo(s)
        s = _LABELLED.sub(rf"\1{REDACTED}", s)
        s = _BEARER.sub(rf"\1{REDACTED}", s)
        return _PATTERNS.sub(REDACTED, s)


def _quoted(secret: str) -> set[str]:
    """Return the forms of a secret that is escaped in JSON or by `repr`, once or twice."""
    once = {
        secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1],
        secret.replace("\\", "\\\\"),
    }  # fmt: skip
    return once.union(*({json.dumps(form)[1:-1], json.dumps(form, ensure_ascii=False)[1:-1]} for form in once))


def _percent(secret: str) -> Iterator[str]:
    """Return the percent-encoded forms of a secret in a URL. There are several, since clients escape different
    characters and use different cases of the hexadecimal digits."""
    for harmless in ("", "/", "=", "/=", "+"):
        form = quote(secret, safe=harmless)
        yield form
        yield re.sub("%..", lambda found: found.group().lower(), form)


redactor = Redactor()
"""The redactor of this process. Code that reads an API key adds it here; code that writes output uses it to redact."""


# Hiding the values of settings whose names mark them as secrets

_PASSWORDS = frozenset(
    {"authorization", "bearer", "cookie", "credential", "jwt", "passcode", "passphrase", "passwd", "password", "pat",
     "pw", "secret"}
)  # fmt: skip
"""Last words of names of settings that contain a secret."""

_PLURALS = frozenset({f"{word}s" for word in _PASSWORDS} | {"keys", "tokens"})

_OWNERS = re.compile(
    r"""
    access|account|admin|anthropic|api|app|auth|aws|azure|bot|client|db|database|deploy|email|encryption|
    gateway|github|gitlab|google|hf|hub|imap|jwt|license|licence|login|mail|master|mongo|mysql|oauth|openai|
    openrouter|personal|pg|postgres|private|provider|proxy|redis|refresh|root|secret|security|service|session|shared|
    signing|smtp|sql|ssh|storage|subscription|sudo|tavily|serper|user|wandb|webhook
    """,
    re.VERBOSE,
)
"""Pattern of words that, before `key`, `token` or `pass` in a name, mean that every value of this name is a secret."""

_ORDINARY = re.compile(
    r"""
    answer|arrow|audio|begin|blank|body|bos|boundary|cache|call|category|choice|chunk|cls|column|completion|
    content|context|control|cut|data|delimiter|dict|difficulty|doc|document|end|enter|eos|eot|eom|escape|
    example|expected|explanation|field|fill|first|foreign|gold|group|hash|history|hot|id|image|index|info|input|
    instruction|item|join|json|label|last|left|level|lookup|map|mask|max|message|messages|metadata|metric|min|
    minor|major|music|name|natural|new|newline|next|num|object|option|order|output|pad|padding|partition|per|
    prefix|press|primary|problem|prompt|public|question|rationale|reference|response|reply|result|return|reward|
    right|role|row|score|seed|sep|separator|sentinel|short|single|solution|sort|source|special|split|start|
    state|stop|subject|suffix|system|target|task|text|think|thinking|title|tool|topic|truth|turn|type|unique|
    unk|value|weight
    """,
    re.VERBOSE,
)
"""Pattern of words that make a following `key` or `token` an ordinary name, such as that of a column or text marker."""

_TAILS = frozenset({"plain", "raw", "str", "string", "text", "value"})
"""Words that may follow the name of a secret: `password_value` contains a password, but `password_file` does not."""

_GLUED = re.compile(r"(\w*?)(password|passwd|passphrase|secret|credential|key|token)(s?)")

_PLAIN = re.compile(r"[A-Za-z][A-Za-z_. -]*|[<\[].*[>\]]|.{0,3}", re.DOTALL)
"""Pattern of a column name or a marker such as `<s>`, which is never the key of a provider."""

_SCHEMAS = frozenset({"properties", "$defs", "definitions"})

_IN_URL = re.compile(r"(?<=[?&;#/])([\w.-]{1,80})=([^&;#\s/]+)")

_Likeness: TypeAlias = Literal["secret", "perhaps", "no"]


@lru_cache(maxsize=4096)
def _likeness(name: str) -> _Likeness:
    """Return how often a setting of this name contains a secret: always, perhaps (depending on its value), or never."""
    words = [word.lower() for word in _WORDS.findall(name)]
    while len(words) > 1 and words[-1] in _TAILS:
        words.pop()
    if not words:
        return "no"
    *before, last = words
    glued = _GLUED.fullmatch(last)
    if glued is not None and glued[1]:
        return "no" if glued[2] in ("key", "token") and not _OWNERS.fullmatch(glued[1]) else "secret"
    owner = before[-1] if before else ""
    is_owned = _OWNERS.fullmatch(owner) is not None
    if last in _PLURALS:
        return "no" if last in ("keys", "tokens") and not is_owned else "secret"
    if last in _PASSWORDS or words[-3:] == ["access", "key", "id"] or (last == "pwd" and before):
        return "secret"
    if last in ("key", "token", "pass", "auth"):
        if is_owned:
            return "secret"
        return "no" if _ORDINARY.fullmatch(owner) or last == "pass" else "perhaps"
    return "no"


def hidden(value: object, name: str = "") -> object:
    """Return a copy of a JSON value without the values whose names mark them as secrets. Tuples become lists.

    The values of `password`, `provider_key` and similar names are always hidden. The values of `key`, `token` and
    `…_key` with an unknown prefix are hidden unless they are plain words, such as a column name. The values of
    `answer_key`, `stop_token`, `max_tokens` and `api_key_var` are never hidden.

    Args:
        value: Any JSON value.
        name: The name of the value, or the last part of its dotted path.
    """
    return _hidden(value, _likeness(name.rpartition(".")[2]) if name else "no")


def _hidden(value: object, likeness: _Likeness) -> object:
    if isinstance(value, Mapping):
        table = cast("Mapping[object, object]", value)
        return {key: _item(str(key), item, likeness) for key, item in table.items()}
    if isinstance(value, list | tuple):
        return [_hidden(item, likeness) for item in cast("list[object]", value)]
    if value is None or isinstance(value, bool) or value in ("", REDACTED, "***"):
        return value
    if likeness == "secret" or (likeness == "perhaps" and not _PLAIN.fullmatch(str(value))):
        return REDACTED
    return _without_parts(value) if isinstance(value, str) else value


def _item(name: str, item: object, above: _Likeness) -> object:
    if name in _SCHEMAS and isinstance(item, Mapping):  # names in a JSON Schema are field names without values
        fields = cast("Mapping[object, object]", item)
        return {
            key: _hidden(schema, _likeness(str(key)) if isinstance(schema, str) else "no")
            for key, schema in fields.items()
        }
    return _hidden(item, above if above == "secret" else _likeness(name))


def _without_parts(text: str) -> str:
    """Return a URL, connection string or JSON text without the values whose names mark them as secrets, such as
    `password=…`."""
    if text.lstrip()[:1] in ("{", "["):
        found = _parsed(text)
        if not isinstance(found, str):
            clean = hidden(found)
            return text if clean == found else json.dumps(clean, ensure_ascii=False)
    if "://" in text:
        return _IN_URL.sub(lambda part: f"{part[1]}={_hidden(part[2], _likeness(part[1]))}", _hide_userinfo(text))
    between = ";" if ";" in text else " "
    parts = text.split(between)
    if "=" not in text or not all("=" in part or not part.strip() for part in parts):
        return text
    pairs = [part.partition("=") for part in parts]
    return between.join(f"{name}{equals}{_hidden(value, _likeness(name))}" for name, equals, value in pairs)


def _hide_userinfo(text: str) -> str:
    return _USERINFO.sub(rf"\1{REDACTED}@", text)


def _parsed(text: str) -> object:
    """Parse a string as JSON or as a TOML value. Returns the string itself if it is neither."""
    with suppress(ValueError, RecursionError):
        return cast(object, json.loads(text))
    with suppress(ValueError, RecursionError):
        return cast(object, tomllib.loads(f"value = {text}")["value"])
    return text


def hidden_arguments(words: Sequence[str]) -> list[str]:
    """Return the arguments of a command line, with the values of options such as `--api-key` hidden."""
    options = ["", *words]
    return [_hidden_word(word, before) for before, word in zip(options, words, strict=False)]


@lru_cache(maxsize=1024)  # the runs of a suite share it
def hidden_command(command: str) -> str:
    """Return a command line with the values of options such as `--api-key` hidden."""
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    clean = hidden_arguments(words)
    return command if clean == words else shlex.join(clean)


@lru_cache(maxsize=1024)
def hidden_source(source: str) -> str:
    """Return the origin of a setting, such as `--set PATH=VALUE` or a file and a key, without values whose names
    mark them as secrets."""
    return " ".join(hidden_arguments(source.split(" ", 1))) if source.startswith("-") else source


def _hidden_word(word: str, before: str) -> str:
    if before.startswith("--") and "=" not in before and not word.startswith("-") and _likeness(before) != "no":
        return str(_hidden(word, _likeness(before)))
    name, equals, value = word.partition("=")
    table = word.find("{")
    if table >= 0 and (not equals or table < len(name)):
        return word[:table] + _without_parts(word[table:])
    if not equals or "://" in name:
        return _without_parts(word)
    likeness = _likeness(name.rpartition(".")[2])
    return f"{name}={_hidden(value, likeness) if likeness != 'no' else _hidden_word(value, '')}"
