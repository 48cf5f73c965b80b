"""``RowBatch``: rows as one Arrow record batch, with Python types.

From the log entry on, rows are Arrow. This module is the only typed interface to it, because pyarrow has no type hints.
pyarrow is imported on first use, so importing this module is cheap.

The bytes of a batch are one Arrow IPC message without its schema. The reader knows the layout from the schema version,
which was recorded in the log earlier."""

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
# Half a step above the largest finite 32-bit float. From this value on, a value would become infinite.
_FLOAT_MAX = 3.4028235677973366e38


@lru_cache(maxsize=1024)
def _accepted(type_text: str, nullable: bool) -> frozenset[type]:
    return frozenset((*_ACCEPTED[data_type(type_text).name], *(type(None),) * nullable))


def _as_arrow_takes(column: Column, values: Sequence[Any]) -> Sequence[Any]:
    """Check the types of values before Arrow converts them. Arrow would cut 1.5 to 1, and read True as 1.0 and bytes
    as text."""
    if not _accepted(column.type, column.nullable).issuperset(map(type, values)):
        what = f"{column.type} or null" if column.nullable else f"{column.type}, never null"
        raise SchemaMismatch(f"column {column.name!r} accepts {what}")
    if column.type == "float" and any(_FLOAT_MAX <= abs(v or 0) < float("inf") for v in values):
        raise SchemaMismatch(f"column {column.name!r}: a value is too large for a float")
    if column.type.startswith("decimal"):
        return [Decimal(v) if isinstance(v, str) else v for v in values]
    return values


def to_array(column: Column, values: Sequence[Any]) -> Any:
    """Convert plain values, ``date``, ``datetime`` or ``Decimal`` values to a ``pyarrow.Array``.

    No value is rounded (except to a 32-bit float), truncated or parsed (except a decimal given as text). Raises
    ``SchemaMismatch`` if a value does not fit; the error does not say which one."""
    import pyarrow as pa

    try:
        return pa.array(_as_arrow_takes(column, values), column.data_type.arrow())
    except (pa.ArrowException, *_UNFIT) as error:
        raise SchemaMismatch(f"column {column.name!r}: {error}") from error


class RowBatch:
    """Immutable rows with one layout. ``arrow`` is the ``pyarrow.RecordBatch`` with the values."""

    __slots__ = ("arrow", "layout")

    def __init__(self, layout: Layout, arrow: Any) -> None:
        self.layout = layout
        self.arrow = arrow

    @classmethod
    def from_arrays(cls, layout: Layout, arrays: Sequence[Any]) -> Self:
        """Build a batch from arrays that have the types of the layout."""
        import pyarrow as pa

        return cls(layout, pa.RecordBatch.from_arrays(arrays, schema=layout.arrow))

    @classmethod
    def from_equal_rows(cls, layout: Layout, rows: Sequence[Sequence[Any]]) -> Self:
        """Build a batch from rows. Each row has one value for each column of the layout, in the layout's order.

        Raises ``SchemaMismatch`` if a row has another number of values, or a value does not fit. The error does not say
        in which row."""
        try:
            columns = [*zip(*rows, strict=True)] if rows else [()] * len(layout.columns)
        except ValueError as error:
            raise SchemaMismatch("rows differ in their number of values") from error
        if len(columns) != len(layout.columns):
            raise SchemaMismatch(f"rows have {len(columns)} values, not {len(layout.columns)}")
        import pyarrow as pa

        try:
            # One call of Arrow for all columns, as tuples of a struct, costs a third of one call for each column.
            taken = zip(*map(_as_arrow_takes, layout.columns, columns), strict=True)
            struct = pa.array([*taken], layout.struct)
        except (pa.ArrowException, *_UNFIT) as error:
            raise SchemaMismatch(f"a value does not fit its column: {error}") from error
        return cls(layout, pa.RecordBatch.from_struct_array(struct))

    @classmethod
    def from_ipc(cls, layout: Layout, data: bytes | memoryview, *, allow_nulls: bool = False) -> Self:
        """Decode the bytes of :meth:`to_ipc`, without copying.

        Safe for bytes of any origin, except that a compressed message may become large when it is decoded
        (``stelae.rows.declared_size``). With ``allow_nulls``, columns that are not nullable may have nulls; the caller
        checks them. Raises ``Corrupt`` if the bytes are not a record batch of the layout."""
        import pyarrow as pa

        try:
            batch = pa.ipc.read_record_batch(pa.ipc.read_message(pa.py_buffer(data)), layout.arrow)
            batch.validate(full=True)
        except (pa.ArrowException, *MALFORMED) as error:
            raise Corrupt(f"not a record batch: {str(error)[:200]}") from error
        for column, array in zip(() if allow_nulls else layout.columns, batch.columns, strict=False):
            if not column.nullable and array.null_count:
                raise Corrupt(f"column {column.name!r} of a record batch has nulls but is not nullable")
        return cls(layout, batch)

    def to_ipc(self) -> bytes:
        """Return the batch as one Arrow IPC message, without its schema."""
        return bytes(self.arrow.serialize())

    @property
    def nbytes(self) -> int:
        """The bytes of the values in memory."""
        return int(self.arrow.nbytes)

    def __len__(self) -> int:
        return int(self.arrow.num_rows)

    def slice(self, offset: int, length: int | None = None) -> "RowBatch":
        """Return at most ``length`` rows from ``offset`` on, without copying."""
        return RowBatch(self.layout, self.arrow.slice(offset, length))

    def filter(self, mask: Any) -> "RowBatch":
        """Return the rows for which ``mask`` (bools or a boolean array, one for each row) is true."""
        import pyarrow as pa

        mask = mask if isinstance(mask, pa.Array) else pa.array(mask, pa.bool_())
        return RowBatch(self.layout, self.arrow.filter(mask))

    def values(self, place: int) -> list[Any]:
        """Return the plain values of the column at position ``place`` of the layout."""
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
        """Return the batch with another layout. Columns are matched by id.

        A column that the batch lacks gets its default, or nulls if it has none. The caller must know that this is
        allowed."""
        if layout is self.layout or layout == self.layout:
            return self
        present = dict(zip(self.layout.ids, self.arrow.columns, strict=True))
        count = len(self)
        arrays = [present[c.id] if c.id in present else _filled(c, count) for c in layout.columns]
        return RowBatch.from_arrays(layout, arrays)


def _filled(column: Column, count: int) -> Any:
    import pyarrow as pa

    if column.nullable and column.default is None:
        return pa.nulls(count, column.data_type.arrow())
    return to_array(column, [column.default] * count)
