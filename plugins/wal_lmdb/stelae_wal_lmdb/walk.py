"""Walks through the environment from the first key to the last, and checks each log against its record.

The entries of a log must have consecutive indexes from the base to the last op id. With ``bodies`` every checksum is
verified, and terms must not decrease. Without ``bodies`` only keys are checked, so that opening after a clean stop
reads no entry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from stelae.spi.ids import OpId
from stelae_wal_lmdb.format import NAMESPACE, LogRecord, RecordUse, decode_entry, decode_record, key, split_key
from stelae_wal_lmdb.reader import last_good_before


@dataclass(frozen=True, slots=True)
class LogFlaw:
    """The first difference between a log and its record."""

    number: int  #: Number of the log.
    last_good: OpId  #: Op id of the last entry before the difference.
    offset: int  #: Offset in the data file; 0 if it is not known.
    detail: str


@dataclass(slots=True)
class WalkResult:
    """The logs in the environment.

    Attributes:
        records: record of each log, by its number; ``None`` for one that fails its checksum.
        flaws: first flaw of each damaged log, by its number.
    """

    records: dict[int, LogRecord | None] = field(default_factory=dict)
    flaws: dict[int, LogFlaw] = field(default_factory=dict)


def walk(txn: Any, offset_of: Callable[[memoryview], int], *, bodies: bool) -> WalkResult:
    """Walk through everything that a transaction sees."""
    found = WalkResult()
    cursor = txn.cursor()
    more = cursor.set_range(key(NAMESPACE, 1))
    while more and split_key(cursor.key())[0] == NAMESPACE:
        number = split_key(cursor.key())[1]
        found.records[number] = decode_record(number, cursor.value())
        more = cursor.next()
    for number, record in found.records.items():
        if record is not None and record.use is RecordUse.LIVE:
            flaw = _flaw(txn, number, record, offset_of, bodies)
            if flaw is not None:
                found.flaws[number] = flaw
    return found


def _flaw(
    txn: Any, number: int, record: LogRecord, offset_of: Callable[[memoryview], int], bodies: bool
) -> LogFlaw | None:
    expected, before = record.base.index + 1, record.base
    cursor = txn.cursor()
    cursor.set_range(key(number, 0))
    for at, value in _pairs(cursor, bodies):
        owner, index = split_key(at)
        if owner != number:
            break
        if index != expected or index > record.last.index:
            fact = f"found entry {index} in place of {expected}; its last entry is {record.last}"
            if index == expected:
                fact = f"entry {index} is behind its last entry, {record.last}"
            return _gap(txn, number, record, expected, fact)
        expected += 1
        if not bodies:
            continue
        entry = decode_entry(at, value)
        if entry is None or entry.op_id.term < before.term:
            fact = "fails its checksum" if entry is None else f"goes back from {before}"
            return LogFlaw(number, before, offset_of(value), f"entry {index} of log {record.log} {fact}")
        before = entry.op_id
    if expected != record.last.index + 1:
        return _gap(txn, number, record, expected, f"the log ends before {expected}; its last entry is {record.last}")
    if bodies and before != record.last:
        return LogFlaw(number, before, 0, f"log {record.log} ends at {before}; its record says {record.last}")
    return None


def _gap(txn: Any, number: int, record: LogRecord, expected: int, fact: str) -> LogFlaw:
    last_good = last_good_before(txn, number, record.base, min(expected, record.last.index + 1))
    return LogFlaw(number, last_good, 0, f"log {record.log}: {fact}")


def _pairs(cursor: Any, bodies: bool) -> Iterator[tuple[memoryview, memoryview]]:
    if bodies:
        yield from cursor.iternext(keys=True, values=True)
    else:
        for at in cursor.iternext(keys=True, values=False):
            yield at, at
