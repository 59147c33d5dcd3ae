"""What a Hub keeps: accounts, dataset repositories, their commits and large files. Knows no HTTP; `hub_server` speaks
the protocol and asks here."""

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
class Repo:
    """One dataset repository with the history of its only branch."""

    name: str
    private: bool
    commits: list[Commit] = field(default_factory=list[Commit])

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
        files = dict(self.commits[-1].files) if self.commits else {}
        for path, entry in changes.items():
            if entry is None:
                del files[path]
            else:
                files[path] = entry
        commit = Commit(secrets.token_hex(20), summary, files, tuple(changes))
        self.commits.append(commit)
        return commit

    def at(self, revision: str) -> Commit:
        """The commit of a branch or an oid."""
        if revision in ("main", "HEAD", "refs/heads/main"):
            return self.head
        for commit in self.commits:
            if commit.oid == revision:
                return commit
        raise Refusal(404, f"Invalid rev id: {revision}", code="RevisionNotFound")

    def text(self, path: str) -> str:
        return self.files[path].data.decode()


class Hub:
    """Accounts, repositories and large files."""

    def __init__(self) -> None:
        self.accounts: dict[str, Account] = {}
        self.repos: dict[str, Repo] = {}
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

    def repo(self, account: Account | None, full: str, *, write: bool = False) -> Repo:
        """A repository that `account` may read, or change."""
        repo = self.repos.get(full)
        owned = account is not None and account.owns(full.partition("/")[0])
        if repo is None or (repo.private and not owned):
            raise repo_missing(anonymous=account is None)
        if write and (account is None or not owned or account.role != "write"):
            raise Refusal(403, "You have read access but not the required permissions for this operation")
        return repo

    def commit(self, repo: Repo, lines: Iterable[str]) -> Commit:
        """Apply one NDJSON commit, as a whole or not at all."""
        steps: list[dict[str, Any]] = [json.loads(line) for line in lines if line.strip()]
        if not steps or steps[0]["key"] != "header":
            raise Refusal(400, "The first line must be the header")
        header = steps[0]["value"]
        parent = header.get("parentCommit")
        if parent is not None and parent != repo.head.oid:
            raise Refusal(412, "A commit has happened since. Please refresh and try again.")
        changes: dict[str, Entry | None] = {}
        for step in steps[1:]:
            changes.update(self._change(repo, step["key"], step["value"]))
        readme = changes.get("README.md")
        if readme is not None and (problems := card_problems(readme.data.decode())):
            raise Refusal(400, "; ".join(problems))
        return repo.add(header["summary"], changes)

    def _change(self, repo: Repo, key: str, value: Mapping[str, Any]) -> dict[str, Entry | None]:
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
            if path not in repo.files:
                raise Refusal(404, f"A file with this name doesn't exist: {path}", code="EntryNotFound")
            return {path: None}
        if key == "deletedFolder":
            return {name: None for name in repo.files if name.startswith(path.rstrip("/") + "/")}
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
