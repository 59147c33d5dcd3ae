"""Proxies and certificates, as the environment has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cli.doctor.machine import check_network

FAR, NEAR = "https://api.example.org/v1", "http://localhost:8000/v1"


def test_nothing_set_is_nothing_said() -> None:
    assert check_network([FAR, NEAR], {}) == []


def test_who_is_asked_through_a_proxy_is_said_and_the_password_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://me:canary-password@proxy.example.org:3128")
    monkeypatch.setenv("NO_PROXY", "in.example.org")
    found = check_network([FAR, NEAR, "https://in.example.org/v1"], {"HTTPS_PROXY": "x", "NO_PROXY": "y"})
    assert [(each.status, each.says) for each in found] == [
        ("ok", "HTTPS_PROXY set: requests to api.example.org go through proxy.example.org:3128"),
        ("ok", "HTTPS_PROXY set: requests to in.example.org go directly (NO_PROXY)"),
    ]


def test_a_proxy_that_cannot_be_used_is_a_problem_with_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1080")
    [found] = check_network([FAR, NEAR], {"ALL_PROXY": "socks5://127.0.0.1:1080"})
    assert found.status == "problem"
    assert "sets a socks5 proxy" in found.says
    assert "NO_PROXY" in found.fix


def test_a_proxy_that_nothing_uses_is_only_mentioned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:1")
    [found] = check_network([NEAR, "litellm://bedrock"], {"HTTPS_PROXY": "http://proxy:1"})
    assert (found.status, found.says) == ("ok", "HTTPS_PROXY set; no request here goes through the proxy")


def test_certificates_that_are_not_there_are_a_problem(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("")
    there, missing = str(tmp_path / "ca.pem"), str(tmp_path / "gone.pem")
    [found] = check_network([], {"SSL_CERT_FILE": missing})
    assert (found.status, found.name) == ("problem", "SSL_CERT_FILE")
    assert [each.status for each in check_network([], {"SSL_CERT_FILE": there, "REQUESTS_CA_BUNDLE": there})] == ["ok"]


def test_certificates_that_only_others_read_are_noted(tmp_path: Path) -> None:
    [found] = check_network([], {"REQUESTS_CA_BUNDLE": str(tmp_path)})
    assert (found.status, found.name) == ("note", "REQUESTS_CA_BUNDLE")
    assert "export SSL_CERT_FILE=$REQUESTS_CA_BUNDLE" in found.fix
