"""The rows that the agreed writes produce as of any entry, and the files that survive a crash."""

from __future__ import annotations

import random

import pytest

from stelae.rows.checksum import LogicalChecksum
from stelae.sim.agreed_writes import AgreedWrites
from stelae.sim.disk import VirtualDisk
from stelae.sim.draw import stream
from stelae.sim.history import SCHEMA, ClientAction, ClientOperation, HistoryRow
from stelae.sim.invariants import AppliedRequest
from stelae.sim.store_profile import STORES, draw_store_profile
from stelae.spi.ids import OpId
from stelae.spi.schema import Column, Schema


def agreed_writes(*steps: tuple[ClientAction, HistoryRow]) -> AgreedWrites:
    """Record one write in each entry, at timestamps 10, 20, ..."""
    agreed = AgreedWrites()
    for number, (action, row) in enumerate(steps, 1):
        agreed.invoked(ClientOperation(client="c", sequence=number, action=action, rows=(row,)))
        op_id = OpId(1, number)
        agreed.applied(op_id, 10 * number, [AppliedRequest(op_id, 0, "c", number, False, ())])
    return agreed


def test_rows_as_of_an_entry_are_those_after_the_entry() -> None:
    agreed = agreed_writes(
        (ClientAction.UPSERT, HistoryRow(2, "a")),
        (ClientAction.UPSERT, HistoryRow(1, "b")),
        (ClientAction.DELETE, HistoryRow(2, "")),
    )
    assert [agreed.rows(index) for index in range(4)] == [{}, {2: ("a",)}, {1: ("b",), 2: ("a",)}, {1: ("b",)}]
    assert agreed.rows() == {1: ("b",)}
    assert list(agreed.rows(2)) == [1, 2]


def test_a_timestamp_maps_to_the_last_entry_at_or_below_it() -> None:
    agreed = agreed_writes((ClientAction.UPSERT, HistoryRow(1, "a")), (ClientAction.UPSERT, HistoryRow(1, "b")))
    assert [agreed.index_at(stamp) for stamp in (0, 9, 10, 19, 20, 99)] == [0, 0, 1, 1, 2, 2]
    assert list(agreed.timestamps(1)) == [10]


def test_an_entry_that_another_replica_applies_changes_nothing() -> None:
    agreed = agreed_writes((ClientAction.UPSERT, HistoryRow(1, "a")), (ClientAction.UPSERT, HistoryRow(1, "b")))
    agreed.applied(OpId(1, 1), 10, [AppliedRequest(OpId(1, 1), 0, "c", 1, False, ())])
    assert agreed.rows() == {1: ("b",)}
    assert list(agreed.timestamps(9)) == [10, 20]


def test_the_checksum_is_the_one_that_stores_compute() -> None:
    total = LogicalChecksum()
    total.add([(1, "a")])
    assert (
        agreed_writes((ClientAction.UPSERT, HistoryRow(1, "a")), (ClientAction.DELETE, HistoryRow(1, ""))).checksum(1)
        == total.hex()
    )


WIDER = Schema(2, (*SCHEMA.columns, Column(id=3, name="a", type="int64", default=7)), (1,))
"""The second version: one more column."""


def test_a_row_keeps_the_cells_that_a_later_write_does_not_set_and_reads_under_the_schema() -> None:
    agreed = agreed_writes((ClientAction.UPSERT, HistoryRow(1, "a")))
    agreed.schema_applied(OpId(1, 2), WIDER)
    for sequence, columns in ((3, None), (4, (1, 2))):
        write = ClientOperation(
            client="c", sequence=sequence, action=ClientAction.UPSERT, rows=(HistoryRow(1, f"v{sequence}", more=10),)
        )
        write.schema, write.columns = WIDER, columns
        agreed.invoked(write)
        op_id = OpId(1, sequence)
        agreed.applied(op_id, 10 * sequence, [AppliedRequest(op_id, 0, "c", sequence, False, ())])
    assert [agreed.rows(index, WIDER)[1] for index in (1, 2, 3, 4)] == [("a", 7), ("a", 7), ("v3", 13), ("v4", 13)]
    assert agreed.rows(4, SCHEMA) == {1: ("v4",)}, "a column that was dropped is not read"
    assert [agreed.schema(index).version for index in (1, 2, 3)] == [1, 2, 2]


# -- files ----------------------------------------------------------------------------------------


def test_a_file_is_durable_once_it_and_all_names_above_it_are_synced() -> None:
    disk = VirtualDisk()
    disk.make_directory("/data/tablet")
    disk.sync_directory("/")
    file = disk.create("/data/tablet/block")
    file.pwritev([b"rows"], 0)
    seen = [disk.is_durable("/data/tablet/block")]
    file.sync()
    seen.append(disk.is_durable("/data/tablet/block"))
    disk.sync_directory("/data/tablet")
    seen.append(disk.is_durable("/data/tablet/block"))
    disk.sync_directory("/data")
    assert [*seen, disk.is_durable("/data/tablet/block")] == [False, False, False, True]
    file.pwritev([b"more"], 4)
    assert not disk.is_durable("/data/tablet/block")
    assert not disk.is_durable("/data/tablet/other")


@pytest.mark.parametrize("seed", range(12))
def test_files_that_are_durable_survive_every_crash(seed: int) -> None:
    rng, disk = stream(seed, "durable"), VirtualDisk()
    disk.make_directory("/d")
    disk.sync_directory("/")
    for number in range(6):
        file = disk.create(f"/d/{number}")
        file.pwritev([b"x" * 2_000], 0)
        if rng.random() < 0.6:
            file.sync()
        if rng.random() < 0.4:
            disk.sync_directory("/d")
    durable = {f"/d/{number}" for number in range(6) if disk.is_durable(f"/d/{number}")}
    for luck in range(8):
        found = disk.clone().crash(random.Random(luck)).tree()
        assert all(found.get(path) == b"x" * 2_000 for path in durable)


def test_runs_with_either_store_and_with_both_are_drawn() -> None:
    drawn = [draw_store_profile(seed, 3).engines for seed in range(1, 200)]
    alike = {engines[0] for engines in drawn if len(set(engines)) == 1}
    assert alike == set(STORES)
    assert any(len(set(engines)) == 2 for engines in drawn)
    assert sum(set(engines) == {"memory"} for engines in drawn) > 80
