"""Implement `bench push RUN…`: publish saved runs. `store.hub` uploads datasets; plugins of the group
`bench.leaderboards` publish results."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from harness.cli.grouped import flag, output_dir_flag, positional
from harness.cli.lazy_commands import add_plugin_options
from harness.core.errors import HarnessError, RunLocked, StoreError, UsageError

if TYPE_CHECKING:
    from harness.store.hub import PushResult

LEADERBOARDS = "bench.leaderboards"
"""Entry-point group of plugins. Each is a function whose parameters are options of `bench push`, as typer reads them.
It returns None, or a function that takes a `Push`, uploads its runs and publishes their results."""

RUNS_HELP = (
    "Runs: each its folder, its id, the beginning of exactly one id, or `latest`; or a suite, by its id or file."
)


@dataclass(frozen=True, slots=True)
class Push:
    """One call of `bench push`."""

    folders: Sequence[Path]
    repo: str | None
    public: bool
    as_json: bool

    def send(self, folder: Path) -> PushResult:
        """Upload a run, and print the result unless it is printed as JSON at the end.

        Raises:
            PublishError: the run could not be uploaded; the message ends with the command that retries.
        """
        from harness.store.hub import push_run

        with _locked(folder):
            result = push_run(folder, repo=self.repo, public=self.public, notice=_notice)
        if not self.as_json:
            typer.echo(f"{result.url} ({'private' if result.private else 'public'}, commit {result.commit[:8]})")
            if self.public and result.private:
                _notice("note: the existing repository stays private; --public applies only to a new repository")
            _notice(f'Load it: datasets.load_dataset("{result.repo}", "{result.config}", split="train")')
        return result


def push(
    runs: list[str] = positional("RUN|SUITE...", RUNS_HELP, ...),
    repo: str | None = flag("--repo NAME", "NAME or NAMESPACE/NAME, of all runs. [ENV_MODEL, for each]"),
    public: bool = flag("--public", "Create it public; without it, private.", False),
    output_dir: Path = output_dir_flag(),
    allow_private: bool = flag("--allow-private", "Upload also a run that was made with --private.", False),
    as_json: bool = flag("--json", "Print the result as JSON on stdout.", False),
    **leaderboard_options: Any,
) -> None:
    """Upload datasets of runs to the Hugging Face Hub, and propose their results to models.

    One commit has a run's Parquet file and the repository's card with the run added; the journal is not uploaded.
    Pushing a run again replaces its files. Needs a token with write access: HF_TOKEN or `hf auth login`.

    With --eval-results, a pull request puts the result where the Hub's leaderboards look for it, with the pushed
    dataset as its source.
    """
    from harness.store.find_runs import choose
    from harness.store.hub_names import check_repo

    if repo is not None:
        check_repo(repo)
    publish = _leaderboard(leaderboard_options)
    chosen = choose(output_dir, runs)
    _check(chosen.runs, chosen.gone, allow_private=allow_private)
    (publish or _push_all)(Push(chosen.runs, repo, public, as_json))


_leaderboard = add_plugin_options(push, LEADERBOARDS)


def _check(folders: Sequence[Path], gone: Sequence[str], *, allow_private: bool) -> None:
    """Reject private runs before anything is sent, and report missing ones."""
    from harness.report.text import clean
    from harness.store.rundir import RunDir

    for each in gone:
        _notice(f"note: not pushed: {clean(each, 1000)}: this run of the suite no longer exists")
    for folder in folders:
        if not allow_private and RunDir(folder).read_manifest().is_private:
            raise UsageError(
                f"{folder} was made with --private, but other people can read a repository: its members or, if it is "
                "public, everybody. To upload the run anyway, add --allow-private"
            )


def _push_all(push: Push) -> None:
    """Push every run; continue with the others if one fails."""
    from harness.report.text import clean_block

    if len(push.folders) == 1:
        result = push.send(push.folders[0])
        if push.as_json:
            _print_json(dataclasses.asdict(result))
        return
    done: list[PushResult] = []
    for folder in push.folders:
        try:
            done.append(push.send(folder))
        except HarnessError as error:
            _notice(f"error: {clean_block(str(error))}")
    if push.as_json:
        _print_json([dataclasses.asdict(result) for result in done])
    if len(done) < len(push.folders):
        _notice(f"{len(done)} of {len(push.folders)} runs are on the Hub")
        raise typer.Exit(1)


def _notice(line: str) -> None:
    typer.echo(line, err=True)


def _print_json(value: object) -> None:
    import json

    typer.echo(json.dumps(value))


@contextmanager
def _locked(folder: Path) -> Generator[None]:
    """Lock a run during the `with` block, so that no process writes it.

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
