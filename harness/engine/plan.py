"""What a run consists of: which examples, how many rollouts of each, and what the run *is* for the purpose of keys and
resume. Owns the order of work and the subtraction of what a journal already holds; starts nothing.

Items are made one example at a time; what a plan keeps of an example that it has looked at is its key, 32 bytes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from harness.core.errors import EnvironmentFault
from harness.core.keys import ExampleKeys, RolloutKeys, example_of, hash_files
from harness.core.records import Example, Item
from harness.core.types import JsonDict
from harness.envs.environment import Environment
from harness.models.wire import merge_sampling_args
from harness.settings.resolver import ResolvedRun
from harness.settings.schema import EnvSettings

_KEY_BYTES = 32
"""Of a sha256."""


@dataclass(frozen=True, slots=True)
class PlannedExample:
    """An example by its keys, which are enough to find it in a journal."""

    key: str
    index: int
    """Its place in the plan."""
    item_keys: Sequence[str]
    """Of the attempts at it."""
    items: Callable[[], Sequence[Item]]
    """Makes these attempts; reads the row."""


class Plan:
    """The items of one run.

    Args:
        environment: Whose rows are evaluated.
        resolved: The run's settings.
        identity: What the run is; see `identity_of`.
    """

    can_generate = True
    """Whether a rollout may be made; where not, what the journal holds can only be scored."""

    _known: bytes | bytearray = b""
    """The keys of all examples, one behind the other, once every row was looked at."""

    def __init__(self, environment: Environment, resolved: ResolvedRun, identity: JsonDict) -> None:
        settings = resolved.settings.env
        rows = environment.row_count
        if rows == 0:
            raise EnvironmentFault(f"{resolved.env_id}: the dataset is empty")
        wanted = rows if settings.num_examples == -1 else min(settings.num_examples, rows)
        self.asked_examples = settings.num_examples
        self.num_examples = wanted
        self.rollouts_per_example = settings.rollouts_per_example
        self.is_group = environment.rubric.is_group
        self._environment = environment
        self._order = _order(rows, settings.shuffle_seed if settings.shuffle else None, wanted)
        self._keys = RolloutKeys({"env": identity["env"], "model": identity["model"]})

    @property
    def total(self) -> int:
        """Rollouts planned."""
        return self.num_examples * self.rollouts_per_example

    def examples(self) -> Iterator[Example]:
        """The examples in the order of work, each with its key."""
        keys = ExampleKeys()
        for index, row in enumerate(self._order):
            yield keys.example(self._environment.row(row), index)

    def check(self) -> None:
        """Look at every row of the plan once: a bad one must show before the first request is paid for.

        Raises:
            EnvironmentFault: names the row.
        """
        known = bytearray()
        for example in self.examples():
            known += bytes.fromhex(example.key)
        self._known = known

    def outlines(self) -> Iterator[PlannedExample]:
        """The examples in the order of work by their keys. After `check`, no row is read for them."""
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
        """The keys of the examples in the order of work. After `check`, no row is read for them."""
        if not self._known:
            return (example.key for example in self.examples())
        known = self._known
        return (known[start : start + _KEY_BYTES].hex() for start in range(0, len(known), _KEY_BYTES))

    def _items_at(self, index: int, key: str) -> list[Item]:
        return self.items(example_of(self._environment.row(self._order[index]), key, index))

    def items(self, example: Example) -> list[Item]:
        """The attempts at one example."""
        return [self._keys.item(example, index) for index in range(self.rollouts_per_example)]

    def item(self, example: Example, rollout_index: int) -> Item:
        """One of these attempts."""
        return self._keys.item(example, rollout_index)


def _order(rows: int, seed: int | None, wanted: int) -> Sequence[int]:
    """Row numbers in the order of work: a prefix of the whole set or of its permutation, so that a larger `-n` adds."""
    if seed is None:
        return range(wanted)
    order = list(range(rows))
    random.Random(seed).shuffle(order)
    return order[:wanted]


def _limits(env: EnvSettings) -> JsonDict:
    """The limits of rollouts as part of an identity; empty without any, so that runs without limits keep theirs."""
    limits = {name: getattr(env, name) for name in ("message_limit", "token_limit")}
    return (
        {"limits": {name: limit for name, limit in limits.items() if limit is not None}} if any(limits.values()) else {}
    )


def identity_of(resolved: ResolvedRun, environment: Environment) -> JsonDict:
    """Everything that changes what a run measures, by name. Two runs may share a journal if theirs are equal.

    Gates, retries, timeouts of requests, key names, `-n` and `-r` are not in it: they change how fast or how much, not
    what.
    """
    env, model = resolved.settings.env, resolved.settings.model
    found = resolved.found
    inner = set(environment.source_files).difference(() if found is None else found.source_files)
    return {
        "env": {
            "env_id": resolved.env_id,
            "env_args": {name: value for name, value in env.env_args.items() if name not in environment.neutral_args},
            "extra_env_kwargs": env.extra_env_kwargs,
            "distribution": None if found is None else f"{found.dist_name} {found.dist_version}",
            "source": None if found is None else hash_files(found.source_files),
            # Of environments that it was made from; only then, so that runs of others keep their keys.
            **(environment.fingerprint or ({"inner_source": hash_files(inner)} if inner else {})),
        },
        "model": {
            "names": sorted({endpoint.model for endpoint in resolved.endpoints}),
            # The embedded server's port differs from run to run and means nothing.
            "urls": [] if resolved.is_reference else sorted({e.url.rstrip("/") for e in resolved.endpoints}),
            "sampling_args": merge_sampling_args(environment.sampling_args, model.sampling_args),
        },
        "order": {"shuffle": env.shuffle, "shuffle_seed": env.shuffle_seed if env.shuffle else None},
        "timeout": env.timeout,
        **_limits(env),
        # As they may be recorded: a header can choose another model, a key in one may change.
        "extra_headers": resolved.described()["model.extra_headers"]["value"],
    }
