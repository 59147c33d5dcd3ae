"""A memory-saving map from keys to consecutive numbers.

A dict of 100,000 keys takes about 20 MB, this map 3 MB. A run keeps several of them, and its memory should not grow
much with the number of rollouts."""

from __future__ import annotations

import hashlib
from array import array

HEX_LENGTH = 64
"""Length of the keys of `core.keys`: sha256 in hex. Their digits serve as hash values without further hashing."""


class KeyIndex:
    """Map that numbers keys 0, 1, 2, … in the order of their first `add`. Keys are compared by 128 bits of their
    hash."""

    def __init__(self) -> None:
        self._high = array("Q")
        self._low = array("Q")
        self._table = array("i", [-1]) * 1024

    def __len__(self) -> int:
        return len(self._high)

    def find(self, key: str) -> int:
        """Return the key's number, or -1 if the key was not added."""
        high, low = _digest(key)
        return self._table[self._place(high, low)]

    def add(self, key: str) -> int:
        """Return the key's number; a new key gets the next number."""
        high, low = _digest(key)
        place = self._place(high, low)
        number = self._table[place]
        if number >= 0:
            return number
        number = len(self._high)
        self._high.append(high)
        self._low.append(low)
        self._table[place] = number
        # At most half full, so that a lookup takes one or two steps.
        if 2 * len(self._high) > len(self._table):
            self._grow()
        return number

    def _place(self, high: int, low: int) -> int:
        table, highs, lows = self._table, self._high, self._low
        mask = len(table) - 1
        place = low & mask
        while (number := table[place]) >= 0 and (highs[number] != high or lows[number] != low):
            place = (place + 1) & mask
        return place

    def _grow(self) -> None:
        self._table = array("i", [-1]) * (2 * len(self._table))
        for number, (high, low) in enumerate(zip(self._high, self._low, strict=True)):
            self._table[self._place(high, low)] = number


def _digest(key: str) -> tuple[int, int]:
    if len(key) == HEX_LENGTH:
        try:
            return int(key[:16], 16), int(key[16:32], 16)
        except ValueError:
            pass
    digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:], "big")
