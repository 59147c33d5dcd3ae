"""Record of the rollouts of a run that were drawn at random for labelling, in `draws.jsonl` beside the journal. A line
is one draw. Its strata are ranges of the score; within a stratum, each rollout is drawn with the same probability."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import cast

from harness.core.types import JsonDict
from harness.store.atomic import translated
from harness.store.codec import from_text
from harness.store.notes import DRAWS, LARGEST_FILE, append_lines
from harness.store.rundir import RunDir, timestamp
from harness.store.safe_files import read_file
from harness.store.values import number

_MOST_STRATA = 64

_LARGEST_SIZE = 1 << 53
"""Maximum number of rollouts of a stratum in a line: larger ones are no draw, but a hostile file."""


@dataclass(frozen=True, slots=True)
class Draw:
    """One draw."""

    measure: str
    """Score that determines the strata: `reward`, or the name of a metric."""
    edges: tuple[float, ...]
    """Lowest score of each stratum but the first, ascending."""
    sizes: tuple[int, ...]
    """Number of scored rollouts in each stratum at the time of the draw."""
    keys: tuple[tuple[str, ...], ...]
    """Keys of the drawn rollouts by stratum."""
    seed: int = 0
    time: str = ""
    """UTC time in ISO 8601."""


@dataclass(frozen=True, slots=True)
class Draws:
    """All draws of a run. Draws with other strata than the newest one, in an edited file, are left out."""

    draws: tuple[Draw, ...] = ()

    @property
    def newest(self) -> Draw | None:
        """The newest draw; None if there is none."""
        return self.draws[-1] if self.draws else None

    @property
    def strata(self) -> Mapping[str, int]:
        """Stratum of each rollout that was drawn, by key."""
        return {key: n for draw in self.draws for n, keys in enumerate(draw.keys) for key in keys}

    def probabilities(self, labelled: Collection[str] | None = None) -> dict[str, float]:
        """Probability with which each drawn rollout was drawn and labelled: the part of its stratum that was.

        Labelled rollouts are taken to be a random part of their draw, of which some are perhaps not labelled yet.

        Args:
            labelled: Keys of the rollouts that have a label; None if all drawn ones have.
        """
        newest = self.newest
        if newest is None:
            return {}
        parts = [0.0] * len(newest.sizes)
        for draw in self.draws:
            drawn = [key for keys in draw.keys for key in keys]
            share = 1.0 if labelled is None or not drawn else sum(key in labelled for key in drawn) / len(drawn)
            parts = [part + share * len(keys) for part, keys in zip(parts, draw.keys, strict=True)]
        shares = [min(1.0, part / max(1, size)) for part, size in zip(parts, newest.sizes, strict=True)]
        return {key: shares[n] for key, n in self.strata.items()}


def stratum_of(score: float, edges: Sequence[float]) -> int:
    """Number of the stratum of a score."""
    return bisect_right(edges, score)


def read_draws(folder: RunDir) -> Draws:
    """Read the draws of a run. Lines that are no draw are skipped.

    Raises:
        StoreError: the file cannot be read, is no regular file, or is too large.
    """
    path = folder.path / DRAWS
    with translated("read", path):
        try:
            content = read_file(path, LARGEST_FILE)
        except FileNotFoundError:
            return Draws()
    found: list[Draw] = []
    for line in filter(None, content.split(b"\n")):
        try:
            found.append(_draw_of(from_text(line)))
        except (ValueError, TypeError, OverflowError):
            continue
    return Draws(tuple(draw for draw in found if (draw.measure, draw.edges) == (found[-1].measure, found[-1].edges)))


def add_draw(folder: RunDir, draw: Draw) -> None:
    """Append a draw to the record of a run; its time is now.

    Args:
        folder: The run; the caller has checked that the path of its folder contains no link.
        draw: The draw.

    Raises:
        StoreError: it was not written.
    """
    append_lines(folder, DRAWS, [{**asdict(draw), "time": timestamp()}])


def _draw_of(value: object) -> Draw:
    """Make a draw from JSON.

    Raises:
        ValueError: it is none.
        TypeError: a list has values of another type.
    """
    known = cast(JsonDict, value) if isinstance(value, dict) else {}
    edges, sizes, keys = (
        cast("list[object]", each) if isinstance(each := known.get(name), list) else []
        for name in ("edges", "sizes", "keys")
    )
    numbers = tuple(value for value in map(number, edges) if value is not None)
    counts = tuple(
        size for size in sizes if isinstance(size, int) and not isinstance(size, bool) and 0 <= size <= _LARGEST_SIZE
    )
    groups = tuple(
        tuple(key for key in cast("list[object]", group) if isinstance(key, str)) if isinstance(group, list) else ()
        for group in keys
    )
    measure, seed, time = known.get("measure"), known.get("seed"), known.get("time")
    is_whole = len(numbers) == len(edges) and len(counts) == len(sizes) == len(keys) == len(edges) + 1
    if not is_whole or len(counts) > _MOST_STRATA or list(numbers) != sorted(numbers) or not isinstance(measure, str):
        raise ValueError("no draw")
    return Draw(
        measure, numbers, counts, groups, seed if isinstance(seed, int) else 0, time if isinstance(time, str) else ""
    )
