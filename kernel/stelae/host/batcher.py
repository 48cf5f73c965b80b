"""The batcher: what all clients asked of a tablet in one turn becomes one log entry.

Rows of consecutive operations of one kind are built into one Arrow batch, column by column: a row
that shares a batch costs about a microsecond, one in a batch of its own thirty. A column that does
not fit the schema as a whole is searched for the rows at fault; they leave the batch and become
row errors of their operation, and nobody else's rows notice. Operations that arrive as Arrow are
checked and passed on untouched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from stelae.spi.errors import Corrupt, SchemaMismatch, TooLarge
from stelae.spi.ids import ClientId
from stelae.spi.log import ENTRY_BYTES_MAX
from stelae.spi.payload import (
    OpGroup,
    PayloadClient,
    PayloadRequest,
    WritePayload,
    encode_payload,
)
from stelae.spi.rows import RowBatch, describe_misfit, misfits
from stelae.spi.schema import Layout, Schema
from stelae.spi.write import OpKind, RowCode, RowError, decode_body

OP_BYTES_MAX = ENTRY_BYTES_MAX // 2
"""Largest single operation, as estimated in Arrow: with ``PAYLOAD_BYTES_MAX`` it fits an entry."""

PAYLOAD_BYTES_MAX = ENTRY_BYTES_MAX // 4
"""Estimated size from which another payload is begun: bounds what one append must carry."""

ERROR_DETAILS_MAX = 16
"""Row errors of one operation that come with words; the others carry only row and code."""

LAYOUTS_MAX = 64
"""Most column subsets whose check is remembered; clients may name any number of them."""

_NEEDS_WHOLE_ROW = frozenset({OpKind.INSERT, OpKind.UPSERT, OpKind.INSERT_IGNORE})
_KEY_ONLY = frozenset({OpKind.DELETE, OpKind.DELETE_IGNORE})


class Built(msgspec.Struct, frozen=True):
    """One entry to propose. ``tokens`` are the callers', in order of ``payload.requests``."""

    payload: WritePayload
    body: bytes
    tokens: tuple[Any, ...]


class _Run(msgspec.Struct):
    """Consecutive operations of one kind: rows to be built, or one ``group`` that is ready."""

    kind: OpKind
    columns: tuple[int, ...] | None
    layout: Layout
    first_request: int
    rows: list[tuple[Any, ...]]
    group: OpGroup | None = None


class _Draft:
    """A payload in the making. Requests own as many rows as were sent until rows prove bad."""

    def __init__(self) -> None:
        self.clients: dict[ClientId, int] = {}
        self.first_incomplete: list[int] = []
        self.requests: list[PayloadRequest] = []
        self.tokens: list[Any] = []
        self.runs: list[_Run] = []
        self.size_bytes = 0

    def client(self, client_id: ClientId, first_incomplete: int) -> int:
        number = self.clients.setdefault(client_id, len(self.clients))
        if number == len(self.first_incomplete):
            self.first_incomplete.append(first_incomplete)
        elif first_incomplete > self.first_incomplete[number]:
            self.first_incomplete[number] = first_incomplete
        return number

    def run(self, kind: OpKind, columns: tuple[int, ...] | None, layout: Layout) -> _Run:
        """Return the run that rows of this kind go on, beginning one if need be."""
        last = self.runs[-1] if self.runs else None
        if last and last.kind is kind and last.columns == columns and last.group is None:
            return last
        run = _Run(kind, columns, layout, len(self.requests), [])
        self.runs.append(run)
        return run

    def build(self, schema_version: int) -> Built:
        groups = [run.group or _build_rows(run, self.requests) for run in self.runs]
        seen = self.first_incomplete
        payload = WritePayload(
            schema_version,
            tuple(PayloadClient(client_id, seen[n]) for client_id, n in self.clients.items()),
            tuple(self.requests),
            tuple(group for group in groups if group.row_count),
        )
        return Built(payload, encode_payload(payload), tuple(self.tokens))


class Batcher:
    """Collects operations for one tablet and builds payloads. Pure; used on the event loop."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._drafts = [_Draft()]
        self._layouts: dict[tuple[OpKind, tuple[int, ...] | None], Layout] = {}

    def __len__(self) -> int:
        return sum(len(draft.requests) for draft in self._drafts)

    def add(
        self,
        client_id: ClientId,
        first_incomplete: int,
        sequence: int,
        digest: int,
        body: msgspec.Raw | bytes,
        token: Any,
    ) -> None:
        """Take one operation; ``token`` comes back with the payload that holds it.

        Raises:
            CallerError: the operation as a whole cannot be taken: it is malformed, too large, or
                its columns do not fit its kind. Nothing of it was taken.
        """
        given = decode_body(body)
        kind, columns, rows = given.kind, given.columns, given.rows
        if columns is None and kind in _KEY_ONLY:
            columns = self.schema.key
        layout = self._layouts.get((kind, columns)) or self._check_columns(kind, columns)
        if isinstance(rows, bytes):
            group, errors, size_bytes = _check_arrow(kind, columns, layout, rows)
            draft = self._draft(size_bytes)
            draft.runs.append(_Run(kind, columns, layout, len(draft.requests), [], group))
            count = group.row_count
        else:
            draft = self._draft(len(memoryview(body)) + len(rows) * layout.row_bytes_min)
            draft.run(kind, columns, layout).rows += rows
            count, errors = len(rows), ()
        number = draft.client(client_id, first_incomplete)
        draft.requests.append(PayloadRequest(number, sequence, count, digest, errors))
        draft.tokens.append(token)

    def build(self) -> list[Built]:
        """Return payloads for everything taken since the last call, in that order; often one."""
        drafts, self._drafts = self._drafts, [_Draft()]
        return [draft.build(self.schema.version) for draft in drafts if draft.requests]

    def _draft(self, size_bytes: int) -> _Draft:
        if size_bytes > OP_BYTES_MAX:
            raise TooLarge("a write operation", size_bytes, OP_BYTES_MAX)
        draft = self._drafts[-1]
        if draft.requests and draft.size_bytes + size_bytes > PAYLOAD_BYTES_MAX:
            draft = _Draft()
            self._drafts.append(draft)
        draft.size_bytes += size_bytes
        return draft

    def _check_columns(self, kind: OpKind, columns: tuple[int, ...] | None) -> Layout:
        layout = _check_columns(self.schema, kind, columns)
        if len(self._layouts) < LAYOUTS_MAX:
            self._layouts[kind, columns] = layout
        return layout


def _check_columns(schema: Schema, kind: OpKind, columns: tuple[int, ...] | None) -> Layout:
    layout = schema.project(columns)
    given = set(layout.ids)
    lacking = set(schema.key) - given
    if kind in _NEEDS_WHOLE_ROW:
        lacking |= {c.id for c in schema.columns if c.required} - given
    if lacking:
        names = ", ".join(repr(schema.by_id[i].name) for i in sorted(lacking))
        raise SchemaMismatch(f"{kind.name.lower()} needs values for the columns {names}")
    if kind in _KEY_ONLY and len(given) > len(schema.key):
        raise SchemaMismatch(f"{kind.name.lower()} takes the key columns and no others")
    return layout


def _check_arrow(
    kind: OpKind, columns: tuple[int, ...] | None, layout: Layout, data: bytes
) -> tuple[OpGroup, tuple[RowError, ...], int]:
    """Check an Arrow message; it is re-encoded only when rows must leave it."""
    try:
        batch = RowBatch.from_ipc(layout, data, allow_nulls=True)
    except Corrupt as error:
        raise SchemaMismatch(f"rows in Arrow form do not fit their columns: {error}") from error
    size_bytes = max(batch.nbytes, len(data))
    bad: dict[int, str] = {}
    for column, array in zip(layout.columns, batch.arrow.columns, strict=True):
        if array.null_count and not column.nullable:
            for place, valid in enumerate(array.is_valid().to_pylist()):
                if not valid:
                    bad.setdefault(place, describe_misfit(column, None))
    if bad:
        batch = batch.filter([place not in bad for place in range(batch.num_rows)])
        data = batch.to_ipc()
    return OpGroup(kind, columns, batch.num_rows, data), _row_errors(bad), size_bytes


def _build_rows(run: _Run, requests: list[PayloadRequest]) -> OpGroup:
    """Build the rows of a run into one batch; rows that do not fit become errors of requests."""
    rows = run.rows
    if not rows:
        return OpGroup(run.kind, run.columns, 0, b"")
    try:
        batch = RowBatch.from_equal_rows(run.layout, rows)
    except SchemaMismatch:
        bad = _find_bad(run.layout, rows)
        _blame(run, requests, bad)
        rows = [row for place, row in enumerate(rows) if place not in bad]
        batch = RowBatch.from_equal_rows(run.layout, rows)
    return OpGroup(run.kind, run.columns, len(rows), batch.to_ipc())


def _blame(run: _Run, requests: list[PayloadRequest], bad: dict[int, str]) -> None:
    """Move the bad rows of a run from what its requests own to their errors."""
    start, number = 0, run.first_request
    while start < len(run.rows):
        request = requests[number]
        mine = {
            row - start: text for row, text in bad.items() if 0 <= row - start < request.row_count
        }
        start += request.row_count
        if mine:
            requests[number] = msgspec.structs.replace(
                request, row_count=request.row_count - len(mine), errors=_row_errors(mine)
            )
        number += 1


def _find_bad(layout: Layout, rows: Sequence[tuple[Any, ...]]) -> dict[int, str]:
    width = len(layout.columns)
    bad = {
        place: f"expected {width} values, got {len(row)}"
        for place, row in enumerate(rows)
        if len(row) != width
    }
    good = [place for place in range(len(rows)) if place not in bad]
    for index, column in enumerate(layout.columns):
        values = [rows[place][index] for place in good]
        for found in misfits(column, values):
            bad.setdefault(good[found], describe_misfit(column, values[found]))
    return bad


def _row_errors(bad: dict[int, str]) -> tuple[RowError, ...]:
    return tuple(
        RowError(row, RowCode.BAD_VALUE, bad[row] if number < ERROR_DETAILS_MAX else "")
        for number, row in enumerate(sorted(bad))
    )
