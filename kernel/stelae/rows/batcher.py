"""The batcher: it builds one log entry from all operations that arrived for a tablet in one turn.

Consecutive operations of one kind and set of columns share one Arrow batch, which is built column by column. A row in a
shared batch costs about a microsecond, a row in a batch of its own thirty. If a column of the batch does not fit the
schema, the rows at fault are searched (``row_checks``). They leave the batch and become row errors of their operation.
Other operations are not affected. Operations that arrive as Arrow are checked and passed on unchanged."""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias

import msgspec

from stelae.rows.batch_building import describe_misfit
from stelae.rows.declared_size import check_declared_size
from stelae.rows.limits import DEFAULTS, LimitSettings
from stelae.rows.operation_encoding import decode_rows
from stelae.rows.row_checks import (
    ERROR_DETAILS_MAX,
    BadRows,
    ByteLimit,
    bad_values,
    misfit_rows,
    out_of_range_rows,
    oversized_rows,
    row_errors,
)
from stelae.rows.schema_change import check_change
from stelae.rows.typed_rows import TypedRows
from stelae.spi.errors import Corrupt, SchemaMismatch, TooLarge
from stelae.spi.ids import ClientId
from stelae.spi.log import ENTRY_BYTES_MAX
from stelae.spi.payload import OpGroup, PayloadClient, PayloadSequenceRange, WritePayload, encode_payload
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Layout, Schema
from stelae.spi.write import OpKind, RowCode, RowError, SequenceRange

# Sizes are estimates of the Arrow form. An almost full payload and one more operation fit into an entry.
OP_BYTES_MAX = ENTRY_BYTES_MAX // 2  #: Largest single operation.
PAYLOAD_BYTES_MAX = ENTRY_BYTES_MAX // 4  #: A payload that would be larger than this is split.
#: Row errors of a payload that have a text. Texts are stored in the log, in results and in superblocks.
PAYLOAD_DETAILS_MAX = 4096
RANGE_BYTES, OP_BYTES = 32, 16  #: Size of a sequence range, and of each of its operations, besides their rows.
LAYOUTS_MAX = 64  #: Most sets of columns whose check is remembered. Clients may use any number.

_NEEDS_WHOLE_ROW = frozenset({OpKind.INSERT, OpKind.UPSERT, OpKind.INSERT_IGNORE})
_KEY_ONLY = frozenset({OpKind.DELETE, OpKind.DELETE_IGNORE})


OutsideCheck: TypeAlias = Callable[[RowBatch], Mapping[int, str]]
"""Returns the positions of the rows that do not belong to the tablet, each with the reason."""


class _PendingBatch(msgspec.Struct):
    """A batch of a payload: rows that will be built into one, or a ``group`` that is ready."""

    kind: OpKind
    columns: tuple[int, ...] | None
    layout: Layout
    first_range: int  #: Position in the payload of the first sequence range with rows in this batch.
    rows: list[tuple[Any, ...]]
    typed: TypedRows | None = None  #: The reader of the rows, if all values have the types of their columns.
    group: OpGroup | None = None


class _PayloadDraft:
    """A payload that is being built. Its sequence ranges count all rows that were sent, until rows fail a check."""

    def __init__(self) -> None:
        self.clients: dict[ClientId, list[int]] = {}
        """For each client, its number in the payload and its highest ``first_incomplete``."""
        self.sequences: list[PayloadSequenceRange] = []
        self.tokens: list[Any] = []
        self.batches: list[_PendingBatch] = []
        self.size_bytes = 0
        self.details_left = PAYLOAD_DETAILS_MAX

    def add_range(self, client_id: ClientId, first_incomplete: int, *fields: Any) -> None:
        client = self.clients.setdefault(client_id, [len(self.clients), first_incomplete])
        client[1] = max(client[1], first_incomplete)
        self.sequences.append(PayloadSequenceRange(client[0], *fields))

    def add_rows(
        self, kind: OpKind, columns: tuple[int, ...] | None, layout: Layout, rows: list[Any], typed: TypedRows | None
    ) -> None:
        last = self.batches[-1] if self.batches else None
        if last and last.kind is kind and last.columns == columns and last.group is None:
            last.rows += rows
            last.typed = typed and last.typed
        else:
            self.batches.append(_PendingBatch(kind, columns, layout, len(self.sequences), rows, typed))


class Batcher:
    """Collects operations for one tablet and builds payloads. It is pure, and is used on the event loop.

    Args:
        schema: of the rows.
        key_bytes_max: largest encoded key that the store accepts; ``None``: no limit of its own.
        limits: of this node. They are checked for new rows only. Rows in the log were accepted, and are applied.
        bounds: returns for a schema the check that rows belong to the tablet; ``None``: all rows do. It is made for new
            rows only, too."""

    def __init__(
        self,
        schema: Schema,
        key_bytes_max: int | None = None,
        limits: LimitSettings = DEFAULTS,
        bounds: Callable[[Schema], OutsideCheck] | None = None,
    ) -> None:
        self.schema = schema
        self._cell_max = ByteLimit(limits.cell_bytes_max, "cell_bytes_max in [limits]")
        self._key_max = ByteLimit(limits.key_bytes_max, "key_bytes_max in [limits]")
        if key_bytes_max is not None and key_bytes_max < limits.key_bytes_max:
            self._key_max = ByteLimit(key_bytes_max, "of its store")
        self._bounds = bounds
        self._outside = bounds(schema) if bounds else None
        self._drafts = [_PayloadDraft()]
        self._built: list[tuple[bytes, Sequence[Any]]] = []
        self._layouts: dict[tuple[OpKind, tuple[int, ...] | None], tuple[Layout, TypedRows]] = {}

    def __len__(self) -> int:
        return sum(len(draft.sequences) for draft in self._drafts) + sum(len(tokens) for _, tokens in self._built)

    def check_change(self, schema: Schema) -> None:
        """Raise ``SchemaMismatch`` if ``schema`` may not follow the current one (``stelae.rows.schema_change``)."""
        check_change(self.schema, schema)

    def change_schema(self, schema: Schema) -> None:
        """Check rows against another schema from now on.

        Operations that were added before are built under their own."""
        self._built = self.build()
        self._layouts.clear()
        self.schema = schema
        self._outside = self._bounds(schema) if self._bounds else None

    def add(
        self,
        client_id: ClientId,
        first_incomplete: int,
        sequence_range: SequenceRange,
        digests: tuple[int, ...],
        token: Any,
    ) -> None:
        """Add operations. :meth:`build` returns ``token`` with the payload that has them.

        Args:
            client_id: of the client.
            first_incomplete: every operation of the client with a lower sequence number has been answered.
            sequence_range: the operations.
            digests: the hash of each operation.
            token: of the caller.

        Raises:
            CallerError: they are malformed, too large, or have wrong columns. Nothing was added.
        """
        kind, columns = sequence_range.kind, sequence_range.columns
        if columns is None and kind in _KEY_ONLY:
            columns = self.schema.key
        layout, typed = self._layouts.get((kind, columns)) or self._check_columns(kind, columns)
        fitting = typed.decode(sequence_range)
        decoded = fitting or decode_rows(sequence_range)
        errors: tuple[tuple[int, RowError], ...] = ()
        if isinstance(decoded, bytes):
            batch = _read_arrow(layout, decoded)
            row_bytes = len(batch) * layout.row_bytes_min
            draft = self._draft(RANGE_BYTES + OP_BYTES + max(batch.nbytes, len(decoded), row_bytes))
            group, failed = self._check_arrow(kind, columns, batch, decoded)
            errors = tuple((0, error) for error in failed)
            draft.batches.append(_PendingBatch(kind, columns, layout, len(draft.sequences), [], group=group))
            counts: tuple[int, ...] = (group.row_count,)
        else:
            counts = tuple(map(len, decoded))
            own = RANGE_BYTES + OP_BYTES * len(counts)
            draft = self._draft(own + sum(map(len, sequence_range.ops)) + sum(counts) * layout.row_bytes_min)
            draft.add_rows(kind, columns, layout, [*chain.from_iterable(decoded)], typed if fitting else None)
        draft.add_range(
            client_id, first_incomplete, sequence_range.first_sequence, counts, digests, errors, sequence_range.fence
        )
        draft.tokens.append(token)

    def build(self) -> list[tuple[bytes, Sequence[Any]]]:
        """Return the payloads of all operations since the last call, in their order; usually one.

        Each is encoded, and comes with the tokens of its sequence ranges, in their order."""
        built, self._built = self._built, []
        drafts, self._drafts = self._drafts, [_PayloadDraft()]
        return built + [self._build(draft) for draft in drafts if draft.sequences]

    def _build(self, draft: _PayloadDraft) -> tuple[bytes, Sequence[Any]]:
        groups = [pending.group or self._build_rows(pending, draft) for pending in draft.batches]
        payload = WritePayload(
            self.schema.version,
            tuple(PayloadClient(name, first) for name, (_, first) in draft.clients.items()),
            tuple(draft.sequences),
            tuple(group for group in groups if group.row_count),
        )
        return encode_payload(payload), draft.tokens

    def _draft(self, size_bytes: int) -> _PayloadDraft:
        if size_bytes > OP_BYTES_MAX:
            # If the range has several operations, the caller tries them one by one.
            raise TooLarge("a write operation", size_bytes, OP_BYTES_MAX)
        draft = self._drafts[-1]
        if draft.sequences and draft.size_bytes + size_bytes > PAYLOAD_BYTES_MAX:
            draft = _PayloadDraft()
            self._drafts.append(draft)
        draft.size_bytes += size_bytes
        return draft

    def _check_columns(self, kind: OpKind, columns: tuple[int, ...] | None) -> tuple[Layout, TypedRows]:
        schema, layout = self.schema, self.schema.project(columns)
        given = set(layout.ids)
        lacking = set(schema.key) - given
        if kind in _NEEDS_WHOLE_ROW:
            lacking |= {c.id for c in schema.columns if c.required} - given
        if lacking:
            names = ", ".join(repr(schema.by_id[i].name) for i in sorted(lacking))
            raise SchemaMismatch(f"{kind.name.lower()} needs values for the columns {names}")
        if kind in _KEY_ONLY and len(given) > len(schema.key):
            raise SchemaMismatch(f"{kind.name.lower()} takes the key columns and no others")
        if len(self._layouts) >= LAYOUTS_MAX:
            del self._layouts[next(iter(self._layouts))]
        found = self._layouts[kind, columns] = layout, TypedRows(layout)
        return found

    def _check_arrow(
        self, kind: OpKind, columns: tuple[int, ...] | None, batch: RowBatch, data: bytes
    ) -> tuple[OpGroup, tuple[RowError, ...]]:
        """Check an Arrow message, and return its group and row errors. It is encoded again only if rows leave it."""
        bad: BadRows = {}
        for column, array in zip(batch.layout.columns, batch.arrow.columns, strict=True):
            if array.null_count and not column.nullable:
                for position, valid in enumerate(array.is_valid().to_pylist()):
                    if not valid:
                        bad.setdefault(position, (RowCode.BAD_VALUE, describe_misfit(column, None)))
        fits = batch.filter([p not in bad for p in range(len(batch))]) if bad else batch
        fits = self._drop_failed(fits, bad)
        group = OpGroup(kind, columns, len(fits), fits.to_ipc() if bad else data)
        return group, row_errors(bad)

    def _build_rows(self, pending: _PendingBatch, draft: _PayloadDraft) -> OpGroup:
        """Build rows into one batch. Rows that fail a check become row errors of their operations."""
        rows = pending.rows
        bad: BadRows = {}
        if not rows:
            return OpGroup(pending.kind, pending.columns, 0, b"")
        try:
            batch = pending.typed.build(rows) if pending.typed else RowBatch.from_equal_rows(pending.layout, rows)
        except SchemaMismatch:
            bad = bad_values(misfit_rows(pending.layout, rows))
            good = [row for position, row in enumerate(rows) if position not in bad]
            batch = RowBatch.from_equal_rows(pending.layout, good)
        batch = self._drop_failed(batch, bad, ranges_known=pending.typed is not None)
        if bad:
            _record_row_errors(pending, draft, bad)
        return OpGroup(pending.kind, pending.columns, len(batch), batch.to_ipc())

    def _drop_failed(self, batch: RowBatch, bad: BadRows, *, ranges_known: bool = False) -> RowBatch:
        """Drop the rows of other tablets, and those with a key or a cell above its limit or a time out of range.

        Adds them to ``bad``, whose rows the batch lacks already. ``ranges_known`` is true if dates and times are known
        to be in range."""
        failed = bad_values({} if ranges_known else out_of_range_rows(batch))
        failed |= bad_values(oversized_rows(self.schema, batch, self._key_max, self._cell_max))
        if self._outside is not None:
            for position, why in self._outside(batch).items():
                failed.setdefault(position, (RowCode.OUTSIDE_PARTITION, why))
        if not failed:
            return batch
        positions = [position for position in range(len(batch) + len(bad)) if position not in bad]
        bad |= {positions[position]: why for position, why in failed.items()}
        return batch.filter([position not in failed for position in range(len(batch))])


def _read_arrow(layout: Layout, data: bytes) -> RowBatch:
    try:
        check_declared_size(data, "a record batch", OP_BYTES_MAX)
        return RowBatch.from_ipc(layout, data, allow_nulls=True)
    except Corrupt as error:
        raise SchemaMismatch(f"rows in Arrow form do not fit their columns: {error}") from error


def _record_row_errors(pending: _PendingBatch, draft: _PayloadDraft, bad: BadRows) -> None:
    """Turn the bad rows of a batch into row errors of the operations that sent them."""
    start, number = 0, pending.first_range
    while start < len(pending.rows):
        sequence_range, counts = draft.sequences[number], []
        errors: list[tuple[int, RowError]] = []
        for position, count in enumerate(sequence_range.row_counts):
            own_bad = {row - start: bad[row] for row in range(start, start + count) if row in bad}
            errors += [(position, error) for error in row_errors(own_bad, min(ERROR_DETAILS_MAX, draft.details_left))]
            draft.details_left = max(0, draft.details_left - len(own_bad))
            counts.append(count - len(own_bad))
            start += count
        if errors:
            draft.sequences[number] = msgspec.structs.replace(
                sequence_range, row_counts=tuple(counts), errors=tuple(errors)
            )
        number += 1
