"""Validated address, key and headers of an endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from harness.core.errors import ConfigError
from harness.core.loopback import is_loopback_url, litellm_provider, plugin_provider
from harness.core.redact import redactor


@dataclass(frozen=True, slots=True)
class RequestTarget:
    """Address, key and headers of an endpoint."""

    url: str
    """Base URL, such as `http://localhost:8000/v1`; `litellm://<provider>` for a provider reached through litellm."""
    key: str | None = field(default=None, repr=False)
    """Bearer token; None for requests without an Authorization header."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Headers of every request; they override the default headers."""
    label: str = ""
    """Name of the endpoint in messages; by default its host."""
    key_name: str = ""
    """Name of the environment variable that contains the key, for messages."""

    def __post_init__(self) -> None:
        parts = urlsplit(self.address)
        if self.provider:
            object.__setattr__(self, "label", self.label or f"{self.provider} (litellm)")
        elif parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"{redactor.text(self.url)!r} is not an http(s) URL such as http://host/v1")
        if parts.username is not None or parts.password is not None:
            raise ConfigError(
                f"the URL of {parts.hostname} contains a user name or a password; put the key into an environment "
                "variable and set api_key_var to the name of that variable, or pass a header"
            )
        if not self.label:
            object.__setattr__(self, "label", parts.netloc)
        if self.key:
            redactor.add(self.key)
        if self.key and not self.key.isascii():
            stray = next(c for c in self.key if not c.isascii())
            raise ConfigError(
                f"{self.label}: the key contains {stray!r}, which is not valid in a key; was the key copied together "
                "with quotes, or from a page that shows it shortened?"
            )
        for name, value in {"the key": self.key or "", **self.headers}.items():
            if not value.isprintable():
                raise ConfigError(f"{self.label}: {name} contains a line break or another control character")
        redactor.add_headers(self.headers)

    @property
    def is_loopback(self) -> bool:
        """Whether the endpoint is on this machine's loopback interface."""
        return is_loopback_url(self.url)

    @property
    def plugin(self) -> str:
        """Name of the provider plugin in a URL such as `acme+https://host`; "" for the OpenAI wire format and
        litellm."""
        return plugin_provider(self.url)

    @property
    def address(self) -> str:
        """The URL without the name of a provider plugin."""
        return self.url.removeprefix(f"{self.plugin}+")

    def over(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return the default headers merged with a provider's `headers`. The endpoint's own headers override both;
        names are case-insensitive."""
        own = {name.lower() for name in self.headers}
        default = {"Content-Type": "application/json", "User-Agent": "bench-harness", **headers}
        return {**{name: value for name, value in default.items() if name.lower() not in own}, **self.headers}

    @property
    def provider(self) -> str:
        """Name of the provider in litellm; "" for an endpoint that is called without litellm."""
        return litellm_provider(self.url) or ""
