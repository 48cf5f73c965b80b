"""Compaction: versions that nobody can see any more leave the environment, a list of keys at a time.

Only what a durable superblock covers is believed: a version of a flush that was not committed may be taken back at the
next start, and then what it hides counts again. The environment says in its header up to which floor it was done,
before a version goes, so that no restart with an older superblock reads below it."""

from __future__ import annotations

from typing import Any

from stelae_store_lmdb.environment import Environment
from stelae_store_lmdb.flushing import remove_lists
from stelae_store_lmdb.format import (
    HEADER_KEY,
    HIDING,
    Header,
    decode_hiding,
    encode_header,
    opened_value,
    split_hiding_key,
)
from stelae_store_lmdb.opening import read_header
from stelae_store_lmdb.tree import RowTree

_REMOVAL_BYTES = 256  #: What removing a version may copy besides pages of the tree.


def compact_piece(env: Environment, committed: int, flushed_index: int, limit: int, floor: int) -> bool:
    """Do one list of keys; false if there is none that is due.

    ``committed`` and ``flushed_index`` are of the last committed edit; no view below ``limit`` is open or will be."""
    with env.read() as txn:
        found = _due(txn, committed, limit, env.path)
        if found is None:
            return False
        at, keys = found
        tree = RowTree(txn, env.path)
        gone = [(key, *age) for key in keys for age in superseded(tree.ages(key), limit, flushed_index)]
    env.make_room(_REMOVAL_BYTES * len(gone), len(gone), removing=True)
    with env.write() as txn:
        header = read_header(txn, env.path)
        txn.put(HEADER_KEY, encode_header(Header(header.flush, header.next_node, max(header.floor, floor))))
        remove_lists(txn, committed)
        tree = RowTree(txn, env.path)
        for key, timestamp, index in gone:
            tree.remove(key, timestamp, index)
        txn.delete(at)
    return True


def superseded(ages: list[tuple[int, int, bool]], limit: int, flushed_index: int) -> list[tuple[int, int]]:
    """Return which versions of a row no view at or above ``limit`` can see, given all of them, newest first."""
    settled = [age for age in ages if age[0] <= limit and age[1] <= flushed_index]
    if not settled:
        return []
    newest, *gone = settled
    if newest[2]:
        gone.append(newest)
    return [(timestamp, index) for timestamp, index, _ in gone]


def _due(txn: Any, committed: int, limit: int, path: str) -> tuple[bytes, tuple[bytes, ...]] | None:
    """The first list that is old enough and of a committed flush: its key and what is in it."""
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
            return at, decode_hiding(opened_value(at, cursor.value(), path)).keys
        more = cursor.next()
    return None
