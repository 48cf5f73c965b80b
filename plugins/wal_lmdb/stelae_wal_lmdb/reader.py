"""Reads entries. Any thread may read, in parallel to commits: each call has its own transaction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stelae.spi.errors import CallerError, Compacted, Corrupt
from stelae.spi.ids import OpId
from stelae.spi.log import ENTRY_OVERHEAD_BYTES, Entry
from stelae.spi.wal import Damage
from stelae_wal_lmdb.environment import LogEnvironment, offset_in_map
from stelae_wal_lmdb.format import HEAD_BYTES, decode_entry, decode_head, key
from stelae_wal_lmdb.log import EnvironmentLog


def op_id_at(env: LogEnvironment, log: EnvironmentLog, index: int) -> OpId:
    """Return the op id at an index between the base and the last entry, both included. One lookup.

    Raises:
        Compacted, CallerError, Corrupt: see the contract.
    """
    with env.read() as txn:
        base, last = log.bounds(txn)
        if index < base.index:
            raise Compacted(base)
        if index > last.index:
            raise log.past_the_end(index, last)
        if index == base.index:
            return base
        return OpId(_term_at(env, log, txn, base, index), index)


def read(env: LogEnvironment, log: EnvironmentLog, first: int, end: int, bytes_max: int) -> list[Entry]:
    """Return entries ``first <= index < end``: at least one, then up to ``bytes_max`` bytes.

    Raises:
        Compacted, CallerError, Corrupt: see the contract.
    """
    if end <= first:
        raise CallerError(f"log {log.name}: the range from {first} to {end} is empty")
    entries: list[Entry] = []
    with env.read() as txn:
        base, last = log.bounds(txn)
        if first <= base.index:
            raise Compacted(base)
        if end > last.index + 1:
            raise log.past_the_end(end - 1, last)
        for index, value in stored(env, log, txn, base, first, end):
            bytes_max -= len(value) - HEAD_BYTES + ENTRY_OVERHEAD_BYTES
            if entries and bytes_max < 0:
                break
            entry = decode_entry(key(log.number, index), value)
            if entry is None:
                raise _damaged(env, log, txn, base, index, value)
            entries.append(entry)
    return entries


def stored(
    env: LogEnvironment, log: EnvironmentLog, txn: Any, base: OpId, first: int, end: int
) -> Iterator[tuple[int, memoryview]]:
    """Yield indexes and stored values, without a check of checksums.

    Raises:
        Corrupt: an entry is missing.
    """
    cursor = txn.cursor()
    found = cursor.set_range(key(log.number, first))
    for index in range(first, end):
        if not found or cursor.key() != key(log.number, index):
            raise _damaged(env, log, txn, base, index, None)
        yield index, cursor.value()
        found = cursor.next()


def _term_at(env: LogEnvironment, log: EnvironmentLog, txn: Any, base: OpId, index: int) -> int:
    at = key(log.number, index)
    value = txn.get(at)
    head = None if value is None else decode_head(at, value)
    if head is None:
        raise _damaged(env, log, txn, base, index, value)
    return head.term


def _damaged(
    env: LogEnvironment, log: EnvironmentLog, txn: Any, base: OpId, index: int, value: memoryview | None
) -> Corrupt:
    """Record damage: the entry at an index fails its checksum, or is missing (``value`` is ``None``)."""
    fact = "is missing" if value is None else "fails its checksum"
    return log.note_damage(
        Damage(
            path=env.path,
            offset=0 if value is None else offset_in_map(value),
            last_good=last_good_before(txn, log.number, base, index),
            detail=f"entry {index} of log {log.name} {fact}",
        )
    )


def last_good_before(txn: Any, number: int, base: OpId, index: int) -> OpId:
    """Return the op id of the last entry before an index whose head can be read; at least the base."""
    while index - 1 > base.index:
        index -= 1
        at = key(number, index)
        value = txn.get(at)
        head = None if value is None else decode_head(at, value)
        if head is not None:
            return OpId(head.term, index)
    return base
