"""Implement `bench items`: statistics of examples over the models of many runs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import cast

from harness.cli.grouped import flag, output_dir_flag, positional
from harness.cli.output import write_result, write_text
from harness.core.errors import UsageError
from harness.plugins.archive.items_table import ItemTable, subset_for
from harness.plugins.archive.items_view import item_lines, items_csv, items_json, suite_text
from harness.plugins.archive.scores import Skipped, entries_of, measure_of, read_scores, without_parents
from harness.report import numerals
from harness.report.text import clean
from harness.store.atomic import atomic_write
from harness.store.catalogue import Filter, ListedRun
from harness.store.find_runs import all_runs, choose
from harness.store.manifest import Manifest
from harness.store.values import table

RUNS_HELP = "Runs or suites: each an id, the beginning of exactly one id, a path, or latest. [all runs]"
ENV_HELP = "Only runs of this environment: part of its id or of the run's name."
SUBSET_HELP = "Number of examples of the subset, or auto: the smallest that is good enough. [auto]"
WRITE_HELP = "Write a suite file that runs the subset, for bench run."
TOP = 10


def items(  # noqa: PLR0913 - a command's options are its parameters
    runs: list[str] | None = positional("RUN|SUITE", RUNS_HELP),
    env: str | None = flag("--env TEXT", ENV_HELP),
    metric: str | None = flag("--metric NAME", "Use this metric. [the reward]"),
    top: int = flag("--top N", "Examples in each list.", TOP, min=0),
    size: str = flag("--subset N|auto", SUBSET_HELP, "auto"),
    target: Path | None = flag("--write FILE", WRITE_HELP),
    as_csv: bool = flag("--csv", "Print all examples as CSV on stdout.", False),
    as_json: bool = flag("--json", "Print it all as JSON on stdout.", False),
    output_dir: Path = output_dir_flag(),
) -> None:
    """Judge the examples of an environment by the runs of several models.

    Shows how hard each example is and how well it tells strong from weak models, which examples no model or every model
    solves, which are flaky or probably have a wrong label, and the smallest subset that ranks the models as all
    examples do. Runs of one model are pooled.
    """
    if as_csv and as_json:
        raise UsageError("--csv and --json are mutually exclusive")
    if size != "auto" and not (size.isdecimal() and 0 < int(size) < 10**9):
        raise UsageError(f"--subset {size}: give a number of examples, or auto")
    if target is not None and target.suffix != ".toml":
        raise UsageError(f"--write {target}: a suite file ends in .toml")
    skipped = Skipped()
    entries = _chosen(runs or [], env, output_dir, skipped)
    measure = measure_of(entries, metric)
    found = ItemTable([read_scores(entry, measure) for entry in entries], measure)
    if not found.keys:
        raise UsageError(f"none of these runs has a score of {measure}; try bench runs -o {output_dir}")
    notes = [*skipped.notes, *_remarks(found)]
    subset = subset_for(found, None if size == "auto" else int(size))
    if target is not None:
        private = any(run.manifest.is_private for run in found.runs)
        atomic_write(target, suite_text(found, subset), private=private)
        notes.append(f"wrote {target}; run it with: bench run {target} -m MODEL")
    if as_csv:
        write_text(items_csv(found, subset))
        return
    lines = partial(item_lines, found, subset, notes, top)
    write_result(lines, items_json(found, subset, notes) if as_json else None, as_json=as_json)


def _chosen(names: list[str], env: str | None, output_dir: Path, skipped: Skipped) -> list[ListedRun]:
    """The runs, oldest first, all of one environment.

    Raises:
        UsageError: no run matches, or the runs are of several environments.
    """
    paths = choose(output_dir, names).runs if names else all_runs(output_dir)
    entries = entries_of(paths, Filter(envs=(env,) if env else ()), skipped)
    entries = without_parents([each for each in entries if each.env_id == env] or entries, skipped)
    if not entries:
        raise UsageError(f"no runs{f' of {env}' if env else ''} in {output_dir}; name the output folder with -o")
    environments = sorted({each.env_id for each in entries})
    if len(environments) > 1:
        listed = ", ".join(clean(each, 100) for each in environments[:8])
        raise UsageError(f"the runs are of {len(environments)} environments; choose one with --env: {listed}")
    return sorted(entries, key=lambda each: (str(each.created), each.id))


def _remarks(found: ItemTable) -> list[str]:
    """Sentences about scores that are missing or should perhaps not be pooled."""
    notes: list[str] = []
    pooled = [model for model in found.models if sum(run.manifest.model == model for run in found.runs) > 1]
    if pooled:
        notes.append(
            f"the runs of one model are pooled: {numerals.counted(len(pooled), 'model has', 'models have')} several"
        )
    ways = {
        model: {str(_sampling(run.manifest)) for run in found.runs if run.manifest.model == model} for model in pooled
    }
    if differing := [clean(model, 80) for model, each in ways.items() if len(each) > 1]:
        notes.append(f"runs with different sampling arguments are pooled: {', '.join(differing[:3])}")
    sources = {str(table(run.manifest.identity.get("env")).get("source")) for run in found.runs}
    if len(sources) > 1:
        notes.append(f"the runs are of {len(sources)} versions of the environment's source")
    missing = int((found.counts == 0).sum())
    if missing:
        cells = found.counts.size
        notes.append(f"{numerals.count(missing)} of {numerals.count(cells)} cells (model × example) have no score")
    if unscored := sum(run.unscored for run in found.runs):
        notes.append(f"{numerals.counted(unscored, 'rollout has', 'rollouts have')} no score, and no part in this")
    if running := [run.entry.id for run in found.runs if run.entry.state == "running"]:
        notes.append(f"in progress: {', '.join(running[:3])}")
    return notes


def _sampling(manifest: Manifest) -> object:
    return cast("dict[str, object]", table(manifest.identity.get("model"))).get("sampling_args")
