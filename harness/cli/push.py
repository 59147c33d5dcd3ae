"""`bench push RUN`: publish a run that is on disk. Owns the command's words and what it prints; `store.hub` does it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from harness.errors import RunLocked, StoreError

RUN_HELP = "The run: its folder, its id, the beginning of exactly one id, or `latest`."


def push(
    run: Annotated[str, typer.Argument(metavar="RUN", help=RUN_HELP)],
    repo: Annotated[
        str | None, typer.Option("--repo", metavar="NAME", help="NAME or NAMESPACE/NAME; by default ENV_MODEL.")
    ] = None,
    public: Annotated[
        bool, typer.Option("--public", help="Create the repository public; without it, private.")
    ] = False,
    output_dir: Annotated[Path, typer.Option("--output-dir", "-o", metavar="DIR", help="Where the runs are.")] = Path(
        "outputs"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")] = False,
) -> None:
    """Upload a run's dataset to the Hugging Face Hub.

    One commit holds the run's parquet and the repository's card with the run merged in; the journal stays here.
    Pushing a run again replaces its files. Needs a token with write access: HF_TOKEN or `hf auth login`.
    """
    from harness.store.finding import find_run
    from harness.store.hub import push_run
    from harness.store.hub_names import check_repo

    if repo is not None:
        check_repo(repo)
    folder = find_run(output_dir, run)
    with _still(folder):
        result = push_run(folder, repo=repo, public=public, notice=lambda line: typer.echo(line, err=True))
    if as_json:
        import dataclasses
        import json

        typer.echo(json.dumps(dataclasses.asdict(result)))
        return
    typer.echo(f"{result.url} ({'private' if result.private else 'public'}, commit {result.commit[:8]})")
    if public and result.private:
        typer.echo("note: the repository is a private one and stays so; --public is for a new one", err=True)
    typer.echo(f'Load it: datasets.load_dataset("{result.repo}", "{result.config}", split="train")', err=True)


@contextmanager
def _still(folder: Path) -> Generator[None]:
    """Keep the run from being written, and refuse one that is.

    Raises:
        RunLocked: another process writes it.
    """
    from harness.store.rundir import RunDir

    with ExitStack() as held:
        try:
            held.enter_context(RunDir(folder).lock())
        except RunLocked:
            raise
        except StoreError:
            pass  # an archive that nobody can write needs no lock
        yield
