"""Makes the rows of a change feed from those of diffs and scans: three more columns, and the rows before the change.

``_change_type`` says what happened. ``_commit_timestamp`` and ``_commit_version`` are the end of the round, as a time
and as a hybrid timestamp: the change was committed in the round. The time of its own commit is not kept. The names are
those that other change feeds have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from typing import Any

from stelae.client.times import LOGICAL_BITS
from stelae.rows.changes import changes_layout
from stelae.spi.errors import SchemaMismatch
from stelae.spi.schema import Column, Schema

CHANGE_TYPE = Column(id=1, name="_change_type", type="string")
COMMIT_VERSION = Column(id=2, name="_commit_version", type="int64")
COMMIT_TIMESTAMP = Column(id=3, name="_commit_timestamp", type="timestamp")
FEED_COLUMNS = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)
"""The columns that a feed adds to those of the table, in order."""


class ChangeType(StrEnum):
    """The values of ``_change_type``."""

    UPSERT = "upsert"  #: The row was inserted or updated. Only without the rows before.
    INSERT = "insert"  #: The row did not exist before.
    UPDATE_PREIMAGE = "update_preimage"  #: The row as it was before an update.
    UPDATE_POSTIMAGE = "update_postimage"  #: The row as it is after an update. Follows the row before.
    DELETE = "delete"  #: The row does not exist any more.


class FeedRows:
    """Converts the batches of one feed.

    Args:
        schema: of the table.
        ids: the columns that were asked for, by id. Key columns that are not among them come first.

    Raises:
        SchemaMismatch: a column has the name of one that the feed adds.
    """

    def __init__(self, schema: Schema, ids: Sequence[int]) -> None:
        self.columns = changes_layout(schema, ids).columns[:-1]
        """The columns of the table, in order. Those outside of the key may be null."""
        added = [one.name for one in FEED_COLUMNS]
        for column in self.columns:
            if column.name in added:
                fact = f"the table has a column {column.name!r}, as the change feed has"
                raise SchemaMismatch(f"{fact}; choose the columns to read without it, or rename it")

    @property
    def ids(self) -> tuple[int, ...]:
        """Ids of the columns to read."""
        return tuple(column.id for column in self.columns)

    @cached_property
    def arrow_schema(self) -> Any:
        """The ``pyarrow.Schema`` of the feed."""
        import pyarrow as pa

        return pa.schema([pa.field(c.name, c.data_type.arrow(), c.nullable) for c in (*self.columns, *FEED_COLUMNS)])

    def converted(self, batch: Any, until: int, before: Sequence[Mapping[str, Any] | None] | None = None) -> Any:
        """Return the changes of a ``pyarrow.RecordBatch``.

        Args:
            batch: rows of a diff, with the flag last, or rows of a scan.
            until: hybrid timestamp of the end of the round.
            before: for each row, the row at the start of the round, or ``None`` if it did not exist; ``None``: unknown.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        count = len(self.columns)
        rows = pa.RecordBatch.from_arrays(batch.columns[:count], schema=self._nullable)
        deleted = batch.column(count) if batch.num_columns > count else pa.repeat(False, batch.num_rows)
        if before is None:
            types = pc.if_else(deleted, str(ChangeType.DELETE), str(ChangeType.UPSERT))
        else:
            taken, names = _with_images(deleted.to_pylist(), before)
            types = pa.array(names, pa.string())
            images = pa.RecordBatch.from_pylist([dict(row or {}) for row in before], schema=self._nullable)
            pairs = zip(images.columns, rows.columns, strict=True)
            rows = pa.RecordBatch.from_arrays(
                [pa.concat_arrays(pair).take(taken) for pair in pairs], schema=self._nullable
            )
        time = pa.scalar(until >> LOGICAL_BITS, pa.int64()).cast(COMMIT_TIMESTAMP.data_type.arrow())
        added = [types, pa.repeat(pa.scalar(until, pa.int64()), len(types)), pa.repeat(time, len(types))]
        return pa.RecordBatch.from_arrays([*rows.columns, *added], schema=self.arrow_schema)

    @cached_property
    def _nullable(self) -> Any:
        import pyarrow as pa

        return pa.schema([pa.field(c.name, c.data_type.arrow()) for c in self.columns])


def _with_images(deleted: Sequence[bool], before: Sequence[Mapping[str, Any] | None]) -> tuple[list[int], list[str]]:
    """Return which rows to take of the rows before, followed by the changed rows, and the type of each."""
    taken: list[int] = []
    types: list[str] = []
    for number, (gone, image) in enumerate(zip(deleted, before, strict=True)):
        now = len(deleted) + number
        if gone:
            taken.append(now if image is None else number)
            types.append(str(ChangeType.DELETE))
        elif image is None:
            taken.append(now)
            types.append(str(ChangeType.INSERT))
        else:
            taken += [number, now]
            types += [str(ChangeType.UPDATE_PREIMAGE), str(ChangeType.UPDATE_POSTIMAGE)]
    return taken, types
