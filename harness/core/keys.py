"""Content hashes that identify examples and rollouts.

A rollout's key depends on everything that changes the model's input, and on nothing else. Therefore a run can be
resumed after any other change, and a journal never mixes two experiments."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterable, Mapping
from pathlib import Path

import orjson

from harness.core.errors import EnvironmentFault
from harness.core.records import Example, Item, Row

HEX_LENGTH = 64
"""Length of a key, which is a SHA-256 digest in hexadecimal digits."""

_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS


def canonical(value: object) -> bytes:
    """Serialize a JSON value to bytes. Equal values give equal bytes, regardless of the order of their keys.

    Raises:
        TypeError: the value cannot be represented in JSON.
    """
    try:
        return orjson.dumps(value, option=_OPTIONS)
    except TypeError:
        # orjson rejects integers beyond 64 bits and lone surrogates, which JSON itself allows.
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def digest(value: object) -> str:
    """Return the SHA-256 digest, in hexadecimal digits, of a JSON value, regardless of the order of its keys."""
    return hashlib.sha256(canonical(value)).hexdigest()


def hash_files(files: Iterable[Path]) -> str:
    """Return the SHA-256 digest, in hexadecimal digits, of the names and contents of `files`, sorted by name."""
    whole = hashlib.sha256()
    for file in sorted(files, key=lambda path: path.name):
        whole.update(b"%s\0%s\0" % (file.name.encode(), hashlib.sha256(file.read_bytes()).digest()))
    return whole.hexdigest()


_RECENT = 2048
"""Maximum number of keys whose numbers a `KeyIndex` keeps beside its table."""


class KeyIndex:
    """Compact map that numbers keys 0, 1, 2, … in the order in which they are first added. Keys are compared by 128
    bits of their hash. For 100,000 keys, a dict needs about 20 MB and this map 3 MB; a run has several such maps."""

    def __init__(self) -> None:
        self._high = array("Q")
        self._low = array("Q")
        self._table = array("i", [-1]) * 1024
        self._recent: dict[str, int] = {}
        """Numbers of keys that were looked up lately, and probably will be again: a journal names each a few times."""

    def __len__(self) -> int:
        return len(self._high)

    def find(self, key: str) -> int:
        """Return the key's number, or -1 if the key was not added."""
        number = self._recent.get(key, -1)
        if number < 0 and (number := self._table[self._place(*_halves(key))]) >= 0:
            self._keep(key, number)
        return number

    def add(self, key: str) -> int:
        """Return the key's number. A new key is added and gets the next number."""
        if (number := self._recent.get(key, -1)) >= 0:
            return number
        high, low = _halves(key)
        place = self._place(high, low)
        number = self._table[place]
        if number >= 0:
            self._keep(key, number)
            return number
        number = len(self._high)
        self._high.append(high)
        self._low.append(low)
        self._table[place] = number
        self._keep(key, number)
        # At most half full, so that a lookup takes one or two steps.
        if 2 * len(self._high) > len(self._table):
            self._table = array("i", [-1]) * (2 * len(self._table))
            for each, halves in enumerate(zip(self._high, self._low, strict=True)):
                self._table[self._place(*halves)] = each
        return number

    def number(self, place: int) -> int:
        """Return the `key_number` of the key that was added as the number `place`."""
        return self._high[place] >> 1

    def _keep(self, key: str, number: int) -> None:
        if len(self._recent) >= _RECENT:
            self._recent.clear()
        self._recent[key] = number

    def _place(self, high: int, low: int) -> int:
        table, highs, lows = self._table, self._high, self._low
        mask = len(table) - 1
        place = low & mask
        while (number := table[place]) >= 0 and (highs[number] != high or lows[number] != low):
            place = (place + 1) & mask
        return place


def key_number(key: str) -> int:
    """Return 63 bits of a key, for columns of numbers."""
    return _halves(key)[0] >> 1


def _halves(key: str) -> tuple[int, int]:
    if len(key) == HEX_LENGTH:
        try:
            return int(key[:16], 16), int(key[16:32], 16)
        except ValueError:  # not a digest
            pass
    digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:], "big")


class ExampleKeys:
    """Computes the keys of examples from their content. Equal examples get different keys, which depend on how many
    equal ones came before, so one object must process all rows of a plan in order."""

    def __init__(self) -> None:
        self._seen = KeyIndex()
        self._counts = array("I")

    def example(self, row: Row, index: int) -> Example:
        """Return the `Example` for a dataset row, with its key; `index` is the position of the row in the plan.

        Raises:
            EnvironmentFault: a value of the row cannot be represented in JSON.
        """
        try:
            content = hashlib.sha256(canonical([row.prompt, row.answer, row.task, row.info]))
        except TypeError as error:
            raise EnvironmentFault(
                f"example {row.example_id!r}: prompt, answer, task and info must be JSON values ({error})"
            ) from error
        number = self._seen.add(content.hexdigest())
        if number == len(self._counts):
            self._counts.append(0)
        occurrence = self._counts[number]
        self._counts[number] += 1
        content.update(b"#%d" % occurrence)
        return example_of(row, content.hexdigest(), index)


def example_of(row: Row, key: str, index: int) -> Example:
    """Return the `Example` for a dataset row whose key is known; `index` is the position of the row in the plan."""
    return Example(key, row.example_id, row.prompt, row.answer, row.task, row.info, index)


class RolloutKeys:
    """Computes the keys of rollouts: SHA-256 digests of the run's identity, the example's key and the rollout index."""

    def __init__(self, identity: Mapping[str, object]) -> None:
        self._prefix = hashlib.sha256(canonical(identity))

    def item(self, example: Example, rollout_index: int) -> Item:
        """Return the item (unit of work) for one rollout of `example`."""
        return Item(self.key(example.key, rollout_index), example, rollout_index)

    def key(self, example_key: str, rollout_index: int) -> str:
        """Return the key of one rollout of the example with key `example_key`."""
        key = self._prefix.copy()
        key.update(b"%s/%d" % (example_key.encode("ascii"), rollout_index))
        return key.hexdigest()
