"""The tables that are made of what tablet servers have on record."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from stelae.partition.partitioning import Partitioning
from stelae.partition.schema import HashLevel, KeyRange, PartitionSchema
from stelae.partition.tablet_partition import tablet_scheme
from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.protocol.recovery_messages import TabletFacts
from stelae.recover.catalog_plan import FoundTable, plan_catalog, without_leader
from stelae.spi.ids import NodeId, OpId, TabletId
from stelae.spi.members import Member, MemberType, TabletConfig
from stelae.spi.schema import Column, Schema

SCHEMA = Schema(1, (Column(id=1, name="k", type="string"), Column(id=2, name="v", type="int64", nullable=True)), (1,))
NEWER = Schema(2, (*SCHEMA.columns, Column(id=5, name="w", type="int64", nullable=True)), (1,))
PARTS = PartitionSchema((HashLevel((1,), 2),), (1,), (KeyRange(b"", b"m"), KeyRange(b"m", None)))
TABLE = "f" * 32


def config(index: int = 1, voters: int = 3, learners: int = 0) -> TabletConfig:
    types = [MemberType.VOTER] * voters + [MemberType.PRE_VOTER] * learners
    members = [Member(node_id=NodeId(f"{n:032x}"), address=f"s:{n}", member_type=one) for n, one in enumerate(types)]
    return TabletConfig(op_id=OpId(1, index), members=tuple(members))


def facts(tablet: str = "a", **changed: Any) -> TabletFacts:
    """What one replica of an unpartitioned table has on record."""
    plain = TabletFacts(
        tablet_id=TabletId(tablet),
        table_id=TABLE,
        schema=SCHEMA.to_bytes(),
        next_column_id=3,
        consensus="raft",
        config=config(),
        leads=True,
        last=OpId(1, 9),
    )
    return msgspec.structs.replace(plain, **changed)


def parts() -> list[TabletFacts]:
    """One replica of each tablet of a table with two buckets and two ranges."""
    return [
        facts(f"tablet-{number}", scheme=tablet_scheme(PARTS, partition), hash_buckets=partition.buckets)
        for number, partition in enumerate(Partitioning(SCHEMA, PARTS).partitions)
    ]


def only(*replicas: TabletFacts, **how: Any) -> FoundTable:
    (table,) = plan_catalog(replicas, **how).tables
    return table


def test_a_table_of_one_tablet() -> None:
    table = only(facts(), facts())
    assert table.name == "recovered-ffffffff" and table.columns == ("k string", "v int64")
    adoption = table.adoption
    assert adoption is not None and adoption.partition_schema == PartitionSchema().to_bytes()
    assert (adoption.schema, adoption.applied, adoption.next_column_id) == (SCHEMA.to_bytes(), None, 3)
    assert [one.config for one in adoption.tablets] == [config()]


def test_the_partitions_are_those_that_the_table_had() -> None:
    adoption = only(*reversed(parts())).adoption
    assert adoption is not None and adoption.partition_schema == PARTS.to_bytes()
    held = {one.tablet_id: one.partition for one in adoption.tablets}
    assert list(dict(sorted(held.items())).values()) == list(Partitioning(SCHEMA, PARTS).partitions)


def test_the_newest_config_and_schema_count_and_no_column_id_is_used_again() -> None:
    # A replica that was removed since knows a dropped column.
    old = facts("a", config=config(7), leads=False, next_column_id=9)
    new = facts("a", config=config(8, voters=5), leads=True)
    table = only(old, new)
    assert table.adoption is not None and table.replication_factor == 5
    assert table.adoption.next_column_id == 9
    assert table.adoption.tablets[0].config.op_id == OpId(1, 8)
    first, *rest = parts()
    altered = only(msgspec.structs.replace(first, schema=NEWER.to_bytes(), next_column_id=6), *rest).adoption
    assert altered is not None and altered.schema == NEWER.to_bytes()
    assert (altered.applied, altered.next_column_id) == (SCHEMA.to_bytes(), 6)


@pytest.mark.parametrize(("voters", "learners", "wanted"), [(3, 1, 3), (4, 0, 3), (1, 0, 1), (2, 0, 1), (5, 0, 5)])
def test_a_tablet_in_the_middle_of_a_move_does_not_raise_the_number_of_replicas(
    voters: int, learners: int, wanted: int
) -> None:
    assert only(facts(config=config(voters=voters, learners=learners))).replication_factor == wanted


def test_a_partition_without_a_tablet_is_a_problem_unless_it_may_be_empty() -> None:
    left = parts()[1:]
    table = only(*left)
    assert table.adoption is None and table.missing == 1 and "1 partitions have no tablet" in table.problems[0]
    created = only(*left, create_missing=True)
    assert created.adoption is not None and created.adoption.create_missing and created.missing == 1


def test_two_tablets_of_one_partition_are_a_problem_until_one_is_left_out() -> None:
    table = only(facts("a"), facts("b"))
    assert table.adoption is None and "tablets a and b have the same partition" in table.problems[0]
    chosen = only(facts("a"), facts("b"), left_out=[TabletId("b")])
    assert chosen.adoption is not None and chosen.tablets == ("a",)


def test_tablets_that_are_not_of_one_table_are_a_problem() -> None:
    (first, *_) = parts()
    table = only(first, facts("z"))
    assert table.adoption is None and "hashed or ranged otherwise" in table.problems[0]


def test_a_failed_replica_does_not_hide_a_whole_one_and_is_named_where_there_is_no_other() -> None:
    failed = TabletFacts(tablet_id=TabletId("a"), failure="its log is damaged")
    assert only(failed, facts("a")).adoption is not None
    plan = plan_catalog([failed])
    assert plan.tables == () and plan.unreadable == (("a", "its log is damaged"),)


def test_what_the_catalog_has_and_tablets_without_a_table_are_left_alone() -> None:
    system = facts(SYSTEM_TABLET, table_id="system catalog")
    assert plan_catalog([facts("a"), system, facts("b", table_id="")], known=[TabletId("a")]).tables == ()


def test_a_table_is_called_as_the_user_says() -> None:
    assert only(facts(), names={TABLE: "readings"}).name == "readings"


def test_a_tablet_without_a_leader_is_a_problem_because_only_a_leader_is_sure_to_have_the_newest_schema() -> None:
    """A follower that has just started may not have applied the last alteration: the table was adopted without it."""
    behind = facts("a", leads=False, last=OpId(1, 99))
    table = only(behind)
    assert table.adoption is None and "tablet a has no leader" in table.problems[0]
    assert without_leader([behind], ()) == {"a"} and without_leader([behind], ["a"]) == set()
    ahead = facts("a", schema=NEWER.to_bytes(), next_column_id=6)
    led = only(behind, ahead)
    assert led.adoption is not None and led.adoption.schema == NEWER.to_bytes()
    assert without_leader([behind, ahead], ()) == set()
