"""Plan of a run: its examples, the number of rollouts of each example, and the run's identity, which is used for keys
and for resuming. The plan also determines the order of work. Its items (one for each rollout) are created one example
at a time, to save memory: for each validated example, it stores only a key of 32 bytes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from harness.core.errors import ConfigError, EnvironmentFault
from harness.core.keys import ExampleKeys, RolloutKeys, digest, example_of
from harness.core.records import Example, Item
from harness.core.types import JsonDict, value_class
from harness.engine.environment_loader import inner_source, source_identity
from harness.envs.environment import Environment
from harness.models.wire import merge_sampling_args
from harness.settings.resolver import ResolvedRun
from harness.settings.schema import ROLLOUT_LIMITS, EnvSettings

_KEY_BYTES = 32
"""Size of a SHA-256 digest."""


@value_class
class PlannedExample:
    """A planned example, described by keys with which its records can be found in a journal."""

    key: str
    index: int
    """Index of the example in the plan."""
    item_keys: Sequence[str]
    """Keys of the example's rollouts."""
    items: Callable[[], Sequence[Item]]
    """Reads the dataset row and returns the items, one for each rollout of the example."""


class PlannedRollouts:
    """Plan of one run: its examples, and the rollouts (items) of each example.

    Args:
        environment: The environment, whose dataset rows are evaluated.
        resolved: The run's settings.
        identity: The run's identity; see `identity_of`.
    """

    can_generate = True
    """Whether new rollouts may be generated. If not, only recorded rollouts can be scored."""

    _known: bytes | bytearray = b""
    """The concatenated keys of all examples; empty until every row has been validated."""

    def __init__(self, environment: Environment, resolved: ResolvedRun, identity: JsonDict) -> None:
        settings = resolved.settings.env
        if environment.row_count == 0:
            raise EnvironmentFault(f"{resolved.env_id}: the dataset is empty")
        chosen = _rows_of(environment, resolved)
        wanted = len(chosen) if settings.num_examples == -1 else min(settings.num_examples, len(chosen))
        self.asked_examples = settings.num_examples
        self.num_examples = wanted
        self.rollouts_per_example = settings.rollouts_per_example
        self.is_group = environment.rubric.is_group
        self._environment = environment
        self._order = _order(chosen, settings.shuffle_seed if settings.shuffle else None, wanted)
        if settings.gate is not None:
            self._order = list(self._order)
            random.Random(gate_seed(resolved, identity)).shuffle(self._order)
        self._keys = RolloutKeys({"env": identity["env"], "model": identity["model"]})

    @property
    def total(self) -> int:
        """Number of planned rollouts."""
        return self.num_examples * self.rollouts_per_example

    def examples(self) -> Iterator[Example]:
        """The planned examples, in the order of work. After `check`, their keys are not computed again."""
        if self._known:
            yield from (self._example_at(index, key) for index, key in enumerate(self.example_keys()))
            return
        keys = ExampleKeys(self.num_examples)
        for index, row in enumerate(self._order):
            yield keys.example(self._environment.row(row), index)

    def check(self) -> None:
        """Validate every planned dataset row once, so that an invalid row is reported before the first paid request.

        Raises:
            EnvironmentFault: a row is invalid; the message names the row.
        """
        keys, known = ExampleKeys(self.num_examples), bytearray()
        for row in self._order:
            known += keys.next_key(self._environment.row(row))
        self._known = known

    def outlines(self) -> Iterator[PlannedExample]:
        """Each example with its keys, in the order of work. After `check`, no dataset rows are read."""
        if not self._known:
            for example in self.examples():
                items = self.items(example)
                yield PlannedExample(
                    example.key, example.index, [item.key for item in items], lambda items=items: items
                )
            return
        attempts = range(self.rollouts_per_example)
        for index, key in enumerate(self.example_keys()):
            keys = [self._keys.key(key, attempt) for attempt in attempts]
            yield PlannedExample(key, index, keys, partial(self._items_at, index, key))

    def example_keys(self) -> Iterator[str]:
        """The keys of the examples, in the order of work. After `check`, no dataset rows are read."""
        if not self._known:
            return (example.key for example in self.examples())
        known = self._known
        return (known[start : start + _KEY_BYTES].hex() for start in range(0, len(known), _KEY_BYTES))

    def _example_at(self, index: int, key: str) -> Example:
        return example_of(self._environment.row(self._order[index]), key, index)

    def _items_at(self, index: int, key: str) -> list[Item]:
        return self.items(self._example_at(index, key))

    def items(self, example: Example) -> list[Item]:
        """Return the planned rollouts of one example."""
        return [self._keys.item(example, index) for index in range(self.rollouts_per_example)]

    def item(self, example: Example, rollout_index: int) -> Item:
        """Return the planned rollout of one example with the given index."""
        return self._keys.item(example, rollout_index)


def _rows_of(environment: Environment, resolved: ResolvedRun) -> Sequence[int]:
    """Numbers of the rows to choose from, in the order of the dataset: all, or those with the ids of the settings.

    Raises:
        ConfigError: an id does not occur.
    """
    ids = resolved.settings.env.example_ids
    if not ids:
        return range(environment.row_count)
    wanted = set(ids)
    found = {
        row: name for row in range(environment.row_count) if (name := str(environment.row(row).example_id)) in wanted
    }
    if missing := [name for name in ids if name not in set(found.values())]:
        raise ConfigError(
            f"{resolved.env_id} has no example {', '.join(map(repr, missing[:5]))}"
            + (f", nor {len(missing) - 5} more of these ids" if len(missing) > 5 else ""),
            setting="example_ids",
            remedy="give ids as the column example_id of a run has them",
        )
    return list(found)


def _order(rows: Sequence[int], seed: int | None, wanted: int) -> Sequence[int]:
    """Row numbers in the order of work: the first rows, or the first in shuffled order if there is a seed, so that a
    larger number of examples only adds examples."""
    if seed is None:
        return rows[:wanted]
    order = list(rows)
    random.Random(seed).shuffle(order)
    return order[:wanted]


def _order_identity(env: EnvSettings, rows: int) -> JsonDict:
    chosen = {"example_ids": list(env.example_ids)} if env.example_ids else {}  # omitted without any
    if env.gate is None:
        return {"shuffle": env.shuffle, "shuffle_seed": env.shuffle_seed if env.shuffle else None, **chosen}
    # The order of a sequential gate depends on the number of examples.
    wanted = rows if env.num_examples == -1 else min(env.num_examples, rows)
    return {"shuffle": env.shuffle, "shuffle_seed": env.shuffle_seed, "gate": wanted, **chosen}


def gate_seed(resolved: ResolvedRun, identity: JsonDict) -> str:
    """Return the seed of the order in which a sequential gate takes the examples. It depends on the model, so that
    several candidates are not judged by the same first examples."""
    return f"{resolved.settings.env.shuffle_seed} {digest(identity['model'])}"


def identity_of(resolved: ResolvedRun, environment: Environment) -> JsonDict:
    """Return the identity of a run: all properties that can change its scores. Two runs may share a journal only if
    their identities are equal. Concurrency limits, retries, request timeouts, names of keys and the numbers of examples
    and rollouts are excluded, since they change the speed or the amount of work but not the scores."""
    env, model = resolved.settings.env, resolved.settings.model
    found = resolved.found
    limits = {name: limit for name in ROLLOUT_LIMITS if (limit := getattr(env, name)) is not None}
    return {
        "env": {
            "env_id": resolved.env_id,
            "env_args": {name: value for name, value in env.env_args.items() if name not in environment.neutral_args},
            "extra_env_kwargs": env.extra_env_kwargs,
            **({"distribution": None, "source": None} if found is None else source_identity(found)),
            **(environment.fingerprint or inner_source(environment, found)),
        },
        "model": {
            "names": sorted({endpoint.model for endpoint in resolved.endpoints}),
            # The embedded server's port differs from run to run and has no effect.
            "urls": [] if resolved.is_reference else sorted({e.url.rstrip("/") for e in resolved.endpoints}),
            "sampling_args": merge_sampling_args(environment.sampling_args, model.sampling_args),
        },
        "order": _order_identity(env, environment.row_count),
        "timeout": env.timeout,
        **({"limits": limits} if limits else {}),  # omitted without any, as above
        # In their redacted form: a header can choose another model, but a key in a header may change.
        "extra_headers": resolved.described()["model.extra_headers"]["value"],
    }
