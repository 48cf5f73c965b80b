"""Compaction: versions that no view can see are removed from the environment, one list of keys at a time.

Only versions that the durable superblock covers count. A version of a flush that is not committed may be removed at the
next start, and then the versions that it hides are needed again. Before a version is removed, the header of the
environment records the floor of the compaction. So no restart with an older superblock serves reads below it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from stelae.spi.errors import Full
from stelae_store_lmdb.environment import Environment
from stelae_store_lmdb.format import (
    HEADER_KEY,
    HIDING,
    Header,
    HidingKeys,
    checksummed_value,
    decode_hiding,
    encode_header,
    encode_list,
    split_hiding_key,
    verified_contents,
)
from stelae_store_lmdb.memtable_flush import remove_lists
from stelae_store_lmdb.opening import read_header
from stelae_store_lmdb.tree import RowTree

_REMOVAL_BYTES = 256  #: Bytes that the removal of a version may copy besides pages of the tree.


def compact_list(env: Environment, committed: int, flushed_index: int, limit: int, floor: int) -> bool:
    """Process one list of keys, or as many of its first keys as there is space for. Returns false if no list is due.

    Args:
        env: the environment.
        committed: the last flush that a committed edit covers.
        flushed_index: the index up to which that edit covers the log.
        limit: no view below this timestamp is open, and none will be opened.
        floor: the history floor, for the header.

    ``Full``: there is no space to remove the versions of a single row.
    """
    with env.read() as txn:
        found = _due(txn, committed, limit, env.path)
        if found is None:
            return False
        at, keys = found
        tree = RowTree(txn, env.path)
        removable = [[(key, *age) for age in superseded(tree.ages(key), limit, flushed_index)] for key in keys]
    count = len(keys)
    while True:
        try:
            _remove(env, committed, floor, [*chain.from_iterable(removable[:count])], at, keys[count:])
            return True
        except Full:
            # Fewer keys copy fewer pages. The pages that they free serve the keys that follow.
            if count <= 1:
                raise
            count //= 2


def _remove(
    env: Environment,
    committed: int,
    floor: int,
    versions: Sequence[tuple[bytes, int, int]],
    at: bytes,
    rest: tuple[bytes, ...],
) -> None:
    """Remove versions in one transaction. The list at the key ``at`` keeps the keys ``rest``; without any, it goes."""
    env.make_room(_REMOVAL_BYTES * len(versions), len(versions), removing=True)
    with env.write() as txn:
        header = read_header(txn, env.path)
        txn.put(HEADER_KEY, encode_header(Header(header.flush, header.next_node, max(header.floor, floor))))
        remove_lists(txn, committed)
        tree = RowTree(txn, env.path)
        for key, timestamp, index in versions:
            tree.remove(key, timestamp, index)
        if rest:
            txn.put(at, checksummed_value(at, encode_list(HidingKeys(rest))))
        else:
            txn.delete(at)


def superseded(ages: list[tuple[int, int, bool]], limit: int, flushed_index: int) -> list[tuple[int, int]]:
    """Return the versions of a row that no view at or above ``limit`` can see. ``ages`` are all, newest first."""
    covered = [age for age in ages if age[0] <= limit and age[1] <= flushed_index]
    if not covered:
        return []
    newest, *removable = covered
    if newest[2]:
        removable.append(newest)
    return [(timestamp, index) for timestamp, index, _ in removable]


def _due(txn: Any, committed: int, limit: int, path: str) -> tuple[bytes, tuple[bytes, ...]] | None:
    """Return the first list that is old enough and of a committed flush: its key and its contents."""
    cursor = txn.cursor()
    more = cursor.set_range(HIDING)
    while more:
        at = bytes(cursor.key())
        if at[:1] != HIDING:
            return None
        timestamp, flush, _ = split_hiding_key(at)
        if timestamp > limit:
            return None
        if flush <= committed:
            return at, decode_hiding(verified_contents(at, cursor.value(), path)).keys
        more = cursor.next()
    return None
