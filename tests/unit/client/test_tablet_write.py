"""``ConnectedTablet.send``: in which form rows travel, and which operations share a request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from stelae.client.connection import ConnectedTablet, Connection
from stelae.client.greeting import Greeting
from stelae.client.leader_tracker import LeaderTracker
from stelae.client.turns import ClientTurns
from stelae.rows.operation_encoding import ROW_FORM_ROWS_MAX, decode_rows
from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.ids import NodeId, TabletId
from stelae.spi.rows import RowBatch
from stelae.spi.write import OpKind, SequenceRange, decode_request
from tests.tablet_rows import write_to

NODE = NodeId("a" * 32)
SCHEMA = schema_from_plain(
    {"columns": [{"name": "name", "type": "string", "nullable": True}, {"name": "id", "type": "int32"}], "key": ["id"]}
)


class SilentMessenger:
    """Keeps what is sent, answers nothing."""

    def __init__(self) -> None:
        self.runs: list[SequenceRange] = []

    def call(self, _to: NodeId, _kind: str, frames: Sequence[bytes], **_: Any) -> Any:
        self.runs += decode_request(frames[0]).sequences
        return asyncio.get_running_loop().create_future()

    def close(self) -> None:
        """Nothing to close."""


def sent(write: Callable[[ConnectedTablet], Any]) -> list[SequenceRange]:
    """What a client sends in one turn in which ``write`` is called."""
    messenger = SilentMessenger()

    async def turn() -> None:
        greeting = Greeting(messenger, [])  # type: ignore[arg-type]
        client = Connection(messenger, ClientTurns(asyncio.get_running_loop()), greeting)  # type: ignore[arg-type]
        write(ConnectedTablet(client, TabletId("t"), SCHEMA, LeaderTracker([NODE])))
        await asyncio.sleep(0)

    asyncio.run(turn())
    return messenger.runs


def arrow_of(kind: OpKind, given: list[tuple[Any, ...]]) -> bytes:
    """The Arrow message as which rows travel."""
    (run,) = sent(lambda tablet: write_to(tablet, kind, given))
    message = decode_rows(run)
    assert isinstance(message, bytes) and run.columns is None
    return message


def rows(count: int) -> list[tuple[Any, ...]]:
    return [(f"row {n}", n) for n in range(count)]


def test_few_rows_travel_in_row_form() -> None:
    few = rows(ROW_FORM_ROWS_MAX - 1)
    (run,) = sent(lambda tablet: write_to(tablet, OpKind.INSERT, few))
    assert (run.kind, run.columns, decode_rows(run)) == (OpKind.INSERT, None, [few])


def test_what_one_turn_wrote_travels_as_runs_of_one_kind() -> None:
    def write(tablet: ConnectedTablet) -> None:
        for kind in (OpKind.INSERT, OpKind.INSERT, OpKind.UPSERT):
            write_to(tablet, kind, rows(1))

    found = [(run.first_sequence, run.kind, len(run.ops)) for run in sent(write)]
    assert found == [(1, OpKind.INSERT, 2), (3, OpKind.UPSERT, 1)]


def test_arrow_batches_of_one_turn_are_runs_of_their_own() -> None:
    def write(tablet: ConnectedTablet) -> None:
        for count in (1, ROW_FORM_ROWS_MAX, ROW_FORM_ROWS_MAX, 1, 1):
            write_to(tablet, OpKind.INSERT, rows(count))

    assert [(run.first_sequence, len(run.ops)) for run in sent(write)] == [(1, 1), (2, 1), (3, 1), (4, 2)]


def test_many_rows_travel_as_one_arrow_batch_of_the_whole_schema() -> None:
    many = rows(ROW_FORM_ROWS_MAX)
    assert RowBatch.from_ipc(SCHEMA.layout, arrow_of(OpKind.UPSERT, many)).to_rows() == many


@pytest.mark.parametrize("kind", [OpKind.DELETE, OpKind.DELETE_IGNORE])
def test_many_deletes_travel_as_one_arrow_batch_of_the_key(kind: OpKind) -> None:
    keys = [(n,) for n in range(ROW_FORM_ROWS_MAX)]
    assert RowBatch.from_ipc(SCHEMA.key_layout, arrow_of(kind, keys)).to_rows() == keys
