"""Scans of a table, as Arrow batches that stream, or as a whole in the form that is wanted."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from stelae.client.streams import ReadableTablet, ScanSource, SourceRows, merged, side_by_side
from stelae.client.tokens import ScanToken, TokenPart
from stelae.protocol.tablet_messages import SCAN_PAGE_ROWS_MAX
from stelae.rows.changes import FLAG_ID, changes_layout
from stelae.rows.key_order import key_order
from stelae.rows.keys import encode_keys
from stelae.spi.errors import CallerError
from stelae.spi.ids import TabletId
from stelae.spi.rows import RowBatch
from stelae.spi.scan import Order
from stelae.spi.schema import Layout, Schema

Record = dict[str, Any]

Begin = Callable[[ScanToken, float], Awaitable[ScanToken]]
"""Finds out which tablets a scan reads, in so many seconds."""


class AsyncScan:
    """A scan that has not begun; each of its methods that reads carries it out, from the start.

    Made by ``AsyncTable.scan``. ``async for batch in scan`` gives ``pyarrow.RecordBatch`` objects and asks for more
    only as they are taken. No server has to keep anything between two pages, so a scan may rest as long as it likes,
    and go on at another replica."""

    def __init__(
        self,
        token: ScanToken,
        schema: Schema,
        tablet: Callable[[TabletId], ReadableTablet],
        timeout_s: float,
        begin: Begin,
    ) -> None:
        self._token = token
        self._begin = begin
        self._begun = token
        self._schema = schema
        self._tablet = tablet
        self._timeout_s = timeout_s
        ids = token.spec.columns
        self._layout = schema.project(ids) if token.since is None else changes_layout(schema, ids)
        self._rest: dict[int, TokenPart] | None = None
        self._left = token.spec.limit

    @property
    def columns(self) -> Sequence[str]:
        """Names of the columns that the scan returns, in order."""
        return [column.name for column in self._layout.columns]

    @property
    def arrow_schema(self) -> Any:
        """The ``pyarrow.Schema`` of its batches."""
        return self._layout.arrow

    @property
    def at(self) -> int | None:
        """The hybrid timestamp that it reads at, if it was described with one. A diff always has one: the next diff
        ``since`` it goes on without a gap."""
        return self._token.at

    # -- streaming -------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[Any]:
        return self.batches()

    async def batches(self) -> AsyncGenerator[Any, None]:
        """Yield ``pyarrow.RecordBatch`` objects.

        Raises:
            Unavailable: no replica could serve in time.
            TooOld: the snapshot is below the history floor.
            SchemaMismatch: a column was dropped meanwhile, or a filter does not fit.
        """
        spec = self._token.spec
        if spec.limit == 0:
            self._rest = {}
            return
        self._begun = await self._begin(self._token, self._timeout_s)
        by_key = spec.order is not Order.ANY and len(self._parts) > 1
        stream = self._by_key() if by_key else self._as_they_come()
        self._left = spec.limit
        async with aclosing(stream):
            async for rows in stream:
                kept = rows if self._left is None else rows.slice(0, self._left)
                if self._left is not None:
                    self._left -= len(kept)
                    if not self._left:
                        self._rest = {}
                yield self._named(kept)
                if self._left == 0:
                    return

    @property
    def _parts(self) -> tuple[TokenPart, ...]:
        return self._begun.parts or ()

    def _named(self, rows: RowBatch) -> Any:
        """The rows under the names that their columns had when the scan was described."""
        import pyarrow as pa

        if rows.layout is self._layout or rows.layout == self._layout:
            return rows.arrow
        return pa.RecordBatch.from_arrays(rows.arrow.columns, schema=self._layout.arrow)

    async def _as_they_come(self) -> AsyncGenerator[RowBatch, None]:
        self._rest = dict(enumerate(self._parts))
        sources, limit = self._sources(self._layout), self._token.spec.limit
        # A point read, say: one page of one tablet needs no task and no queue.
        is_small = len(sources) == 1 and limit is not None and limit <= SCAN_PAGE_ROWS_MAX
        async with aclosing(sources[0].pieces() if is_small else side_by_side(sources)) as stream:
            async for piece in stream:
                self._note(piece)
                if piece.rows is not None:
                    yield piece.rows

    def _note(self, piece: SourceRows) -> None:
        assert self._rest is not None
        if piece.rest is None:
            self._rest.pop(piece.number, None)
        else:
            self._rest[piece.number] = piece.rest

    async def _by_key(self) -> AsyncGenerator[RowBatch, None]:
        """Merge; the key columns come along and are left out at the end."""
        schema, layout = self._schema, self._layout
        wider = layout
        if self._token.since is None:  # Changes have the key anyway.
            wider = schema.project((*layout.ids, *(i for i in schema.key if i not in layout.ids)))
        self._rest = dict(enumerate(self._parts))
        descending = self._token.spec.order is Order.KEY_DESCENDING
        sources = self._sources(wider)
        parts = self._parts
        async with aclosing(merged(sources, key_order(schema), descending=descending)) as stream:
            async for rows in stream:
                after = encode_keys(schema, rows.slice(len(rows) - 1))[0]
                # Every tablet has given what lies before this key, and nothing behind it.
                rest = [TokenPart(part.tablet_id, s.at, after) for s, part in zip(sources, parts, strict=True)]
                self._rest = dict(enumerate(rest))
                yield rows.select(layout)
        self._rest = {}

    def _sources(self, layout: Layout) -> list[ScanSource]:
        token = self._begun
        spec = msgspec.structs.replace(token.spec, columns=tuple(i for i in layout.ids if i != FLAG_ID))
        return [
            ScanSource(number, self._tablet(part.tablet_id), spec, part, token.at_least, self._timeout_s, token.since)
            for number, part in enumerate(self._parts)
        ]

    # -- tokens ----------------------------------------------------------------------------------

    async def tokens(self) -> list[ScanToken]:
        """Return the scan in parts, one for each tablet that it reads by now: together they return its rows, in any
        order. With a limit each of them returns at most so many."""
        begun = await self._begin(self._token, self._timeout_s)
        return [msgspec.structs.replace(begun, parts=(part,)) for part in begun.parts or ()]

    def token(self) -> ScanToken | None:
        """Return what is left of the scan behind the last batch that was taken; ``None``: nothing is."""
        if self._rest is None:
            return self._token
        if not self._rest:
            return None
        spec = msgspec.structs.replace(self._token.spec, limit=self._left)
        return msgspec.structs.replace(self._begun, spec=spec, parts=tuple(self._rest.values()))

    # -- as a whole ------------------------------------------------------------------------------

    async def to_arrow(self) -> Any:
        """Return all rows as a ``pyarrow.Table``."""
        import pyarrow as pa

        return pa.Table.from_batches([batch async for batch in self], self._layout.arrow)

    async def to_pandas(self, **options: Any) -> Any:
        """Return all rows as a ``pandas.DataFrame``; options are those of ``pyarrow.Table.to_pandas``. Columns that may
        be null are of pandas' types that have one (``Int64``, ``boolean``): no number is rounded for the sake of it."""
        return as_pandas(await self.to_arrow(), options)

    async def to_polars(self) -> Any:
        """Return all rows as a ``polars.DataFrame``."""
        return as_polars(await self.to_arrow())

    async def to_pylist(self) -> list[Record]:
        """Return all rows as dicts."""
        return [record async for batch in self for record in batch.to_pylist()]

    async def count(self) -> int:
        """Return the number of rows, reading the key columns alone."""
        spec = msgspec.structs.replace(self._token.spec, columns=self._schema.key, order=Order.ANY)
        token = msgspec.structs.replace(self._token, spec=spec)
        counted = AsyncScan(token, self._schema, self._tablet, self._timeout_s, self._begin)
        return sum([len(batch) async for batch in counted])


def as_pandas(table: Any, options: Mapping[str, Any]) -> Any:
    """Convert an Arrow table; ``CallerError`` when pandas is not installed.

    Whole numbers and truth values that may be null get the types of pandas that have a null (``Int64``, ``boolean``),
    unless an option says otherwise: as floats, large numbers would be others. It is by the column, not by its rows."""
    try:
        if {"types_mapper", "integer_object_nulls"} & options.keys():
            return table.to_pandas(**options)
        kinds = _types_with_null()
        others = dict(options)
        table = _with_categories(table, others.pop("categories", None) or ())
        frame = table.to_pandas(types_mapper=kinds.get, **others)
    except ImportError as error:
        raise CallerError("to_pandas needs pandas: pip install 'stelae[pandas]'") from error
    never_null = [field for field in table.schema if not field.nullable and field.type in kinds]
    plain = {field.name: str(field.type) for field in never_null if frame[field.name].dtype == kinds[field.type]}
    return frame.astype(plain) if plain else frame


def _types_with_null() -> dict[Any, Any]:
    """The types of pandas that have a null, by the Arrow types that have none there otherwise."""
    import pandas as pd
    import pyarrow as pa

    whole = {getattr(pa, f"int{bits}")(): getattr(pd, f"Int{bits}Dtype")() for bits in (8, 16, 32, 64)}
    return {pa.bool_(): pd.BooleanDtype(), **whole}


def _with_categories(table: Any, names: Sequence[str]) -> Any:
    """What pyarrow does of itself for ``categories``; but of a column of categories it then asks the type mapped."""
    for place, name in enumerate(table.column_names):
        if name in names:
            table = table.set_column(place, name, table.column(place).dictionary_encode())
    return table


def as_polars(table: Any) -> Any:
    """Convert an Arrow table; ``CallerError`` when polars is not installed."""
    try:
        import polars
    except ImportError as error:
        raise CallerError("to_polars needs polars: pip install 'stelae[polars]'") from error
    return polars.from_arrow(table)
