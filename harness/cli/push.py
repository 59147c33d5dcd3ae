"""Implement `bench push RUN…`: publish saved runs. `store.hub` uploads datasets, `store.hub_results` opens pull
requests."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from harness.core.errors import HarnessError, PublishError, RunLocked, StoreError, UsageError

if TYPE_CHECKING:
    from harness.store.eval_results import Claim
    from harness.store.hub import PushResult
    from harness.store.hub_results import Opened, Proposal

RUN_HELP = "The run: its folder, its id, the beginning of exactly one id, or `latest`."

RUNS_HELP = (
    "Runs: each its folder, its id, the beginning of exactly one id, or `latest`; or a suite, by its id or file."
)


@dataclass(frozen=True, slots=True)
class _Where:
    """Options that apply to all runs of a push."""

    repo: str | None
    public: bool


Runs: TypeAlias = Annotated[list[str], typer.Argument(metavar="RUN|SUITE...", help=RUNS_HELP)]
Repo: TypeAlias = Annotated[
    str | None,
    typer.Option("--repo", metavar="NAME", help="NAME or NAMESPACE/NAME, of all runs. [ENV_MODEL, for each]"),
]
Public: TypeAlias = Annotated[bool, typer.Option("--public", help="Create it public; without it, private.")]
OutputDir: TypeAlias = Annotated[
    Path, typer.Option("--output-dir", "-o", metavar="DIR", help="Where the runs are. [outputs]", show_default=False)
]
AllowPrivate: TypeAlias = Annotated[
    bool, typer.Option("--allow-private", help="Upload also a run that was made with --private.")
]
ModelRepo: TypeAlias = Annotated[
    str | None,
    typer.Option("--eval-results", metavar="MODEL_REPO", help="Propose the result to this model, by a pull request."),
]
Benchmark: TypeAlias = Annotated[
    str | None, typer.Option("--benchmark", metavar="ID", help="The dataset on the Hub that it is a result of.")
]
Task: TypeAlias = Annotated[
    str | None, typer.Option("--task", metavar="ID", help="The benchmark's task. [the only one]")
]
Revision: TypeAlias = Annotated[
    str | None, typer.Option("--revision", metavar="COMMIT", help="The benchmark's commit, if you know it.")
]
Notes: TypeAlias = Annotated[str, typer.Option("--notes", metavar="TEXT", help="What the result's notes begin with.")]
Fraction: TypeAlias = Annotated[bool, typer.Option("--fraction", help="Give the mean as it is, and not in percent.")]
Subset: TypeAlias = Annotated[bool, typer.Option("--subset", help="Take a part of the benchmark for a result, too.")]
PrintOnly: TypeAlias = Annotated[bool, typer.Option("--print", help="Print the result, and send nothing.")]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print what was done as JSON on stdout.")]


def push(  # noqa: PLR0913 - a command's options are its parameters
    runs: Runs,
    repo: Repo = None,
    public: Public = False,
    output_dir: OutputDir = Path("outputs"),
    allow_private: AllowPrivate = False,
    model_repo: ModelRepo = None,
    benchmark: Benchmark = None,
    task: Task = None,
    revision: Revision = None,
    notes: Notes = "",
    fraction: Fraction = False,
    subset: Subset = False,
    print_only: PrintOnly = False,
    as_json: AsJson = False,
) -> None:
    """Upload datasets of runs to the Hugging Face Hub, and propose their results to models.

    One commit holds a run's parquet and the repository's card with the run merged in; the journal stays here.
    Pushing a run again replaces its files. Needs a token with write access: HF_TOKEN or `hf auth login`.

    With --eval-results, a pull request puts the result where the Hub's leaderboards look for it, with the pushed
    dataset as its source.
    """
    from harness.store.eval_results import Claim
    from harness.store.hub_names import check_repo
    from harness.store.suites import choose

    if repo is not None:
        check_repo(repo)
    given = Claim(model_repo or "", benchmark or "", task, revision, fraction=fraction, subset=subset, notes=notes)
    claim = _claim(given, is_asked=model_repo is not None, print_only=print_only)
    chosen = choose(output_dir, runs)
    _check(chosen.paths, chosen.gone, claim, allow_private=allow_private)
    where = _Where(repo, public)
    if claim is None:
        _push_all(chosen.paths, where, as_json=as_json)
    elif print_only:
        _print(chosen.paths[0], where, claim, as_json=as_json)
    else:
        _propose(chosen.paths[0], where, claim, as_json=as_json)


def _claim(given: Claim, *, is_asked: bool, print_only: bool) -> Claim | None:
    """Validate the claimed benchmark result; None without --eval-results."""
    from harness.store.eval_results import check_claim

    if not is_asked:
        if lonely := [*_about(given), *["--print"] * print_only]:
            raise UsageError(f"{lonely[0]} is about a result: name the model's repository with --eval-results")
        return None
    if not given.benchmark:
        raise UsageError(
            "--eval-results: say which benchmark the run is a result of, as the Hub calls its dataset: --benchmark "
            "openai/gsm8k"
        )
    check_claim(given)
    return given


def _check(folders: Sequence[Path], gone: Sequence[str], claim: Claim | None, *, allow_private: bool) -> None:
    """Reject missing or private runs before anything is sent."""
    from harness.report.text import clean
    from harness.store.rundir import RunDir

    for each in gone:
        typer.echo(f"note: not pushed: {clean(each, 1000)}: of a suite, and not there any more", err=True)
    for folder in folders:
        if not allow_private and RunDir(folder).read_manifest().is_private:
            raise UsageError(
                f"{folder} was made with --private, and a repository is read by others than you: its other members, or "
                "everybody if it is public. To upload it all the same, add --allow-private"
            )
    if claim is not None and len(folders) > 1:
        raise UsageError(f"--eval-results: {len(folders)} runs are named, and a result is of one run and one benchmark")


def _push_all(folders: Sequence[Path], where: _Where, *, as_json: bool) -> None:
    """Push every run; continue with the others if one fails."""
    if len(folders) == 1:
        result = _push(folders[0], where)
        if as_json:
            _print_json(dataclasses.asdict(result))
        else:
            _tell(result, where)
        return
    done: list[PushResult] = []
    for folder in folders:
        try:
            done.append(_push(folder, where))
        except HarnessError as error:
            typer.echo(f"error: {_clean(str(error))}", err=True)
        else:
            if not as_json:
                _tell(done[-1], where)
    if as_json:
        _print_json([dataclasses.asdict(result) for result in done])
    if len(done) < len(folders):
        typer.echo(f"{len(done)} of {len(folders)} runs are on the Hub", err=True)
        raise typer.Exit(1)


def _push(folder: Path, where: _Where) -> PushResult:
    from harness.store.hub import push_run

    with _still(folder):
        return push_run(folder, repo=where.repo, public=where.public, notice=_notice)


def _print(folder: Path, where: _Where, claim: Claim, *, as_json: bool) -> None:
    """Print the proposed document on stdout without sending it."""
    from harness.store.hub_names import default_name
    from harness.store.hub_results import check_readable

    proposal = _look(folder, claim)
    check_readable(proposal, private=not where.public)
    manifest = proposal.run.read_manifest()
    name = where.repo or default_name(manifest.env_id, manifest.model)
    text = proposal.text(name if "/" in name else f"{proposal.me}/{name}")
    if as_json:
        _print_json({"model": claim.model, "file": proposal.path, "text": text})
    else:
        typer.echo(f"# {proposal.path} in {claim.model}\n{text}", nl=False)
    typer.echo("nothing was sent: without --print this opens a pull request", err=True)


def _propose(folder: Path, where: _Where, claim: Claim, *, as_json: bool) -> None:
    """Push the run, then open a pull request that refers to it."""
    from harness.store.hub_results import check_readable, open_request

    words = _words(claim)
    proposal = _look(folder, claim)
    check_readable(proposal, private=not where.public)
    try:
        result = _push(folder, where)
    except PublishError as error:
        raise PublishError(f"{error} {words}") from error  # the error ends in the command that retries
    if not as_json:
        _tell(result, where)
    check_readable(proposal, private=result.private)
    try:
        opened = open_request(proposal, result.repo)
    except PublishError as error:
        again = shlex.join(["bench", "push", str(folder), "--repo", result.repo, *(["--public"] * where.public)])
        allowed = " --allow-private" if proposal.run.read_manifest().is_private else ""
        raise PublishError(
            f"{error} The dataset is pushed: {result.url}. Try again with: {again}{allowed} {words}"
        ) from error
    if as_json:
        told = {"pull_request": opened.url, "file": opened.path, "how": opened.how}
        _print_json({**dataclasses.asdict(result), "eval_results": told})
    else:
        _tell_opened(opened)


def _look(folder: Path, claim: Claim) -> Proposal:
    from harness.store.hub_results import propose
    from harness.store.rundir import RunDir

    return propose(RunDir(folder.resolve()), claim, notice=_notice)


def _words(claim: Claim) -> str:
    """Format a claim as command-line options."""
    return shlex.join(["--eval-results", claim.model, *_about(claim)])


def _about(claim: Claim) -> list[str]:
    """Options of a claim, except the model's name."""
    told = [("--benchmark", claim.benchmark), ("--task", claim.task), ("--revision", claim.revision)]
    told.append(("--notes", claim.notes))
    words = [word for flag, value in told if value for word in (flag, value)]
    return words + ["--fraction"] * claim.fraction + ["--subset"] * claim.subset


def _tell(result: PushResult, where: _Where) -> None:
    typer.echo(f"{result.url} ({'private' if result.private else 'public'}, commit {result.commit[:8]})")
    if where.public and result.private:
        typer.echo("note: the repository is a private one and stays so; --public is for a new one", err=True)
    typer.echo(f'Load it: datasets.load_dataset("{result.repo}", "{result.config}", split="train")', err=True)


def _tell_opened(opened: Opened) -> None:
    words = {
        "opened": "pull request opened",
        "updated": "open pull request changed",
        "unchanged": "pull request open already",
        "merged": "result merged already",
    }
    typer.echo(f"{opened.url} ({words[opened.how]})")


def _notice(line: str) -> None:
    typer.echo(line, err=True)


def _clean(text: str) -> str:
    from harness.report.text import clean_block

    return clean_block(text)


def _print_json(value: object) -> None:
    import json

    typer.echo(json.dumps(value))


@contextmanager
def _still(folder: Path) -> Generator[None]:
    """Lock a run for the length of the block, so that no process writes it.

    Raises:
        RunLocked: another process is writing the run.
    """
    from harness.store.rundir import RunDir

    with ExitStack() as held:
        try:
            held.enter_context(RunDir(folder).lock())
        except RunLocked:
            raise
        except StoreError:
            pass  # a read-only archive needs no lock
        yield
