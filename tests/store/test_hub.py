"""Pushing a run with the real `huggingface_hub` to a stand-in Hub: what a push leaves there."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_repos import Entry, Repo, card_data
from hub_runs import JOURNAL, READER, STRANGER, TOKEN, contents, load_back, make_run, write_data
from hub_server import HubServer
from hypothesis import given
from hypothesis import strategies as st
from tables import for_each_row

from harness.core.errors import ConfigError, PublishError
from harness.store.hub import PushResult, check_ready, push_run
from harness.store.hub_names import check_repo, default_name
from harness.store.hub_session import Patience
from harness.store.rows import RowShape

FIRST, SECOND = "20260101T000000Z-aaaa", "20260102T000000Z-bbbb"
REPO = "alice/gsm8k_my-model"

# huggingface_hub passes uploads to its HTTP library in a way that the latter deprecates; it is theirs to change.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

QUICK = Patience(total=30, silence=10, longest_wait=0.02, first_wait=0.01)
"""Pauses of a test; the Hub's own would be waited for."""


@pytest.fixture
def server() -> Iterator[HubServer]:
    with HubServer() as standing:
        standing.hub.account(TOKEN, "alice", orgs=("acme",))
        standing.hub.account(READER, "alice", role="read")
        standing.hub.account(STRANGER, "mallory")
        yield standing


def push(server: HubServer, run: Path, *, repo: str | None = None, public: bool = False) -> PushResult:
    return push_run(run, repo=repo, public=public, token=TOKEN, endpoint=server.url, patience=QUICK)


def configs(repo: Repo) -> dict[str, bool]:
    """Names of the card's configs, and whether each is the default."""
    return {entry["config_name"]: bool(entry.get("default")) for entry in card_data(repo.text("README.md"))["configs"]}


def test_first_push_is_one_commit_with_the_data_and_the_card(server: HubServer, tmp_path: Path) -> None:
    run = make_run(tmp_path, FIRST, files=2)
    result = push(server, run)
    repo = server.hub.repos[REPO]
    data = {f"data/{FIRST}/{path.name}" for path in (run / "data").iterdir()}
    assert len(data) == 2
    assert [commit.touched for commit in repo.commits[1:]] == [("README.md", *sorted(data))]
    assert set(repo.files) == {".gitattributes", "README.md"} | data
    for path in (run / "data").iterdir():
        entry = repo.files[f"data/{FIRST}/{path.name}"]
        assert entry.lfs
        assert entry.data == path.read_bytes()
    assert result == PushResult(f"{server.url}/datasets/{REPO}", REPO, repo.head.oid, FIRST, private=True)
    assert repo.private
    assert configs(repo) == {FIRST: True}


def test_the_journal_and_the_token_never_leave(server: HubServer, tmp_path: Path) -> None:
    run = make_run(tmp_path, FIRST)
    manifest = (run / "run.json").read_text()
    (run / "run.json").write_text(manifest.replace("bench run gsm8k", f"bench run gsm8k --header X={TOKEN}"))
    push(server, run)
    everything = b"".join(entry.data for commit in server.hub.repos[REPO].commits for entry in commit.files.values())
    assert b"stays at home" in JOURNAL.encode()
    assert b"stays at home" not in everything
    assert TOKEN.encode() not in everything
    assert not any(TOKEN in commit.summary for commit in server.hub.repos[REPO].commits)


def test_runs_of_one_repository_load_back_by_default_and_by_id(server: HubServer, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    first, second = make_run(tmp_path, FIRST, rows=3), make_run(tmp_path, SECOND, rows=5, files=2)
    push(server, first)
    push(server, second)
    repo = server.hub.repos[REPO]
    assert len(repo.commits) == 3
    assert configs(repo) == {FIRST: False, SECOND: True}

    def local(run: Path) -> list[dict[str, object]]:
        return [row for path in sorted((run / "data").iterdir()) for row in pq.read_table(path).to_pylist()]

    default, by_id, newest = load_back(server, tmp_path / "home", REPO, "", FIRST, SECOND)
    assert (default["rows"], by_id["rows"], newest["rows"]) == (local(second), local(first), local(second))
    assert tuple(default["columns"]) == RowShape("gsm8k", "my-model", ("correct",)).names


def test_pushing_again_changes_nothing(server: HubServer, tmp_path: Path) -> None:
    run = make_run(tmp_path, FIRST)
    first = push(server, run)
    uploads = server.count("upload")
    assert push(server, run) == first
    assert len(server.hub.repos[REPO].commits) == 2
    assert server.count("upload") == uploads


def test_pushing_a_grown_run_replaces_its_files_in_one_commit(server: HubServer, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    run, other = make_run(tmp_path, FIRST, rows=4, files=3), make_run(tmp_path, SECOND)
    push(server, run)
    push(server, other)
    write_data(run / "data", 6, files=2)
    push(server, run)
    repo = server.hub.repos[REPO]
    assert len(repo.commits) == 4
    mine = {path for path in repo.files if path.startswith(f"data/{FIRST}/")}
    assert mine == {f"data/{FIRST}/{path.name}" for path in (run / "data").iterdir()}
    assert any(path.startswith(f"data/{SECOND}/") for path in repo.files)
    assert sum(pq.read_metadata(io.BytesIO(repo.files[path].data)).num_rows for path in mine) == 6


def test_the_users_prose_and_configs_stay(server: HubServer, tmp_path: Path) -> None:
    push(server, make_run(tmp_path, FIRST))
    repo = server.hub.repos[REPO]
    card = repo.text("README.md")
    own = "- config_name: mine\n  data_files:\n  - split: train\n    path: mine/*.parquet\n"
    card = (
        card.replace("configs:\n", f"license: mit\nconfigs:\n{own}", 1) + "\n## What I think\n\nUsers — wrote this.\n"
    )
    repo.add("edit the card", {"README.md": Entry(card.encode()), "mine/a.parquet": Entry(b"PAR1", lfs=True)})
    push(server, make_run(tmp_path, SECOND))
    text = repo.text("README.md")
    assert "## What I think\n\nUsers — wrote this.\n" in text
    assert card_data(text)["license"] == "mit"
    assert configs(repo) == {"mine": False, FIRST: False, SECOND: True}
    assert "mine/a.parquet" in repo.files


def test_a_repository_that_was_there_before_keeps_its_card(server: HubServer, tmp_path: Path) -> None:
    repo = Repo("alice/notes", private=True)
    repo.add("hello", {"README.md": Entry(b"# Notes\n\nOnly prose, no front matter.\n")})
    server.hub.repos[repo.name] = repo
    push(server, make_run(tmp_path, FIRST), repo="notes")
    assert "Only prose, no front matter.\n" in repo.text("README.md")
    assert configs(repo) == {FIRST: True}
    assert [len(loaded["rows"]) for loaded in load_back(server, tmp_path / "home", repo.name, "")] == [3]


def test_public_only_when_it_is_said(server: HubServer, tmp_path: Path) -> None:
    run = make_run(tmp_path, FIRST)
    result = push(server, run, repo="acme/open", public=True)
    assert not result.private
    assert not server.hub.repos["acme/open"].private
    with pytest.raises(PublishError, match="acme/open is public; set hf_public"):
        push(server, make_run(tmp_path, SECOND), repo="acme/open")
    assert len(server.hub.repos["acme/open"].commits) == 2
    push(server, run, repo="acme/closed")
    assert push(server, run, repo="acme/closed", public=True).private, "an existing repository keeps its visibility"


def test_a_bare_name_goes_to_the_tokens_owner(server: HubServer, tmp_path: Path) -> None:
    run = make_run(tmp_path, FIRST, model="openai/gpt-4.1-mini")
    assert push(server, run).repo == "alice/gsm8k_openai_gpt-4.1-mini"
    assert push(server, run, repo="mine").repo == "alice/mine"
    who = server.count("whoami")
    assert push(server, run, repo="acme/ours").repo == "acme/ours"
    assert server.count("whoami") == who, "a full name needs nobody's identity"


def test_a_run_without_data_is_refused(server: HubServer, tmp_path: Path) -> None:
    run = make_run(tmp_path, FIRST)
    for path in (run / "data").iterdir():
        path.unlink()
    with pytest.raises(PublishError, match="no data to push"):
        push(server, run)
    assert server.requests == []


def test_only_the_data_is_read(server: HubServer, tmp_path: Path) -> None:
    run = make_run(tmp_path, FIRST)
    before = contents(tmp_path)
    push(server, run)
    assert contents(tmp_path) == before


def test_a_run_folder_may_be_named_from_inside(
    server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(make_run(tmp_path, FIRST))
    assert push(server, Path()).config == FIRST


@given(st.text(max_size=120), st.text(min_size=1, max_size=200))
def test_default_names_are_always_valid(env_id: str, model: str) -> None:
    from huggingface_hub.utils import validate_repo_id

    name = default_name(env_id, model)
    assert len(name) <= 96
    assert check_repo(name) == name
    validate_repo_id(f"alice/{name}")


@given(st.from_regex(re.compile(r"[a-zA-Z0-9_.\-]{1,98}(/[a-zA-Z0-9_.\-]{1,98})?", re.ASCII), fullmatch=True))
def test_names_that_pass_are_names_that_the_library_takes(repo: str) -> None:
    from huggingface_hub.utils import validate_repo_id

    try:
        passed = check_repo(repo)
    except ConfigError:
        return
    assert passed == repo
    validate_repo_id(passed)


def test_long_default_names_stay_apart() -> None:
    assert default_name("env", "m" * 200 + "a") != default_name("env", "m" * 200 + "b")


@for_each_row("repo", ["", "a/b/c", "a--b", "x..y", "-a", "a.", "a.git", "a b", "ä", "a" * 97, "a/", "a\n"])
def test_names_that_the_hub_forbids_are_refused_before_anything(repo: str) -> None:
    with pytest.raises(ConfigError, match="NAMESPACE/NAME"):
        check_ready(repo)
