"""Finds that a range which a change feed has to read was dropped. Its rows are gone, and do not appear as deleted."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from typing import Any

from stelae.client.counted import counted
from stelae.client.feed_options import FeedOptions
from stelae.client.present_table import PresentTable
from stelae.client.tokens import BadToken
from stelae.protocol.tablet_messages import NoSuchTablet
from stelae.spi.errors import CallerError
from stelae.spi.ids import TabletId

NAMED_TABLETS_MAX = 4
"""The most tablets that an error names."""


class RangeDropped(CallerError, code="RANGE_DROPPED"):
    """Ranges that a change feed has read, or has to read, were dropped. A copy of the table would keep their rows.

    ``tablets`` are the ids of their tablets."""

    def __init__(self, table: str, tablets: Sequence[TabletId]) -> None:
        self.table = table
        self.tablets = tuple(tablets)
        super().__init__(
            f"{self.fact}. Begin again with all rows of the table (leave out 'since') and an empty copy; or go on "
            "without these ranges (fail_on_dropped_ranges=False), and delete their rows from the copy yourself"
        )

    @property
    def fact(self) -> str:
        """What has happened, without what to do next."""
        named = ", ".join(self.tablets[:NAMED_TABLETS_MAX])
        more = len(self.tablets) - NAMED_TABLETS_MAX
        named += f" and {more} more" if more > 0 else ""
        return (
            f"a range of table {self.table!r} was dropped, with {counted(len(self.tablets), 'tablet')} that the change "
            f"feed has read or has to read: {named}. The rows of the range do not appear as deleted"
        )


def check_dropped(table: PresentTable, dropped: Iterable[TabletId], options: FeedOptions) -> None:
    """Raise ``RangeDropped`` if tablets were dropped, unless the feed goes on without them."""
    tablets = sorted(dropped)
    if tablets and options.fail_on_dropped_ranges:
        raise RangeDropped(table.name, tablets)


async def unless_dropped(
    table: PresentTable, tablet_id: TabletId, options: FeedOptions, items: AsyncGenerator[Any, None]
) -> AsyncGenerator[Any, None]:
    """Yield what is read of one tablet. If its range is dropped meanwhile, the items end there or it is an error.

    Raises:
        RangeDropped: the range was dropped, and the feed does not go on without it.
    """
    try:
        async with aclosing(items):
            async for item in items:
                yield item
    except (NoSuchTablet, BadToken) as error:
        if table.has_tablet(tablet_id):
            raise
        if options.fail_on_dropped_ranges:
            raise RangeDropped(table.name, [tablet_id]) from error
