"""Checks of the environment variables for proxies and certificates. Sends nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from harness.cli.doctor.findings import Diagnosis, note, ok, problem
from harness.core.errors import ConfigError
from harness.core.loopback import is_loopback_url, litellm_provider

_PROXIES = ("http_proxy", "https_proxy", "all_proxy")

_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""Certificate variables of OpenSSL, which all connections here use."""

_OTHERS_CERTIFICATES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def check_network(urls: Sequence[str], environ: Mapping[str, str]) -> list[Diagnosis]:
    """Check the variables for proxies and certificates.

    Args:
        urls: Base URLs of the endpoints of the runs.
        environ: Environment variables.
    """
    return [*_proxies(urls, environ), *_certificates(environ)]


def _proxies(urls: Sequence[str], environ: Mapping[str, str]) -> list[Diagnosis]:
    names = [name for name in environ if name.lower() in _PROXIES and environ[name]]
    if not names:
        return []
    from yarl import URL

    from harness.models.transport import find_proxy

    through: dict[str, list[str]] = {}
    found: list[Diagnosis] = []
    for url in dict.fromkeys(urls):
        if is_loopback_url(url) or litellm_provider(url) is not None:
            continue
        try:
            proxy = find_proxy(URL(url))
        except (ConfigError, ValueError) as error:
            says, _, fix = str(error).partition(": ")
            found.append(problem("network", "proxy", says, fix or f"correct {', '.join(names)}"))
        else:
            way = f"{proxy.host}:{proxy.port}" if proxy else "nobody"
            through.setdefault(way, []).append(urlsplit(url).netloc)
    for way, hosts in through.items():
        words = f"{', '.join(dict.fromkeys(hosts))} asked directly (NO_PROXY)" if way == "nobody" else (
            f"{', '.join(dict.fromkeys(hosts))} asked through {way}")  # fmt: skip
        found.append(ok("network", "proxy", f"{', '.join(names)} set: {words}"))
    if not found:
        found.append(ok("network", "proxy", f"{', '.join(names)} set; nothing that is asked here goes through it"))
    return found


def _certificates(environ: Mapping[str, str]) -> list[Diagnosis]:
    found: list[Diagnosis] = []
    for name in _CERTIFICATES:
        path = environ.get(name)
        if path and not Path(path).exists():
            fix = f"unset {name}, or let it name the certificates of your network"
            found.append(problem("network", name, f"names {path}, which is not there: no https answer is trusted", fix))
        elif path:
            found.append(ok("network", name, f"certificates are those of {path}"))
    trusts_own = any(environ.get(name) for name in _CERTIFICATES)
    for name in _OTHERS_CERTIFICATES:
        if environ.get(name) and not trusts_own:
            fix = f"if your network has certificates of its own: export SSL_CERT_FILE=${name}"
            found.append(note("network", name, "is read by other programs, and not for model requests", fix))
    return found
