"""Records, batches, snapshots and states of the catalog."""

from __future__ import annotations

import pytest

from stelae.partition.schema import Partition
from stelae.protocol.catalog_names import ServerMode, TableId, TableState, TabletState
from stelae.server.master.core.batches import SYSTEM_SCHEMA, CatalogBatch, from_rows, records_of, to_rows
from stelae.server.master.core.catalog import Catalog
from stelae.server.master.core.records import (
    ClientRecord,
    ClusterRecord,
    Key,
    Record,
    RequestRecord,
    ServerRecord,
    TableRecord,
    TabletRecord,
    decode_record,
    encode_record,
)
from stelae.server.master.core.states import (
    TABLE_MOVES,
    TABLET_MOVES,
    TERMINAL_TABLE,
    TERMINAL_TABLET,
    TableCause,
    TabletCause,
    table_may_become,
    tablet_may_become,
)
from stelae.spi.errors import Corrupt
from stelae.spi.ids import ClientId, ClusterId, NodeId, OpId, TabletId
from stelae.spi.members import Member, TabletConfig
from stelae.spi.rows import RowBatch
from stelae.spi.write import OpKind
from tests.unit.master.master_with_servers import SCHEMA, SERVERS

CONFIG = TabletConfig(op_id=OpId(3, 7), members=(Member(node_id=SERVERS[0], address="a:1"),))


def table(table_id: str = "t1", name: str = "readings", state: TableState = TableState.RUNNING) -> TableRecord:
    return TableRecord(
        table_id=TableId(table_id),
        name=name,
        state=state,
        schema=SCHEMA.to_bytes(),
        partition_schema=b"",
        replication_factor=3,
        consensus="raft",
        next_column_id=3,
        changed_us=5,
    )


def tablet(tablet_id: str = "x1", state: TabletState = TabletState.PREPARING, table_id: str = "t1") -> TabletRecord:
    return TabletRecord(
        tablet_id=TabletId(tablet_id),
        table_id=TableId(table_id),
        state=state,
        partition=Partition((1,)),
        since_us=5,
        config=CONFIG,
        barred=(SERVERS[1],),
    )


RECORDS: tuple[Record, ...] = (
    table(),
    tablet(),
    ServerRecord(node_id=NodeId(SERVERS[0]), address="a:1", location="/x/y/z", mode=ServerMode.RETIRING),
    ClusterRecord(cluster_id=ClusterId("one"), created_us=9),
    RequestRecord(client_id=ClientId("ann"), sequence=4, digest=77, answer=b"yes", decided_us=6),
    ClientRecord(client_id=ClientId("ann"), floor=3, changed_us=6),
)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.key.kind)
def test_a_record_is_read_back_as_it_was_written(record: Record) -> None:
    assert decode_record(encode_record(record)) == record


def test_a_batch_is_one_operation_on_rows_of_the_system_table_and_comes_back_from_the_log() -> None:
    kind, rows = to_rows(CatalogBatch(puts=RECORDS))
    assert kind is OpKind.UPSERT
    assert rows.layout == SYSTEM_SCHEMA.layout
    again = RowBatch.from_ipc(SYSTEM_SCHEMA.layout, rows.to_ipc())
    assert from_rows(kind, again) == CatalogBatch(puts=RECORDS)


def test_what_is_dropped_is_one_operation_on_keys() -> None:
    dropped = CatalogBatch(drops=(Key("request", "ann/4"),))
    kind, rows = to_rows(dropped)
    assert kind is OpKind.DELETE_IGNORE
    assert from_rows(kind, RowBatch.from_ipc(SYSTEM_SCHEMA.key_layout, rows.to_ipc())) == dropped


def test_a_batch_neither_mixes_nor_is_empty() -> None:
    for puts, drops in (((), ()), (RECORDS, (Key("a", "b"),))):
        with pytest.raises(ValueError, match="either puts or drops"):
            CatalogBatch(puts=puts, drops=drops)


@pytest.mark.parametrize("kind", [OpKind.UPSERT, OpKind.DELETE_IGNORE, OpKind.INSERT])
def test_an_operation_that_no_master_makes_is_corrupt(kind: OpKind) -> None:
    with pytest.raises(Corrupt):
        from_rows(kind, RowBatch.from_equal_rows(SYSTEM_SCHEMA.layout, []))
    with pytest.raises(Corrupt):
        from_rows(OpKind.INSERT, to_rows(CatalogBatch(puts=RECORDS))[1])


@pytest.mark.parametrize("data", [b"", b"\x00", b"junk", encode_record(RECORDS[0])[:-1]])
def test_bytes_that_are_no_record_are_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt):
        decode_record(data)


def test_a_row_that_stands_under_another_key_is_corrupt() -> None:
    row = ("table", "t2", encode_record(table("t1")))
    with pytest.raises(Corrupt, match="t2"):
        records_of([RowBatch.from_equal_rows(SYSTEM_SCHEMA.layout, [row])])


def test_a_snapshot_stays_as_it_is_when_the_next_is_made() -> None:
    first = Catalog.empty().apply(CatalogBatch(puts=RECORDS), OpId(1, 1))
    second = first.apply(CatalogBatch(puts=(table(name="other"), tablet(state=TabletState.REMOVED))), OpId(1, 2))
    assert set(first.names) == {"readings"} and set(second.names) == {"other"}
    assert first.of_table[TableId("t1")] == ("x1",) and second.of_table[TableId("t1")] == ()
    assert first.applied == OpId(1, 1) and second.applied == OpId(1, 2)


def test_an_entry_without_rows_moves_the_place_alone() -> None:
    first = Catalog.empty().apply(CatalogBatch(puts=RECORDS), OpId(1, 1))
    assert first.apply(None, OpId(2, 2)).tables is first.tables
    assert first.apply(None, OpId(2, 2)).applied == OpId(2, 2)


def test_a_name_is_free_again_once_its_table_is_hidden_and_taken_again_by_another() -> None:
    first = Catalog.empty().apply(CatalogBatch(puts=(table(),)), OpId(1, 1))
    hidden = first.apply(CatalogBatch(puts=(table(state=TableState.SOFT_DELETED),)), OpId(1, 2))
    assert hidden.table_named("readings") is None
    taken = hidden.apply(CatalogBatch(puts=(table("t2"),)), OpId(1, 3))
    removed = taken.apply(CatalogBatch(puts=(table(state=TableState.REMOVED),)), OpId(1, 4))
    assert removed.names == {"readings": "t2"}


def test_answers_can_be_dropped_and_nothing_else_can() -> None:
    first = Catalog.empty().apply(CatalogBatch(puts=RECORDS), OpId(1, 1))
    keys = tuple(record.key for record in RECORDS)
    left = first.apply(CatalogBatch(drops=keys), OpId(1, 2))
    assert {key.kind for key in left.records} == {"table", "tablet", "server", "cluster"}
    assert left.requests == {} and left.clients == {}
    assert left.tables == first.tables


def test_a_catalog_loaded_from_its_rows_is_the_one_that_was_applied() -> None:
    applied = Catalog.empty().apply(CatalogBatch(puts=RECORDS), OpId(1, 1)).apply(None, OpId(2, 2))
    assert Catalog.load(applied.records.values(), OpId(2, 2)) == applied


def test_ten_thousand_tablets_are_one_batch_well_below_an_entry() -> None:
    many = CatalogBatch(puts=tuple(tablet(f"x{n}", TabletState.RUNNING) for n in range(10_000)))
    assert many.size_bytes < 4 << 20
    assert len(Catalog.empty().apply(many, OpId(1, 1)).of_table[TableId("t1")]) == 10_000


@pytest.mark.parametrize(
    ("moves", "states", "causes"), [(TABLE_MOVES, TableState, TableCause), (TABLET_MOVES, TabletState, TabletCause)]
)
def test_the_tables_of_states_are_total(moves: object, states: type, causes: type) -> None:
    assert isinstance(moves, type(TABLE_MOVES))
    assert list(moves) == list(causes)
    assert all(list(row) == list(states) for row in moves.values())


def test_nothing_leads_out_of_a_terminal_state() -> None:
    for state in TERMINAL_TABLE:
        assert [after for after in TableState if table_may_become(state, after)] == [state]
    for replaced in TERMINAL_TABLET:
        assert [after for after in TabletState if tablet_may_become(replaced, after)] == [replaced]


def test_every_state_is_reached_and_a_tablet_begins_by_preparing() -> None:
    assert {after for row in TABLE_MOVES.values() for after in row.values() if after} == set(TableState)
    reached = {after for row in TABLET_MOVES.values() for after in row.values() if after}
    assert reached | {TabletState.PREPARING} == set(TabletState)
    assert [s for s in TabletState if tablet_may_become(None, s)] == [TabletState.PREPARING]
    assert [s for s in TableState if table_may_become(None, s)] == [TableState.RUNNING]
