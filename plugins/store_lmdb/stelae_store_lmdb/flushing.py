"""Flushing: what is in memory goes to the environment, in transactions of a piece each.

1. Each piece puts some versions, a list of what they are, by which they can be taken back, and a list of the keys of
   which it wrote versions that hide older ones, by which compaction finds them. It is durable when it is done, and so
   runs ahead of the superblock: a start with an older one takes it back (``opening.py``, row G).
2. Only when all pieces are durable the store proposes an edit that names the flush, and empties its memory.
3. Once the superblock is durable (``commit``), the lists of that flush and of those before mean nothing any more; the
   next transaction removes them.

A flush that finds no space leaves memory as it is. What it did write is true, and the next one writes it again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from stelae_store_lmdb.config import LmdbStoreConfig
from stelae_store_lmdb.environment import Environment
from stelae_store_lmdb.format import (
    HEADER_KEY,
    PIECES,
    Header,
    HidingKeys,
    Piece,
    closed_value,
    encode_header,
    encode_list,
    hiding_key,
    piece_key,
    split_piece_key,
)
from stelae_store_lmdb.keys import AGE_BYTES, CHUNK_BYTES
from stelae_store_lmdb.memory import MemoryPart, versions_of
from stelae_store_lmdb.opening import read_header
from stelae_store_lmdb.tree import RowTree, is_deletion

_Put: TypeAlias = tuple[bytes, int, int, bytes]

_LISTS_REMOVED_MAX = 64  #: Lists that one transaction removes.
_OVERHEAD_BYTES = 32  #: What LMDB and we add to a version.


class Flush:
    """One flush of one part of memory."""

    def __init__(self, env: Environment, config: LmdbStoreConfig, committed: int) -> None:
        with env.read() as txn:
            self.number = read_header(txn, env.path).flush + 1
        self._env = env
        self._config = config
        self._committed = committed
        self._pieces = 0

    def write(self, memory: MemoryPart, floor: int) -> int:
        """Write everything; return in how many pieces. ``Full``, ``StorageError``."""
        for piece in self._cut(memory):
            self._write(piece, floor)
        if not self._pieces:
            self._write([], floor)  # the edit names a flush that the environment has to know
        return self._pieces

    def _cut(self, memory: MemoryPart) -> Iterator[list[_Put]]:
        """Versions in the order of the environment, all of a key in one piece."""
        found: list[_Put] = []
        size_bytes = 0
        for key in memory.sorted_keys():
            newest = memory.chains.get(key)
            for timestamp, index, contents, _ in versions_of(newest):
                found.append((key, timestamp, index, contents))
                size_bytes += len(key) + len(contents)
            if size_bytes >= self._config.piece_bytes or len(found) >= self._config.piece_rows:
                yield found
                found, size_bytes = [], 0
        if found:
            yield found

    def _write(self, puts: Sequence[_Put], floor: int) -> None:
        size_bytes = 0
        for key, _, _, contents in puts:
            size_bytes += _stored_bytes(key) + len(contents) + 2 * len(key)
        large = sum(len(contents) > self._env.page_bytes // 4 for _, _, _, contents in puts)
        with self._env.read() as txn:
            behind_all = not puts or RowTree(txn, self._env.path).ends_before(puts[0][0])
        self._env.make_room(size_bytes + large * self._env.page_bytes, 0 if behind_all else len(puts))
        with self._env.write() as txn:
            header = read_header(txn, self._env.path)
            remove_lists(txn, self._committed)
            tree = RowTree(txn, self._env.path, header.next_node)
            hiding, latest = _hiding(None if behind_all else tree, puts)
            tree.put(puts)
            at = piece_key(self.number, self._pieces)
            piece = Piece(latest, tuple((key, timestamp, index) for key, timestamp, index, _ in puts))
            txn.put(at, closed_value(at, encode_list(piece)))
            if hiding:
                at = hiding_key(latest, self.number, self._pieces)
                txn.put(at, closed_value(at, encode_list(HidingKeys(tuple(hiding)))))
            after = Header(self.number, tree.next_node, max(header.floor, floor))
            txn.put(HEADER_KEY, encode_header(after))
        self._pieces += 1


def remove_lists(txn: Any, committed: int) -> None:
    """Remove some lists by which flushes up to the committed one could have been taken back."""
    cursor = txn.cursor()
    for _ in range(_LISTS_REMOVED_MAX):
        if not cursor.set_range(PIECES):
            return
        key = bytes(cursor.key())
        if key[:1] != PIECES or split_piece_key(key)[0] > committed:
            return
        cursor.delete()


def _hiding(tree: RowTree | None, puts: Sequence[_Put]) -> tuple[list[bytes], int]:
    """Keys with versions that hide older ones, or that are deletions, and the latest timestamp of those; -1: none.

    ``tree`` has the older ones, if there can be any."""
    found: list[bytes] = []
    latest = -1
    before = None
    for key, timestamp, _, contents in puts:
        if key != before:  # the newest of its row
            before, newest, noted = key, timestamp, False
            hides = is_deletion(contents) or (tree is not None and tree.newest(key) is not None)
        else:
            hides = not noted
        if hides:
            noted = True
            found.append(key)
            latest = max(latest, newest)
    return found, latest


def _stored_bytes(key: bytes) -> int:
    """What the key of a version takes in the environment, nodes included."""
    inside = min(len(key), CHUNK_BYTES) + len(key) // CHUNK_BYTES * CHUNK_BYTES
    return inside + inside // 8 + AGE_BYTES + _OVERHEAD_BYTES
