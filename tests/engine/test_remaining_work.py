"""What a journal leaves to do, against a slow and obvious reading of the same lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from engine_parts import failed, generated, name_of
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from harness import Rubric, SingleTurnEnv
from harness.core.errors import ResumeRefused
from harness.core.records import Example, Failed, Item, Record, Scored
from harness.core.types import Usage
from harness.engine.plan import PlannedRollouts
from harness.engine.progress import RunProgress
from harness.engine.remaining_work import (
    COUNTED_AT_ONCE,
    RolloutGroup,
    Stage,
    Todo,
    Todos,
    Worklist,
    check_growth,
    outcomes,
)
from harness.settings.resolver import resolve
from harness.stats.target import Aim, StoppingRule
from harness.store.codec import encode
from harness.store.journal_index import Recorded

Event = Literal["G", "F", "S", "U"]
"""A line of a rollout: generated, failed, scored, unscored."""

PAID = Usage(10, 5, requests=1)


def spread(completions: list[object]) -> list[float]:
    return [1.0 for _ in completions]


def plan_of(examples: int, rollouts: int, *, grouped: bool = False, dataset: int | None = None) -> PlannedRollouts:
    rows = [{"question": f"question {index}", "answer": str(index)} for index in range(dataset or examples)]
    environment = SingleTurnEnv(dataset=rows, rubric=Rubric([spread]) if grouped else None)
    flags = {"model": "reference/oracle", "num_examples": examples, "rollouts_per_example": rollouts}
    return PlannedRollouts(environment, resolve("reverse-text", flags).runs[0], {"env": {}, "model": {}})


def line_of(item: Item, event: Event) -> Record:
    if event == "G":
        return generated(item, usage=PAID)
    if event == "F":
        return failed(item, "timeout")
    if event == "S":
        return Scored(item.key, "scored", 0.5, {"spread": 0.5}, {})
    return Scored(item.key, "unscored", None, {"spread": None}, {"spread": "raised X: y"})


def write(path: Path, plan: PlannedRollouts, events: Iterable[tuple[int, int, Event]]) -> Recorded:
    """A journal in which these things happened, in this order."""
    items = {item.example.index: plan.items(item.example) for each in plan.examples() for item in plan.items(each)[:1]}
    known: set[int] = set()
    with path.open("wb") as file:
        for index, rollout, event in events:
            if index not in known:
                known.add(index)
                file.write(encode(items[index][0].example))
            file.write(encode(line_of(items[index][rollout], event)))
    return Recorded.load(path)


@dataclass
class Work:
    """What a worklist hands out, by rollout name."""

    generate: list[str] = field(default_factory=list[str])
    score: list[str] = field(default_factory=list[str])
    introduced: list[str] = field(default_factory=list[str])
    groups: dict[int, RolloutGroup] = field(default_factory=dict[int, RolloutGroup])


def handed_out(todos: Iterable[Todo]) -> Work:
    work = Work()
    for todo in todos:
        name = name_of(todo.item)
        (work.generate if todo.recorded is None else work.score).append(name)
        if todo.recorded is not None:
            assert todo.recorded.key == todo.item.key
        if todo.introduce:
            work.introduced.append(name)
        if todo.group is not None:
            assert work.groups.setdefault(todo.item.example.index, todo.group) is todo.group
    return work


# A slow and obvious model


@dataclass
class Story:
    """All that happened to one rollout: its newest base line and the newest score after it, by line number."""

    base: int = -1
    kind: Event | None = None
    score: int = -1
    outcome: Event | None = None

    def status(self) -> str:
        if self.kind is None:
            return "none"
        if self.kind == "F":
            return "failed"
        return {None: "generated", "S": "scored", "U": "unscored"}[self.outcome]


def stories(events: Iterable[tuple[int, int, Event]]) -> dict[tuple[int, int], Story]:
    told: dict[tuple[int, int], Story] = {}
    for number, (index, rollout, event) in enumerate(events):
        story = told.setdefault((index, rollout), Story())
        if event in ("G", "F"):
            story.base, story.kind, story.score, story.outcome = number, event, -1, None
        else:
            story.score, story.outcome = number, event
    return told


@dataclass
class Expected:
    generate: set[str] = field(default_factory=set[str])
    score: set[str] = field(default_factory=set[str])
    later: set[str] = field(default_factory=set[str])
    """Scored in the second pass, after all generation."""
    left: set[str] = field(default_factory=set[str])
    groups: dict[int, int] = field(default_factory=dict[int, int])
    """Example → members that are lost, for every example that is scored together."""


def expected(
    plan: PlannedRollouts, events: list[tuple[int, int, Event]], *, grouped: bool, retry: bool, stage: Stage
) -> Expected:
    told = stories(events)
    out = Expected()
    for index in range(plan.num_examples):
        members = [told.get((index, rollout), Story()) for rollout in range(plan.rollouts_per_example)]
        make: set[int] = set()
        rate: set[int] = set()
        for rollout, story in enumerate(members):
            status = story.status()
            if status == "none" or (status == "failed" and retry and stage != "score"):
                make.add(rollout)
            if status == "generated" or (status == "unscored" and retry):
                rate.add(rollout)
        if grouped:
            # Group rewards are about all rollouts of an example as they are now: a score that is older than any of
            # them was about another group.
            scores = [story.score for story in members if story.outcome is not None]
            bases = [story.base for story in members if story.kind is not None]
            if make or rate or (scores and min(scores) < max(bases)):
                rate = {rollout for rollout, story in enumerate(members) if story.kind == "G" and rollout not in make}
                if stage != "generate" or make:
                    out.groups[index] = len(members) - len(make) - len(rate)
        name = {rollout: f"{index}.{rollout}" for rollout in range(len(members))}
        out.generate |= {name[rollout] for rollout in make if stage != "score"}
        # In a pass that leaves scoring to a later one, a group with members to be made is handed out whole, too:
        # if one of them has a state that no journal can hold, it is scored at once.
        now = stage != "generate" or index in out.groups
        (out.score if now else out.later).update(name[rollout] for rollout in rate)
        out.left |= {name[rollout] for rollout in name.keys() - make - rate}
    return out


@st.composite
def journals(draw: st.DrawFn) -> tuple[int, int, list[tuple[int, int, Event]]]:
    """A plan's size, and lines of any number of sessions over it, each legal after those before."""
    examples, rollouts = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    places = [(index, rollout) for index in range(examples) for rollout in range(rollouts)]
    told: dict[tuple[int, int], Event] = {}
    events: list[tuple[int, int, Event]] = []
    for place in draw(st.lists(st.sampled_from(places), max_size=24)):
        # A score needs something to be about; anything may be generated again, or fail when it is tried again.
        choices: list[Event] = ["G", "F"] if told.get(place) != "G" else ["G", "F", "S", "U"]
        event = draw(st.sampled_from(choices))
        if event in ("G", "F"):
            told[place] = event
        events.append((*place, event))
    return examples, rollouts, events


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    journal=journals(),
    grouped=st.booleans(),
    retry=st.booleans(),
    stage=st.sampled_from(["both", "generate", "score"]),
    checked=st.booleans(),
)
@example(journal=(1, 2, [(0, 0, "G"), (0, 0, "S"), (0, 1, "F")]), grouped=True, retry=False, stage="both", checked=True)
@example(journal=(1, 2, [(0, 0, "G"), (0, 1, "F")]), grouped=True, retry=False, stage="both", checked=False)
@example(
    journal=(1, 2, [(0, 1, "G"), (0, 1, "U"), (0, 0, "F"), (0, 0, "G"), (0, 0, "S")]), grouped=True, retry=False,
    stage="score", checked=True,
)  # fmt: skip
def test_what_is_left_to_do(
    tmp_path_factory: pytest.TempPathFactory, journal: tuple[int, int, list[tuple[int, int, Event]]], grouped: bool,
    retry: bool, stage: Stage, checked: bool,
) -> None:  # fmt: skip
    examples, rollouts, events = journal
    plan = plan_of(examples, rollouts, grouped=grouped)
    if checked:
        plan.check()
    recorded = write(tmp_path_factory.mktemp("w") / "j", plan, events)
    progress = RunProgress("t", "t", "m", plan.total)
    work = handed_out(Worklist(plan, recorded, retry_failed=retry, progress=progress).todos(stage))
    want = expected(plan, events, grouped=grouped, retry=retry, stage=stage)
    assert (sorted(work.generate), sorted(work.score)) == (sorted(want.generate), sorted(want.score))
    order = [f"{index}.{rollout}" for index in range(examples) for rollout in range(rollouts)]
    assert work.generate == [name for name in order if name in want.generate], "in the plan's order"
    new = {str(index) for index in range(examples)} - {str(index) for index, _, _ in events}
    assert {name.split(".")[0] for name in work.introduced} == {n.split(".")[0] for n in want.generate} & new
    assert len(work.introduced) == len({name.split(".")[0] for name in work.introduced})
    assert {index: group.lost for index, group in work.groups.items()} == {
        index: lost for index, lost in want.groups.items() if index in work.groups
    }
    assert all(group.size == rollouts for group in work.groups.values())
    touched = {int(name.split(".")[0]) for name in want.generate | want.score}
    assert set(work.groups) == (touched & want.groups.keys())
    # What needs nothing is counted, once; the rest is counted when it comes to an outcome.
    told = stories(events)
    left = [told[tuple(map(int, name.split(".")))].status() for name in want.left]  # type: ignore[index]
    assert (progress.done, progress.resumed) == (len(left), len(left))
    assert progress.scored == left.count("scored")
    assert progress.unscored == Counter({"timeout": left.count("failed"), "spread raised X": left.count("unscored")})
    generated_before = len(left) - left.count("failed") + len(want.score | want.later)
    assert progress.usage.requests == generated_before, "what is made now is counted when it is made"


def impossible(events: list[tuple[int, int, Event]], index: int) -> bool:
    """Whether a group got rewards although a member had failed: nobody writes that."""
    members = [story for (example, _), story in stories(events).items() if example == index]
    newest = max((story.base for story in members), default=-1)
    rewarded = any(story.outcome == "S" and story.score > newest for story in members)
    return rewarded and any(story.kind == "F" for story in members)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(journal=journals(), grouped=st.booleans(), interleaved=st.booleans(), retry=st.booleans())
def test_a_resume_leaves_nothing_to_resume(
    tmp_path_factory: pytest.TempPathFactory, journal: tuple[int, int, list[tuple[int, int, Event]]], grouped: bool,
    interleaved: bool, retry: bool,
) -> None:  # fmt: skip
    examples, rollouts, events = journal
    assume(not (grouped and any(impossible(events, index) for index in range(examples))))
    plan = plan_of(examples, rollouts, grouped=grouped)
    path = tmp_path_factory.mktemp("w") / "j"
    done = list(events)
    for stage in ["both"] if interleaved else ["generate", "score"]:
        recorded = write(path, plan, done)
        todos = list(Worklist(plan, recorded, retry_failed=retry, progress=None).todos(stage))  # type: ignore[arg-type]
        done += carried_out(todos, score=stage != "generate")
    recorded = write(path, plan, done)
    again = Worklist(plan, recorded, retry_failed=False, progress=None)
    assert [handed_out(again.todos(stage)) for stage in ("both", "generate", "score")] == [Work()] * 3
    for example_ in plan.examples():
        statuses = [recorded.status(item.key) for item in plan.items(example_)]
        assert "generated" not in statuses and None not in statuses
        if grouped and "failed" in statuses:
            assert "scored" not in statuses, "a group with a failed member has no group rewards"


def carried_out(todos: list[Todo], *, score: bool) -> list[tuple[int, int, Event]]:
    """What a run adds to its journal: everything generates, then everything complete is scored."""
    done: list[tuple[int, int, Event]] = []
    place = [(todo.item.example.index, todo.item.rollout_index) for todo in todos]
    for at, todo in zip(place, todos, strict=True):
        if todo.recorded is None:
            done.append((*at, "G"))
    if not score:
        return done
    for at, todo in zip(place, todos, strict=True):
        event: Event = "U" if todo.group is not None and todo.group.lost else "S"
        done.append((*at, event))
    return done


# One at a time


def test_a_new_run_does_everything(tmp_path: Path) -> None:
    plan = plan_of(3, 2)
    work = handed_out(Worklist(plan, None, retry_failed=False, progress=None).todos("both"))
    assert work.generate == ["0.0", "0.1", "1.0", "1.1", "2.0", "2.1"]
    assert (work.score, work.introduced, work.groups) == ([], ["0.0", "1.0", "2.0"], {})
    grouped = handed_out(Worklist(plan_of(3, 2, grouped=True), None, retry_failed=False, progress=None).todos("both"))
    assert {index: (group.size, group.lost) for index, group in grouped.groups.items()} == {n: (2, 0) for n in range(3)}


def test_the_work_is_made_lazily() -> None:
    todos = Worklist(plan_of(500, 2), None, retry_failed=False, progress=None).todos("both")
    assert next(todos).item.example.index == 0


def test_a_larger_plan_adds_only_what_is_new(tmp_path: Path) -> None:
    events: list[tuple[int, int, Event]] = [(index, 0, event) for index in range(2) for event in ("G", "S")]
    small, large = plan_of(2, 1, dataset=4), plan_of(4, 2)
    recorded = write(tmp_path / "j", small, events)
    work = handed_out(Worklist(large, recorded, retry_failed=False, progress=None).todos("both"))
    assert work.generate == ["0.1", "1.1", "2.0", "2.1", "3.0", "3.1"]
    assert (work.score, work.introduced) == ([], ["2.0", "3.0"])


def test_a_grown_group_is_scored_anew_as_a_whole(tmp_path: Path) -> None:
    events: list[tuple[int, int, Event]] = [(0, 0, "G"), (0, 1, "G"), (0, 0, "S"), (0, 1, "S")]
    recorded = write(tmp_path / "j", plan_of(1, 2, grouped=True), events)
    work = handed_out(Worklist(plan_of(1, 3, grouped=True), recorded, retry_failed=False, progress=None).todos("both"))
    assert (work.generate, work.score) == (["0.2"], ["0.0", "0.1"])


class Rows(Sequence[dict[str, str]]):
    """Questions that tell which of them were read."""

    def __init__(self, count: int) -> None:
        self.size = count
        self.read: list[int] = []

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> dict[str, str]:  # type: ignore[override]
        if not 0 <= index < self.size:
            raise IndexError(index)
        self.read.append(index)
        return {"question": f"question {index}", "answer": str(index)}


def test_what_is_done_is_passed_over_unread_and_counted_later(tmp_path: Path) -> None:
    rows = Rows(300)
    flags = {"model": "reference/oracle", "num_examples": 300, "rollouts_per_example": 1}
    plan = PlannedRollouts(
        SingleTurnEnv(dataset=rows), resolve("reverse-text", flags).runs[0], {"env": {}, "model": {}}
    )
    events: list[tuple[int, int, Event]] = [(index, 0, event) for index in range(299) for event in ("G", "S")]
    recorded = write(tmp_path / "j", plan, events)
    plan.check()
    check_growth(plan, recorded, {"num_examples": 299, "rollouts_per_example": 1})
    rows.read.clear()
    progress = RunProgress("t", "t", "m", 300)
    todos = Worklist(plan, recorded, retry_failed=False, progress=progress).todos("both")
    assert isinstance(todos, Todos)
    steps = [todos.step() for _ in range(299 // COUNTED_AT_ONCE + 2)]
    work = steps.pop()
    assert isinstance(work, Todo) and not any(isinstance(step, Todo) for step in steps)
    assert (work.item.example.index, work.introduce, rows.read) == (299, True, [299])
    assert work.item == plan.items(list(plan.examples())[299])[0], "as if every row had been read"
    assert (progress.done, progress.resumed, progress.usage) == (0, 0, Usage())
    while (step := todos.step()) is not None:
        steps.append(step)
    for count in steps:
        assert count is not None and not isinstance(count, Todo)
        count()
    assert (progress.scored, progress.resumed, progress.usage.requests) == (299, 299, 299)
    assert list(progress.rewards.means()[0]) == [0.5] * 299


def test_how_much_is_done_is_known_before_anything_is_read(tmp_path: Path) -> None:
    plan = plan_of(4, 1)
    recorded = write(tmp_path / "j", plan, [(0, 0, "G"), (0, 0, "S"), (1, 0, "F"), (2, 0, "G")])
    assert [outcomes(recorded, retry_failed=again) for again in (False, True)] == [2, 1]
    assert outcomes(None, retry_failed=False) == 0


def test_what_is_done_is_counted_before_the_next_item_and_not_when_the_run_ends(tmp_path: Path) -> None:
    plan = plan_of(30, 4)
    done = [(index, rollout) for index in range(9) for rollout in range(4)][:33]  # a Ctrl-C amid the ninth example
    events: list[tuple[int, int, Event]] = [(*place, event) for place in done for event in ("G", "S")]
    progress = RunProgress("t", "t", "m", 120)
    recorded = write(tmp_path / "j", plan, events)
    work = next(Worklist(plan, recorded, retry_failed=False, progress=progress).todos("both"))
    assert (work.item.example.index, work.item.rollout_index) == (8, 1)
    assert (progress.scored, progress.resumed) == (33, 33)


def test_what_decides_whether_more_is_to_begin_is_counted_first(tmp_path: Path) -> None:
    plan = plan_of(4, 1)
    events: list[tuple[int, int, Event]] = [(index, 0, event) for index in range(2) for event in ("G", "S")]
    progress = RunProgress("t", "t", "m", 4, target=StoppingRule(Aim(0.01, 4, 1, (0.0, 1.0))))
    recorded = write(tmp_path / "j", plan, events)
    todos = Worklist(plan, recorded, retry_failed=False, progress=progress).todos("both")
    assert isinstance(todos, Todos)
    work = todos.step()
    assert isinstance(work, Todo)
    assert (work.item.example.index, progress.scored, progress.resumed) == (2, 2, 2)


# What a resume must hold


def test_a_plan_may_grow_and_not_shrink(tmp_path: Path) -> None:
    recorded = write(tmp_path / "j", plan_of(4, 2), [(0, 0, "G")])
    planned = {"num_examples": 4, "rollouts_per_example": 2}
    check_growth(plan_of(4, 2), recorded, planned)
    check_growth(plan_of(9, 3), recorded, planned)
    with pytest.raises(
        ResumeRefused,
        match=r"num_examples: the earlier value is 4, the new one 3, .*Raise num_examples to at least 4, or",
    ):
        check_growth(plan_of(3, 2), recorded, planned)
    with pytest.raises(ResumeRefused, match="rollouts_per_example: the earlier value is 2, the new one 1"):
        check_growth(plan_of(4, 1), recorded, planned)


def test_a_run_that_recorded_nothing_may_become_anything(tmp_path: Path) -> None:
    planned = {"num_examples": 4, "rollouts_per_example": 2}
    check_growth(plan_of(1, 1), write(tmp_path / "j", plan_of(4, 2), []), planned)
    with pytest.raises(ResumeRefused):
        check_growth(plan_of(1, 1), write(tmp_path / "k", plan_of(4, 2), [(0, 0, "G")]), planned)


def test_examples_that_are_gone_are_counted(tmp_path: Path) -> None:
    def gone(key: str) -> Example:
        return Example(key, 0, [{"role": "user", "content": key}], index=0)

    plan = plan_of(2, 1)
    path = tmp_path / "j"
    recorded = write(path, plan, [(0, 0, "G")])
    path.write_bytes(path.read_bytes() + encode(gone("once")) + encode(gone("upon")))
    recorded = Recorded.load(path)
    with pytest.raises(ResumeRefused, match=r"2 of 3 recorded examples are gone.*; start a new run without resume"):
        check_growth(plan, recorded, {"num_examples": 2, "rollouts_per_example": 1})


def test_failures_keep_what_was_paid_for(tmp_path: Path) -> None:
    plan = plan_of(1, 1)
    item = plan.items(next(plan.examples()))[0]
    path = tmp_path / "j"
    lost = Failed(item.key, item.example.key, 0, "generation", "timeout", "…", retryable=True, usage=PAID)
    path.write_bytes(encode(item.example) + encode(lost))
    progress = RunProgress("t", "t", "m", 1)
    assert list(Worklist(plan, Recorded.load(path), retry_failed=False, progress=progress).todos("both")) == []
    assert (progress.usage, dict(progress.unscored)) == (PAID, {"timeout": 1})
