"""Computes the rows that the agreed writes produce, so that the log can judge every read.

Each write has a position in the log. Its effect is the one that the first replica to apply it reports; another
invariant checks that all other replicas report the same. The effects determine the rows as of any entry. So they
determine what a read in the past, a checksum, or the changes of one entry must be, on every replica and engine."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from stelae.rows.checksum import LogicalChecksum
from stelae.sim.history import SCHEMA, ClientAction, ClientOperation, RowErrors
from stelae.sim.table import VALUE, Cell, RowCells, read_as, row_cells
from stelae.spi.ids import OpId, SourceId
from stelae.spi.schema import Schema
from stelae.spi.write import SourceFence


class LogPosition(NamedTuple):
    """Position of a write in the log: the index of its entry, then its order within the entry."""

    entry: int
    order: int


class WriteEffect(NamedTuple):
    """The row of one key after one operation: cells by column id, or ``None`` for no row."""

    position: LogPosition
    cells: Mapping[int, Cell] | None

    @property
    def value(self) -> str | None:
        """The row's value in the column ``VALUE``, or ``None`` for no row."""
        return None if self.cells is None else str(self.cells[VALUE])


class AgreedRequest(Protocol):
    """One request of an entry as a replica applied it (``invariants.AppliedRequest``)."""

    @property
    def order(self) -> int: ...
    @property
    def client(self) -> str: ...
    @property
    def sequence(self) -> int: ...
    @property
    def skipped(self) -> bool: ...
    @property
    def errors(self) -> RowErrors: ...
    @property
    def fence(self) -> SourceFence | None: ...


class AgreedWrites:
    """The rows of the tablet through its whole history, built from the entries that replicas apply."""

    def __init__(self) -> None:
        self._writes: dict[tuple[str, int], ClientOperation] = {}
        self._positions: dict[tuple[str, int], LogPosition] = {}
        self._effects: dict[int, list[WriteEffect]] = {}
        self._indexes: list[int] = []
        self._stamps: list[int] = []
        self.schemas: dict[int, Schema] = {0: SCHEMA}
        """Every schema, by the index of the entry that brought it into force, ascending."""
        self._epochs: dict[SourceId, list[tuple[LogPosition, int]]] = {}
        """For each source the position of its first operation of each epoch that was the highest then, ascending."""

    # -- recording -------------------------------------------------------------------------------

    def invoked(self, operation: ClientOperation) -> None:
        """Record that a client has begun an operation."""
        if operation.is_write:
            self._writes[operation.client, operation.sequence] = operation

    def applied(self, op_id: OpId, timestamp: int, requests: Sequence[AgreedRequest]) -> None:
        """Record the effects of an entry. Effects that another replica has reported before change nothing."""
        if not self._indexes or op_id.index > self._indexes[-1]:
            self._indexes.append(op_id.index)
            self._stamps.append(timestamp)
        for request in requests:
            identity = (request.client, request.sequence)
            operation = self._writes.get(identity)
            if request.skipped or identity in self._positions or operation is None:
                continue
            position = self._positions[identity] = LogPosition(op_id.index, request.order)
            if request.fence is not None:
                self._begin_epoch(request.fence, position)
            refused = {number for number, _ in request.errors}
            for number, row in enumerate(operation.rows):
                if number not in refused:
                    deleted = operation.action is ClientAction.DELETE
                    self._change(row.key, position, None if deleted else row_cells(operation, row))

    def _begin_epoch(self, fence: SourceFence, position: LogPosition) -> None:
        begun = self._epochs.setdefault(fence.source, [])
        if not begun or begun[-1][1] < fence.epoch:
            begun.append((position, fence.epoch))

    def schema_applied(self, op_id: OpId, schema: Schema) -> None:
        """Record a schema change. One that another replica has reported before changes nothing."""
        if op_id.index > max(self.schemas):
            self.schemas[op_id.index] = schema

    def _change(self, key: int, position: LogPosition, new_cells: Mapping[int, Cell] | None) -> None:
        """Record the effect of one row. Cells that the row does not set keep their value.

        If an operation has several rows of one key, reads see the last of them."""
        effects = self._effects.setdefault(key, [])
        before = effects[-1].cells if effects else None
        if effects and effects[-1].position == position:
            effects.pop()
        cells = new_cells if new_cells is None or before is None else {**before, **new_cells}
        effects.append(WriteEffect(position, cells))

    # -- queries ---------------------------------------------------------------------------------

    def position_of(self, client: str, sequence: int) -> LogPosition | None:
        """Return the log position at which a write took effect, or ``None`` if it has had no effect yet."""
        return self._positions.get((client, sequence))

    def epochs_before(self, position: LogPosition) -> dict[SourceId, int]:
        """Return for each source the highest epoch of an operation that took effect before a position in the log."""
        found = {}
        for source, begun in self._epochs.items():
            count = bisect_left(begun, position, key=lambda one: one[0])
            if count:
                found[source] = begun[count - 1][1]
        return found

    def effects(self, key: int) -> Sequence[WriteEffect]:
        """Return all effects on a key, in log order."""
        return self._effects.get(key, ())

    def schema(self, index: int | None = None) -> Schema:
        """Return the schema in force at a log index, or at the last index for ``None``."""
        return [one for at, one in self.schemas.items() if index is None or at <= index][-1]

    def rows(self, index: int | None = None, schema: Schema | None = None) -> dict[int, RowCells]:
        """Return the cells of all rows by key, in key order.

        Args:
            index: log index of the entry as of which the rows are read; ``None`` for the last entry.
            schema: schema under which the cells are read; ``None`` for the one in force at ``index``.
        """
        found = {}
        schema = schema or self.schema(index)
        for key in sorted(self._effects):
            effects = self._effects[key]
            if index is not None:
                effects = effects[: bisect_right(effects, index, key=_entry_of)]
            if effects and (cells := effects[-1].cells) is not None:
                found[key] = read_as(cells, schema)
        return found

    def index_at(self, timestamp: int) -> int:
        """Return the index of the last entry at or below a hybrid timestamp; 0 if there is none."""
        count = bisect_right(self._stamps, timestamp)
        return self._indexes[count - 1] if count else 0

    def checksum(self, index: int | None = None, schema: Schema | None = None) -> str:
        """Return what ``TabletStore.checksum`` must return as of the entry at a log index, under a schema."""
        total = LogicalChecksum()
        total.add((key, *cells) for key, cells in self.rows(index, schema).items())
        return total.hex()

    def timestamps(self, until_index: int) -> Sequence[int]:
        """Return the hybrid timestamps of the entries up to a log index, ascending."""
        return self._stamps[: bisect_right(self._indexes, until_index)]


def _entry_of(effect: WriteEffect) -> int:
    return effect.position.entry
