"""A machine without anybody's settings, and packages that only look installed."""

from __future__ import annotations

from pathlib import Path

import pytest
from shelf import Shelf

SETTINGS = (
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PRIME_API_KEY", "OPENAI_API_KEY",
    *(name for proxy in ("http_proxy", "https_proxy", "all_proxy", "no_proxy") for name in (proxy, proxy.upper())),
)  # fmt: skip


@pytest.fixture(autouse=True)
def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, and none of the machine's own proxies, certificates and keys."""
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    """An empty one."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    return Shelf(folder)
