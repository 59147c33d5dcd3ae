"""What a Hub keeps: accounts, dataset and model repositories, their commits, pull requests and large files. Knows no
HTTP; `hub_server` speaks the protocol and asks here."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

FRONT_MATTER = re.compile(r"\A---\r?\n(.*?)\r?\n---(?:\r?\n|\Z)", re.DOTALL)


class Refusal(Exception):
    """The Hub says no."""

    def __init__(self, status: int, message: str, *, code: str | None = None, headers: Mapping[str, str] | None = None):
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = dict(headers or {})
        if code is not None:
            self.headers["X-Error-Code"] = code
        if message.isprintable():
            self.headers.setdefault("X-Error-Message", message)


def repo_missing(*, anonymous: bool = False) -> Refusal:
    """A repository that is not there, or that the asker may not see: the Hub does not say which."""
    return Refusal(401 if anonymous else 404, "Repository not found", code="RepoNotFound")


@dataclass(frozen=True)
class Account:
    name: str
    role: str = "write"
    """`write`, or `read`: sees what it owns, changes nothing."""
    orgs: tuple[str, ...] = ()

    def owns(self, namespace: str) -> bool:
        return namespace == self.name or namespace in self.orgs


@dataclass(frozen=True)
class Entry:
    """One file of one commit."""

    data: bytes
    lfs: bool = False

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @property
    def blob(self) -> str:
        """git's own name of the content, or of the pointer that stands for it."""
        body = self.data
        if self.lfs:
            text = f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\nsize {len(self.data)}\n"
            body = text.encode()
        return hashlib.sha1(b"blob %d\0" % len(body) + body, usedforsecurity=False).hexdigest()

    @property
    def etag(self) -> str:
        return self.sha256 if self.lfs else self.blob


@dataclass(frozen=True)
class Commit:
    oid: str
    summary: str
    files: Mapping[str, Entry]
    touched: tuple[str, ...] = ()
    """Paths that this commit added, replaced or deleted."""


@dataclass
class PullRequest:
    """Commits that wait beside the branch."""

    num: int
    title: str
    description: str
    author: str
    commits: list[Commit]
    """The branch's head when it was opened, and what was put on top."""
    status: str = "open"

    @property
    def head(self) -> Commit:
        return self.commits[-1]


@dataclass
class Repo:
    """One dataset or model repository with the history of its only branch."""

    name: str
    private: bool
    commits: list[Commit] = field(default_factory=list[Commit])
    kind: str = "datasets"
    requests: list[PullRequest] = field(default_factory=list[PullRequest])
    takes_requests: bool = True

    def __post_init__(self) -> None:
        self.add("initial commit", {".gitattributes": Entry(b"*.parquet filter=lfs diff=lfs merge=lfs -text\n")})

    @property
    def head(self) -> Commit:
        return self.commits[-1]

    @property
    def files(self) -> Mapping[str, Entry]:
        return self.head.files

    def add(self, summary: str, changes: Mapping[str, Entry | None]) -> Commit:
        """One more commit; None deletes."""
        return _grow(self.commits, summary, changes)

    def merge(self, num: int) -> Commit:
        """What the owner does with a pull request that is liked."""
        request = self.requests[num - 1]
        request.status = "merged"
        paths = {path for commit in request.commits[1:] for path in commit.touched}
        return self.add(request.title, {path: request.head.files.get(path) for path in paths})

    def request(self, revision: str) -> PullRequest | None:
        """The pull request that a revision means."""
        found = re.fullmatch(r"refs/pr/(\d+)", revision)
        return next((each for each in self.requests if found and each.num == int(found[1])), None)

    def at(self, revision: str) -> Commit:
        """The commit of a branch, a pull request or an oid."""
        if revision in ("main", "HEAD", "refs/heads/main"):
            return self.head
        if request := self.request(revision):
            return request.head
        for commit in self.commits:
            if commit.oid == revision:
                return commit
        raise Refusal(404, f"Invalid rev id: {revision}", code="RevisionNotFound")

    def text(self, path: str) -> str:
        return self.files[path].data.decode()


def _grow(commits: list[Commit], summary: str, changes: Mapping[str, Entry | None]) -> Commit:
    files = dict(commits[-1].files) if commits else {}
    for path, entry in changes.items():
        if entry is None:
            del files[path]
        else:
            files[path] = entry
    commits.append(Commit(secrets.token_hex(20), summary, files, tuple(changes)))
    return commits[-1]


class Hub:
    """Accounts, repositories and large files."""

    def __init__(self) -> None:
        self.accounts: dict[str, Account] = {}
        self.repos: dict[str, Repo] = {}
        """Datasets."""
        self.models: dict[str, Repo] = {}
        self.large: dict[str, bytes] = {}
        """Large files by sha256: uploaded, not necessarily in a commit."""

    def account(self, token: str, name: str, *, role: str = "write", orgs: Iterable[str] = ()) -> Account:
        self.accounts[token] = Account(name, role, tuple(orgs))
        return self.accounts[token]

    def create(self, account: Account, namespace: str, name: str, private: bool) -> Repo:
        full = f"{namespace}/{name}"
        if not re.fullmatch(r"\w[\w.-]{0,95}", name, re.ASCII) or ".." in name or "--" in name or name[-1] in ".-":
            raise Refusal(400, f"Invalid repo name: {full}")
        if account.role != "write" or not account.owns(namespace):
            rights = f"You don't have the rights to create a dataset under the namespace {namespace!r}"
            raise Refusal(403, rights)
        if full in self.repos:
            raise Refusal(409, "You already created this dataset repo")
        self.repos[full] = Repo(full, private)
        return self.repos[full]

    def model(self, full: str, *, private: bool = False) -> Repo:
        """Make a model repository."""
        self.models[full] = Repo(full, private, kind="models")
        return self.models[full]

    def repo(self, account: Account | None, full: str, *, write: bool = False, kind: str = "datasets") -> Repo:
        """A repository that `account` may read, or change."""
        repo = (self.models if kind == "models" else self.repos).get(full)
        owned = account is not None and account.owns(full.partition("/")[0])
        if repo is None or (repo.private and not owned):
            raise repo_missing(anonymous=account is None)
        if write and (account is None or not owned or account.role != "write"):
            raise Refusal(403, "You have read access but not the required permissions for this operation")
        return repo

    def commit(self, repo: Repo, lines: Iterable[str]) -> Commit:
        """Apply one NDJSON commit to the branch, as a whole or not at all."""
        header, changes = self._read(repo.head, lines)
        parent = header.get("parentCommit")
        if parent is not None and parent != repo.head.oid:
            raise Refusal(412, "A commit has happened since. Please refresh and try again.")
        return repo.add(header["summary"], changes)

    def open_request(self, account: Account | None, repo: Repo, lines: Iterable[str]) -> PullRequest:
        """A pull request with one NDJSON commit."""
        header, changes = self._read(repo.head, lines)
        if account is None or account.role != "write":
            raise Refusal(403, "You need the permission discussion.write")
        if not repo.takes_requests:
            raise Refusal(403, "Pull requests are disabled for this repo")
        opened = PullRequest(
            len(repo.requests) + 1, header["summary"], header.get("description", ""), account.name, [repo.head]
        )
        _grow(opened.commits, header["summary"], changes)
        repo.requests.append(opened)
        return opened

    def commit_to(self, account: Account | None, request: PullRequest, lines: Iterable[str]) -> Commit:
        """One more commit of a pull request, by its author."""
        if account is None or account.role != "write" or account.name != request.author or request.status != "open":
            raise Refusal(403, "You can't push to this pull request")
        header, changes = self._read(request.head, lines)
        return _grow(request.commits, header["summary"], changes)

    def _read(self, head: Commit, lines: Iterable[str]) -> tuple[dict[str, Any], dict[str, Entry | None]]:
        """The header of an NDJSON commit, and what it changes on top of `head`."""
        steps: list[dict[str, Any]] = [json.loads(line) for line in lines if line.strip()]
        if not steps or steps[0]["key"] != "header":
            raise Refusal(400, "The first line must be the header")
        changes: dict[str, Entry | None] = {}
        for step in steps[1:]:
            changes.update(self._change(head, step["key"], step["value"]))
        readme = changes.get("README.md")
        if readme is not None and (problems := card_problems(readme.data.decode())):
            raise Refusal(400, "; ".join(problems))
        return steps[0]["value"], changes

    def _change(self, head: Commit, key: str, value: Mapping[str, Any]) -> dict[str, Entry | None]:
        path = str(value["path"])
        if key == "file":
            assert value["encoding"] == "base64"
            return {path: Entry(base64.b64decode(value["content"], validate=True))}
        if key == "lfsFile":
            data = self.large.get(value["oid"])
            if value["algo"] != "sha256" or data is None or len(data) != value["size"]:
                raise Refusal(400, f"LFS object {value['oid']} of {path} was not uploaded")
            return {path: Entry(data, lfs=True)}
        if key == "deletedFile":
            if path not in head.files:
                raise Refusal(404, f"A file with this name doesn't exist: {path}", code="EntryNotFound")
            return {path: None}
        if key == "deletedFolder":
            return {name: None for name in head.files if name.startswith(path.rstrip("/") + "/")}
        raise Refusal(400, f"Unknown operation {key}")


def card_data(text: str) -> dict[str, Any]:
    """The YAML head of a card."""
    match = FRONT_MATTER.match(text)
    data: object = yaml.safe_load(match.group(1)) if match else {}
    return data if isinstance(data, dict) else {}


def card_problems(text: str) -> list[str]:
    """Why the Hub would not take this card."""
    try:
        data = card_data(text)
    except yaml.YAMLError as error:
        return [f"YAML: {error}"]
    configs = data.get("configs", [])
    if not isinstance(configs, list) or not all(isinstance(entry, dict) for entry in configs):
        return ["configs must be a list of objects"]
    problems = ["config_name is required" for entry in configs if not isinstance(entry.get("config_name"), str)]
    names = [entry.get("config_name") for entry in configs]
    if len(set(names)) != len(names):
        problems.append("config_name must be unique")
    if sum(bool(entry.get("default")) for entry in configs) > 1:
        problems.append("at most one config may be the default")
    return problems
