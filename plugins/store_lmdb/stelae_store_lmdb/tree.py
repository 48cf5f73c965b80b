"""The tree of rows in one transaction: lookup, put, removal and walk in key order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import lt
from typing import Any, TypeAlias

from stelae_store_lmdb.format import checksummed_value, decode_node, encode_node, verified_contents
from stelae_store_lmdb.keys import (
    AGE_BYTES,
    CHUNK_BYTES,
    ROOT,
    age_of,
    chunk_of,
    end_of_node,
    head_of,
    is_pointer,
    rest_of,
    split_age,
    stem_of,
)

Record: TypeAlias = tuple[bytes, bytes, Any]
"""Encoded key of a row, key in the environment, value (a buffer that is valid during the transaction)."""


class RowTree:
    """The versions of rows. ``next_node`` is the number of the next node, in a transaction that writes."""

    def __init__(self, txn: Any, path: str, next_node: int = 0) -> None:
        self._txn = txn
        self._path = path
        self._cursor = txn.cursor()
        self.next_node = next_node

    def newest(self, key: bytes) -> tuple[int, int, bytes] | None:
        """Return timestamp, index and contents of the newest version of a row, or ``None``."""
        stem = self._find(key)
        if stem is None or not self._cursor.set_range(stem):
            return None
        found = bytes(self._cursor.key())
        if len(found) != len(stem) + AGE_BYTES or not found.startswith(stem):
            return None
        return (*split_age(found), verified_contents(found, self._cursor.value(), self._path))

    def visible(self, key: bytes, timestamp: int, index: int) -> bytes | None:
        """Return the contents of the version, possibly a deletion, that a view of a time sees, or ``None``."""
        stem = self._find(key)
        if stem is not None and self._cursor.set_range(stem):
            for at, value in self._cursor.iternext():
                at = bytes(at)
                if len(at) != len(stem) + AGE_BYTES or not at.startswith(stem):
                    break
                contents = verified_contents(at, value, self._path)
                written, by = split_age(at)
                if written <= timestamp and by <= index:
                    return contents
        return None

    def ages(self, key: bytes) -> list[tuple[int, int, bool]]:
        """Return timestamp and index of all versions of a row, newest first, and whether each is a deletion."""
        found = []
        stem = self._find(key)
        if stem is not None and self._cursor.set_range(stem):
            for at, value in self._cursor.iternext():
                at = bytes(at)
                if len(at) != len(stem) + AGE_BYTES or not at.startswith(stem):
                    break
                contents = verified_contents(at, value, self._path)
                found.append((*split_age(at), is_deletion(contents)))
        return found

    def put(self, versions: Sequence[tuple[bytes, int, int, bytes]]) -> None:
        """Put versions: encoded key, timestamp, index, contents. It is fastest in key order, newest first."""
        items = []
        root = head_of(ROOT)
        for key, timestamp, index, contents in versions:
            begin = root + stem_of(key) if len(key) <= CHUNK_BYTES else self._create_path(key)
            at = begin + age_of(timestamp, index)
            items.append((at, checksummed_value(at, contents)))
        self._cursor.putmulti(items, append=self._can_append(items))

    def remove(self, key: bytes, timestamp: int, index: int) -> None:
        """Remove a version, and the nodes that are empty then. A missing version is ignored."""
        parts = self._path_keys(key)
        if parts is None:
            return
        self._txn.delete(parts[-1] + age_of(timestamp, index))
        for depth in range(len(parts) - 1, 0, -1):
            head = parts[depth][: len(head_of(1))]
            if self._cursor.set_range(head) and bytes(self._cursor.key()).startswith(head):
                return
            self._txn.delete(parts[depth - 1])

    def ends_before(self, key: bytes) -> bool:
        """Return true if a row with this key would be after all rows."""
        return self._last() < head_of(ROOT) + stem_of(key)

    def walk(self, low: bytes | None, high: bytes | None, backwards: bool) -> Iterator[Record]:
        """Yield the versions of rows from ``low`` to before ``high``, newest first, or backwards, oldest first.

        The tree must not be changed during the walk."""
        return self._walk(ROOT, b"", low, high, backwards)

    def _walk(
        self, node: int, before: bytes, low: bytes | None, high: bytes | None, backwards: bool
    ) -> Iterator[Record]:
        head = head_of(node)
        width = len(head)
        first = head if low is None else head + stem_of(low)
        last = end_of_node(node) if high is None else head + stem_of(high)
        for at, value in self._between(first, last, backwards):
            if not is_pointer(at, width):
                rest = rest_of(at, width)
                yield (before + rest if before else rest), at, value
                continue
            # An end of the range is inside of a node only if it is the end's own pointer.
            inner_low = low[CHUNK_BYTES:] if low is not None and at == first else None
            inner_high = high[CHUNK_BYTES:] if high is not None and at == last else None
            child = decode_node(verified_contents(at, value, self._path))
            yield from self._walk(child, before + chunk_of(at, width), inner_low, inner_high, backwards)

    def _between(self, first: bytes, last: bytes, backwards: bool) -> Iterator[tuple[bytes, Any]]:
        """Yield the keys from ``first`` to ``last``, both included, with their values."""
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

    def _can_append(self, items: Sequence[tuple[bytes, bytes]]) -> bool:
        """Return true if items ascend and are after all others. Then LMDB fills its pages completely."""
        return bool(items) and self._last() < items[0][0] and all(map(lt, items, items[1:]))

    def _last(self) -> bytes:
        return bytes(self._cursor.key()) if self._cursor.last() else b""

    def _find(self, key: bytes) -> bytes | None:
        """Return the beginning of the keys of a row's versions; ``None`` if the row certainly has none."""
        if len(key) <= CHUNK_BYTES:
            return head_of(ROOT) + stem_of(key)
        parts = self._path_keys(key)
        return None if parts is None else parts[-1]

    def _path_keys(self, key: bytes) -> list[bytes] | None:
        """Return the keys of the pointers to a row, then the beginning of the keys of its versions."""
        node, parts = ROOT, []
        while True:
            at = head_of(node) + stem_of(key)
            parts.append(at)
            if len(key) <= CHUNK_BYTES:
                return parts
            value = self._txn.get(at)
            if value is None:
                return None
            node = decode_node(verified_contents(at, value, self._path))
            key = key[CHUNK_BYTES:]

    def _create_path(self, key: bytes) -> bytes:
        """Like ``_find``, but create the missing nodes."""
        node = ROOT
        while len(key) > CHUNK_BYTES:
            at = head_of(node) + stem_of(key)
            value = self._txn.get(at)
            if value is None:
                node, self.next_node = self.next_node, self.next_node + 1
                self._txn.put(at, checksummed_value(at, encode_node(node)))
            else:
                node = decode_node(verified_contents(at, value, self._path))
            key = key[CHUNK_BYTES:]
        return head_of(node) + stem_of(key)


def is_deletion(contents: bytes) -> bool:
    """Return true if the contents of a version are a deletion."""
    return contents[:4] == b"\0\0\0\0"
