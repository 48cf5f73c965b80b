"""Finds a time at which reads of a table show every acknowledged write."""

from __future__ import annotations

from collections.abc import Sequence

from stelae.client.bounded_calls import each
from stelae.client.page_rows import PageRows
from stelae.client.page_streams import ReadableTablet
from stelae.spi.scan import ScanSpec
from stelae.spi.schema import Schema

LEADERS_ASKED_AT_ONCE = 64
"""The most leaders that are asked at the same time. A table may have thousands of tablets."""


async def latest_time(schema: Schema, tablets: Sequence[ReadableTablet], timeout_s: float) -> int:
    """Return a hybrid timestamp that is not before any write to these tablets that was acknowledged before the call.

    Each leader serves a linearizable read of at most one row. Its time is at or above all writes acknowledged before.

    Raises:
        Unavailable: the leader of a tablet did not answer in time.
    """
    spec = ScanSpec(columns=schema.key, limit=1)

    async def time_of(tablet: ReadableTablet) -> int:
        page, rows = await tablet.page(spec, at=None, at_least=None, reader=PageRows(spec), timeout_s=timeout_s)
        await rows
        return page.at

    return max(await each(tablets, time_of, at_once=LEADERS_ASKED_AT_ONCE), default=0)
