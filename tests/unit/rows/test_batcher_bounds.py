"""The batcher of a tablet that has bounds: rows of another partition leave the batch, the rest stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from stelae.rows.batcher import Batcher, OutsideCheck
from stelae.rows.operation_encoding import operation, sequence_ranges_of
from stelae.rows.plain_schema import schema_from_plain
from stelae.rows.row_checks import ERROR_DETAILS_MAX
from stelae.spi.ids import ClientId
from stelae.spi.payload import PayloadSequenceRange, WritePayload, decode_payload
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Schema
from stelae.spi.write import OpKind, RowCode, RowError, digests_of

SCHEMA = schema_from_plain(
    {
        "columns": [{"name": "at", "type": "timestamp"}, {"name": "name", "type": "string", "nullable": True}],
        "key": ["at"],
    }
)
LATER = Schema(2, SCHEMA.columns, SCHEMA.key)
STRAY = RowCode.OUTSIDE_PARTITION


def below_10(schema: Schema) -> OutsideCheck:
    """The bounds of a tablet that holds the keys 0 to 9."""

    def outside(rows: RowBatch) -> Mapping[int, str]:
        keys = rows.values(rows.layout.ids.index(1))
        return {place: f"{key} under {schema.version}" for place, key in enumerate(keys) if not 0 <= key < 10}

    return outside


def batcher() -> Batcher:
    return Batcher(SCHEMA, bounds=below_10)


def add(to: Batcher, sequence: int, kind: OpKind, rows: list[tuple[Any, ...]], *, arrow: bool = False) -> None:
    layout = SCHEMA.key_layout if kind is OpKind.DELETE else SCHEMA.layout
    data = RowBatch.from_equal_rows(layout, rows).to_ipc() if arrow else rows
    (run,) = sequence_ranges_of([(sequence, operation(kind, data, None))])
    to.add(ClientId("c"), 1, run, digests_of(run), None)


def built(of: Batcher) -> WritePayload:
    ((body, _),) = of.build()
    return decode_payload(body)


def errors(run: PayloadSequenceRange) -> list[RowError]:
    return [error for _, error in run.errors]


@pytest.mark.parametrize("kind", [OpKind.INSERT, OpKind.UPSERT, OpKind.UPDATE, OpKind.DELETE])
@pytest.mark.parametrize("arrow", [False, True])
def test_rows_of_another_partition_are_row_errors_and_the_others_are_logged(kind: OpKind, *, arrow: bool) -> None:
    mine = batcher()
    rows = [(3,), (10,), (4,), (-1,)] if kind is OpKind.DELETE else [(3, "a"), (10, "b"), (4, "c"), (-1, "d")]
    add(mine, 1, kind, rows, arrow=arrow)
    payload = built(mine)
    assert errors(payload.sequences[0]) == [RowError(1, STRAY, "10 under 1"), RowError(3, STRAY, "-1 under 1")]
    assert payload.sequences[0].row_counts == (2,)
    assert payload.groups[0].rows(SCHEMA).values(0) == [3, 4]


def test_each_client_hears_of_its_own_rows_alone() -> None:
    mine = batcher()
    add(mine, 1, OpKind.INSERT, [(1, "a"), (11, "b")])
    add(mine, 2, OpKind.INSERT, [(2, "c")])
    add(mine, 3, OpKind.INSERT, [(12, "d"), (3, "e")])
    runs = built(mine).sequences
    assert [[error.row for error in errors(run)] for run in runs] == [[1], [], [0]]


def test_a_row_that_does_not_fit_and_one_of_another_partition_are_told_apart() -> None:
    mine = batcher()
    add(mine, 1, OpKind.INSERT, [(1, 5), (11, "b"), (2, "c"), (1 << 63, "d")])
    (run,) = built(mine).sequences
    assert [(e.row, e.code.name) for e in errors(run)] == [(0, "BAD_VALUE"), (1, STRAY.name), (3, "BAD_VALUE")]


def test_an_operation_of_strays_alone_is_decided_with_no_row_in_the_log() -> None:
    mine = batcher()
    add(mine, 1, OpKind.INSERT, [(n, None) for n in range(10, 40)])
    payload = built(mine)
    assert payload.groups == () and len(errors(payload.sequences[0])) == 30
    assert [bool(e.detail) for e in errors(payload.sequences[0])] == [True] * ERROR_DETAILS_MAX + [False] * 14


def test_bounds_follow_the_schema() -> None:
    mine = batcher()
    mine.change_schema(LATER)
    add(mine, 1, OpKind.INSERT, [(10, None)])
    assert errors(built(mine).sequences[0]) == [RowError(0, STRAY, "10 under 2")]


def test_a_tablet_without_bounds_takes_every_row() -> None:
    mine = Batcher(SCHEMA)
    add(mine, 1, OpKind.INSERT, [(10, None), (-1, None)])
    assert built(mine).sequences[0].errors == ()
