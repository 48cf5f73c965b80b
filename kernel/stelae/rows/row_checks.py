"""Checks of the values of rows: which rows do not fit their columns, and why.

The batcher makes row errors of the result. A check looks at single rows only if the batch as a whole fails."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from stelae.rows.batch_building import describe_misfit, misfits
from stelae.rows.keys import encode_keys
from stelae.rows.limits import RANGES, out_of_range
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Layout, Schema
from stelae.spi.write import RowCode, RowError

ERROR_DETAILS_MAX = 16  #: Row errors of an operation that have a text besides their code.

BadRows: TypeAlias = dict[int, tuple[RowCode, str]]
"""The rows that fail a check, by position, each with the code and the text of its error."""


class ByteLimit(NamedTuple):
    """A limit in bytes, and where it comes from."""

    size_bytes: int
    source: str


def out_of_range_rows(batch: RowBatch) -> dict[int, str]:
    """Return the rows with a date or a time out of range. Arrow types have a larger range."""
    failed: dict[int, str] = {}
    for index, column in enumerate(batch.layout.columns):
        if column.type in RANGES:
            positions = out_of_range(column, batch.arrow.column(index))
            values = batch.values(index) if positions else []
            for position in positions:
                failed.setdefault(position, describe_misfit(column, values[position]))
    return failed


def oversized_rows(schema: Schema, batch: RowBatch, key_max: ByteLimit, cell_max: ByteLimit) -> dict[int, str]:
    """Return the rows with a key or a cell above its limit.

    Looks at single rows only if the size of the batch or of a column allows one of them to exceed a limit."""
    # In a key, escapes at most double a text, and its end takes two bytes. A bit of a bool becomes a byte.
    size_bytes = batch.arrow.get_total_buffer_size()
    if (2 * size_bytes + 3) * len(schema.key) <= key_max.size_bytes and size_bytes <= cell_max.size_bytes:
        return {}
    import pyarrow.compute as pc

    large: dict[int, str] = {}
    key_bytes = 0
    for column, array in zip(batch.layout.columns, batch.arrow.columns, strict=True):
        longest = column.data_type.width_bytes
        is_key = column.id in schema.key
        if column.type in ("string", "binary"):
            longest = array.nbytes
            if longest > cell_max.size_bytes or (is_key and longest > key_max.size_bytes // 4):
                lengths = pc.binary_length(array)
                longest = pc.max(lengths).as_py() or 0
            if longest > cell_max.size_bytes:
                for position, size in enumerate(lengths.to_pylist()):
                    if size is not None and size > cell_max.size_bytes:
                        large.setdefault(position, _too_large(f"column {column.name!r}", size, cell_max))
        if is_key:
            key_bytes += 2 * longest + 2
    if key_bytes > key_max.size_bytes:
        for position, key in enumerate(encode_keys(schema, batch)):
            if len(key) > key_max.size_bytes:
                large[position] = _too_large("the encoded key", len(key), key_max)
    return large


def _too_large(what: str, size_bytes: int, limit: ByteLimit) -> str:
    return f"{what} has {size_bytes} bytes; at most {limit.size_bytes} are accepted ({limit.source})"


def misfit_rows(layout: Layout, rows: Sequence[tuple[Any, ...]]) -> dict[int, str]:
    """Return the rows with a wrong number of values, or with a value that does not fit its column."""
    width = len(layout.columns)
    bad = {
        position: f"expected {width} values, got {len(row)}" for position, row in enumerate(rows) if len(row) != width
    }
    good = [position for position in range(len(rows)) if position not in bad]
    for index, column in enumerate(layout.columns):
        values = [rows[position][index] for position in good]
        for found in misfits(column, values):
            bad.setdefault(good[found], describe_misfit(column, values[found]))
    return bad


def bad_values(found: Mapping[int, str]) -> BadRows:
    """Return rows with the error ``BAD_VALUE``."""
    return {position: (RowCode.BAD_VALUE, text) for position, text in found.items()}


def row_errors(bad: BadRows, details_max: int = ERROR_DETAILS_MAX) -> tuple[RowError, ...]:
    """Return the errors of rows by position. Only the first ``details_max`` have a text."""
    return tuple(
        RowError(row, bad[row][0], bad[row][1] if number < details_max else "")
        for number, row in enumerate(sorted(bad))
    )
