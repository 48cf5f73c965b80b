"""How large keys, cells and schemas may be, and which dates and times there are.

Sizes are settings, and are looked at where something new comes in: rows by the leader before they are logged, columns
by whoever makes a schema. Whatever was let in is applied, copied and read anywhere, also by a node that is set lower.
Dates and times are the same everywhere: those that every calendar, and every way out of a table, can name."""

from dataclasses import dataclass
from typing import Any

from stelae.spi.errors import SchemaMismatch
from stelae.spi.rows import to_array
from stelae.spi.schema import COLUMNS_MAX, Column, Schema
from stelae.spi.settings import setting

KEY_BYTES_MAX = 256 << 10  #: Longest encoded key that a node can be set to take.
CELL_BYTES_MAX = 8 << 20  #: The same of a cell: it fits a page of a scan, and a fourth of an operation.

RANGES = {"date": (-719_162, 2_932_896), "timestamp": (-62_135_596_800_000_000, 253_402_300_799_999_999)}
"""The least and the greatest plain value of types that have fewer than their bits could say: years 1 to 9999."""

_SAID = {
    "date": "0001-01-01 to 9999-12-31",
    "timestamp": "0001-01-01 00:00:00 to 9999-12-31 23:59:59.999999",
    **{f"int{bits}": f"{-(1 << (bits - 1))} to {(1 << (bits - 1)) - 1}" for bits in (8, 16, 32, 64)},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSettings:
    """Section ``[limits]``: of rows that are written here, and of schemas that are made here."""

    key_bytes_max: int = setting(
        16 << 10,
        unit="bytes",
        low=64,
        high=KEY_BYTES_MAX,
        reason="of an encoded key: they stand in indexes and in tokens",
    )
    cell_bytes_max: int = setting(
        64 << 10,
        unit="bytes",
        low=64,
        high=CELL_BYTES_MAX,
        reason="of one text: a page of a scan has thousands of rows",
    )
    columns_max: int = setting(
        300, unit="count", low=1, high=COLUMNS_MAX, reason="of a schema: each costs on every batch of rows"
    )

    def check_schema(self, schema: Schema, before: Schema | None = None) -> None:
        """``SchemaMismatch``: a schema has more columns than may be made here, or a default that no row could have.

        What it has in common with the schema ``before`` it was let in."""
        count, known = len(schema.columns), () if before is None else before.columns
        if count > max(self.columns_max, len(known)):
            limit = f"at most {self.columns_max} are accepted (columns_max in [limits])"
            raise SchemaMismatch(f"{count} columns; {limit}: take fewer, or raise it on every node")
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
            goes = f", which goes from {range_said(column)}" if range_said(column) else ""
            raise SchemaMismatch(f"{what}: {value!r:.40} is no {column.type}{goes}")
        size = len(value.encode()) if isinstance(value, str) else len(value) if isinstance(value, bytes) else 0
        if size > self.cell_bytes_max:
            limit = f"at most {self.cell_bytes_max} are accepted (cell_bytes_max in [limits])"
            raise SchemaMismatch(f"{what} has {size} bytes; {limit}")


DEFAULTS = LimitSettings()
MOST = LimitSettings(key_bytes_max=KEY_BYTES_MAX, cell_bytes_max=CELL_BYTES_MAX, columns_max=COLUMNS_MAX)
"""What stores have to bear: any node may be set to it."""


def out_of_range(column: Column, array: Any) -> list[int]:
    """Return the places of an Arrow array of the column's type that hold no date or time there is."""
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


def range_said(column: Column) -> str:
    """Return the range of a type of whole numbers, dates or times for people; empty for others."""
    return _SAID.get(column.type, "")
