"""Options of `bench push` for results on leaderboards of the Hub."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Annotated, cast

import typer

from harness.core.errors import PublishError, StoreError, UsageError
from harness.core.redact import redactor
from harness.core.types import JsonDict
from harness.plugins.leaderboards.document import (
    FOLDER,
    TASKS_BYTES,
    TASKS_FILE,
    Claim,
    check_claim,
    check_run,
    document_of,
    path_of,
    task_of,
    tasks_in,
    title_of,
)
from harness.store.hub_names import default_name
from harness.store.hub_session import HubFailure, Patience, Tries, conversation, fetch, login_token
from harness.store.rundir import RunDir

if TYPE_CHECKING:
    from huggingface_hub import HfApi

    from harness.cli.push import Push


_MOST_REQUESTS = 500
"""Maximum number of the user's open pull requests that are searched for an earlier one of the same run."""

_READING = {
    401: "The Hub does not accept the token: set HF_TOKEN to a valid one or run `hf auth login`.",
    403: "The token has no read access: ask for access on the page of the repository, or use another token.",
    404: "The repository does not exist, or the token cannot see it: give NAMESPACE/NAME as in its page address.",
    429: "The Hub's rate limit is exceeded: try again later.",
}

_OPENING = {
    **_READING,
    403: "The token may not open pull requests: use one with write access (a fine-grained token needs the permission "
    "`discussion.write`). Or the owner has disabled pull requests.",
}


@dataclass(frozen=True, slots=True)
class Opened:
    """Result of `open_request`: a pull request, or the file if the model repository already has it."""

    url: str
    """Address of the pull request, or of the file if the model repository already has it."""
    path: str
    """Path of the document in the model repository."""
    text: str
    """The YAML document of the result."""
    how: str
    """`opened`, `updated`, `unchanged` (the same pull request is open), or `merged` (the model repository has the
    file)."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A result that can be proposed, because the model and the benchmark's task exist on the Hub."""

    run: RunDir
    claim: Claim
    task: str
    model_is_private: bool
    me: str
    """The user whose token is used."""
    endpoint: str
    patience: Patience
    notice: Callable[[str], None]

    @property
    def path(self) -> str:
        """Path of the document in the model repository."""
        return path_of(self.claim, self.task, self.run.id)

    def text(self, repo: str) -> str:
        """Return the YAML document of the result, which refers to the dataset repository `repo` as its source."""
        manifest, summary = self.run.read_manifest(), self.run.read_summary()
        check_run(manifest, summary, self.claim)
        assert summary is not None, "see check_run"
        url = f"{self.endpoint}/datasets/{repo}"
        return document_of(manifest, summary, self.claim, self.task, url, repo.partition("/")[0])


def propose(
    run: RunDir,
    claim: Claim,
    *,
    token: str | None = None,
    endpoint: str | None = None,
    patience: Patience | None = None,
    notice: Callable[[str], None] | None = None,
) -> Proposal:
    """Check whether a run can be proposed as a result. Only reads from the Hub.

    Args:
        run: The run.
        claim: The model and the benchmark.
        token: A Hub token; by default the logged-in user's.
        endpoint: Root URL of the Hub; by default HF_ENDPOINT or huggingface.co.
        patience: Time limits for retries of Hub requests.
        notice: Called with a line of text before each wait.

    Raises:
        UsageError: the run cannot be a result, or the benchmark does not have the task.
        PublishError: the Hub cannot be reached, or does not have the model or the benchmark.
    """
    from huggingface_hub import HfApi

    check_claim(claim)
    check_run(run.read_manifest(), run.read_summary(), claim)
    key, patience = login_token(token), patience or Patience()
    report: Callable[[str], None] = notice or (lambda line: None)
    api = HfApi(endpoint=endpoint, token=key, library_name="bench-harness")
    asked = [claim.model]
    tries = Tries(patience, patience.deadline(0), report, lambda: asked[0], _READING)

    def look() -> tuple[str, bool, str]:
        asked[0] = claim.model
        is_private = bool(api.model_info(claim.model, timeout=patience.silence).private)
        asked[0] = claim.benchmark
        me = cast(JsonDict, api.whoami())["name"]  # pyright: ignore[reportUnknownMemberType]
        return _tasks_text(api, claim, key), is_private, str(me)

    with conversation():
        text, is_private, me = tries.until_done(
            look, lambda failure: _error(f"could not read {asked[0]} on the Hub", failure, "Nothing was sent.")
        )
    task = task_of(claim, tasks_in(text, claim.benchmark))
    return Proposal(run, claim, task, is_private, me, str(api.endpoint), patience, report)


def open_request(proposal: Proposal, repo: str, *, token: str | None = None) -> Opened:
    """Open a pull request with the result, or update the open one.

    Args:
        proposal: From `propose`.
        repo: The dataset that the run was pushed to, `namespace/name`.
        token: A Hub token; by default the logged-in user's.

    Raises:
        PublishError: the pull request could not be opened.
    """
    from huggingface_hub import HfApi

    key, claim = login_token(token), proposal.claim
    api = HfApi(endpoint=proposal.endpoint, token=key, library_name="bench-harness")
    text = redactor.text(proposal.text(repo), patterns=False)
    patience = proposal.patience
    tries = Tries(patience, patience.deadline(0), proposal.notice, lambda: claim.model, _OPENING)
    with conversation():
        return tries.until_done(
            lambda: _open(api, proposal, text),
            lambda failure: _error(f"could not open a pull request in {claim.model}", failure),
        )


def check_readable(proposal: Proposal, *, private: bool) -> None:
    """Refuse a public result whose dataset is private.

    Args:
        proposal: From `propose`.
        private: Whether the dataset is or will be private.

    Raises:
        UsageError: the model is public and the dataset is private.
    """
    if private and not proposal.model_is_private:
        raise UsageError(
            f"{proposal.claim.model} is public, so its readers must be able to see the rollouts of a result",
            remedy="add {public}; an existing private dataset must be made public in its settings",
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
        commit_description=redactor.text(
            f"One file in `{FOLDER}/`: the result of a run with bench-harness. Its source is a dataset with every "
            "rollout, how it was scored, and how to repeat it. The model was requested as "
            f"`{proposal.run.read_manifest().model.replace('`', ' ')}`."
        ),
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
    """Return the number of the user's open pull request with this title; None if there is no such pull request."""
    mine = api.get_repo_discussions(model, author=me, discussion_type="pull_request", discussion_status="open")
    for request in islice(mine, _MOST_REQUESTS):
        if request.title == title and request.is_pull_request and request.author == me:
            return request.num
    return None


def _tasks_text(api: HfApi, claim: Claim, token: str) -> str:
    from huggingface_hub import hf_hub_url

    url = hf_hub_url(claim.benchmark, TASKS_FILE, repo_type="dataset", endpoint=api.endpoint)
    content = fetch(url, token, f"{TASKS_FILE} of {claim.benchmark}", TASKS_BYTES)
    if content is None:
        raise StoreError(
            f"{claim.benchmark} is not a benchmark: it has no {TASKS_FILE}, so no leaderboard would show the result"
        )
    return content.decode("utf-8", "replace")


def _error(what: str, failure: HubFailure, *more: str) -> PublishError:
    parts = [f"{what}: {failure.cause.rstrip('.')}.", failure.advice, *more]
    return PublishError(redactor.text(" ".join(part for part in parts if part)))


_OUTCOMES = {
    "opened": "pull request opened",
    "updated": "open pull request updated",
    "unchanged": "pull request already open",
    "merged": "result already merged",
}


def leaderboard(  # noqa: PLR0913 - the options are its parameters
    *,
    model_repo: Annotated[
        str | None,
        typer.Option(
            "--eval-results", metavar="MODEL_REPO", help="Propose the result to this model, by a pull request."
        ),
    ] = None,
    benchmark: Annotated[
        str | None, typer.Option("--benchmark", metavar="ID", help="The benchmark: its dataset on the Hub.")
    ] = None,
    task: Annotated[
        str | None, typer.Option("--task", metavar="ID", help="The benchmark's task. [the only one]")
    ] = None,
    revision: Annotated[
        str | None, typer.Option("--revision", metavar="COMMIT", help="The benchmark's commit, if you know it.")
    ] = None,
    notes: Annotated[
        str, typer.Option("--notes", metavar="TEXT", help="Text at the beginning of the result's notes.")
    ] = "",
    fraction: Annotated[
        bool, typer.Option("--fraction", help="Report the mean as a fraction, not in percent.")
    ] = False,
    subset: Annotated[bool, typer.Option("--subset", help="Accept a run of a part of the benchmark.")] = False,
    print_only: Annotated[bool, typer.Option("--print", help="Print the result and send nothing.")] = False,
) -> Callable[..., None] | None:
    """Return a function that proposes the result of a run to the Hub; None if --eval-results is not given.

    Raises:
        UsageError: an option is missing, or a name is not valid on the Hub.
    """
    claim = Claim(model_repo or "", benchmark or "", task, revision, fraction=fraction, subset=subset, notes=notes)
    if model_repo is None:
        if lonely := [*_options(claim), *["--print"] * print_only]:
            raise UsageError(f"{lonely[0]} requires --eval-results with the model's repository")
        return None
    if not claim.benchmark:
        raise UsageError("--eval-results: name the benchmark by its dataset on the Hub, as in --benchmark openai/gsm8k")
    check_claim(claim)
    return partial(_publish, claim=claim, print_only=print_only)


def _publish(push: Push, claim: Claim, *, print_only: bool) -> None:
    """Push the run, then open a pull request that refers to it; or print the document and send nothing."""
    if len(push.folders) > 1:
        raise UsageError(f"--eval-results publishes the result of a single run, but {len(push.folders)} runs are given")
    [folder] = push.folders
    proposal = propose(RunDir(folder.resolve()), claim, notice=partial(typer.echo, err=True))
    check_readable(proposal, private=not push.public)
    if print_only:
        manifest = proposal.run.read_manifest()
        name = push.repo or default_name(manifest.env_id, manifest.model)
        text = proposal.text(name if "/" in name else f"{proposal.me}/{name}")
        if push.as_json:
            typer.echo(json.dumps({"model": claim.model, "file": proposal.path, "text": text}))
        else:
            typer.echo(f"# {proposal.path} in {claim.model}\n{text}", nl=False)
        typer.echo("nothing was sent; without --print this command opens a pull request", err=True)
        return
    words = shlex.join(["--eval-results", claim.model, *_options(claim)])
    try:
        result = push.send(folder)
    except PublishError as error:
        raise PublishError(
            f"{error} {words}"
        ) from error  # the message contains the command with which the user can retry
    check_readable(proposal, private=result.private)
    try:
        opened = open_request(proposal, result.repo)
    except PublishError as error:
        again = shlex.join(["bench", "push", str(folder), "--repo", result.repo, *(["--public"] * push.public)])
        allowed = " --allow-private" if proposal.run.read_manifest().is_private else ""
        raise PublishError(
            f"{error} The dataset has been pushed: {result.url}. Try again with: {again}{allowed} {words}"
        ) from error
    if push.as_json:
        request = {"pull_request": opened.url, "file": opened.path, "how": opened.how}
        typer.echo(json.dumps({**dataclasses.asdict(result), "eval_results": request}))
    else:
        typer.echo(f"{opened.url} ({_OUTCOMES[opened.how]})")


def _options(claim: Claim) -> list[str]:
    """Return the command-line options that describe a result, except the model's name."""
    values = {"benchmark": claim.benchmark, "task": claim.task, "revision": claim.revision, "notes": claim.notes}
    words = [word for name, value in values.items() if value for word in (f"--{name}", value)]
    return words + ["--fraction"] * claim.fraction + ["--subset"] * claim.subset
