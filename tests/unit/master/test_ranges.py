"""Ranges of a table that are added and dropped, with their tablets."""

from __future__ import annotations

import pytest

from stelae.partition.schema import KeyRange, PartitionSchema
from stelae.protocol.actions import DeleteReplica
from stelae.protocol.catalog_names import TableState
from stelae.protocol.master_messages import AddRange, AlterTable, CreateTable, DropRange
from stelae.server.master.core.events import Replicate
from stelae.spi.ids import TabletId
from tests.unit.master.master_with_servers import SCHEMA, MasterWithServers, leading, only, sent
from tests.unit.master.test_changes import describe

RANGES = (KeyRange(b"a", b"b"), KeyRange(b"c", b"d"))


@pytest.fixture
def cluster() -> MasterWithServers:
    """A leader that hears three servers."""
    return leading()


def ranged(cluster: MasterWithServers, *ranges: KeyRange) -> list[TabletId]:
    """Create a table with these ranges; return its tablets."""
    spread = PartitionSchema((), (1,), ranges).to_bytes()
    cluster.create_running(CreateTable(name="readings", schema=SCHEMA.to_bytes(), partition_schema=spread))
    return [place.tablet_id for place in describe(cluster).tablets]


def test_ranges_come_and_go_with_their_tablets_in_one_batch(cluster: MasterWithServers) -> None:
    before = ranged(cluster, *RANGES)
    effects = cluster.ask(
        AlterTable(table="readings", steps=(DropRange(range=RANGES[0]), AddRange(range=KeyRange(b"b", b"c")))), 2
    )
    (batch,) = [e.batch for e in only(effects, Replicate)]
    assert sorted(r.key.kind for r in batch.puts) == ["request", "table", "tablet", "tablet"]
    deleted = sent(cluster.commit(), DeleteReplica)
    assert {action.tablet_id for action in deleted} == {before[0]}
    after = describe(cluster)
    assert [p.partition.range.lower for p in after.tablets] == [b"b", b"c"]
    assert after.tablets[1].tablet_id == before[1]


def test_a_range_that_one_change_drops_and_adds_again_begins_empty(cluster: MasterWithServers) -> None:
    """The partitions were the same before and after, so nothing was done: the rows of the dropped range stayed."""
    before = ranged(cluster, *RANGES)
    steps = (DropRange(range=RANGES[0]), AddRange(range=RANGES[0]))
    cluster.ask(AlterTable(table="readings", steps=steps), 2)
    deleted = sent(cluster.commit(), DeleteReplica)
    assert {action.tablet_id for action in deleted} == {before[0]}
    after = describe(cluster)
    assert [p.partition.range for p in after.tablets] == list(RANGES)
    assert after.tablets[0].tablet_id != before[0] and after.tablets[1].tablet_id == before[1]
    assert after.state is TableState.ALTERING


def test_a_range_that_one_change_adds_and_drops_again_leaves_no_tablet(cluster: MasterWithServers) -> None:
    before = ranged(cluster, RANGES[0])
    cluster.ask(AlterTable(table="readings", steps=(AddRange(range=RANGES[1]), DropRange(range=RANGES[1]))), 2)
    assert sent(cluster.commit(), DeleteReplica) == []
    assert [place.tablet_id for place in describe(cluster).tablets] == before
