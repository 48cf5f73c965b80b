"""Removes entries from the environment, a bounded number in each transaction.

A removal needs pages before it frees any. On a full disk or in a full map it uses the reserve, which appends may not
use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stelae.spi.errors import Full
from stelae.spi.ids import OpId
from stelae.spi.wal import Damage
from stelae_wal_lmdb.environment import LogEnvironment
from stelae_wal_lmdb.format import NAMESPACE, LogRecord, RecordUse, decode_head, encode_record, key, split_key
from stelae_wal_lmdb.log import EnvironmentLog

TRANSACTIONS_MAX = 64
"""Limit on the transactions of one call, because appends to all logs wait for it. The next call continues."""

_FREED_BYTES_MAX = 64 << 20
"""Limit on the length of the values removed in one transaction, because the list of freed pages takes space too."""


def collect(env: LogEnvironment, log: EnvironmentLog, upto: int, entries_max: int) -> OpId:
    """Remove the entries at or below ``upto`` in steps; return the new base. Each step makes its base durable.

    It ends below ``upto`` after ``TRANSACTIONS_MAX`` steps.

    Raises:
        Corrupt: an entry is missing or fails its checksum; the entries before it were removed.
        StorageError: a step failed; the steps before it are done.
    """
    target = min(upto, log.last.index)
    for _ in range(TRANSACTIONS_MAX):
        if log.record.base.index >= target:
            break
        log.record = _freeing(env, lambda: _collect_some(env, log, target, entries_max))
    return log.record.base


def mark_dropping(env: LogEnvironment, log: EnvironmentLog) -> None:
    """Record durably that a log is being removed. The removal cannot be undone from now on.

    Raises:
        StorageError: the record was not written.
    """
    old = log.record
    record = LogRecord(log=old.log, base=old.base, last=old.last, commit_hint=old.commit_hint, use=RecordUse.DROPPING)

    def mark() -> None:
        with env.write() as txn:
            txn.put(key(NAMESPACE, log.number), encode_record(log.number, record))

    _freeing(env, mark)
    log.record = record


def purge(env: LogEnvironment, log: EnvironmentLog, entries_max: int) -> bool:
    """Remove the keys of a log, its record last, with ``TRANSACTIONS_MAX`` steps. Return whether all are removed.

    Raises:
        StorageError: the removal is incomplete.
    """
    return not all(_freeing(env, lambda: _purge_some(env, log.number, entries_max)) for _ in range(TRANSACTIONS_MAX))


def _collect_some(env: LogEnvironment, log: EnvironmentLog, target: int, entries_max: int) -> LogRecord:
    old = log.record
    with env.write() as txn:
        keys, base = _oldest(env, log, txn, target, entries_max)
        for at in keys:
            txn.delete(at)
        record = LogRecord(log=old.log, base=base, last=old.last, commit_hint=old.commit_hint)
        txn.put(key(NAMESPACE, log.number), encode_record(log.number, record))
    return record


def _oldest(
    env: LogEnvironment, log: EnvironmentLog, txn: Any, target: int, entries_max: int
) -> tuple[list[bytes], OpId]:
    """Return the keys of the first entries of a log, and the op id of the last of them."""
    base, keys, freed = log.record.base, [], 0
    for index in range(base.index + 1, min(target, base.index + entries_max) + 1):
        at = key(log.number, index)
        value = txn.get(at)
        head = None if value is None else decode_head(at, value)
        if value is None or head is None:
            detail = f"entry {index} of log {log.name} is missing or fails its checksum"
            raise log.note_damage(Damage(path=env.path, offset=0, last_good=base, detail=detail))
        keys.append(at)
        base = OpId(head.term, index)
        freed += len(value)
        if freed > _FREED_BYTES_MAX:
            break
    return keys, base


def _purge_some(env: LogEnvironment, number: int, entries_max: int) -> bool:
    """Remove some entries, and the record with the last of them; return whether more are left."""
    with env.write() as txn:
        keys: list[bytes] = []
        freed = 0
        cursor = txn.cursor()
        found = bool(cursor.set_range(key(number, 0)))
        while found and split_key(cursor.key())[0] == number:
            if len(keys) == entries_max or freed > _FREED_BYTES_MAX:
                break
            keys.append(bytes(cursor.key()))
            freed += len(cursor.value())
            found = bool(cursor.next())
        else:
            keys.append(key(NAMESPACE, number))
            found = False
        for at in keys:
            txn.delete(at)
    return found


def _freeing(env: LogEnvironment, work: Callable[[], Any]) -> Any:
    env.make_room(0, 0)
    try:
        return work()
    except Full:
        with env.lend_reserve():
            return work()
