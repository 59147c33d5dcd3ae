"""Content hashes that identify examples and rollouts.

A rollout's key depends on everything that changes the model's input, and on nothing else. Therefore a run can be
resumed after any other change, and a journal never mixes two experiments."""

from __future__ import annotations

import hashlib
import json
from array import array
from binascii import unhexlify
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


class KeyIndex:
    """Compact map that numbers keys 0, 1, 2, … in the order in which they are first added. Keys are compared by 128
    bits of their hash. For 100,000 keys, a dict needs about 20 MB and this map 3 MB; a run has several such maps."""

    def __init__(self) -> None:
        self._keys = bytearray()
        self._count = 0
        self._table = array("i", [-1]) * 1024
        self._mask = len(self._table) - 1
        self._recent: dict[str, int] = {}
        """Numbers of the keys that were added last: most look-ups are for these."""

    def __len__(self) -> int:
        return self._count

    def find(self, key: str) -> int:
        """Return the key's number, or -1 if the key was not added."""
        number = self._recent.get(key)
        return self._table[self._place(_identity(key))] if number is None else number

    def add(self, key: str) -> int:
        """Return the key's number. A new key is added and gets the next number."""
        identity = _identity(key)
        place = self._place(identity)
        number = self._table[place]
        if number >= 0:
            return number
        number = self._count
        self._count = number + 1
        self._keys += identity
        self._table[place] = number
        if len(self._recent) >= _RECENT:
            self._recent.clear()
        self._recent[key] = number
        # At most half full, so that a lookup takes one or two steps.
        if 2 * self._count > self._mask:
            self._grow(self._count + 1)
        return number

    def expect(self, count: int) -> None:
        """Make room for so many keys at once, which is faster than to grow several times. `count` may be wrong."""
        if 2 * count > self._mask:
            self._grow(count)

    def number(self, place: int) -> int:
        """Return the `key_number` of the key that was added as the number `place`."""
        return int.from_bytes(self._keys[_SIZE * place : _SIZE * place + 8], "big") >> 1

    def _place(self, identity: bytes) -> int:
        table, keys, mask = self._table, self._keys, self._mask
        place = hash(identity) & mask
        while (number := table[place]) >= 0 and not keys.startswith(identity, _SIZE * number):
            place = (place + 1) & mask
        return place

    def _grow(self, count: int) -> None:
        """Make a table with at least two places for each of `count` keys."""
        size = 1 << (2 * count).bit_length()
        keys, table, mask = bytes(self._keys), array("i", [-1]) * size, size - 1
        for number in range(self._count):
            place = hash(keys[_SIZE * number : _SIZE * (number + 1)]) & mask
            while table[place] >= 0:
                place = (place + 1) & mask
            table[place] = number
        self._table, self._mask = table, mask


def key_number(key: str) -> int:
    """Return 63 bits of a key, for columns of numbers."""
    return int.from_bytes(_identity(key)[:8], "big") >> 1


_RECENT = 4096
"""Maximum number of keys that are also kept as they were added."""

_SIZE = 16
"""Bytes of a key's identity."""


def _identity(key: str) -> bytes:
    """Return the 128 bits with which a key is compared."""
    if len(key) == HEX_LENGTH:
        try:
            return unhexlify(key[: 2 * _SIZE])
        except ValueError:  # not a digest
            pass
    return hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=_SIZE).digest()


class ExampleKeys:
    """Computes the keys of examples from their content. Equal examples get different keys, which depend on how many
    equal ones came before, so one object must process all rows of a plan in order.

    Args:
        count: Expected number of rows.
    """

    def __init__(self, count: int = 0) -> None:
        self._seen = KeyIndex()
        self._seen.expect(count)
        self._counts = array("I")

    def example(self, row: Row, index: int) -> Example:
        """Return the `Example` for a dataset row, with its key; `index` is the position of the row in the plan.

        Raises:
            EnvironmentFault: a value of the row cannot be represented in JSON.
        """
        return example_of(row, self.next_key(row).hex(), index)

    def next_key(self, row: Row) -> bytes:
        """Return the key of the next row of the plan, as 32 bytes.

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
        return content.digest()


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
