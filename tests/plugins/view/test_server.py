"""Who may ask the server of `bench view`, under which name, and what every answer says to a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from run_samples import finished
from tables import for_each_row
from view_server import Client, viewing


@pytest.fixture
def client(tmp_path: Path):
    finished(tmp_path / "outputs")
    with viewing(tmp_path / "outputs") as client:
        yield client


def test_the_link_sets_a_cookie_and_leads_to_the_page_without_the_token(client: Client) -> None:
    answer = client.open_link()
    assert (answer.status, answer.headers["Location"]) == (303, "/")
    cookie = answer.headers["Set-Cookie"]
    assert cookie.startswith(f"bench_view_{client.port}=")
    assert all(part in cookie for part in ("HttpOnly", "SameSite=Strict", "Path=/"))
    page = client.send("/")
    assert page.status == 200
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert b"bench" in page.body


def test_without_the_cookie_nothing_is_served(client: Client) -> None:
    run = client.get("/api/runs")["runs"][0]["id"]
    token = urlsplit(client.link).query.removeprefix("token=")
    for path in ("/", "/api/runs", f"/api/runs/{run}/rollouts/0/0", "/no/such", f"/api/runs?token={token}", "/?token="):
        for cookie in ("", f"bench_view_{client.port}=wrong", f"bench_view_1={token}", "bench_view=ü"):
            answer = client.send(path, Cookie=cookie)
            assert answer.status == 403
            assert b"Open the link that bench view printed" in answer.body
    assert client.send("/?token=wrong", Cookie="").status == 403
    assert client.send("/?token=%ff%C3", Cookie="").status == 403


@for_each_row(
    "host, origin, status",
    [
        ("127.0.0.1:{port}", "", 200),
        ("localhost:{port}", "", 200),
        ("LOCALHOST:{port}", "http://localhost:{port}", 200),
        ("[::1]:{port}", "", 200),
        ("127.0.0.1:{port}", "http://127.0.0.1:{port}", 200),
        ("attacker.example:{port}", "", 403),
        ("attacker.example:{port}", "http://attacker.example:{port}", 403),
        ("127.0.0.1.attacker.example:{port}", "", 403),
        ("127.0.0.1", "", 403),
        ("127.0.0.1:1", "", 403),
        ("10.0.0.1:{port}", "", 403),
        ("127.0.0.1:{port}", "http://attacker.example", 403),
        ("127.0.0.1:{port}", "http://localhost:{port}", 403),
        ("127.0.0.1:{port}", "https://127.0.0.1:{port}", 403),
        ("127.0.0.1:{port}", "null", 403),
    ],
)
def test_the_server_answers_only_under_its_own_names(client: Client, host: str, origin: str, status: int) -> None:
    names: dict[str, Any] = {"Host": host.format(port=client.port), "Origin": origin.format(port=client.port)}
    assert client.send("/api/runs", **names).status == status


def test_only_reading_is_supported(client: Client) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert client.send("/api/runs", method).status == 405
    assert client.send("/api/runs", "HEAD").status == 200


def test_every_answer_has_the_security_headers(client: Client) -> None:
    for path, cookie in (("/", client.cookie), ("/api/runs", client.cookie), ("/no", client.cookie), ("/", "")):
        headers = client.send(path, Cookie=cookie).headers
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; ")
        assert "unsafe" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
    assert client.send("/api/runs").headers["Cache-Control"] == "no-store"


@for_each_row(
    "path",
    [
        "/../access.py", "/..%2faccess.py", "/%2e%2e/access.py", "/static/../../access.py", "//etc/passwd", "/.hidden",
        "/%2fetc%2fpasswd", "/index.html%00", "/index.html/x", "/x.py", "/" + "a" * 5000 + ".js",
    ],
)  # fmt: skip
def test_no_path_leads_out_of_the_static_files(client: Client, path: str) -> None:
    status, sentence = client.error(path)
    assert status == 404
    assert "There is no page" in sentence
