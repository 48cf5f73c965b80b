"""The tree of rows, within one transaction: found, put, removed, and walked in the order of their keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import lt
from typing import Any, TypeAlias

from stelae_store_lmdb.format import closed_value, decode_node, encode_node, opened_value
from stelae_store_lmdb.keys import (
    AGE_BYTES,
    CHUNK_BYTES,
    ROOT,
    age_of,
    behind,
    chunk_of,
    head_of,
    is_pointer,
    rest_of,
    split_age,
    stem_of,
)

Record: TypeAlias = tuple[bytes, bytes, Any]
"""Encoded key of a row, key in the environment, value (a view that dies with the transaction)."""


class RowTree:
    """Versions of rows. ``next_node`` is the number that the next node gets, in transactions that write."""

    def __init__(self, txn: Any, path: str, next_node: int = 0) -> None:
        self._txn = txn
        self._path = path
        self._cursor = txn.cursor()
        self.next_node = next_node

    def newest(self, key: bytes) -> tuple[int, int, bytes] | None:
        """Return timestamp, index and contents of the newest version of a row."""
        stem = self._find(key)
        if stem is None or not self._cursor.set_range(stem):
            return None
        found = bytes(self._cursor.key())
        if len(found) != len(stem) + AGE_BYTES or not found.startswith(stem):
            return None
        return (*split_age(found), opened_value(found, self._cursor.value(), self._path))

    def ages(self, key: bytes) -> list[tuple[int, int, bool]]:
        """Return timestamp and index of all versions of a row, newest first, and whether each is a deletion."""
        found = []
        stem = self._find(key)
        if stem is not None and self._cursor.set_range(stem):
            for at, value in self._cursor.iternext():
                at = bytes(at)
                if len(at) != len(stem) + AGE_BYTES or not at.startswith(stem):
                    break
                contents = opened_value(at, value, self._path)
                found.append((*split_age(at), is_deletion(contents)))
        return found

    def put(self, versions: Sequence[tuple[bytes, int, int, bytes]]) -> None:
        """Put versions: encoded key, timestamp, index, contents. Quickest in the order of their keys, newest first."""
        items = []
        root = head_of(ROOT)
        for key, timestamp, index, contents in versions:
            begin = root + stem_of(key) if len(key) <= CHUNK_BYTES else self._made(key)
            at = begin + age_of(timestamp, index)
            items.append((at, closed_value(at, contents)))
        self._cursor.putmulti(items, append=self._are_behind_all(items))

    def remove(self, key: bytes, timestamp: int, index: int) -> None:
        """Remove a version, and nodes that hold nothing any more; harmless if there is none."""
        parts = self._parts(key)
        if parts is None:
            return
        self._txn.delete(parts[-1] + age_of(timestamp, index))
        for depth in range(len(parts) - 1, 0, -1):
            head = parts[depth][: len(head_of(1))]
            if self._cursor.set_range(head) and bytes(self._cursor.key()).startswith(head):
                return
            self._txn.delete(parts[depth - 1])

    def ends_before(self, key: bytes) -> bool:
        """Whether a row would stand behind everything that there is."""
        return self._last() < head_of(ROOT) + stem_of(key)

    def walk(self, low: bytes | None, high: bytes | None, backwards: bool) -> Iterator[Record]:
        """Go through the versions of rows from ``low`` to before ``high``, newest first; or from the other end, oldest
        first. Whoever writes meanwhile makes it undefined."""
        return self._walk(ROOT, b"", low, high, backwards)

    def _walk(
        self, node: int, before: bytes, low: bytes | None, high: bytes | None, backwards: bool
    ) -> Iterator[Record]:
        head = head_of(node)
        width = len(head)
        first = head if low is None else head + stem_of(low)
        last = behind(node) if high is None else head + stem_of(high)
        for at, value in self._between(first, last, backwards):
            if not is_pointer(at, width):
                rest = rest_of(at, width)
                yield (before + rest if before else rest), at, value
                continue
            # Only the pointer on which an end falls has an end within its node.
            inner_low = low[CHUNK_BYTES:] if low is not None and at == first else None
            inner_high = high[CHUNK_BYTES:] if high is not None and at == last else None
            child = decode_node(opened_value(at, value, self._path))
            yield from self._walk(child, before + chunk_of(at, width), inner_low, inner_high, backwards)

    def _between(self, first: bytes, last: bytes, backwards: bool) -> Iterator[tuple[bytes, Any]]:
        """Keys from ``first`` to ``last``, both included, with their values."""
        cursor = self._txn.cursor()
        if not backwards:
            if cursor.set_range(first):
                for at, value in cursor.iternext():
                    at = bytes(at)
                    if at > last:
                        return
                    yield at, value
            return
        found = cursor.set_range(last)
        if not (cursor.last() if not found else bytes(cursor.key()) == last or cursor.prev()):
            return
        for at, value in cursor.iterprev():
            at = bytes(at)
            if at < first:
                return
            yield at, value

    def _are_behind_all(self, items: Sequence[tuple[bytes, bytes]]) -> bool:
        """Whether items rise and stand behind everything: LMDB can then fill its pages, and leave none half empty."""
        return bool(items) and self._last() < items[0][0] and all(map(lt, items, items[1:]))

    def _last(self) -> bytes:
        return bytes(self._cursor.key()) if self._cursor.last() else b""

    def _find(self, key: bytes) -> bytes | None:
        """What the keys of a row's versions begin with; ``None`` if there is certainly none."""
        if len(key) <= CHUNK_BYTES:
            return head_of(ROOT) + stem_of(key)
        parts = self._parts(key)
        return None if parts is None else parts[-1]

    def _parts(self, key: bytes) -> list[bytes] | None:
        """The keys of the pointers on the way, and what those of the versions begin with."""
        node, parts = ROOT, []
        while True:
            at = head_of(node) + stem_of(key)
            parts.append(at)
            if len(key) <= CHUNK_BYTES:
                return parts
            value = self._txn.get(at)
            if value is None:
                return None
            node = decode_node(opened_value(at, value, self._path))
            key = key[CHUNK_BYTES:]

    def _made(self, key: bytes) -> bytes:
        """As ``_find``, making the nodes that there are not."""
        node = ROOT
        while len(key) > CHUNK_BYTES:
            at = head_of(node) + stem_of(key)
            value = self._txn.get(at)
            if value is None:
                node, self.next_node = self.next_node, self.next_node + 1
                self._txn.put(at, closed_value(at, encode_node(node)))
            else:
                node = decode_node(opened_value(at, value, self._path))
            key = key[CHUNK_BYTES:]
        return head_of(node) + stem_of(key)


def is_deletion(contents: bytes) -> bool:
    """Whether a version says that the row was deleted."""
    return contents[:4] == b"\0\0\0\0"
