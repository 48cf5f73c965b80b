"""Flushes: the versions in memory are written to the environment in several transactions.

1. Each transaction puts some versions and two lists. One has the versions, so that a start can remove them again. The
   other has the keys with versions that hide older ones, so that compaction finds them. The transaction is durable when
   it returns. So the environment may be ahead of the superblock: a start with an older superblock removes the versions
   again (``opening.py``, row G).
2. When all transactions are durable, the store proposes an edit that names the flush, and empties its memtable.
3. When the superblock is durable (``commit``), the lists of versions of this flush and of earlier ones are not needed
   any more. The next transaction removes them.

A flush that finds no space leaves the memtable as it is. The versions that it wrote are right, and the next flush
writes them again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from stelae_store_lmdb.config import LmdbStoreConfig
from stelae_store_lmdb.environment import Environment
from stelae_store_lmdb.format import (
    HEADER_KEY,
    TRANSACTIONS,
    FlushTransaction,
    Header,
    HidingKeys,
    checksummed_value,
    encode_header,
    encode_list,
    hiding_key,
    split_transaction_key,
    transaction_key,
)
from stelae_store_lmdb.keys import AGE_BYTES, CHUNK_BYTES
from stelae_store_lmdb.memtable import LmdbMemtable, versions_of
from stelae_store_lmdb.opening import read_header
from stelae_store_lmdb.tree import RowTree, is_deletion

_Put: TypeAlias = tuple[bytes, int, int, bytes]

_LISTS_REMOVED_MAX = 64  #: Most lists that one transaction removes.
_OVERHEAD_BYTES = 32  #: Bytes that LMDB and this format add to a version.


class Flush:
    """One flush of one memtable."""

    def __init__(self, env: Environment, config: LmdbStoreConfig, committed: int) -> None:
        with env.read() as txn:
            self.number = read_header(txn, env.path).flush + 1
        self._env = env
        self._config = config
        self._committed = committed
        self._transactions = 0

    def write(self, memory: LmdbMemtable, floor: int) -> int:
        """Write all versions. Returns the number of transactions.

        Raises:
            Full: there is no space on the disk or in the map.
            StorageError: a write or a sync failed.
        """
        for transaction in self._cut(memory):
            self._write(transaction, floor)
        if not self._transactions:
            self._write([], floor)  # the environment must know the flush that the edit names
        return self._transactions

    def _cut(self, memory: LmdbMemtable) -> Iterator[list[_Put]]:
        """Yield the versions of each transaction, in the order of the environment. All versions of a key are in one."""
        found: list[_Put] = []
        size_bytes = 0
        for key in memory.sorted_keys():
            newest = memory.chains.get(key)
            for timestamp, index, contents, _ in versions_of(newest):
                found.append((key, timestamp, index, contents))
                size_bytes += len(key) + len(contents)
            if size_bytes >= self._config.transaction_bytes or len(found) >= self._config.transaction_rows:
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
            at_end = not puts or RowTree(txn, self._env.path).ends_before(puts[0][0])
        self._env.make_room(size_bytes + large * self._env.page_bytes, 0 if at_end else len(puts))
        with self._env.write() as txn:
            header = read_header(txn, self._env.path)
            remove_lists(txn, self._committed)
            tree = RowTree(txn, self._env.path, header.next_node)
            hiding, latest = _hiding(None if at_end else tree, puts)
            tree.put(puts)
            at = transaction_key(self.number, self._transactions)
            transaction = FlushTransaction(latest, tuple((key, timestamp, index) for key, timestamp, index, _ in puts))
            txn.put(at, checksummed_value(at, encode_list(transaction)))
            if hiding:
                at = hiding_key(latest, self.number, self._transactions)
                txn.put(at, checksummed_value(at, encode_list(HidingKeys(tuple(hiding)))))
            after = Header(self.number, tree.next_node, max(header.floor, floor))
            txn.put(HEADER_KEY, encode_header(after))
        self._transactions += 1


def remove_lists(txn: Any, committed: int) -> None:
    """Remove some lists of versions of committed flushes."""
    cursor = txn.cursor()
    for _ in range(_LISTS_REMOVED_MAX):
        if not cursor.set_range(TRANSACTIONS):
            return
        key = bytes(cursor.key())
        if key[:1] != TRANSACTIONS or split_transaction_key(key)[0] > committed:
            return
        cursor.delete()


def _hiding(tree: RowTree | None, puts: Sequence[_Put]) -> tuple[list[bytes], int]:
    """Return the keys with versions that hide older ones, and the latest timestamp of these; -1 if there are none.

    A deletion counts as such a version. ``tree`` has the older versions; ``None``: there are none."""
    found: list[bytes] = []
    latest = -1
    before = None
    for key, timestamp, _, contents in puts:
        if key != before:  # this is the newest version of its row
            before, newest, listed = key, timestamp, False
            hides = is_deletion(contents) or (tree is not None and tree.newest(key) is not None)
        else:
            hides = not listed
        if hides:
            listed = True
            found.append(key)
            latest = max(latest, newest)
    return found, latest


def _stored_bytes(key: bytes) -> int:
    """Return the bytes that the key of a version takes in the environment, nodes included."""
    inside = min(len(key), CHUNK_BYTES) + len(key) // CHUNK_BYTES * CHUNK_BYTES
    return inside + inside // 8 + AGE_BYTES + _OVERHEAD_BYTES
