"""Makes change feeds of what a caller gives: times, positions and tokens."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

from stelae.client.change_feed import AsyncChangeFeed, PartReader
from stelae.client.feed_columns import FeedRows
from stelae.client.feed_options import FeedOptions
from stelae.client.feed_position import FeedPosition, parts_between
from stelae.client.present_table import PresentTable
from stelae.client.times import At, hybrid, to_datetime
from stelae.client.tokens import BadToken, ScanToken
from stelae.spi.errors import CallerError
from stelae.spi.schema import Schema


def feed_of(
    table: PresentTable, since: At | str | None, until: At | str | None, ids: Sequence[int], options: FeedOptions
) -> AsyncChangeFeed:
    """Return a feed of a table. See ``AsyncTable.changes``."""
    if options.follow and until is not None:
        raise CallerError("a feed that follows has no end; leave out follow or until")
    identity = table.identity
    start = _position(since, identity)
    end = (
        FeedPosition.from_text(until, identity) if isinstance(until, str) else None if until is None else hybrid(until)
    )
    if isinstance(end, FeedPosition):
        parts_between(start, end, table.tablet_ids)
    elif end is not None and start.time > end:
        times = f"{to_datetime(start.time).isoformat()} is after {to_datetime(end).isoformat()}"
        raise CallerError(f"since must not be after until, but {times}; exchange them")
    schema = table.schema
    return AsyncChangeFeed(table, schema, FeedRows(schema, ids), start, end, options)


def _position(given: At | str | None, identity: str) -> FeedPosition:
    if isinstance(given, str):
        return FeedPosition.from_text(given, identity)
    return FeedPosition.at(identity, 0 if given is None else hybrid(given))


async def changes_of(table: PresentTable, token: ScanToken, options: FeedOptions) -> AsyncGenerator[Any, None]:
    """Yield the changes of a token of a feed. See ``AsyncTable.open_changes``."""
    schema = Schema.from_bytes(token.schema)
    if token.at is None or token.parts is None:
        raise BadToken("the token is not one of a change feed; tokens() of a feed makes them")
    reader = PartReader(table, schema, FeedRows(schema, token.spec.columns or ()), options)
    async for batch, _ in reader.batches(token):
        yield batch
