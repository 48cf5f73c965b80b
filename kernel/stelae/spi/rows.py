"""``RowBatch``: rows as one Arrow record batch, with types.

From the log entry on, rows travel and are stored as Arrow; this is the one typed face of it
(pyarrow ships no types). pyarrow is imported on first use, so importing this module is cheap.

A batch's bytes are one Arrow IPC message without its schema: whoever reads them knows the layout
from the schema version that the log recorded earlier."""

import struct
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, Self

from stelae.spi.errors import Corrupt, SchemaMismatch
from stelae.spi.schema import Column, Layout, data_type

_ACCEPTED: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("int8", "int16", "int32", "int64"), (int,)),
    **dict.fromkeys(("float", "double"), (float, int)),
    "bool": (bool,),
    "decimal": (Decimal, int, str),
    "string": (str,),
    "binary": (bytes,),
    "date": (date, int),
    "timestamp": (datetime, int),
}
MALFORMED = (OSError, EOFError, ValueError, OverflowError, struct.error)
_UNFIT = (ValueError, TypeError, ArithmeticError)
# Half a step above the largest finite single: from here on a value would become infinite.
_FLOAT_MAX = 3.4028235677973366e38


@lru_cache(maxsize=1024)
def _accepted(type_text: str, nullable: bool) -> frozenset[type]:
    return frozenset((*_ACCEPTED[data_type(type_text).name], *(type(None),) * nullable))


def _as_arrow_takes(column: Column, values: Sequence[Any]) -> Sequence[Any]:
    """Look at the types first: Arrow itself would cut 1.5 to 1, read True as 1.0 and bytes as text."""
    if not _accepted(column.type, column.nullable).issuperset(map(type, values)):
        what = f"{column.type} or null" if column.nullable else f"{column.type}, never null"
        raise SchemaMismatch(f"column {column.name!r} takes {what}")
    if column.type == "float" and any(_FLOAT_MAX <= abs(v or 0) < float("inf") for v in values):
        raise SchemaMismatch(f"column {column.name!r}: a value is too large for a float")
    if column.type.startswith("decimal"):
        return [Decimal(v) if isinstance(v, str) else v for v in values]
    return values


def to_array(column: Column, values: Sequence[Any]) -> Any:
    """Convert plain (or ``date``, ``datetime``, ``Decimal``) values to a ``pyarrow.Array``.

    Nothing is rounded (but by 32-bit floats), truncated or parsed on the way, decimals given as text excepted.
    ``SchemaMismatch``: some value does not fit; which one is not looked for."""
    import pyarrow as pa

    try:
        return pa.array(_as_arrow_takes(column, values), column.data_type.arrow())
    except (pa.ArrowException, *_UNFIT) as error:
        raise SchemaMismatch(f"column {column.name!r}: {error}") from error


class RowBatch:
    """Immutable rows of one layout. ``arrow`` is the ``pyarrow.RecordBatch`` beneath."""

    __slots__ = ("arrow", "layout")

    def __init__(self, layout: Layout, arrow: Any) -> None:
        self.layout = layout
        self.arrow = arrow

    @classmethod
    def from_arrays(cls, layout: Layout, arrays: Sequence[Any]) -> Self:
        """Build a batch from arrays that have the layout's types already."""
        import pyarrow as pa

        return cls(layout, pa.RecordBatch.from_arrays(arrays, schema=layout.arrow))

    @classmethod
    def from_equal_rows(cls, layout: Layout, rows: Sequence[Sequence[Any]]) -> Self:
        """Build a batch from rows, each with one value per column of the layout, in its order. ``SchemaMismatch``,
        which does not say of which row: another width, or a value that does not fit."""
        try:
            columns = [*zip(*rows, strict=True)] if rows else [()] * len(layout.columns)
        except ValueError as error:
            raise SchemaMismatch("rows differ in their number of values") from error
        if len(columns) != len(layout.columns):
            raise SchemaMismatch(f"rows have {len(columns)} values, not {len(layout.columns)}")
        import pyarrow as pa

        try:
            # One call of Arrow for all columns, as tuples of a struct, costs a third of one for each.
            taken = zip(*map(_as_arrow_takes, layout.columns, columns), strict=True)
            struct = pa.array([*taken], layout.struct)
        except (pa.ArrowException, *_UNFIT) as error:
            raise SchemaMismatch(f"a value does not fit its column: {error}") from error
        return cls(layout, pa.RecordBatch.from_struct_array(struct))

    @classmethod
    def from_ipc(cls, layout: Layout, data: bytes | memoryview, *, allow_nulls: bool = False) -> Self:
        """Read what :meth:`to_ipc` wrote, without copying. Safe with bytes from anywhere, but for what a compressed
        message may grow to (``stelae.rows.declared_size``).

        ``allow_nulls`` lets nulls pass in columns that are not nullable, for callers who look.
        ``Corrupt`` when this is no record batch of the layout."""
        import pyarrow as pa

        try:
            batch = pa.ipc.read_record_batch(pa.ipc.read_message(pa.py_buffer(data)), layout.arrow)
            batch.validate(full=True)
        except (pa.ArrowException, *MALFORMED) as error:
            raise Corrupt(f"not a record batch: {str(error)[:200]}") from error
        for column, array in zip(() if allow_nulls else layout.columns, batch.columns, strict=False):
            if not column.nullable and array.null_count:
                raise Corrupt(f"column {column.name!r} of a record batch holds nulls")
        return cls(layout, batch)

    def to_ipc(self) -> bytes:
        """Return the batch as one Arrow IPC message, without its schema."""
        return bytes(self.arrow.serialize())

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return int(self.arrow.num_rows)

    @property
    def nbytes(self) -> int:
        """Bytes of the values in memory."""
        return int(self.arrow.nbytes)

    def __len__(self) -> int:
        return self.num_rows

    def slice(self, offset: int, length: int | None = None) -> "RowBatch":
        """Return rows from ``offset``, at most ``length`` of them, without copying."""
        return RowBatch(self.layout, self.arrow.slice(offset, length))

    def filter(self, mask: Any) -> "RowBatch":
        """Return the rows whose place in ``mask`` (bools or a boolean array) is true."""
        import pyarrow as pa

        mask = mask if isinstance(mask, pa.Array) else pa.array(mask, pa.bool_())
        return RowBatch(self.layout, self.arrow.filter(mask))

    def values(self, place: int) -> list[Any]:
        """Return the plain values of the column at a position of the layout."""
        import pyarrow as pa

        array = self.arrow.column(place)
        stored_as = {"date": "int32", "timestamp": "int64"}.get(self.layout.columns[place].type)
        if stored_as:
            array = array.view(pa.type_for_alias(stored_as))
        return list(array.to_pylist())

    def to_rows(self) -> list[tuple[Any, ...]]:
        """Return the rows as tuples of plain values."""
        return [*zip(*map(self.values, range(len(self.layout.columns))), strict=True)]

    def select(self, layout: Layout) -> "RowBatch":
        """Return the batch under another layout, columns matched by id. Absent ones get their default, else nulls: the
        caller knows that one of the two is allowed."""
        if layout is self.layout or layout == self.layout:
            return self
        mine = dict(zip(self.layout.ids, self.arrow.columns, strict=True))
        count = self.num_rows
        return RowBatch.from_arrays(layout, [mine[c.id] if c.id in mine else _filled(c, count) for c in layout.columns])


def _filled(column: Column, count: int) -> Any:
    import pyarrow as pa

    if column.nullable and column.default is None:
        return pa.nulls(count, column.data_type.arrow())
    return to_array(column, [column.default] * count)
