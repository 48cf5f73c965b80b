"""Checks that all tablets of a table keep their history since a time.

Tablets differ in it. The history floor of a tablet is never above its last entry, so a tablet that is not written, such
as that of an old range, can be read as of times that the other tablets no longer keep."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from stelae.client import ScanToken, Table
from stelae.spi.errors import TooOld

TABLETS_ASKED_AT_ONCE = 32
"""The most tablets that are asked at the same time. A table may have thousands of tablets."""


def check_history(table: Table, at: int, timeout_s: float) -> None:
    """Read at most one key of each tablet at a time.

    Args:
        table: the table.
        at: hybrid timestamp.
        timeout_s: how long each tablet is asked.

    Raises:
        TooOld: tablets no longer keep their history of the time. ``floor`` is the lowest time that all of them keep.
        CallerError: the time is in the future.
        Unavailable: a tablet did not answer in time.
    """

    def floor_above(token: ScanToken) -> int:
        try:
            table.open(token, timeout_s=timeout_s).count()
        except TooOld as error:
            return error.floor
        return 0

    tokens = table.scan(table.key, limit=1, at=at, timeout_s=timeout_s).tokens()
    with ThreadPoolExecutor(TABLETS_ASKED_AT_ONCE) as threads:
        floor = max(threads.map(floor_above, tokens), default=0)
    if floor:
        raise TooOld(floor)
