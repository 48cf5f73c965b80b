"""Converts between hybrid timestamps and ``datetime`` objects, for the times of reads.

A hybrid timestamp is the microseconds since 1970-01-01 UTC, shifted left by 12 bits. The 12 bits are a counter within
one microsecond."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from stelae.protocol.tablet_messages import TIMESTAMP_MAX
from stelae.rows.scalars import plain_scalar, whole_microseconds
from stelae.spi.errors import CallerError
from stelae.spi.schema import Column

LOGICAL_BITS = 12
"""The same constant as in the nodes' clocks (``stelae.host.hybrid_clock``); a test compares the two."""

At: TypeAlias = int | datetime
"""The time of a read: a hybrid timestamp or a ``datetime``."""

_TIME = Column(id=1, name="at", type="timestamp")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def hybrid(at: At) -> int:
    """Return a time as a hybrid timestamp. A ``datetime`` becomes the last timestamp within its microsecond.

    A ``datetime`` without a zone is local time, as everywhere in Python. Times of pandas and numpy are accepted, too.

    Raises:
        CallerError: the time is out of range, or is not a time.
    """
    given, at = at, plain_scalar(_TIME, whole_microseconds(at))
    if isinstance(at, datetime):
        try:
            span = at.astimezone(UTC) - _EPOCH
        except (ValueError, OverflowError) as error:
            raise CallerError(f"the time to read at is {at}, which is outside the calendar in UTC") from error
        at = ((span // timedelta(microseconds=1)) + 1 << LOGICAL_BITS) - 1
    if isinstance(at, bool) or not isinstance(at, int):
        hint = "; give its .timestamp" if hasattr(at, "timestamp") else ""
        if isinstance(at, str):
            hint = "; text is not parsed: for five minutes ago, datetime.now() - timedelta(minutes=5)"
        fact = f"a time to read at is a datetime or a hybrid timestamp, not {type(given).__name__} {given!r:.40}"
        raise CallerError(f"{fact}{hint}")
    if not 0 < at <= TIMESTAMP_MAX:
        raise CallerError(f"the time to read at is {at}; timestamps are from 1 to {TIMESTAMP_MAX}")
    return at


def to_datetime(timestamp: int) -> datetime:
    """Return the time of a hybrid timestamp, in UTC. ``CallerError``: the argument is not a hybrid timestamp."""
    if isinstance(timestamp, bool) or not isinstance(timestamp, int) or not 0 <= timestamp <= TIMESTAMP_MAX:
        fact = f"a hybrid timestamp is a whole number from 0 to {TIMESTAMP_MAX}"
        raise CallerError(f"{fact}, not {type(timestamp).__name__} {timestamp!r:.40}")
    return _EPOCH + timedelta(microseconds=timestamp >> LOGICAL_BITS)


def from_wall_us(wall_us: int) -> int:
    """Return the first hybrid timestamp of a wall time in microseconds since the epoch."""
    return wall_us << LOGICAL_BITS
