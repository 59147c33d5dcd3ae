"""Publish a run on the Hugging Face Hub: its parquet files and the merged card, in one commit to a dataset repository.
Reads the run folder and never writes to it; the journal is not uploaded. The card is written in `store.card`, names are
validated in `store.hub_names`, errors are classified in `store.hub_session`."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from harness.core.errors import HarnessError, PublishError
from harness.core.messages import COMMANDS
from harness.core.redact import redactor
from harness.core.size_limits import DOCUMENT
from harness.core.types import JsonDict
from harness.store import card
from harness.store.hub_names import check_repo, default_name
from harness.store.hub_session import HubFailure, HubFailureKind, Patience, Tries, conversation, fetch, login_token
from harness.store.rundir import RunDir
from harness.store.safe_files import open_binary

if TYPE_CHECKING:
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, DatasetInfo, HfApi


@dataclass(frozen=True, slots=True)
class PushResult:
    """A run published on the Hub."""

    url: str
    """Address of the dataset's page."""
    repo: str
    """Repository, as `namespace/name`."""
    commit: str
    """Hash of the commit with the run."""
    config: str
    """Config name of the run in `load_dataset(repo, config)`."""
    private: bool
    """Whether the repository is private. An existing repository keeps its visibility."""


def check_ready(repo: str | None = None) -> None:
    """Raise early if a push cannot succeed, before the run costs anything. Makes no request.

    Args:
        repo: Repository name from the user, if any.

    Raises:
        ConfigError: the name is invalid on the Hub.
        PublishError: offline mode is on, or no user is logged in.
    """
    if repo is not None:
        check_repo(repo)
    login_token(None)


def push_run(
    run_dir: Path,
    *,
    repo: str | None = None,
    public: bool = False,
    token: str | None = None,
    endpoint: str | None = None,
    patience: Patience | None = None,
    notice: Callable[[str], None] | None = None,
) -> PushResult:
    """Upload a run's dataset and merge its config into the repository's card, in one commit.

    Pushing a run again replaces its files. Blocks until done, within `patience`; pushes of one process run one after
    another. The caller ensures that no process writes the run meanwhile.

    Args:
        run_dir: The run's folder.
        repo: `name` or `namespace/name`; default: `{env_id}_{model}` in the namespace of the token's user.
        public: Whether a new repository is public. If false, an existing public repository is rejected.
        token: A Hub token with write access; default: that of the logged-in user.
        endpoint: Root URL of the Hub; default: HF_ENDPOINT or huggingface.co.
        patience: Time limits, in seconds.
        notice: Called with one line whenever the push has to wait.

    Returns:
        Location of the published run.

    Raises:
        PublishError: the run was not published; the message names repository, cause and the command to try again.
    """
    again = shlex.join(["bench", "push", str(run_dir), *(["--repo", repo] if repo else []), *(["--public"] * public)])
    run = RunDir(run_dir.resolve())
    try:
        manifest = run.read_manifest()
        again += f" {COMMANDS['allow_private']}" if manifest.is_private else ""
        name = check_repo(repo) if repo else default_name(manifest.env_id, manifest.model)
        if not run.has_data():
            raise PublishError("the run has no data to push: no rollout is in its dataset yet")
        key = login_token(token)
    except HarnessError as error:
        raise _error_of(run_dir, repo, HubFailure(HubFailureKind.FINAL, str(error)), again) from error
    with conversation():
        push = _Push(run, name, key, endpoint, patience or Patience(), public=public)
        deadline = push.patience.deadline(sum(path.lstat().st_size for path in run.row_files()))
        tries = Tries(push.patience, deadline, notice or (lambda line: None), lambda: push.repo)
        return tries.until_done(push.attempt, lambda failure: _error_of(run_dir, push.repo, failure, again))


class _Push:
    """One push of a run to the Hub, which can be attempted several times.

    Args:
        run: The run.
        repo: Repository, as `name` or `namespace/name`.
        token: A Hub token with write access.
        endpoint: Root URL of the Hub; None for the default.
        patience: Time limits.
        public: Whether the repository may be public.
    """

    def __init__(
        self, run: RunDir, repo: str, token: str, endpoint: str | None, patience: Patience, *, public: bool
    ) -> None:
        from huggingface_hub import HfApi

        self.repo = repo
        self.patience = patience
        self._run = run
        self._token = token
        self._public = public
        self._api: HfApi = HfApi(endpoint=endpoint, token=token, library_name="bench-harness")
        self._seen = False

    def attempt(self) -> PushResult:
        """Attempt the push once: find the repository's last commit, merge the card, and commit on top of it."""
        head = self._head()
        if head.private is False and not self._public:
            raise PublishError(f"{self.repo} is public; set hf_public to publish there, or choose another name")
        assert head.sha is not None, "the Hub names the head of every repository"
        text = card.merge_remote(self._card(head.sha), self._run.path, self.repo)
        with ExitStack() as opened:
            commit = self._api.create_commit(
                self.repo,
                self._operations(head, redactor.text(text, patterns=False), opened),
                commit_message=f"Add run {self._run.id}",
                repo_type="dataset",
                parent_commit=head.sha,
            )
        url = f"{self._api.endpoint}/datasets/{self.repo}"
        return PushResult(url, self.repo, commit.oid, self._run.id, bool(head.private))

    def _head(self) -> DatasetInfo:
        """Information about the repository and its last commit; the repository is created if missing."""
        from huggingface_hub.errors import RepositoryNotFoundError

        if "/" not in self.repo:
            who = cast(JsonDict, self._api.whoami())  # pyright: ignore[reportUnknownMemberType]
            self.repo = f"{who['name']}/{self.repo}"
        read = partial(self._api.dataset_info, timeout=self.patience.silence)
        try:
            head = read(self.repo)
        except RepositoryNotFoundError:
            if self._seen:
                raise  # deleted during the push, by a decision that is not ours to undo
            self._api.create_repo(self.repo, repo_type="dataset", private=not self._public, exist_ok=True)
            head = read(self.repo)
        self._seen = True
        return head

    def _card(self, revision: str) -> str | None:
        """Download the repository's README.md at a revision; None if missing."""
        from huggingface_hub import hf_hub_url

        url = hf_hub_url(self.repo, "README.md", repo_type="dataset", revision=revision, endpoint=self._api.endpoint)
        content = fetch(url, self._token, f"the card of {self.repo}", DOCUMENT)
        return None if content is None else content.decode("utf-8")

    def _operations(
        self, head: DatasetInfo, text: str, opened: ExitStack
    ) -> list[CommitOperationAdd | CommitOperationDelete]:
        """Return the operations of the commit: the card, the parquet files, and deletions of files pushed earlier."""
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        folder = f"data/{self._run.id}"
        # Open files instead of paths make the library upload over plain HTTP, to which `bounded` applies. For paths it
        # prefers Xet, which has connections of its own and no timeout.
        files = self._run.row_files()
        added = {f"{folder}/{path.name}": opened.enter_context(open_binary(path)) for path in files}
        there = [file.rfilename for file in head.siblings or []]
        stale = [path for path in there if path.startswith(f"{folder}/") and path not in added]
        return [
            CommitOperationAdd("README.md", text.encode("utf-8")),
            *(CommitOperationAdd(path, file) for path, file in added.items()),
            *(CommitOperationDelete(path, is_folder=False) for path in stale),
        ]


def _error_of(run_dir: Path, repo: str | None, failure: HubFailure, again: str) -> PublishError:
    """Make the error of a failed push: run, repository, cause, and `again`, the command to repeat the push."""
    target = f"{repo} on the Hub" if repo else "the Hub"
    parts = [f"could not push {run_dir} to {target}: {failure.cause.rstrip('.')}."]
    parts += [failure.advice] if failure.advice else []
    parts += ["The local result is intact.", f"Try again with: {again}"]
    return PublishError(redactor.text(" ".join(parts)))
