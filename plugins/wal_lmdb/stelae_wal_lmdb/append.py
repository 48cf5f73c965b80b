"""Checks appends, and writes those of many logs in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stelae.spi.append_check import check_append
from stelae.spi.errors import CallerError, StelaeError, StorageError, TooLarge
from stelae.spi.ids import OpId
from stelae.spi.log import ENTRY_BYTES_MAX
from stelae.spi.wal import Append
from stelae_wal_lmdb.environment import LogEnvironment
from stelae_wal_lmdb.format import HEAD_BYTES, NAMESPACE, LogRecord, encode_entry, encode_record, key
from stelae_wal_lmdb.log import EnvironmentLog
from stelae_wal_lmdb.reader import op_id_at


@dataclass(frozen=True, slots=True)
class AcceptedAppend:
    """An append that fits its log, and the log's record after it."""

    log: EnvironmentLog
    append: Append
    record: LogRecord

    @property
    def size_bytes(self) -> int:
        """Length of the values that it puts."""
        return sum(len(entry.body) + HEAD_BYTES for entry in self.append.entries)


def examine(env: LogEnvironment, log: EnvironmentLog, append: Append) -> AcceptedAppend | StelaeError:
    """Check an append; return it as accepted, or return why it is refused. Changes nothing."""
    refusal = log.corrupt() or (log.failed.error if log.failed is not None else None)
    if refusal is not None:
        return refusal
    fact = check_append(log.state(), append)
    if fact is not None:
        return CallerError(f"log {log.name}: {fact}")
    for entry in append.entries:
        if len(entry.body) > ENTRY_BYTES_MAX:
            return TooLarge(f"entry {entry.op_id}", len(entry.body), ENTRY_BYTES_MAX)
    before = log.record.last
    if append.replace_from is not None:
        try:
            before = op_id_at(env, log, append.replace_from - 1)
        except StorageError as error:
            return error
        if append.entries and before.term > append.entries[0].op_id.term:
            return CallerError(f"log {log.name}: entry {append.entries[0].op_id} goes back from {before}")
    return AcceptedAppend(log, append, _record_after(log.record, append, before))


def append_all(env: LogEnvironment, accepted: Sequence[AcceptedAppend]) -> None:
    """Do appends in one transaction, durable on return, and then update the records of the logs in memory.

    Raises:
        Full: there is no space for all appends; nothing was appended.
        StorageError: no append may be acknowledged, and the environment must not be trusted.
    """
    puts = sum(len(fit.append.entries) for fit in accepted) + 2 * len(accepted)
    env.make_room(sum(fit.size_bytes for fit in accepted), puts)
    with env.write() as txn:
        for fit in accepted:
            _put(txn, fit)
    for fit in accepted:
        fit.log.record = fit.record
        fit.log.repaired_map_bytes = 0


def _record_after(record: LogRecord, append: Append, before: OpId) -> LogRecord:
    last = append.entries[-1].op_id if append.entries else before
    hint = max(record.commit_hint, append.commit_hint)
    return LogRecord(log=record.log, base=record.base, last=last, commit_hint=hint)


def _put(txn: Any, fit: AcceptedAppend) -> None:
    number, old = fit.log.number, fit.log.record
    for entry in fit.append.entries:
        at = key(number, entry.op_id.index)
        txn.put(at, encode_entry(at, entry))
    for index in range(fit.record.last.index + 1, old.last.index + 1):
        txn.delete(key(number, index))
    txn.put(key(NAMESPACE, number), encode_record(number, fit.record))
