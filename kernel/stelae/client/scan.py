"""Scans and diffs of a table: as a stream of Arrow batches, or as a whole in several forms."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from stelae.client.page_streams import ReadableTablet, ScanSource, SourcePage, merged_by_key, pages_in_any_order
from stelae.client.token_division import combined, sized
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
"""Returns the token of a scan with the tablets that it reads; the second argument is the timeout in seconds."""


class AsyncScan:
    """A description of a scan or a diff. Each method that reads runs the scan from its start.

    Made by ``AsyncTable.scan`` and ``AsyncTable.diff``. ``async for batch in scan`` yields ``pyarrow.RecordBatch``
    objects, and reads ahead by a few pages only. Servers need no state between two pages, so a scan may pause for any
    time, and continue at another replica."""

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
        """What is left of each source that is not at its end, by number; ``None``: the scan has not begun."""
        self._limit_left = token.spec.limit
        self._before: tuple[dict[int, TokenPart] | None, int | None] = self._rest, self._limit_left
        """The same two before the last batch that was yielded."""

    @property
    def columns(self) -> Sequence[str]:
        """Names of the columns that the scan returns, in order."""
        return [column.name for column in self._layout.columns]

    @property
    def arrow_schema(self) -> Any:
        """The ``pyarrow.Schema`` of the scan's batches."""
        return self._layout.arrow

    @property
    def at(self) -> int | None:
        """The hybrid timestamp at which the scan reads, if it was described with one.

        A diff always has one. The next diff with this time as ``since`` continues without a gap."""
        return self._token.at

    # -- streaming -------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[Any]:
        return self.batches()

    async def batches(self) -> AsyncGenerator[Any, None]:
        """Yield ``pyarrow.RecordBatch`` objects.

        Raises:
            Unavailable: no replica could serve a page in time.
            TooOld: the snapshot is below the history floor.
            SchemaMismatch: a column that the scan reads was dropped, or a filter does not fit.
        """
        spec = self._token.spec
        if spec.limit == 0:
            self._rest = {}
            return
        self._begun = await self._begin(self._token, self._timeout_s)
        by_key = spec.order is not Order.ANY and len(self._parts) > 1
        stream = self._by_key() if by_key else self._in_any_order()
        self._limit_left = spec.limit
        self._before = None, spec.limit
        async with aclosing(stream):
            async for rows in stream:
                within = rows if self._limit_left is None else rows.slice(0, self._limit_left)
                if self._limit_left is not None:
                    self._limit_left -= len(within)
                    if not self._limit_left:
                        self._rest = {}
                yield self._with_names(within)
                if self._limit_left == 0:
                    return
                self._before = {**(self._rest or {})}, self._limit_left

    @property
    def _parts(self) -> tuple[TokenPart, ...]:
        return self._begun.parts or ()

    def _with_names(self, rows: RowBatch) -> Any:
        """Return rows under the column names that the table had when the scan was described."""
        import pyarrow as pa

        if rows.layout is self._layout or rows.layout == self._layout:
            return rows.arrow
        return pa.RecordBatch.from_arrays(rows.arrow.columns, schema=self._layout.arrow)

    async def _in_any_order(self) -> AsyncGenerator[RowBatch, None]:
        self._rest = dict(enumerate(self._parts))
        async with aclosing(self._pages(self._sources(self._layout))) as stream:
            async for page in stream:
                self._record_progress(page)
                if page.rows is not None:
                    yield page.rows

    def _pages(self, sources: Sequence[ScanSource]) -> AsyncGenerator[SourcePage, None]:
        # One page of one tablet, as for a read of one row, needs no task and no queue.
        limit = self._token.spec.limit
        is_small = len(sources) == 1 and limit is not None and limit <= SCAN_PAGE_ROWS_MAX
        return sources[0].pages() if is_small else pages_in_any_order(sources)

    def _record_progress(self, page: SourcePage) -> None:
        assert self._rest is not None
        if page.rest is None:
            self._rest.pop(page.number, None)
        else:
            self._rest[page.number] = page.rest

    async def _by_key(self) -> AsyncGenerator[RowBatch, None]:
        """Merge the tablets by key. The key columns are read as well, and removed from the result."""
        schema, layout = self._schema, self._layout
        wider = layout
        if self._token.since is None:  # The rows of a diff always have the key columns.
            wider = schema.project((*layout.ids, *(i for i in schema.key if i not in layout.ids)))
        self._rest = dict(enumerate(self._parts))
        descending = self._token.spec.order is Order.KEY_DESCENDING
        sources = self._sources(wider)
        parts = self._parts
        async with aclosing(merged_by_key(sources, key_order(schema), descending=descending)) as stream:
            async for rows in stream:
                after = encode_keys(schema, rows.slice(len(rows) - 1))[0]
                # The rows of every tablet up to this key have been yielded, and none behind it.
                rest = [TokenPart(part.tablet_id, s.at, after) for s, part in zip(sources, parts, strict=True)]
                self._rest = dict(enumerate(rest))
                yield rows.select(layout)
        self._rest = {}

    def _sources(self, layout: Layout, *, counts: bool = False) -> list[ScanSource]:
        token, timeout_s = self._begun, self._timeout_s
        spec = msgspec.structs.replace(token.spec, columns=tuple(i for i in layout.ids if i != FLAG_ID))
        return [
            ScanSource(
                n, self._tablet(part.tablet_id), spec, part, token.at_least, timeout_s, token.since, counts=counts
            )
            for n, part in enumerate(self._parts)
        ]

    # -- tokens ----------------------------------------------------------------------------------

    async def tokens(self, *, target_bytes: int | None = None) -> list[ScanToken]:
        """Divide the scan into one token for each tablet that it reads now, or into tokens of about one size.

        Together the tokens return the rows of the scan, in any order. A limit applies to each token by itself.

        Args:
            target_bytes: divide large tablets and put small ones together, so that one token reads about this many
                bytes of rows, of all columns. At least 1 MiB. It is an estimate of the tablet servers. At least 64
                tokens are left, if there are as many tablets. ``None``: one token for each tablet.

        Raises:
            BadArgument: ``target_bytes`` is less than 1 MiB.
            Unavailable: no replica of a tablet answered in time.
        """
        begun = await self._begin(self._token, self._timeout_s)
        tokens = [msgspec.structs.replace(begun, parts=(part,)) for part in begun.parts or ()]
        if target_bytes is None:
            return tokens
        return combined(await sized(tokens, self._tablet, target_bytes, self._timeout_s), target_bytes)

    def token(self) -> ScanToken | None:
        """Return a token for the rest of the scan behind the last batch that was yielded; ``None``: at its end."""
        if self._rest is None:
            return self._token
        if not self._rest:
            return None
        spec = msgspec.structs.replace(self._token.spec, limit=self._limit_left)
        return msgspec.structs.replace(self._begun, spec=spec, parts=tuple(self._rest.values()))

    def put_back(self) -> None:
        """Let ``token`` return one with the last batch, which was yielded and never arrived at the reader."""
        self._rest, self._limit_left = self._before

    # -- as a whole ------------------------------------------------------------------------------

    async def to_arrow(self) -> Any:
        """Return all rows as a ``pyarrow.Table``."""
        import pyarrow as pa

        return pa.Table.from_batches([batch async for batch in self], self._layout.arrow)

    async def to_pandas(self, **options: Any) -> Any:
        """Return all rows as a ``pandas.DataFrame``. The options are those of ``pyarrow.Table.to_pandas``.

        Columns that may be null have pandas types with a null value (``Int64``, ``boolean``), so no number is rounded
        because of nulls."""
        return as_pandas(await self.to_arrow(), options)

    async def to_polars(self) -> Any:
        """Return all rows as a ``polars.DataFrame``."""
        return as_polars(await self.to_arrow())

    async def to_pylist(self) -> list[Record]:
        """Return all rows as dicts."""
        return [record async for batch in self for record in batch.to_pylist()]

    async def count(self) -> int:
        """Return the number of rows. Only the key columns are read, and they are not decoded."""
        spec = msgspec.structs.replace(self._token.spec, columns=self._schema.key, order=Order.ANY)
        token = msgspec.structs.replace(self._token, spec=spec)
        return await AsyncScan(token, self._schema, self._tablet, self._timeout_s, self._begin)._counted()

    async def _counted(self) -> int:
        """Add up what the pages say, up to the limit, which each tablet keeps by itself."""
        limit, total = self._token.spec.limit, 0
        if limit == 0:
            return 0
        self._begun = await self._begin(self._token, self._timeout_s)
        async with aclosing(self._pages(self._sources(self._layout, counts=True))) as stream:
            async for page in stream:
                total += page.row_count
                if limit is not None and total >= limit:
                    return limit
        return total


def as_pandas(table: Any, options: Mapping[str, Any]) -> Any:
    """Convert an Arrow table into a pandas frame.

    Integer and boolean columns that may be null get pandas types with a null value (``Int64``, ``boolean``), whether
    they have nulls or not: as floats, large integers would change. An option for types turns this off.

    Raises:
        CallerError: pandas is not installed.
    """
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
    """Return the pandas types with a null value, by Arrow type."""
    import pandas as pd
    import pyarrow as pa

    whole = {getattr(pa, f"int{bits}")(): getattr(pd, f"Int{bits}Dtype")() for bits in (8, 16, 32, 64)}
    return {pa.bool_(): pd.BooleanDtype(), **whole}


def _with_categories(table: Any, names: Sequence[str]) -> Any:
    """Convert columns to categories as pyarrow's option ``categories`` does, but before ``types_mapper`` applies: else
    pyarrow would map the type of the categories."""
    for number, name in enumerate(table.column_names):
        if name in names:
            table = table.set_column(number, name, table.column(number).dictionary_encode())
    return table


def as_polars(table: Any) -> Any:
    """Convert an Arrow table into a polars frame; ``CallerError``: polars is not installed."""
    try:
        import polars
    except ImportError as error:
        raise CallerError("to_polars needs polars: pip install 'stelae[polars]'") from error
    return polars.from_arrow(table)
