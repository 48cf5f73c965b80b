"""The keys of the rows that an overwriting job could not write: the old rows with these keys stay.

The values come from a DataFrame, so their types may be narrower than those of the table, and some may be no key at
all."""

from __future__ import annotations

from typing import Any

REFUSED_KEYS_MAX = 10_000
"""The most keys of refused rows that one task returns to the driver. With more, the job removes no old row."""


def without_refused(keys: Any, refused: Any) -> Any:
    """Return the keys of a ``pyarrow.Table`` without those of refused rows.

    Args:
        keys: keys of rows of the table.
        refused: ``pyarrow.Table`` with the key columns of the refused rows, as the DataFrame had them.
    """
    if not keys.num_rows or not refused.num_rows:
        return keys
    names = keys.column_names
    fitting = _fitting(refused.select(names).drop_null(), keys.schema)
    return keys.join(fitting, keys=names, join_type="left anti")


def _fitting(rows: Any, schema: Any) -> Any:
    """Return the rows that can be keys of the table, with its types: a value that does not fit is in none of its rows.

    A cast fails as a whole, so the rows are divided until the ones at fault are alone."""
    import pyarrow as pa

    try:
        return rows.cast(schema)
    except pa.ArrowInvalid:
        half = rows.num_rows // 2
        if not half:
            return schema.empty_table()
        return pa.concat_tables([_fitting(rows.slice(0, half), schema), _fitting(rows.slice(half), schema)])
