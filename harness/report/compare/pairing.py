"""Choice of runs to compare, from names of runs and suites. Reads manifests, not results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.core.errors import UsageError
from harness.report.text import clean
from harness.store.find_runs import choose
from harness.store.manifest import Manifest
from harness.store.rundir import RunDir

NEWEST = "the newest invocation"


@dataclass(frozen=True, slots=True)
class Member:
    """A named run with its manifest."""

    run: RunDir
    manifest: Manifest

    @property
    def name(self) -> str:
        """Name of the run in its suite."""
        return self.manifest.name or self.manifest.env_id


@dataclass(frozen=True, slots=True)
class Pair:
    """A candidate and its baseline."""

    name: str
    """Name of the comparison."""
    candidate: RunDir
    baseline: RunDir
    column: str
    """Label shared by the candidates of all environments: the model, or the suite."""


def pairs_of(names: Sequence[str], output_dir: Path) -> tuple[list[Pair], list[str]]:
    """Choose the pairs to compare.

    Several runs are each compared with the first. With suites, runs of the same name are compared; if one side has
    several of a name, those of the same model. Within a single suite, each run is compared with the first of its name
    or environment.

    Args:
        names: Names of runs and suites; the first is the baseline. Empty: the newest invocation.
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
        runs = [RunDir(path) for path in chosen.paths]
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


def _pair(name: str, candidate: Member, baseline: Member, column: str) -> Pair:
    is_same = candidate.run.path.resolve() == baseline.run.path.resolve()
    if is_same or candidate.manifest.id == baseline.manifest.id:
        raise UsageError(f"{candidate.run.path} would be compared with itself; give another run")
    return Pair(name, candidate.run, baseline.run, column)


def _within(members: Sequence[Member], pairs: list[Pair], unmatched: list[str]) -> None:
    """Pair the runs of one suite."""
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
    """Pair the runs of two suites."""
    ours, theirs = (_grouped(each, lambda member: member.name) for each in (members, baselines))
    for name, group in ours.items():
        if name not in theirs:
            unmatched.append(f"{clean(name)} of {clean(given[0])} is not in {clean(given[1])}.")
            continue
        pairs += _of_one_name(name, group, theirs[name], given, unmatched)
    missing = [name for name in theirs if name not in ours]
    unmatched += [f"{clean(name)} of {clean(given[1])} is not in {clean(given[0])}." for name in missing]


def _of_one_name(
    name: str, group: Sequence[Member], baselines: Sequence[Member], given: tuple[str, str], unmatched: list[str]
) -> Iterator[Pair]:
    if len(baselines) == 1:
        for each in group:
            yield _pair(name, each, baselines[0], given[0] if len(group) == 1 else f"{given[0]} {each.manifest.model}")
        return
    by_model = {each.manifest.model: each for each in baselines}
    if len(by_model) < len(baselines):
        raise UsageError(
            f"{clean(name)} of {clean(given[1])} has several runs of one model: name the runs that are to be compared"
        )
    met = {each.manifest.model for each in group}
    for each in group:
        model = each.manifest.model
        if model in by_model:
            yield _pair(name, each, by_model[model], f"{given[0]} {model}")
        else:
            unmatched.append(f"{clean(name)} of {clean(given[0])}: {clean(given[1])} has no run of {clean(model)}.")
    unmatched += [
        f"{clean(name)} of {clean(given[1])}: {clean(given[0])} has no run of {clean(model)}."
        for model in by_model
        if model not in met
    ]


def _grouped(members: Sequence[Member], key: Callable[[Member], str]) -> Mapping[str, list[Member]]:
    groups: dict[str, list[Member]] = {}
    for each in members:
        groups.setdefault(key(each), []).append(each)
    return groups
