"""Data of one run's page: entry, journal digest, related runs, settings, next steps; and their JSON form."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from harness.core.errors import StoreError
from harness.core.types import JsonDict, Usage
from harness.report.changes import Changes, compare, marks_of
from harness.report.run_digest import Digest, digest
from harness.report.runs import budget_flags, has_rows, next_steps, resume_hint
from harness.report.text import clean
from harness.store.catalogue import UNFINISHED, Catalogue, ListedRun, read_entry
from harness.store.clusters import clusters_of
from harness.store.codec import to_text
from harness.store.manifest import Manifest
from harness.store.outcomes import read_journal
from harness.store.rundir import RunDir
from harness.store.score_table import tally
from harness.store.values import table

BUILT_IN = "builtin"
"""Name of the source of settings that have their default value."""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """All data about a run that its page shows."""

    entry: ListedRun
    name: str
    """Name by which commands accept the run."""
    digest: Digest | None
    """Summary and failures from the journal; None if the journal cannot be read, as `problems` then explains."""
    problems: tuple[str, ...] = ()
    parent: ListedRun | None = None
    """The run that was rescored or replayed to make this run, if it still exists."""
    children: Sequence[ListedRun] = ()
    siblings: Sequence[ListedRun] = ()
    """Other existing runs of the same invocation."""
    changes: Changes | None = None
    """Comparison of the run with its parent; None without a parent, or if either cannot be read."""
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    """Sizes of the run's files in bytes, by kind."""


def facts_of(path: Path, name: str, *, pass_k: Sequence[int] = (), cluster: str | None = None) -> RunFacts:
    """Read a run and its related runs for the run's page.

    Args:
        path: The run's folder.
        name: Name of the run for commands.
        pass_k: Numbers of attempts for pass@k; empty for those of the run's settings.
        cluster: Key of the examples' clusters; "" for no clusters, None for those that the run declares.

    Raises:
        UsageError: no example has the given key.
    """
    entry = read_entry(path)
    found, problems = None, list[str]()
    if entry.manifest is not None:
        try:
            if cluster:
                clusters_of(read_journal(entry.run), cluster, f"--cluster {cluster}")
            manifest = entry.manifest if cluster is None else replace(entry.manifest, cluster_key=cluster)
            found = digest(entry.run, manifest, entry.final, pass_k)
        except StoreError as error:
            problems.append(str(error))
    parent, children, siblings = _relatives(entry)
    changes, ours = None, entry.manifest
    if ours is not None and found is not None and parent is not None and parent.manifest is not None:
        ranges = parent.manifest.reward_range, ours.reward_range
        with contextlib.suppress(StoreError):
            before, after = (marks_of(read_journal(run)) for run in (parent.run, entry.run))
            changes = compare(before, after, paired=bool(ours.derived.get("model")), ranges=ranges)
    return RunFacts(entry, name, found, tuple(problems), parent, children, siblings, changes, sizes_of(entry.run))


def _relatives(entry: ListedRun) -> tuple[ListedRun | None, list[ListedRun], list[ListedRun]]:
    """Existing related runs: parent, children, and other runs of the invocation."""
    manifest, home = entry.manifest, home_of(entry.run)
    if manifest is None or home is None:
        return None, [], []
    known: list[tuple[ListedRun, Manifest]] = []
    with contextlib.suppress(StoreError):
        known = [(each, each.manifest) for each in Catalogue(home) if each.manifest is not None and each.id != entry.id]
    parent = next((each for each, _ in known if each.id == manifest.parent), None)
    children = [each for each, theirs in known if theirs.parent == entry.id]
    together = [each for each, theirs in known if manifest.suite and theirs.suite == manifest.suite]
    return parent, children, together


def home_of(run: RunDir) -> Path | None:
    """Output folder that contains a run; None if the run is elsewhere."""
    root = run.path.absolute().parent.parent
    return root.parent if root.name == "evals" else None


def spent_on(entry: ListedRun) -> tuple[int | None, Usage | None]:
    """Number of rollouts of a run, and the usage of its model and judges. None if unknown."""
    if (summary := entry.final) is not None:
        rollouts = summary.get("num_rollouts")
        parts = [read_usage(summary.get(name)) for name in ("usage", "judge_usage")]
        known = [part for part in parts if part is not None]
        return rollouts if isinstance(rollouts, int) else None, sum(known, start=Usage()) if known else None
    try:
        table = tally(read_journal(entry.run))
    except StoreError:
        return None, None
    return len(table), table.usage() + (table.judged() or Usage())


def read_usage(table: object) -> Usage | None:
    """Parse usage from `summary.json`, where null is unknown."""
    if not isinstance(table, dict):
        return None
    names, known = {each.name for each in dataclasses.fields(Usage)}, cast(JsonDict, table)
    return Usage(**{name: value for name, value in known.items() if name in names and value is not None})


def sizes_of(run: RunDir) -> dict[str, int]:
    """Sizes of a run's files in bytes, by kind of file."""
    sizes = {"journal.jsonl": 0, "data/": 0, "others": 0}
    for folder, _, names in os.walk(run.path):
        for name in names:
            place = "data/" if Path(folder) == run.data_path else name if name in sizes else "others"
            try:
                sizes[place] += os.lstat(os.path.join(folder, name)).st_size
            except OSError:
                continue  # replaced meanwhile by a running run
    return {name: size for name, size in sizes.items() if size}


def settings_of(manifest: Manifest) -> tuple[list[tuple[str, str, str]], list[tuple[str, str, str]]]:
    """(path, value, source) of each setting: first those that differ from the default, then the others. The entries of
    a table are listed one by one."""
    settings = manifest.settings
    above = {path.rpartition(".")[0] for path in settings}
    chosen, rest = list[tuple[str, str, str]](), list[tuple[str, str, str]]()
    for path, value in settings.items():
        if path in above and isinstance(value, dict) and value:
            continue
        origin = table(manifest.origins.get(path))
        shown = "none" if value is None else value if isinstance(value, str) else to_text(cast(object, value))
        row = (path, shown or "–", str(origin.get("source", "unknown")))
        (rest if origin.get("origin") == BUILT_IN else chosen).append(row)
    return chosen, rest


def commit_of(manifest: Manifest) -> str:
    """Commit of the code that made a run, and whether it had local changes; "" if unknown."""
    commit = manifest.git.get("commit")
    return f"{commit}{', with local changes' if manifest.git.get('dirty') else ''}" if commit else ""


def settings_json(manifest: Manifest) -> JsonDict:
    """All settings with their origins, as `{path: {value, origin, source}}`."""
    origins = {path: table(manifest.origins.get(path)) for path in manifest.settings}
    return {
        path: {"value": value, "origin": origins[path].get("origin"), "source": origins[path].get("source")}
        for path, value in manifest.settings.items()
    }


def facts_json(facts: RunFacts) -> JsonDict:
    """The data about a run as JSON; the keys are documented in docs/reference/runs.md."""
    found, manifest = facts.digest, facts.entry.manifest
    return {
        "run": facts.entry.to_json(),
        "settings": {} if manifest is None else settings_json(manifest),
        "versions": {} if manifest is None else manifest.versions,
        "git": {} if manifest is None else manifest.git,
        "summary": None if found is None or found.summary is None else found.summary.to_json(),
        "functions": {} if found is None else {name: each.to_json() for name, each in found.functions.items()},
        "waiting": None if found is None else found.waiting,
        "troubles": [] if found is None else [trouble.to_json() for trouble in found.troubles],
        "worst": [] if found is None else [ranked.to_json() for ranked in found.worst],
        "best": [] if found is None else [ranked.to_json() for ranked in found.best],
        "changes": None if facts.changes is None else facts.changes.to_json(),
        "children": [child.id for child in facts.children],
        "siblings": [sibling.id for sibling in facts.siblings],
        "sizes": dict(facts.sizes),
        "problems": [*facts.entry.problems, *facts.problems],
        "next": list(steps_of(facts)),
    }


def steps_of(facts: RunFacts) -> tuple[str, ...]:
    """Suggested next steps for the run: each a purpose and a command."""
    entry, name = facts.entry, shlex.quote(facts.name)
    manifest, found = entry.manifest, facts.digest
    if manifest is None:
        return (f"remove: bench runs rm {name}",)
    steps: list[str] = []
    resumable = has_rows(manifest)
    unscored = sum(found.summary.unscored.values()) if found is not None and found.summary is not None else 0
    if entry.state in UNFINISHED and not manifest.is_imported:
        steps.append(f"go on: {resume_hint(entry, facts.name)}")
    elif entry.state == "done" and unscored and resumable:
        again = shlex.join(["bench", "resume", facts.name, "--retry-failed", *budget_flags(entry)])
        steps.append(f"try the unscored again: {again}")
    if found is not None and (found.worst or found.troubles):
        example = found.worst[0].shown.example.example_id if found.worst else found.troubles[0].places[0][0]
        steps.append(f"read one: bench runs show {name} --example {shlex.quote(clean(example, 200))}")
    if entry.state != "running" and found is not None and found.summary is not None:
        if entry.state == "done" and resumable:
            steps.append(f"score it again, with today's rubric: bench rescore {name}")
            steps.append(f"send the same prompts to another model: bench replay {name} --model MODEL")
        steps.append(f"export it: bench export {name} --format csv")
        to_publish = not manifest.is_private
        steps += map(str, next_steps(str(entry.run.path), has_data=entry.run.has_data(), to_publish=to_publish))
    return tuple(steps)


def size_text(size: float) -> str:
    """Format a number of bytes for people."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "B" or size >= 99.95 else f"{size:.1f} {unit}"
