"""One cheap request, over real sockets: what each answer means, what is sent, and what is never asked."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, cast

import pytest
from curt_server import CurtServer
from dead_ports import free_port, listening, unvouched
from tables import for_each_row

from harness.cli.doctor.endpoints import EndpointQuery, ask_all, unaskable
from harness.cli.doctor.findings import Diagnosis
from harness.cli.doctor.machine import check_network
from harness.core.types import Prompt
from harness.plugins.faults.rules import Fault, ScriptedFaults
from harness.reference.player import EnvironmentPlayer
from harness.reference.policies import parse_model
from harness.reference.server import ReferenceServer
from harness.settings.endpoints import Endpoint

KEY = "canary-key-0123456789"


def asked(url: str, *, model: str = "m", key_var: str | None = "MY_KEY", is_asked: bool = True) -> EndpointQuery:
    return EndpointQuery(Endpoint(url, key_var, model), "mine", is_asked)


def ask(*each: EndpointQuery, seconds: float = 10.0, environ: Mapping[str, str] | None = None) -> list[Diagnosis]:
    return asyncio.run(ask_all(each, {"MY_KEY": KEY} if environ is None else environ, seconds))


def only(findings: list[Diagnosis]) -> Diagnosis:
    [finding] = findings
    assert KEY not in f"{finding.says}{finding.fix}"
    return finding


def test_a_model_that_replies_is_well_and_was_asked_for_one_token_once() -> None:
    with CurtServer() as server:
        found = only(ask(asked(server.url)))
        [request] = server.asked
    assert (found.status, found.name) == ("ok", f"m at {server.host}")
    assert found.says.startswith("replied in ")
    assert request.path == "/v1/chat/completions"
    assert request.body == {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    assert request.headers["Authorization"] == f"Bearer {KEY}"


@for_each_row(
    ("status", "message", "words", "fix"),
    [
        (401, f"bad key {KEY}", "HTTP 401", "set MY_KEY to a key that "),
        (402, "no credit", "HTTP 402", "and that has credit"),
        (404, "the model `m` does not exist", "HTTP 404", "check the model's name (-m) and the base URL"),
        (404, "nothing here", "HTTP 404", "/v1/models usually lists the available models"),
        (302, "elsewhere", "redirects", "check the model's name (-m) and the base URL"),
    ],
)
def test_what_no_request_can_get_past_is_a_problem_that_says_what_to_correct(
    status: int, message: str, words: str, fix: str
) -> None:
    with CurtServer(status, message) as server:
        found = only(ask(asked(server.url)))
        assert len(server.asked) == 1
    assert found.status == "problem"
    assert words in found.says
    assert not found.says.startswith(server.host)  # its name says that already
    assert fix in found.fix


@for_each_row("status", [400, 429, 500, 503])
def test_what_may_pass_is_a_note(status: int) -> None:
    with CurtServer(status, "not now") as server:
        found = only(ask(asked(server.url)))
        assert len(server.asked) == 1
    assert (found.status, found.says) == ("note", f"is reachable, but answered with an error: HTTP {status}: not now")
    signs = {400: "it rejected this short test request", 429: "lower --max-concurrent"}
    assert signs.get(status, "see the provider's status page") in found.fix


def test_an_error_of_the_provider_in_a_200_does_not_question_the_address() -> None:
    with CurtServer(200, "upstream died") as server:
        found = only(ask(asked(server.url)))
    assert found.says.endswith("the reply contains an error: upstream died")
    assert "see the provider's status page" in found.fix and "base URL" not in found.fix


@for_each_row("echo", ["canary-k**********6789", "'canary-k*******'", "**** 6789", "c***9"])
def test_a_key_that_a_provider_half_repeats_is_not_repeated(echo: str) -> None:
    with CurtServer(401, f"Incorrect API key provided: {echo}. See the site") as server:
        found = only(ask(asked(server.url)))
    assert "Incorrect API key provided: " in found.says
    assert "canary" not in found.says and "c*" not in found.says
    assert "[redacted]" in found.says


@pytest.mark.slow
def test_a_provider_behind_litellm_is_asked_by_litellm(monkeypatch: pytest.MonkeyPatch) -> None:
    with CurtServer() as server:
        monkeypatch.setenv("HOSTED_VLLM_API_BASE", server.url)
        found = only(ask(asked("litellm://hosted_vllm"), seconds=30.0))
        assert [each.body["max_tokens"] for each in server.asked] == [1]
    assert (found.status, found.name) == ("ok", "m at hosted_vllm (litellm)")


@pytest.mark.slow
@pytest.mark.parametrize("code", ["import nothing_like_it", "raise RuntimeError('nothing_like_it')"])
def test_a_litellm_that_is_only_half_there_is_a_problem_and_the_others_are_asked(code: str, tmp_path: Path) -> None:
    (tmp_path / "litellm").mkdir()
    (tmp_path / "litellm" / "__init__.py").write_text(code)
    script = (
        "import asyncio, sys\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "from harness.settings.endpoints import Endpoint\n"
        "from harness.cli.doctor.endpoints import EndpointQuery, ask_all\n"
        "each = [EndpointQuery(Endpoint(url, None, 'm'), 'mine') for url in ('litellm://hosted_vllm', sys.argv[2])]\n"
        "for found in asyncio.run(ask_all(each, {}, 10.0)): print(found.status, found.says[:60])\n"
    )
    with CurtServer() as server:
        command = [sys.executable, "-c", script, str(tmp_path), server.url]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    broken, well = done.stdout.splitlines()
    assert broken.startswith("problem no request sent: litellm cannot be imported: ") and well.startswith(
        "ok replied in "
    )


def test_a_key_is_wanted_where_none_was_sent() -> None:
    with CurtServer(401, "who are you?") as server:
        found = only(ask(asked(server.url, key_var=None)))
    assert found.fix == 'name the variable that holds the key: -k NAME, or key = "NAME" in the registry'


def test_nobody_there_is_told_within_a_second() -> None:
    found = only(ask(asked(f"http://127.0.0.1:{free_port()}/v1"), seconds=60.0))
    assert (found.status, found.says) == ("problem", "connection refused")
    assert found.fix == "start the server, or give its address with -b"


def test_a_host_that_does_not_exist_is_told_as_such() -> None:
    found = only(ask(asked("https://no-such-host.invalid/v1")))
    assert (found.status, found.says) == ("problem", "the host name no-such-host.invalid cannot be resolved")


def test_a_server_that_says_nothing_is_given_up_after_the_time_it_has() -> None:
    with CurtServer(is_silent=True) as server:
        found = only(ask(asked(server.url), seconds=0.5))
    assert (found.status, "has not answered within 0.5 s" in found.says) == ("note", True)


@for_each_row("act", ["reset", "close"])
def test_a_connection_that_always_breaks_is_a_problem_and_one_that_breaks_once_is_not(act: Literal["reset"]) -> None:
    async def main(*faults: Fault) -> tuple[list[Diagnosis], int]:
        async with ReferenceServer(faults=ScriptedFaults(faults)) as server:
            answers = await ask_all([asked(server.url)], {"MY_KEY": KEY}, 10.0)
            return answers, server.stats.requests

    [found], requests = asyncio.run(main(*[Fault(act)] * 9))
    assert (found.status, requests) == ("problem", 3)
    assert found.says.startswith("the connection broke (") and found.says.endswith(") at every attempt")
    assert found.fix == "check the scheme (http or https) of the base URL (-b), and which program listens there"
    [found], requests = asyncio.run(main(Fault(act)))
    assert (found.status, requests) == ("ok", 2)


def test_a_server_of_an_environment_that_knows_no_other_prompts_is_well() -> None:
    class Player:
        def find(self, key: str | None, prompt: Prompt) -> None:
            return None

    async def main() -> list[Diagnosis]:
        async with ReferenceServer(policy=parse_model("reference/oracle")) as server:
            server.add("mine", cast("EnvironmentPlayer", Player()))
            return await ask_all([asked(server.url)], {"MY_KEY": KEY}, 10.0)

    [found] = asyncio.run(main())
    assert (found.status, found.says) == (
        "ok", "replied that the request is not from an environment, as `bench serve --env` does",
    )  # fmt: skip


def test_a_host_that_takes_no_connection_is_not_said_to_have_taken_the_request() -> None:
    """However little time it has: a process of its own, in which nothing is imported yet."""
    code = (
        "import asyncio, sys\n"
        "from harness.settings.endpoints import Endpoint\n"
        "from harness.cli.doctor.endpoints import EndpointQuery, ask_all\n"
        "each = EndpointQuery(Endpoint(sys.argv[1], None, 'm'), 'mine')\n"
        "[found] = asyncio.run(ask_all([each], {}, 0.5))\n"
        "print(found.status, found.says)\n"
    )
    with listening(full=True) as port:
        url = f"http://127.0.0.1:{port}/v1"
        done = subprocess.run([sys.executable, "-c", code, url], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "problem no connection in time\n"


def test_all_are_asked_at_once_and_answered_in_their_order() -> None:
    with CurtServer(together=3) as server:  # answers nobody before all three have asked
        answers = ask(*(asked(server.url, model=f"m{number}") for number in range(3)))
        assert len(server.asked) == 3
    assert [(each.name, each.status) for each in answers] == [
        (f"m{number} at {server.host}", "ok") for number in range(3)
    ]


def test_what_speaks_plain_http_is_not_asked_over_tls_for_ever() -> None:
    with CurtServer() as server:
        found = only(ask(asked(server.url.replace("http:", "https:"))))
    assert (found.status, found.fix) == ("problem", "check the scheme (http or https) of the base URL (-b)")


def test_a_certificate_that_nobody_vouches_for_is_told_as_such(tmp_path: Path) -> None:
    with CurtServer(tls=unvouched(tmp_path)) as server:
        found = only(ask(asked(server.url)))
        assert server.asked == []  # the key was not sent to somebody unknown
    assert (found.status, "CERTIFICATE_VERIFY_FAILED" in found.says) == ("problem", True)
    assert found.fix.startswith("trust its certificate: export SSL_CERT_FILE=FILE")


def test_a_proxy_of_another_kind_is_a_problem_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "socks5://127.0.0.1:1")
    found = only(ask(asked("https://api.example.org/v1")))
    assert (found.status, found.says) == ("note", "no request sent: its proxy cannot be used, see network")


@pytest.mark.parametrize("proxy", ["http://[bad", "http://you:canary-word@host:99999"])
def test_a_proxy_that_is_no_url_is_one_too(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    found = only(ask(asked("https://api.example.org/v1")))
    assert (found.status, found.says) == ("note", "no request sent: its proxy cannot be used, see network")
    [told] = check_network(["https://api.example.org/v1"], {"HTTPS_PROXY": proxy})
    assert (told.status, "is not a URL" in told.says) == ("problem", True)
    assert told.fix == "correct HTTPS_PROXY, or add api.example.org to NO_PROXY"
    assert "canary" not in told.says


def test_an_address_that_no_library_takes_is_a_problem_and_not_the_end() -> None:
    with CurtServer() as server:
        odd, well = ask(asked("http://xn--/v1"), asked(server.url))
    assert (odd.status, odd.fix, well.status) == ("problem", "correct the settings of mine", "ok")
    assert odd.says.startswith("the request failed: UnicodeError: ")


@for_each_row(
    ("each", "environ", "status", "says"),
    [
        (asked("", model="reference/oracle"), {}, "ok", "is served by bench itself: no endpoint and no key"),
        (
            asked("", model="reference/orcle"),
            {},
            "problem",
            "unknown reference model 'reference/orcle'; did you mean reference/oracle?",
        ),
        (asked("https://api.example.org/v1"), {}, "note", "no request sent: MY_KEY is not set, see keys"),
        (
            asked("https://api.example.org/v1"),
            {"MY_KEY": f'"{KEY}"'},
            "note",
            "no request sent: MY_KEY is malformed, see keys",
        ),
        (
            asked("http://localhost:1/v1"),
            {"MY_KEY": f"{KEY}\u2026"},
            "note",
            "no request sent: MY_KEY is malformed, see keys",
        ),
    ],
)
def test_what_need_not_or_cannot_be_asked_is_not(
    each: EndpointQuery, environ: Mapping[str, str], status: str, says: str
) -> None:
    found = unaskable(each, environ)
    assert found is not None
    assert (found.status, found.says) == (status, says)


@for_each_row("url", ["http://localhost:8000/v1", "https://api.example.org/v1"])
def test_everything_else_is_asked(url: str) -> None:
    assert unaskable(asked(url, key_var=None), {}) is None
    assert unaskable(asked(url), {"MY_KEY": f"{KEY}\n"}) is None  # what a file leaves at the end is taken off


def test_what_is_to_be_sent_is_said() -> None:
    each = asked("https://user.example.org/v1?api-version=1")
    assert each.request == "one message and one token to user.example.org for m"
    assert json.dumps(each.request).isascii()
