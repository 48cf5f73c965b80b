"""Finds the rows of a frame that a scan with the same filters would not return."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from stelae.client.failures import FailureTally
from stelae.client.filters import Filter, predicates
from stelae.client.row_input import RowInput
from stelae.rows.predicate_filter import matches
from stelae.spi.schema import Schema
from stelae.spi.write import OpKind


def rows_outside(schema: Schema, where: Filter | Iterable[Filter], rows: Any) -> Sequence[int]:
    """Return the positions of the rows for which not all filters hold, ascending.

    Rows that do not fit the table are left out: a write refuses them with the reason.

    Args:
        schema: of the table.
        where: filters, as ``Table.scan`` takes them, at least one.
        rows: a ``pyarrow.Table`` with all columns that the filters name, and all that an upsert needs.

    Raises:
        BadFilter: a filter does not fit the table.
        SchemaMismatch: the columns do not fit the table.
    """
    import pyarrow.compute as pc

    wanted = predicates(schema, where)
    found: list[int] = []
    for batch in RowInput(schema, OpKind.UPSERT, FailureTally("", OpKind.UPSERT)).batches(rows):
        outside = pc.indices_nonzero(pc.invert(matches(schema, wanted, batch.rows)))
        found += [batch.positions[number] for number in outside.to_pylist()]
    return sorted(found)
