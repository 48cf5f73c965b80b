"""Rows as Python values. A row that a table refuses may have values that Python cannot represent. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stelae.client.arrow_fit import Cells


def rows_of(table: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of a ``pyarrow.Table`` by column name.

    A date or time that Python cannot represent is a number in its unit. Text that is not UTF-8 is bytes."""
    for batch in table.to_batches():
        cells = [Cells(column) for column in batch.columns]
        for number in range(batch.num_rows):
            yield {name: values[number] for name, values in zip(batch.schema.names, cells, strict=True)}
