"""Going through the environment from the first key to the last: is each log what its record says?

Entries must follow one another without a gap from behind the base to the last op id. With
``bodies`` every checksum is verified and terms must not decrease; without, only keys are looked at, so
that opening after a clean stop reads no entry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from stelae.spi.ids import OpId
from stelae_wal_lmdb.format import NAMESPACE, LogRecord, Use, decode_entry, decode_record, key, split_key
from stelae_wal_lmdb.reader import last_good_before


@dataclass(frozen=True, slots=True)
class Flaw:
    """Where a log is not what its record says: the place, and the last op id before it."""

    number: int
    last_good: OpId
    offset: int
    detail: str


@dataclass(slots=True)
class WalkResult:
    """What the environment holds.

    Attributes:
        records: by log number; ``None`` for one that fails its checksum.
        flaws: by log number, the first of each.
    """

    records: dict[int, LogRecord | None] = field(default_factory=dict)
    flaws: dict[int, Flaw] = field(default_factory=dict)


def walk(txn: Any, offset_of: Callable[[memoryview], int], *, bodies: bool) -> WalkResult:
    """Go through all that a transaction sees."""
    found = WalkResult()
    cursor = txn.cursor()
    more = cursor.set_range(key(NAMESPACE, 1))
    while more and split_key(cursor.key())[0] == NAMESPACE:
        number = split_key(cursor.key())[1]
        found.records[number] = decode_record(number, cursor.value())
        more = cursor.next()
    for number, record in found.records.items():
        if record is not None and record.use is Use.LIVE:
            flaw = _flaw(txn, number, record, offset_of, bodies)
            if flaw is not None:
                found.flaws[number] = flaw
    return found


def _flaw(
    txn: Any, number: int, record: LogRecord, offset_of: Callable[[memoryview], int], bodies: bool
) -> Flaw | None:
    expected, before = record.base.index + 1, record.base
    cursor = txn.cursor()
    cursor.set_range(key(number, 0))
    for at, value in _pairs(cursor, bodies):
        owner, index = split_key(at)
        if owner != number:
            break
        if index != expected or index > record.last.index:
            fact = f"entry {index} stands where {expected} belongs" if index != expected else "it is behind the last"
            return _gap(txn, number, record, expected, f"{fact}, {record.last}")
        expected += 1
        if not bodies:
            continue
        entry = decode_entry(at, value)
        if entry is None or entry.op_id.term < before.term:
            fact = "fails its checksum" if entry is None else f"goes back from {before}"
            return Flaw(number, before, offset_of(value), f"entry {index} of log {record.log} {fact}")
        before = entry.op_id
    if expected != record.last.index + 1:
        return _gap(txn, number, record, expected, f"the log ends before {expected}; its last entry is {record.last}")
    if bodies and before != record.last:
        return Flaw(number, before, 0, f"log {record.log} ends at {before}; its record says {record.last}")
    return None


def _gap(txn: Any, number: int, record: LogRecord, expected: int, fact: str) -> Flaw:
    last_good = last_good_before(txn, number, record.base, min(expected, record.last.index + 1))
    return Flaw(number, last_good, 0, f"log {record.log}: {fact}")


def _pairs(cursor: Any, bodies: bool) -> Iterator[tuple[memoryview, memoryview]]:
    if bodies:
        yield from cursor.iternext(keys=True, values=True)
    else:
        for at in cursor.iternext(keys=True, values=False):
            yield at, at
