"""Plans the rounds of a change feed: when a round ends, which tablets have changed, and where to cut it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from stelae.client.bounded_calls import each
from stelae.client.dropped_ranges import check_dropped, unless_dropped
from stelae.client.feed_options import FeedOptions
from stelae.client.feed_position import FeedPosition, TabletPart
from stelae.client.latest_time import LEADERS_ASKED_AT_ONCE
from stelae.client.page_rows import PageRows
from stelae.client.present_table import PresentTable
from stelae.client.relocated_tablet import RelocatedTablet
from stelae.client.times import from_wall_us, to_datetime
from stelae.client.tokens import ScanToken, TokenPart
from stelae.protocol.tablet_messages import NoSuchTablet
from stelae.rows.keys import encode_keys
from stelae.spi.errors import TooOld
from stelae.spi.ids import TabletId
from stelae.spi.rows import RowBatch
from stelae.spi.scan import Order, ScanSpec
from stelae.spi.schema import Schema

IDLE_S_MAX = 600.0
"""An idle table gets a later position when its position is this old, in seconds. Otherwise the history of the position
would expire as soon as the table is written again."""

IDLE_LAG_S = 300.0
"""How far before this machine's time the later position of an idle table is, in seconds. Nodes refuse times ahead of
their clocks, and this machine's clock may be ahead of them."""


class ChangesExpired(TooOld, code="CHANGES_EXPIRED"):
    """Changes that a feed has to read are no longer kept.

    ``floor`` is the lowest hybrid timestamp from which all tablets that the feed needs can be read."""

    def __init__(self, table: str, since: int, floor: int) -> None:
        super().__init__(floor)
        times = [to_datetime(time).isoformat() for time in (since, floor)]
        self.args = (
            f"the change feed of table {table!r} is at {times[0]}, but keeps its history since {times[1]}, so changes "
            "are missing. Begin again with all rows of the table (leave out 'since'), or with a later time and accept "
            "the gap; maintenance.history_retention_s of the nodes says how long history is kept",
        )


@contextmanager
def named_expiry(table: str, since: int) -> Iterator[None]:
    """Raise ``ChangesExpired`` where a read of changes since a time finds it below a history floor."""
    try:
        yield
    except ChangesExpired:
        raise
    except TooOld as error:
        raise ChangesExpired(table, since, error.floor) from error


class RoundPlanner:
    """Asks the tablets of a table for what the rounds of a feed need to know.

    Args:
        table: the table.
        schema: its columns and key, as the feed reads them.
        options: how long each tablet is asked, and what happens if a range was dropped.
    """

    def __init__(self, table: PresentTable, schema: Schema, options: FeedOptions) -> None:
        self._table = table
        self._schema = schema
        self._options = options
        self._timeout_s = options.timeout_s

    def idle_end(self) -> int:
        """Return the hybrid timestamp of a later position of an idle table."""
        return self._table.now() - _span(IDLE_LAG_S)

    async def last_write(self) -> int:
        """Return the hybrid timestamp of the last entry of all tablets."""
        tablets = self._table.tablet_ids
        return max(await each(tablets, self._last_entry, at_once=LEADERS_ASKED_AT_ONCE), default=0)

    async def end_of_next(self, start: FeedPosition, until: int | None, not_after: int | None = None) -> FeedPosition:
        """Return the end of the round that begins at ``start``; it is ``start`` itself if nothing was written since.

        Args:
            start: a position between two rounds.
            until: hybrid timestamp at which the round ends; ``None``: the time of the last write.
            not_after: hybrid timestamp; the round ends there if the last write is after it. ``None``: no bound.

        Raises:
            RangeDropped: tablets of ``start`` are gone, and the feed does not go on without them.
        """
        await self._table.refresh_tablets(timeout_s=self._timeout_s)
        tablets = self._table.tablet_ids
        dropped = start.dropped_of(tablets)
        check_dropped(self._table, dropped, self._options)
        if until is None:
            until = await self.last_write()
            if until <= start.since < self._table.now() - _span(IDLE_S_MAX):
                until = self.idle_end()
            until = until if not_after is None else min(until, not_after)
        listed = tuple(tablets) if self._table.may_change_tablets else ()
        if until <= start.since and not dropped and not start.added_of(listed):
            return start
        return FeedPosition.at(start.table, max(until, start.since), listed)

    async def changed(self, parts: Sequence[TabletPart]) -> list[TabletPart]:
        """Return the parts that may have changes. Afterwards no change of a part can get a time up to its ``until``.

        Raises:
            ChangesExpired: the history of a part is not kept any more.
            RangeDropped: the range of a part was dropped, and the feed does not go on without it.
            Unavailable: a tablet did not answer in time.
        """
        if any(not self._table.has_tablet(part.tablet_id) for part in parts):
            await self._table.refresh_tablets(timeout_s=self._timeout_s)
        floors: list[tuple[int, int]] = []
        dropped: list[TabletId] = []

        async def has_changes(part: TabletPart) -> bool:
            try:
                # From here on, all later entries of the tablet have times above ``until``. So if its last entry is not
                # above ``since``, it has none between the two times.
                await self._probe(part.tablet_id, part.until)
                if part.since is None:
                    return True
                if await self._probe(part.tablet_id, None) <= part.since:
                    return False
                await self._probe(part.tablet_id, part.since)
            except NoSuchTablet:
                if self._table.has_tablet(part.tablet_id):
                    raise
                dropped.append(part.tablet_id)
                return False
            except TooOld as error:
                floors.append((error.floor, part.until if part.since is None else part.since))
                return False
            return True

        found = await each(parts, has_changes, at_once=LEADERS_ASKED_AT_ONCE)
        check_dropped(self._table, dropped, self._options)
        if floors:
            raise ChangesExpired(self._table.name, min(since for _, since in floors), max(floor for floor, _ in floors))
        return [part for part, is_changed in zip(parts, found, strict=True) if is_changed]

    async def cut(
        self, start: FeedPosition, end: FeedPosition, parts: Sequence[TabletPart], rows_max: int
    ) -> FeedPosition:
        """Return a position up to ``end`` that is at most ``rows_max`` changes away. Only keys are read for it."""
        left = rows_max
        for part in parts:
            if not left:
                return start.within(end, part.number, part.after)
            last = None
            scan = self._table.scan(self.token(part, self._schema.key, left), self._schema, self._timeout_s)
            with named_expiry(self._table.name, part.since or part.until):
                async for batch in unless_dropped(self._table, part.tablet_id, self._options, scan.batches()):
                    if batch.num_rows:
                        left -= batch.num_rows
                        last = batch.slice(batch.num_rows - 1)
            if not left and last is not None:
                keys = RowBatch(self._schema.key_layout, last.select([*range(len(self._schema.key))]))
                return start.within(end, part.number, encode_keys(self._schema, keys)[0])
        return end

    def token(self, part: TabletPart, ids: Sequence[int], limit: int | None = None) -> ScanToken:
        """Return the token that reads columns of a part, in key order."""
        spec = ScanSpec(
            columns=tuple(ids),
            key_from=None if part.after is None else part.after + b"\0",
            key_until=None if part.upto is None else part.upto + b"\0",
            limit=limit,
            order=Order.KEY,
        )
        return self._table.token(self._schema, spec, TokenPart(part.tablet_id, part.until), part.since)

    async def _last_entry(self, tablet_id: TabletId) -> int:
        """Return the hybrid timestamp of the last entry of a tablet; 0: the range of the tablet was dropped."""
        try:
            return await self._probe(tablet_id, None)
        except NoSuchTablet:
            if self._table.has_tablet(tablet_id):
                raise
            return 0

    async def _probe(self, tablet_id: TabletId, at: int | None) -> int:
        """Read at most one key of a tablet at a time, and return the time; ``None``: linearizably.

        Raises:
            NoSuchTablet: the range of the tablet was dropped.
            TooOld: the time is below the history floor.
        """
        spec = ScanSpec(columns=self._schema.key, limit=1)
        if not self._table.has_tablet(tablet_id):
            raise NoSuchTablet(f"the range of tablet {tablet_id!r} was dropped")
        tablet = RelocatedTablet(self._table, self._schema, tablet_id)
        page, rows = await tablet.page(spec, at=at, at_least=None, reader=PageRows(spec), timeout_s=self._timeout_s)
        await rows
        return page.at


def _span(seconds: float) -> int:
    """Return the difference of hybrid timestamps that are some seconds apart."""
    return from_wall_us(int(seconds * 1_000_000))
