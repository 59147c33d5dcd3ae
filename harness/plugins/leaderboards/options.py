"""Options of `bench push` for results on leaderboards of the Hub."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from harness.core.errors import PublishError, UsageError
from harness.plugins.leaderboards.document import Claim, check_claim
from harness.plugins.leaderboards.pull_request import check_readable, open_request, propose
from harness.store.hub_names import default_name
from harness.store.rundir import RunDir

if TYPE_CHECKING:
    from harness.cli.push import Push


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
