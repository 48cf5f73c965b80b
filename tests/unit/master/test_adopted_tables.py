"""A table that only the tablet servers have is taken into the catalog, after the loss of all masters."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from stelae.partition.schema import HashLevel, Partition, PartitionSchema
from stelae.protocol.actions import AlterSchema, CreateReplica
from stelae.protocol.catalog_names import TableId, TableState, TabletState
from stelae.protocol.master_messages import AdoptedTablet, AdoptTable
from stelae.spi.ids import OpId, TabletId
from stelae.spi.members import Member, TabletConfig
from stelae.spi.schema import Column, Schema
from tests.unit.master.master_with_servers import (
    SCHEMA,
    SERVERS,
    MasterWithServers,
    create,
    full,
    leading,
    sent,
    status,
)
from tests.unit.master.test_changes import describe, refused

TABLE = TableId("f" * 32)
TABLETS = tuple(TabletId(f"{number:x}" * 32) for number in (10, 11))
CONFIG = TabletConfig(
    op_id=OpId(1, 1), members=tuple(Member(node_id=server, address=f"s{server[-1]}:1") for server in SERVERS[:3])
)
ADOPT = AdoptTable(
    table_id=TABLE,
    name="readings",
    schema=SCHEMA.to_bytes(),
    next_column_id=3,
    partition_schema=PartitionSchema((HashLevel((1,), 2),)).to_bytes(),
    replication_factor=3,
    consensus="raft",
    tablets=tuple(
        AdoptedTablet(tablet_id=tablet, partition=Partition((bucket,)), config=CONFIG)
        for bucket, tablet in enumerate(TABLETS)
    ),
)


@pytest.fixture
def cluster() -> MasterWithServers:
    return leading()


def adopt(cluster: MasterWithServers, **changed: Any) -> None:
    cluster.ask(msgspec.structs.replace(ADOPT, **changed))
    cluster.commit()


def test_the_tablets_run_at_once_and_no_member_creates_an_empty_replica(cluster: MasterWithServers) -> None:
    adopt(cluster)
    table = cluster.core.catalog.tables[TABLE]
    assert (table.state, table.replication_factor, table.next_column_id) == (TableState.RUNNING, 3, 3)
    tablets = [cluster.core.catalog.tablets[tablet] for tablet in TABLETS]
    assert {tablet.state for tablet in tablets} == {TabletState.RUNNING}
    assert not any(tablet.has_yet_to_begin(server) for tablet in tablets for server in SERVERS)
    effects = cluster.pass_ms(60_000)
    assert not sent(effects, CreateReplica)
    assert [place.tablet_id for place in describe(cluster).tablets] == list(TABLETS)


def test_a_table_in_the_middle_of_an_alteration_goes_on_with_it(cluster: MasterWithServers) -> None:
    newer = Schema(2, (*SCHEMA.columns, Column(id=3, name="w", type="int64", nullable=True)), (1,))
    adopt(cluster, schema=newer.to_bytes(), applied=SCHEMA.to_bytes(), next_column_id=4)
    assert cluster.core.catalog.tables[TABLE].state is TableState.ALTERING
    assert describe(cluster).schema == SCHEMA.to_bytes(), "clients get what every tablet knows"
    cluster.heartbeat(SERVERS[0], full(*(status(tablet, CONFIG, leads=True) for tablet in TABLETS)))
    actions = sent(cluster.pass_ms(2_000), AlterSchema)
    assert {(action.tablet_id, action.version) for action in actions} == {(tablet, 2) for tablet in TABLETS}


def test_a_partition_without_a_tablet_gets_an_empty_one_if_that_is_wished(cluster: MasterWithServers) -> None:
    found = refused(cluster, msgspec.structs.replace(ADOPT, tablets=ADOPT.tablets[:1]))
    assert "1 of 2 partitions have no tablet" in found.detail
    adopt(cluster, tablets=ADOPT.tablets[:1], create_missing=True)
    cluster.pass_ms(2_000)
    cluster.commit()
    states = [(tablet.state, tablet.partition.buckets) for tablet in cluster.core.catalog.tablets.values()]
    assert sorted(states, key=str) == [(TabletState.CREATING, (1,)), (TabletState.RUNNING, (0,))]


TWICE = tuple(msgspec.structs.replace(one, partition=Partition((0,))) for one in ADOPT.tablets)
SAME = tuple(msgspec.structs.replace(one, tablet_id=TABLETS[0]) for one in ADOPT.tablets)
"""One tablet with two partitions: only one of them was put on record. Every master that described the table ended."""
STRANGE = AdoptedTablet(tablet_id=TabletId("c" * 32), partition=Partition((7,)), config=CONFIG)
NO_MEMBERS = TabletConfig(op_id=OpId(1, 1), members=())
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "two tablets": ({"tablets": TWICE}, "the same partition as another one"),
    "one tablet twice": ({"tablets": SAME}, f"tablet {TABLETS[0]} occurs twice"),
    "no such partition": ({"tablets": (*ADOPT.tablets, STRANGE)}, "a partition that its table does not have"),
    "no members": (
        {"tablets": tuple(msgspec.structs.replace(one, config=NO_MEMBERS) for one in ADOPT.tablets)},
        "has no members",
    ),
    "a column id used again": ({"next_column_id": 2}, "a column has id 2 already"),
    "an even factor": ({"replication_factor": 2}, "it is odd"),
    "no schema": ({"schema": b"x"}, "cannot be adopted"),
    "no partition schema": ({"partition_schema": b"x"}, "cannot be adopted"),
    "no name": ({"name": ""}, "cannot be called"),
    "a path": ({"table_id": TableId("../t")}, "../t"),
}


@pytest.mark.parametrize(("changed", "why"), WRONG.values(), ids=WRONG)
def test_what_does_not_fit_is_refused_and_changes_nothing(cluster: MasterWithServers, changed: Any, why: str) -> None:
    assert why in refused(cluster, msgspec.structs.replace(ADOPT, **changed)).detail
    assert not cluster.core.catalog.tables


def test_what_the_catalog_has_is_not_adopted_again(cluster: MasterWithServers) -> None:
    adopt(cluster)
    assert "readings" in refused(cluster, ADOPT, 10).detail
    other = msgspec.structs.replace(ADOPT, name="other")
    assert f"table id {TABLE} is in the catalog already" in refused(cluster, other, 11).detail
    stolen = msgspec.structs.replace(other, table_id=TableId("e" * 32))
    assert "is in the catalog already, of table" in refused(cluster, stolen, 12).detail
    cluster.ask(create("third"), 13)
    cluster.commit()
    assert len(cluster.core.catalog.tables) == 2
