"""A pull request with a run's result, in the repository of the model on the Hub. Owns the order of its steps and what
the user is told; the document is `store.eval_results`'s, the dataset that it points at `store.hub`'s.

Nothing is ever committed to the model's own branch. Whoever asks again for the same run changes the pull request that
is open, and opens no second one: also where the answer to the first was lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, cast

from harness.core.errors import PublishError, StoreError, UsageError
from harness.core.redact import redactor
from harness.core.types import JsonDict
from harness.store.eval_results import (
    FOLDER,
    TASKS_BYTES,
    TASKS_FILE,
    Claim,
    Source,
    check_claim,
    check_run,
    document_of,
    path_of,
    task_of,
    tasks_in,
    title_of,
)
from harness.store.hub_failures import HubFailure, Patience
from harness.store.hub_session import Tries, conversation, fetch, login_token
from harness.store.rundir import RunDir

if TYPE_CHECKING:
    from huggingface_hub import HfApi

_MOST_REQUESTS = 500
"""Open pull requests of one's own that are looked through for that of the run."""

_READING = {
    401: "The Hub does not accept the token: set HF_TOKEN to a valid one or run `hf auth login`.",
    403: "The token may not read it: ask for access on its page, or use another token.",
    404: "There is none of that name, or the token cannot see it: give NAMESPACE/NAME as in the address of its page.",
    429: "The Hub's rate limit is used up: try again later.",
}

_OPENING = {
    **_READING,
    403: "The token may not open pull requests there: use one with write access (a fine-grained one needs "
    "`discussion.write` there). Or the owner has turned pull requests off.",
}


@dataclass(frozen=True, slots=True)
class Opened:
    """What became of a result."""

    url: str
    """Of the pull request; of the file if the model has it already."""
    path: str
    """Of the document in the model repository."""
    text: str
    """The document."""
    how: str
    """`opened`, `updated`, `unchanged` (the pull request was there), or `merged` (the model has the file)."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A result that can be proposed: the benchmark has the task, the model is there."""

    run: RunDir
    claim: Claim
    task: str
    model_is_private: bool
    me: str
    """Whose the token is."""
    endpoint: str
    patience: Patience
    notice: Callable[[str], None]

    @property
    def path(self) -> str:
        """Of the document in the model repository."""
        return path_of(self.claim, self.task, self.run.id)

    def text(self, repo: str) -> str:
        """The document, once the run is, or will be, in the dataset repository `repo`."""
        manifest, summary = self.run.read_manifest(), self.run.read_summary()
        check_run(manifest, summary, self.claim)
        assert summary is not None, "check_run has seen it"
        space = repo.partition("/")[0]
        return document_of(manifest, summary, self.claim, self.task, Source(f"{self.endpoint}/datasets/{repo}", space))


def propose(
    run: RunDir,
    claim: Claim,
    *,
    token: str | None = None,
    endpoint: str | None = None,
    patience: Patience | None = None,
    notice: Callable[[str], None] | None = None,
) -> Proposal:
    """Find out whether a run can be proposed as a result. Reads from the Hub, and writes nothing there.

    Args:
        run: The run.
        claim: What it is a result of.
        token: A Hub token; by default the logged-in user's.
        endpoint: Root URL of the Hub; by default HF_ENDPOINT or huggingface.co.
        patience: How long to try; seconds.
        notice: Told in one line whenever there is something to wait for.

    Raises:
        UsageError: it cannot: the run is no result, or the benchmark has no such task.
        PublishError: the Hub does not answer, or does not know the model or the benchmark.
    """
    from huggingface_hub import HfApi

    check_claim(claim)
    check_run(run.read_manifest(), run.read_summary(), claim)
    key, patience = login_token(token), patience or Patience()
    told: Callable[[str], None] = notice or (lambda line: None)
    api = HfApi(endpoint=endpoint, token=key, library_name="bench-harness")
    asked = [claim.model]
    tries = Tries(patience, patience.deadline(0), told, lambda: asked[0], _READING)

    def look() -> tuple[str, bool, str]:
        asked[0] = claim.model
        is_private = bool(api.model_info(claim.model, timeout=patience.silence).private)
        asked[0] = claim.benchmark
        return _tasks_text(api, claim, key), is_private, _name(api)

    with conversation():
        text, is_private, me = tries.until_done(look, lambda failure: _unread(asked[0], failure))
    task = task_of(claim, tasks_in(text, claim.benchmark))
    return Proposal(run, claim, task, is_private, me, str(api.endpoint), patience, told)


def open_request(proposal: Proposal, repo: str, *, token: str | None = None) -> Opened:
    """Open a pull request with the result, or change the one that is open.

    Args:
        proposal: From `propose`.
        repo: The dataset that the run was pushed to, `namespace/name`.
        token: As there.

    Raises:
        PublishError: it could not be opened.
    """
    from huggingface_hub import HfApi

    key, claim = login_token(token), proposal.claim
    api = HfApi(endpoint=proposal.endpoint, token=key, library_name="bench-harness")
    text = redactor.text(proposal.text(repo), patterns=False)
    patience = proposal.patience
    tries = Tries(patience, patience.deadline(0), proposal.notice, lambda: claim.model, _OPENING)
    with conversation():
        return tries.until_done(lambda: _open(api, proposal, text), lambda failure: _unopened(claim.model, failure))


def check_readable(proposal: Proposal, *, private: bool) -> None:
    """Refuse a result that rests on what its readers cannot see.

    Args:
        proposal: From `propose`.
        private: Whether the dataset is, or would be, a private one.

    Raises:
        UsageError: the model is public and the dataset is not.
    """
    if private and not proposal.model_is_private:
        raise UsageError(
            f"{proposal.claim.model} is public, and a result there must rest on rollouts that its readers can see: add "
            "--public; a dataset that is there already as a private one must be made public in its settings"
        )


def _open(api: HfApi, proposal: Proposal, text: str) -> Opened:
    from huggingface_hub import CommitOperationAdd

    model, path = proposal.claim.model, proposal.path
    title = title_of(proposal.claim, proposal.task, proposal.run.id)
    found = _open_request(api, model, title, proposal.me)
    revision = None if found is None else f"refs/pr/{found}"
    before = api.model_info(model, revision=revision, timeout=proposal.patience.silence).sha
    commit = api.create_commit(
        model,
        [CommitOperationAdd(path, text.encode("utf-8"))],
        commit_message=title,
        commit_description=_description(proposal),
        revision=revision,
        create_pr=found is None,
    )
    if found is not None:
        how = "unchanged" if commit.oid == before else "updated"
        return Opened(f"{proposal.endpoint}/{model}/discussions/{found}", path, text, how)
    if commit.pr_url is None:  # the library makes no commit that changes nothing
        return Opened(f"{proposal.endpoint}/{model}/blob/main/{path}", path, text, "merged")
    return Opened(commit.pr_url, path, text, "opened")


def _open_request(api: HfApi, model: str, title: str, me: str) -> int | None:
    """The number of the open pull request of that title, which names the run; None if there is none."""
    mine = api.get_repo_discussions(model, author=me, discussion_type="pull_request", discussion_status="open")
    for request in islice(mine, _MOST_REQUESTS):
        if request.title == title and request.is_pull_request and request.author == me:
            return request.num
    return None


def _description(proposal: Proposal) -> str:
    """What the owner of the model reads first."""
    manifest = proposal.run.read_manifest()
    return redactor.text(
        f"One file in `{FOLDER}/`: the result of a run with bench-harness. Its source is a dataset with every rollout, "
        "how it was scored, and how to repeat it. The model was asked for as "
        f"`{manifest.model.replace('`', ' ')}`."
    )


def _tasks_text(api: HfApi, claim: Claim, token: str) -> str:
    from huggingface_hub import hf_hub_url

    url = hf_hub_url(claim.benchmark, TASKS_FILE, repo_type="dataset", endpoint=api.endpoint)
    content = fetch(url, token, f"{TASKS_FILE} of {claim.benchmark}", TASKS_BYTES)
    if content is None:
        raise StoreError(
            f"{claim.benchmark} is no benchmark: it has no {TASKS_FILE}, so that no leaderboard would show the result"
        )
    return content.decode("utf-8", "replace")


def _name(api: HfApi) -> str:
    return str(cast(JsonDict, api.whoami())["name"])  # pyright: ignore[reportUnknownMemberType]


def _unread(name: str, failure: HubFailure) -> PublishError:
    parts = [f"could not read {name} on the Hub: {failure.cause.rstrip('.')}.", failure.advice, "Nothing was sent."]
    return PublishError(redactor.text(" ".join(part for part in parts if part)))


def _unopened(model: str, failure: HubFailure) -> PublishError:
    parts = [f"could not open a pull request in {model}: {failure.cause.rstrip('.')}.", failure.advice]
    return PublishError(redactor.text(" ".join(part for part in parts if part)))
