"""Limits on keys, cells and schemas, and the range of dates and times.

The sizes are settings. They are checked where something new is accepted: rows by the leader before they are appended to
the log, columns by the node that changes a schema. What was accepted once is applied, copied and read by every node,
also by one with lower settings. The range of dates and times is the same everywhere: all of them must exist in every
calendar library and in every format that a table can be exported to."""

from dataclasses import dataclass
from typing import Any

from stelae.spi.errors import SchemaMismatch
from stelae.spi.rows import to_array
from stelae.spi.schema import COLUMNS_MAX, Column, Schema
from stelae.spi.settings import setting

KEY_BYTES_MAX = 256 << 10  #: Highest value of the setting ``key_bytes_max``.
CELL_BYTES_MAX = 8 << 20
"""Highest value of the setting ``cell_bytes_max``. Such a cell fits a page of a scan, and a fourth of an operation."""


RANGES = {"date": (-719_162, 2_932_896), "timestamp": (-62_135_596_800_000_000, 253_402_300_799_999_999)}
"""The smallest and the largest plain value of a type that does not use all of its bits: years 1 to 9999."""

_RANGE_TEXTS = {
    "date": "0001-01-01 to 9999-12-31",
    "timestamp": "0001-01-01 00:00:00 to 9999-12-31 23:59:59.999999",
    **{f"int{bits}": f"{-(1 << (bits - 1))} to {(1 << (bits - 1)) - 1}" for bits in (8, 16, 32, 64)},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSettings:
    """Section ``[limits]``: limits on the rows that this node accepts and on the schemas that it makes."""

    key_bytes_max: int = setting(
        16 << 10,
        unit="bytes",
        low=64,
        high=KEY_BYTES_MAX,
        reason="size of an encoded key: keys are stored in indexes and sent in tokens",
    )
    cell_bytes_max: int = setting(
        64 << 10,
        unit="bytes",
        low=64,
        high=CELL_BYTES_MAX,
        reason="size of one value of text or bytes: a page of a scan has thousands of rows",
    )
    columns_max: int = setting(
        300, unit="count", low=1, high=COLUMNS_MAX, reason="columns of a schema: each adds cost to every batch"
    )

    def check_schema(self, schema: Schema, before: Schema | None = None) -> None:
        """Check the number of columns and the defaults of a new schema.

        What the schema has in common with the one ``before`` it was accepted before, and is not checked again.
        ``SchemaMismatch``: too many columns, or a default that no row could have."""
        count, known = len(schema.columns), () if before is None else before.columns
        if count > max(self.columns_max, len(known)):
            limit = f"at most {self.columns_max} are accepted (columns_max in [limits])"
            raise SchemaMismatch(f"the schema has {count} columns; {limit}: use fewer, or raise it on every node")
        for column in schema.columns:
            if column.default is not None and column not in known:
                self._check_default(column)

    def _check_default(self, column: Column) -> None:
        what, value = f"default of column {column.name!r}", column.default
        try:
            fits = not out_of_range(column, to_array(column, [value]))
        except SchemaMismatch:
            fits = False
        if not fits:
            limits = f", which goes from {range_text(column)}" if range_text(column) else ""
            raise SchemaMismatch(f"{what}: {value!r:.40} is not a {column.type}{limits}")
        size = len(value.encode()) if isinstance(value, str) else len(value) if isinstance(value, bytes) else 0
        if size > self.cell_bytes_max:
            limit = f"at most {self.cell_bytes_max} are accepted (cell_bytes_max in [limits])"
            raise SchemaMismatch(f"{what} has {size} bytes; {limit}")


DEFAULTS = LimitSettings()
HIGHEST = LimitSettings(key_bytes_max=KEY_BYTES_MAX, cell_bytes_max=CELL_BYTES_MAX, columns_max=COLUMNS_MAX)
"""The highest limits that a node can have. Every store must support rows and schemas up to them."""


def out_of_range(column: Column, array: Any) -> list[int]:
    """Return the positions of dates and times that are out of range, in an Arrow array of the column's type."""
    import pyarrow as pa
    import pyarrow.compute as pc

    bounds = RANGES.get(column.type)
    if bounds is None:
        return []
    numbers = array.view(pa.type_for_alias("int32" if column.type == "date" else "int64"))
    least, greatest = pc.min_max(numbers).as_py().values()
    if least is None or (bounds[0] <= least and greatest <= bounds[1]):
        return []
    outside = pc.or_(pc.less(numbers, bounds[0]), pc.greater(numbers, bounds[1]))
    return [int(place) for place in pc.indices_nonzero(outside).to_pylist()]


def range_text(column: Column) -> str:
    """Return the range of an integer, date or time type for people; an empty text for other types."""
    return _RANGE_TEXTS.get(column.type, "")
