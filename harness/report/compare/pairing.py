"""Choose the pairs of runs to compare, given names of runs and suites, and find an earlier run to compare a finished
run with. Reads manifests, not results."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.core.errors import StoreError, UsageError
from harness.report.text import clean
from harness.stats.intervals import ALPHA
from harness.store.catalogue import Filter, read_entry
from harness.store.find_runs import all_runs, choose, newest, runs_in
from harness.store.invocations import read_invocation, suite_files
from harness.store.manifest import Manifest
from harness.store.rundir import RunDir, safe_name
from harness.store.values import table

NEWEST = "the newest invocation"

LOOKED_AT = 20
"""Maximum number of earlier runs to read, newest first."""


@dataclass(frozen=True, slots=True)
class Member:
    """A run that can be compared, with its manifest."""

    run: RunDir
    manifest: Manifest

    @property
    def name(self) -> str:
        """Name of the run in its suite."""
        return self.manifest.name or self.manifest.env_id


@dataclass(frozen=True, slots=True)
class Pair:
    """Two runs to compare: a candidate and its baseline."""

    name: str
    """Name of the comparison."""
    candidate: RunDir
    baseline: RunDir
    column: str
    """Label of the candidate, the same in all environments: its model or its suite."""


def pairs_of(names: Sequence[str], output_dir: Path) -> tuple[list[Pair], list[str]]:
    """Choose the pairs of runs to compare.

    Given several runs, each is compared with the first. Given two suites, runs of the same name are compared; if
    several runs share a name, the model must also be the same. Given one suite, each run is compared with the first run
    of the same name or environment.

    Args:
        names: Names of runs and suites; the first is the baseline. If empty, the newest invocation is used.
        output_dir: Output folder in which to search.

    Returns:
        The pairs, and sentences about runs without a partner.

    Raises:
        UsageError: a name is unknown, a run would be compared with itself, or the pairs are ambiguous.
        StoreError: a run cannot be read.
    """
    pairs, unmatched = list[Pair](), list[str]()
    asked: list[list[Member]] = []
    for name in names or [NEWEST]:
        chosen = choose(output_dir, [name] if names else [])
        runs = [RunDir(path) for path in chosen.runs]
        asked.append([Member(run, run.read_manifest()) for run in runs])
        unmatched += [f"{clean(each)} of {clean(name)} could not be loaded." for each in chosen.failed]
        unmatched += [f"{clean(path)} of {clean(name)} no longer exists." for path in chosen.gone]
    if len(asked) == 1:
        _within(asked[0], pairs, unmatched)
    elif all(len(members) == 1 for members in asked):
        baseline = asked[0][0]
        for [candidate] in asked[1:]:
            pairs.append(_pair(baseline.name, candidate, baseline, candidate.manifest.model))
    else:
        for name, members in zip(names[1:], asked[1:], strict=True):
            _between(members, asked[0], (name, names[0]), pairs, unmatched)
        order = {member.name: place for place, member in reversed(list(enumerate(asked[0])))}
        pairs.sort(key=lambda pair: order[pair.name])
    if not pairs:
        why = "".join(f"{each} " for each in unmatched)
        raise UsageError(f"nothing to compare: {why}Name two runs, two suites, or a suite with several models")
    return pairs, unmatched


def measures_of(candidate: RunDir, baseline: RunDir) -> list[str]:
    """Return the metrics to compare in two runs: the reward or, for agent evaluations with several reward functions,
    each function that both runs have.

    Raises:
        UsageError: the runs have no function in common.
    """
    from harness.report.compare.sides import REWARD  # needed by comparisons only

    ours, theirs = candidate.read_manifest(), baseline.read_manifest()
    if not ours.functions and not theirs.functions:
        return [REWARD]
    common = [name for name in ours.metric_names if name in theirs.metric_names]
    if not common:
        told = (
            f"{each.path} ({', '.join(named.metric_names)})" for each, named in ((candidate, ours), (baseline, theirs))
        )
        raise UsageError(f"the runs have no eval function in common: {' and '.join(told)}")
    return common


def _pair(name: str, candidate: Member, baseline: Member, column: str) -> Pair:
    is_same = candidate.run.path.resolve() == baseline.run.path.resolve()
    if is_same or candidate.manifest.id == baseline.manifest.id:
        raise UsageError(f"{candidate.run.path} would be compared with itself; give another run")
    return Pair(name, candidate.run, baseline.run, column)


def _within(members: Sequence[Member], pairs: list[Pair], unmatched: list[str]) -> None:
    """Pair each run of a suite with the suite's first run of the same name or environment."""
    named = _grouped(members, lambda each: each.name)
    is_swept = all(len(group) == 1 for group in named.values())
    groups = _grouped(members, lambda each: each.manifest.env_id) if is_swept else named
    first = members[0].manifest.model
    for name, group in groups.items():
        baseline = next((each for each in group if each.manifest.model == first), group[0])
        others = [each for each in group if each is not baseline]
        if not others:
            unmatched.append(f"{clean(name)} has only one run.")
        pairs += [_pair(name, each, baseline, each.name if is_swept else each.manifest.model) for each in others]


def _between(
    members: Sequence[Member],
    baselines: Sequence[Member],
    given: tuple[str, str],
    pairs: list[Pair],
    unmatched: list[str],
) -> None:
    """Pair the runs of two suites by name and, if the second suite has several runs of that name, also by model."""
    first, second = map(clean, given)
    ours, theirs = (_grouped(each, lambda member: member.name) for each in (members, baselines))
    for name, group in ours.items():
        by_model = {each.manifest.model: each for each in theirs.get(name, ())}
        if not by_model:
            unmatched.append(f"{clean(name)} of {first} is not in {second}.")
        elif len(theirs[name]) == 1:
            columns = [given[0] if len(group) == 1 else f"{given[0]} {each.manifest.model}" for each in group]
            pairs += [_pair(name, each, theirs[name][0], words) for each, words in zip(group, columns, strict=True)]
        elif len(by_model) < len(theirs[name]):
            raise UsageError(f"{clean(name)} of {second} has several runs of one model: name the runs to compare")
        else:
            for each in group:
                model = each.manifest.model
                if model in by_model:
                    pairs.append(_pair(name, each, by_model[model], f"{given[0]} {model}"))
                else:
                    unmatched.append(f"{clean(name)} of {first}: {second} has no run of {clean(model)}.")
            missing = [model for model in by_model if model not in {each.manifest.model for each in group}]
            unmatched += [f"{clean(name)} of {second}: {first} has no run of {clean(model)}." for model in missing]
    unmatched += [f"{clean(name)} of {second} is not in {first}." for name in theirs if name not in ours]


def _grouped(members: Sequence[Member], key: Callable[[Member], str]) -> dict[str, list[Member]]:
    groups: dict[str, list[Member]] = {}
    for each in members:
        groups.setdefault(key(each), []).append(each)
    return groups


def finished_runs(output_dir: Path, environments: Sequence[str]) -> list[Path]:
    """Find the newest finished run of each model and environment, oldest first. Replays and rescored runs are left out,
    since they have the answers of another run.

    Args:
        output_dir: Output folder in which to search.
        environments: Names or patterns of environments, as in `catalogue.Filter`.

    Raises:
        UsageError: there is no such run.
        StoreError: the output folder cannot be read.
    """
    wanted, found = Filter(envs=environments, states=["done"]), dict[tuple[str, str, str], Path]()
    for path in all_runs(output_dir):
        entry = read_entry(path)
        manifest = entry.manifest
        if manifest is None or (manifest.derived and not manifest.is_imported) or not wanted.keeps(entry):
            continue
        of = manifest.env_id, manifest.name, manifest.model
        found.pop(of, None)  # so that the order is that of the newest
        found[of] = path
    if not found:
        raise UsageError(f"no finished run of {' or '.join(map(clean, environments))} under {output_dir / 'evals'}")
    return list(found.values())


def previous_run(folder: RunDir, manifest: Manifest) -> RunDir | None:
    """Return the newest earlier run that has the same examples but another model or sampling; None if not found.

    Args:
        folder: Folder of the finished run.
        manifest: Manifest of the finished run.
    """
    if manifest.derived or not _has_pairs(manifest):
        return None
    root, beginning = folder.parent.parent, f"{safe_name(manifest.env_id)}--"
    with contextlib.suppress(OSError):  # only a suggestion: errors are ignored
        found = [path for parent in root.glob("*") if parent.name.startswith(beginning) for path in runs_in(parent)]
        for path in reversed(newest(found, LOOKED_AT)):
            other = RunDir(path)
            if other.id == folder.id:
                continue
            with contextlib.suppress(StoreError):  # damaged, or written by a later version
                its = other.read_manifest()
                if its.status == "done" and not its.derived and _has_pairs(its) and _differs_in_model(manifest, its):
                    return other
    return None


def earlier_suite(output_dir: Path | str, suite: str) -> str | None:
    """Return the id of the newest earlier suite with other runs of the same names; None if no suite has them.

    Args:
        output_dir: Output folder of the suites.
        suite: Id of the finished suite.
    """
    with contextlib.suppress(KeyError, OSError, StoreError):  # only a suggestion: errors are ignored
        files = {file.stem: file for file in suite_files(output_dir)}
        mine = read_invocation(files[suite])
        names, ours = Counter(mine.names), {path.resolve() for path in mine.runs}
        before = [*itertools.takewhile(lambda stem: stem != suite, files)]
        for file in (files[stem] for stem in reversed(before[-LOOKED_AT:])):
            with contextlib.suppress(StoreError):
                other = read_invocation(file)
                is_whole = Counter(other.names) == names and len(other.runs) == len(other.names)
                # A resumed suite has the runs of an earlier one.
                if is_whole and ours.isdisjoint(path.resolve() for path in other.runs):
                    return other.id
    return None


def has_several_models(manifests: Sequence[Manifest]) -> bool:
    """Return whether an invocation ran several models on the same environment, so that they can be compared."""
    ran = {(each.name or each.env_id, each.model) for each in manifests}
    return len(ran) > len({name for name, _ in ran})


def _has_pairs(manifest: Manifest) -> bool:
    """Return whether a run has enough examples for a comparison to find a significant difference."""
    from harness.stats.paired import fewest_pairs  # needed only if there are earlier runs

    return manifest.planned.get("num_examples", 0) >= fewest_pairs(ALPHA)


def _differs_in_model(ours: Manifest, theirs: Manifest) -> bool:
    """Return whether two runs have the same examples and differ in the model."""

    def examples(manifest: Manifest) -> tuple[object, ...]:
        env = table(manifest.identity.get("env"))
        return (*(env.get(name) for name in ("env_id", "env_args", "extra_env_kwargs")), manifest.identity.get("order"))

    return examples(ours) == examples(theirs) and ours.identity.get("model") != theirs.identity.get("model")
