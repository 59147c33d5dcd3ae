"""What a push does when the Hub does not play along: it tries again where that helps, and otherwise says what to do."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from dead_ports import free_port
from hub_repos import Entry
from hub_runs import READER, STRANGER, TOKEN, contents, hub_env, make_run
from hub_server import HubServer

from harness.core.errors import PublishError, StoreError
from harness.store.hub import PushResult, push_run
from harness.store.hub_session import HubFailureKind, Patience, fetch, retry_after

RUN, OTHER = "20260101T000000Z-aaaa", "20260102T000000Z-bbbb"
REPO = "alice/gsm8k_my-model"
# huggingface_hub passes uploads to its HTTP library in a way that the latter deprecates; it is theirs to change.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

QUICK = Patience(total=30, silence=10, longest_wait=0.02, first_wait=0.01)


@pytest.fixture
def server() -> Iterator[HubServer]:
    with HubServer() as standing:
        standing.hub.account(TOKEN, "alice")
        standing.hub.account(READER, "alice", role="read")
        standing.hub.account(STRANGER, "mallory")
        yield standing


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    """A run, which is byte for byte the same after the test."""
    made = make_run(tmp_path / "outputs", RUN)
    before = contents(tmp_path / "outputs")
    yield made
    assert contents(tmp_path / "outputs") == before


def push(server: HubServer, run: Path, token: str = TOKEN, patience: Patience = QUICK) -> PushResult:
    return push_run(run, token=token, endpoint=server.url, patience=patience)


def refusal(server: HubServer, run: Path, token: str = TOKEN, repo: str | None = REPO) -> str:
    """The message of a push that fails; holds what every such message must."""
    with pytest.raises(PublishError) as caught:
        push_run(run, repo=repo, token=token, endpoint=server.url, patience=QUICK)
    message = str(caught.value)
    assert RUN in message
    assert repo is None or repo in message
    assert "The local result is intact." in message
    assert message.endswith(f"Try again with: bench push {run}" + (f" --repo {repo}" if repo else ""))
    assert token not in message
    return message


def test_moved_head_is_read_and_merged_again(server: HubServer, run: Path) -> None:
    push(server, run)
    repo = server.hub.repos[REPO]
    later = make_run(run.parents[3] / "later", OTHER, rows=4)

    def edit() -> None:
        repo.add("edit", {"README.md": Entry((repo.text("README.md") + "\nWritten meanwhile.\n").encode())})

    server.meddle("commit", edit)
    told: list[str] = []
    push_run(later, token=TOKEN, endpoint=server.url, patience=QUICK, notice=told.append)
    assert (server.count("commit", 412), server.count("commit", 200)) == (1, 2)
    assert "Written meanwhile." in repo.text("README.md")
    assert RUN in repo.text("README.md")
    assert OTHER in repo.text("README.md")
    assert len(told) == 1
    assert "412" in told[0]
    assert server.count("upload") == 2, "data that is there already is not sent twice"


def test_a_head_that_never_rests_ends_the_push(server: HubServer, run: Path) -> None:
    push(server, make_run(run.parents[3] / "first", OTHER))
    server.meddle("commit", server.interloper(REPO), times=None)
    message = refusal(server, run)
    assert "HTTP 412" in message
    assert server.count("commit", 412) == HubFailureKind.MOVED.value


@pytest.mark.parametrize("header", [{"Retry-After": "0"}, {"Retry-After": "86400"}, {"RateLimit": '"api";r=0;t=900'}])
@pytest.mark.parametrize("route", ["whoami", "info", "create", "commit"])
def test_rate_limit_is_waited_out_but_never_for_ever(
    server: HubServer, run: Path, route: str, header: dict[str, str]
) -> None:
    server.fail(route, 429, times=2, headers=header)
    push(server, run)
    assert server.count(route, 429) == 2


@pytest.mark.parametrize("route", ["preupload", "lfs", "upload"])
def test_the_librarys_own_waiting_is_capped_too(server: HubServer, run: Path, route: str) -> None:
    server.fail(route, 429, headers={"Retry-After": "86400"})
    push(server, run)
    assert server.count(route, 429) == 1


def test_rate_limit_without_end_ends_the_push(server: HubServer, run: Path) -> None:
    server.fail("commit", 429, times=None, headers={"Retry-After": "0"})
    message = refusal(server, run)
    assert "HTTP 429" in message
    assert "rate limit" in message
    assert server.count("commit", 429) == HubFailureKind.BUSY.value


@pytest.mark.parametrize("route", ["whoami", "info", "create", "resolve", "validate", "commit"])
@pytest.mark.parametrize("status", [500, 503])
def test_an_unwell_hub_is_tried_again(server: HubServer, run: Path, route: str, status: int) -> None:
    server.fail(route, status)
    push(server, run)
    assert server.count(route, status) == 1
    assert len(server.hub.repos[REPO].commits) == 2


def test_a_hub_that_stays_unwell_ends_the_push(server: HubServer, run: Path) -> None:
    server.fail("commit", 503, times=None, message="down for maintenance")
    message = refusal(server, run)
    assert "HTTP 503: down for maintenance" in message
    assert server.count("commit", 503) == HubFailureKind.UNWELL.value
    assert len(server.hub.repos[REPO].commits) == 1


def test_a_commit_whose_answer_was_lost_is_not_made_twice(server: HubServer, run: Path) -> None:
    server.fail("commit", 502, late=True)
    result = push(server, run)
    assert len(server.hub.repos[REPO].commits) == 2
    assert result.commit == server.hub.repos[REPO].head.oid


def test_an_unknown_token_is_final(server: HubServer, run: Path) -> None:
    message = refusal(server, run, "hf_nobody0123456789")
    assert "HTTP 401" in message
    assert "hf auth login" in message
    assert len(server.requests) == 1


def test_a_token_that_may_only_read_is_final(server: HubServer, run: Path) -> None:
    push(server, make_run(run.parents[3] / "first", OTHER))
    assert "write access" in refusal(server, run, READER)
    assert server.count("commit") == 1
    assert "HTTP 403" in refusal(server, run, READER, "alice/new")
    assert list(server.hub.repos) == [REPO]


def test_somebody_elses_private_repository_is_final(server: HubServer, run: Path) -> None:
    push(server, make_run(run.parents[3] / "first", OTHER))
    assert "HTTP 403" in refusal(server, run, STRANGER)
    assert len(server.hub.repos[REPO].commits) == 2


def test_a_repository_deleted_meanwhile_is_not_made_again(server: HubServer, run: Path) -> None:
    server.meddle("commit", lambda: server.hub.repos.pop(REPO))
    assert "HTTP 404" in refusal(server, run)
    assert server.hub.repos == {}


def test_a_repository_deleted_between_two_attempts_is_not_made_again(server: HubServer, run: Path) -> None:
    def drop() -> None:
        server.interloper(REPO)()
        server.meddle("info", lambda: server.hub.repos.pop(REPO))

    server.meddle("commit", drop)
    assert "The repository is gone" in refusal(server, run)
    assert (server.hub.repos, server.count("create")) == ({}, 1)


def test_a_repository_deleted_between_two_pushes_is_made_anew(server: HubServer, run: Path) -> None:
    push(server, make_run(run.parents[3] / "first", OTHER))
    server.hub.repos.clear()
    push(server, run)
    assert OTHER not in server.hub.repos[REPO].text("README.md")


def test_a_damaged_remote_card_is_never_overwritten(server: HubServer, run: Path) -> None:
    push(server, make_run(run.parents[3] / "first", OTHER))
    repo = server.hub.repos[REPO]
    repo.add("break it", {"README.md": Entry(b"---\nconfigs: [unclosed\n---\nprose\n")})
    assert "the card's YAML head cannot be read" in refusal(server, run)
    assert repo.text("README.md") == "---\nconfigs: [unclosed\n---\nprose\n"


def test_a_closed_port_is_tried_again_and_then_final(run: Path) -> None:
    with pytest.raises(PublishError, match="Check the connection"):
        push_run(run, token=TOKEN, endpoint=f"http://127.0.0.1:{free_port()}", patience=QUICK)


def test_a_hub_that_says_nothing_is_not_waited_for(run: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(PublishError, match="Timeout"):
            push_run(run, token=TOKEN, endpoint=url, patience=Patience(total=30, silence=0.1, first_wait=0.01))


def test_the_time_of_a_push_is_bounded(server: HubServer, run: Path) -> None:
    server.fail("commit", 503, times=None)
    with pytest.raises(PublishError):
        push(server, run, patience=Patience(total=0.5, bytes_per_second=1e9, first_wait=60))


def test_what_the_hub_says_is_cut_and_holds_no_secret(server: HubServer, run: Path) -> None:
    server.fail("commit", 400, message=f"bad token {TOKEN}\x1b[31m " + "x" * 5000)
    message = refusal(server, run)
    assert "\x1b" not in message
    assert len(message) < 1500


def test_the_library_is_left_as_it_was(server: HubServer, run: Path) -> None:
    import logging

    from huggingface_hub import get_session
    from huggingface_hub.utils import are_progress_bars_disabled

    def state() -> tuple[object, ...]:
        session = get_session()
        level = logging.getLogger("huggingface_hub").level
        return {name: list(hooks) for name, hooks in session.event_hooks.items()}, session.timeout, level

    before, bars = state(), are_progress_bars_disabled()
    server.fail("commit", 400)
    refusal(server, run)
    push(server, run)
    assert (state(), are_progress_bars_disabled()) == (before, bars)


_PUSH = """
import sys
from pathlib import Path
from harness.core.errors import PublishError
from harness.store.hub import push_run
try:
    push_run(Path(sys.argv[1]))
except PublishError as error:
    print(error)
    sys.exit(3)
"""


def in_child(server: HubServer, run: Path, home: Path, token: str | None, **env: str) -> tuple[int, str]:
    """A push in a process of its own, whose login is what its environment says."""
    command = [sys.executable, "-c", _PUSH, str(run)]
    full = {**hub_env(server, home, token), **env}
    done = subprocess.run(command, env=full, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == "", "the library's own warnings and bars stay off the terminal"
    return done.returncode, done.stdout


def test_endpoint_and_token_come_from_the_environment(server: HubServer, run: Path, tmp_path: Path) -> None:
    assert in_child(server, run, tmp_path / "home", TOKEN) == (0, "")
    assert len(server.hub.repos[REPO].commits) == 2


@pytest.mark.slow
def test_pushes_at_the_same_time_lose_nothing(server: HubServer, run: Path, tmp_path: Path) -> None:
    others = [make_run(tmp_path / "others", f"2026010{day}T000000Z-bbbb", rows=day) for day in range(2, 5)]
    told: list[tuple[int, str]] = []

    def child(path: Path) -> None:
        told.append(in_child(server, path, tmp_path / "home", TOKEN))

    threads = [threading.Thread(target=child, args=(path,)) for path in others]
    threads += [threading.Thread(target=push, args=(server, path)) for path in (run, others[0])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert told == [(0, "")] * 3
    repo = server.hub.repos[REPO]
    card = repo.text("README.md")
    for path in (run, *others):
        assert card.count(f"config_name: {path.name}\n") == 1
        assert sum(name.startswith(f"data/{path.name}/") for name in repo.files) == 1


def test_no_login_says_how_to_log_in(server: HubServer, run: Path, tmp_path: Path) -> None:
    code, said = in_child(server, run, tmp_path / "home", None)
    assert code == 3
    assert "set HF_TOKEN" in said
    assert "hf auth login" in said
    assert server.requests == []


def test_offline_mode_sends_nothing(server: HubServer, run: Path, tmp_path: Path) -> None:
    code, said = in_child(server, run, tmp_path / "home", TOKEN, HF_HUB_OFFLINE="1")
    assert code == 3
    assert "HF_HUB_OFFLINE is set" in said
    assert server.requests == []


def test_retry_after_is_read_in_every_form() -> None:
    assert retry_after({"Retry-After": "7"}) == 7.0
    assert retry_after({"Retry-After": "Thu, 01 Jan 1970 00:00:00 GMT"}) == 0.0
    assert retry_after({"RateLimit": '"api";r=0;t=55'}) == 55.0
    assert retry_after({"RateLimit": '"api";r=12;t=55'}) is None
    assert retry_after({"Retry-After": "soon"}) is None
    assert retry_after({}) is None


def test_of_a_file_that_is_too_large_no_more_is_read_than_it_may_have() -> None:
    sent = 0

    class Endless(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            nonlocal sent
            self.send_response(200)
            self.end_headers()
            try:
                while sent < 256:
                    self.wfile.write(bytes(1 << 20))
                    sent += 1
            except OSError:  # the reader has gone
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Endless) as standing:
        answering = threading.Thread(target=standing.handle_request)
        answering.start()
        with pytest.raises(StoreError, match="the card is larger than the limit of 1 MiB"):
            fetch(f"http://127.0.0.1:{standing.server_port}/README.md", TOKEN, "the card", 1 << 20)
        answering.join()
    assert sent < 128  # of 256 MiB; some are on their way in buffers
