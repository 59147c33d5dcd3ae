"""Derive runs from another run's journal: replay recorded replies, ask another model for the same examples, or rescore.
Plans the rollouts of such a run and copies records from its parent; `engine.replay` returns the recorded replies."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, cast

from harness.core.errors import ConfigError, UsageError
from harness.core.keys import RolloutKeys
from harness.core.records import Example, Item, Scored
from harness.core.state import State
from harness.core.types import JsonDict
from harness.engine.plan import PlannedRollouts
from harness.envs.environment import Environment
from harness.rubrics.single_function import OneFunction
from harness.store.atomic import durable_sync, new_file, replacement, translated
from harness.store.journal import JournalReader
from harness.store.journal_index import NOWHERE, Recorded
from harness.store.outcomes import in_order
from harness.store.rundir import RunDir
from harness.store.score_table import OF_EXAMPLES, aim_of, summary_of

How: TypeAlias = Literal["replay", "rescore"]

UNSCORED = "unscored"
"""Value of `Derivation.only` for a rescore that keeps existing scores and adds the missing ones."""


@dataclass(frozen=True, slots=True)
class Derivation:
    """How a run is derived from a parent run."""

    how: How
    parent: RunDir
    recorded: Recorded
    """The index of the parent run's whole journal."""
    only: str | None = None
    """What to rescore: `unscored` (rollouts without a score), the name of a reward function, or None (everything)."""
    model: str | None = None
    """The model that a replay calls; None to use the recorded replies."""
    taken: Recorded | None = None
    """The records that a resumed rescore copied from the parent when it began. Only these are rescored, even if the
    parent now has more."""

    @property
    def asks_model(self) -> bool:
        """Whether the derived run calls a model that is not a judge."""
        return self.model is not None

    @property
    def function(self) -> str | None:
        """The one reward function to run; None for the whole rubric."""
        return None if self.only == UNSCORED else self.only

    def identity(self) -> JsonDict:
        """The fields of the derivation that are part of the run's identity."""
        return {"how": self.how, "parent": self.parent.id, "only": self.only, "model": self.model}

    def to_json(self) -> JsonDict:
        """The derivation as JSON for the manifest. Includes the parent's planned number of examples if early stopping
        ended the parent."""
        manifest = self.parent.read_manifest()
        aim = aim_of(manifest)
        is_part = aim is not None and summary_of(manifest, self.recorded).target is not None
        part = {OF_EXAMPLES: aim.examples} if aim is not None and is_part else {}
        return {**self.identity(), "path": str(self.parent.path), **part}


class RecordedRollouts(PlannedRollouts):
    """Plan of a derived run: the recorded examples and their attempts.

    Args:
        derivation: How the run is derived, with the parent's journal.
        environment: The environment that runs or scores the examples.
        identity: Identity of the new run; see `identity_of`.
        rollouts_per_example: Number of rollouts that the parent planned for each example.

    Raises:
        UsageError: the journal holds no rollouts.
    """

    def __init__(
        self, derivation: Derivation, environment: Environment, identity: JsonDict, rollouts_per_example: int
    ) -> None:
        self._scores = derivation.recorded
        self._recorded = recorded = derivation.recorded if derivation.taken is None else derivation.taken
        self._asks = derivation.asks_model
        self._fresh_keys = RolloutKeys({"env": identity["env"], "model": identity["model"]})
        self._groups: dict[int, list[int]] = {}
        """Journal numbers of each example's rollouts, by the offset of the example's line; sorted as in tables."""
        for number in in_order(recorded):
            self._groups.setdefault(recorded.lines(number).example, []).append(number)
        if not self._groups:
            raise UsageError(
                f"{derivation.parent.path} has no recorded rollouts, so there is nothing to {derivation.how}"
            )
        self.can_generate = derivation.how == "replay"
        self.is_group = environment.rubric.is_group
        self.num_examples = self.asked_examples = len(self._groups)
        self.rollouts_per_example = max(rollouts_per_example, max(map(len, self._groups.values())))

    @property
    def total(self) -> int:
        """Number of recorded rollouts or, if the run calls a model, of planned rollouts."""
        return self.num_examples * self.rollouts_per_example if self._asks else len(self._recorded)

    def examples(self) -> Iterator[Example]:
        """The recorded examples, in the order in which tables list them."""
        with JournalReader(self._recorded.path) as reader:
            for offset in self._groups:
                yield cast(Example, reader.record(offset))

    def check(self) -> None:
        """Do nothing: the parent run has already validated every dataset row."""

    def items(self, example: Example) -> list[Item]:
        """Return the planned rollouts of one example."""
        if self._asks:
            return [self._fresh_keys.item(example, index) for index in range(self.rollouts_per_example)]
        with JournalReader(self._recorded.path) as reader:
            return [self._item(reader, example, number) for number in self._numbers(example)]

    def item(self, example: Example, rollout_index: int) -> Item:
        """Return the planned rollout of one example with the given index."""
        if self._asks:
            return self._fresh_keys.item(example, rollout_index)
        number = next(each for each in self._numbers(example) if self._recorded.place(each)[1] == rollout_index)
        with JournalReader(self._recorded.path) as reader:
            return self._item(reader, example, number)

    def score(self, example: Example, rollout_index: int) -> Scored | None:
        """The score that the parent run recorded for a rollout; None if it recorded none."""
        offset = self._scores.scored_at(self.item(example, rollout_index).key)
        if offset is None:
            return None
        with JournalReader(self._scores.path) as reader:
            return cast(Scored, reader.record(offset))

    def _numbers(self, example: Example) -> Sequence[int]:
        line = self._recorded.example_line(example.key)
        return () if line is None else self._groups.get(line, ())

    def _item(self, reader: JournalReader, example: Example, number: int) -> Item:
        key = reader.document(self._recorded.lines(number).base)["key"]
        return Item(str(key), example, self._recorded.place(number)[1])


def plan_from(
    derivation: Derivation, environment: Environment, identity: JsonDict
) -> tuple[RecordedRollouts, Environment]:
    """Create the plan of a derived run, and the environment in which to execute the plan.

    Args:
        derivation: How the run is derived.
        environment: The environment, as installed now.
        identity: Identity of the new run.

    Returns:
        The plan and the environment. If the derivation names a reward function, the environment scores only with that.

    Raises:
        ConfigError: the rubric cannot score recorded rollouts.
        UsageError: the parent has no recorded rollouts.
    """
    rubric = environment.rubric
    if derivation.how == "rescore" and rubric.needs_live_state:
        raise ConfigError(
            f"the rubric of {environment.env_id or type(environment).__name__} reads state that a journal cannot store "
            "(such as a sandbox or a game), so recorded rollouts cannot be scored again",
            remedy="{replay_command} repeats the recorded replies in a live environment and scores the result",
        )
    source = derivation.parent if derivation.taken is None else RunDir(derivation.taken.path.parent)
    planned = source.read_manifest().planned.get("rollouts_per_example", 1)
    if derivation.function is not None:

        def recorded(state: State) -> Scored | None:
            return plan.score(cast(Example, state.example), state["rollout_index"])

        environment = copy.copy(environment)  # other runs may share the environment with its full rubric
        environment.rubric = OneFunction(rubric, derivation.function, recorded)
    plan = RecordedRollouts(derivation, environment, identity, planned)
    return plan, environment


def take_over(derivation: Derivation, target: Path) -> None:
    """Create the journal of a rescore: copy the parent's examples and rollouts, and the scores that are not replaced.

    The file is written atomically. Scores are written after all rollouts, so that no rollout of a group seems to have
    been generated after the group was scored.

    Raises:
        StoreError: the parent cannot be read, or the file cannot be written.
    """
    recorded, scores = derivation.recorded, list[int]()
    seen: set[int] = set()
    with (
        translated("write", target),
        replacement(target) as temporary,
        JournalReader(recorded.path) as reader,
        new_file(temporary) as file,
    ):
        for number in in_order(recorded):
            lines = recorded.lines(number)
            for offset in (lines.example, lines.base):
                if offset not in seen:
                    file.write(reader.line(offset) + b"\n")
            seen.add(lines.example)
            if derivation.only == UNSCORED and lines.score != NOWHERE and recorded.is_scored(number):
                scores.append(lines.score)
        for offset in scores:
            file.write(reader.line(offset) + b"\n")
        file.flush()
        durable_sync(file.fileno())
