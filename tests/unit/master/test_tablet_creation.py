"""From a tablet on record to its first leader: placement, creation of replicas, replacement when nothing leads."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec
import pytest

from stelae.partition.partitioning import Partitioning
from stelae.partition.tablet_partition import TabletPartition
from stelae.protocol.actions import CreateReplica, DeleteReplica
from stelae.protocol.catalog_names import TabletState
from stelae.rows.batch_building import build_batch
from stelae.server.master.core.records import TabletRecord
from stelae.spi.policy import Action, ActionKind, PolicySnapshot
from stelae.spi.schema import Schema
from tests.unit.master.master_with_servers import (
    SERVERS,
    SETTINGS,
    MasterWithServers,
    changes,
    create,
    full,
    sent,
    status,
)
from tests.unit.master.planned import LEADER, SECOND, THIRD


def test_a_new_tablet_is_placed_at_once_and_its_members_are_asked_to_create_it() -> None:
    cluster = MasterWithServers()
    cluster.lead(1)
    cluster.hear()
    cluster.ask(create(buckets=1))
    created = sent(cluster.commit(), CreateReplica)
    assert [action.node_id for action in created] == [LEADER, SECOND, THIRD]
    assert {t.state for t in cluster.core.catalog.tablets.values()} == {TabletState.CREATING}


def test_members_are_told_which_rows_are_the_tablets() -> None:
    cluster = MasterWithServers()
    cluster.lead(1)
    cluster.hear()
    cluster.ask(create(buckets=3))
    created = {action.tablet_id: action for action in sent(cluster.commit(), CreateReplica)}
    (table,) = cluster.core.catalog.tables.values()
    schema = Schema.from_bytes(table.schema)
    partitioning = Partitioning(schema, table.partitioning)
    rows = build_batch(schema.layout, [(f"key {n}", n) for n in range(30)])
    taken = []
    for action in created.values():
        outside = TabletPartition(schema, action.scheme, action.partition.buckets).outside(rows)
        taken.append([place for place in range(30) if place not in outside])
    assert sorted(taken) == sorted(share.positions for share in partitioning.split(rows))


def test_who_does_not_report_a_new_replica_is_nudged_and_others_are_not() -> None:
    cluster = MasterWithServers()
    cluster.lead(1)
    cluster.hear()
    cluster.ask(create(buckets=1))
    cluster.commit()
    (tablet,) = cluster.core.catalog.tablets.values()
    cluster.heartbeat(
        LEADER, changes(msgspec.structs.replace(status(tablet.tablet_id, tablet.config), config=tablet.config))
    )
    nudged = sent(cluster.pass_ms(SETTINGS.action_retry_ms), CreateReplica)
    assert [action.node_id for action in nudged] == [SECOND, THIRD]


def test_a_tablet_without_a_leader_in_time_is_replaced_in_one_batch_and_its_replicas_deleted() -> None:
    cluster = MasterWithServers()
    cluster.lead(1)
    cluster.hear()
    cluster.ask(create(buckets=1))
    cluster.commit()
    (old,) = cluster.core.catalog.tablets.values()
    for server in SERVERS[:3]:
        cluster.heartbeat(server, full())
    cluster.now_us += SETTINGS.create_timeout_ms * 1000
    for server in SERVERS[:3]:
        cluster.heartbeat(server, full(upto=2))
    cluster.pass_ms(SETTINGS.scan_interval_ms)
    effects = cluster.commit()
    tablets = cluster.core.catalog.tablets
    assert tablets[old.tablet_id].state is TabletState.REPLACED
    new_id = tablets[old.tablet_id].replaced_by
    assert new_id is not None and tablets[new_id].state is TabletState.CREATING
    assert {a.tablet_id for a in sent(effects, CreateReplica)} == {new_id}
    late = status(old.tablet_id, old.config, leads=True)
    cluster.effects.clear()
    cluster.heartbeat(LEADER, changes(late, since=2, upto=3))
    assert sent(cluster.effects, DeleteReplica) != []
    assert cluster.core.catalog.tablets[old.tablet_id].state is TabletState.REPLACED


def created_before_the_masters_were_away() -> tuple[MasterWithServers, TabletRecord]:
    """A tablet was just created, and this master leads no more."""
    cluster = MasterWithServers()
    cluster.lead(1)
    cluster.hear()
    cluster.ask(create(buckets=1))
    cluster.commit()
    (tablet,) = cluster.core.catalog.tablets.values()
    cluster.follow(2)
    return cluster, tablet


@pytest.mark.parametrize("restarted", [False, True])
def test_a_new_leader_hears_the_servers_before_it_replaces_a_tablet_that_is_being_created(restarted: bool) -> None:
    """It had no report yet, so it replaced every tablet that was created before a long absence of the masters."""
    cluster, tablet = created_before_the_masters_were_away()
    for _ in range(SETTINGS.create_timeout_ms // SETTINGS.server_silent_ms + 1):
        cluster.pass_ms(SETTINGS.server_silent_ms)
        for server in SERVERS[:3]:
            cluster.heartbeat(server)
    if restarted:
        cluster.core = cluster._new(cluster.core.catalog)
    cluster.lead(3)
    cluster.commit()
    assert cluster.core.catalog.tablets[tablet.tablet_id].state is TabletState.CREATING
    for server in SERVERS[:3]:
        cluster.heartbeat(server, full(status(tablet.tablet_id, tablet.config, leads=server == LEADER)))
    cluster.commit()
    assert cluster.core.catalog.tablets[tablet.tablet_id].state is TabletState.RUNNING


@pytest.mark.parametrize("restarted", [False, True])
def test_a_new_leader_replaces_a_tablet_of_which_its_live_servers_have_nothing(restarted: bool) -> None:
    cluster, tablet = created_before_the_masters_were_away()
    cluster.now_us += SETTINGS.create_timeout_ms * 1000
    if restarted:
        cluster.core = cluster._new(cluster.core.catalog)
    cluster.lead(3)
    for _ in range(2):
        for server in SERVERS[1:3]:
            cluster.heartbeat(server, full(upto=2))
        cluster.pass_ms(SETTINGS.server_silent_ms)
    cluster.pass_ms(SETTINGS.scan_interval_ms)
    cluster.commit()
    assert cluster.core.catalog.tablets[tablet.tablet_id].state is TabletState.REPLACED


def test_a_tablet_whose_members_all_have_it_gets_longer_for_its_election_and_each_successor_twice_as_long() -> None:
    """A cluster that is too busy for an election is busier with another tablet, which needs one too."""
    cluster = MasterWithServers()
    cluster.lead(1)
    cluster.hear()
    cluster.ask(create(buckets=1))
    cluster.commit()
    waited_ms = []
    for _ in range(3):
        (tablet,) = passing(cluster, lambda t: t.state is TabletState.CREATING)
        for server in SERVERS[:3]:
            begun = msgspec.structs.replace(status(tablet.tablet_id, tablet.config), config=tablet.config)
            cluster.heartbeat(server, full(begun))
        begun_us = cluster.now_us
        passing(cluster, lambda t, old=tablet.tablet_id: t.tablet_id == old and t.state is TabletState.REPLACED)
        waited_ms.append((cluster.now_us - begun_us) // 1000)
    for waited, factor in zip(waited_ms, (4, 8, 16), strict=True):
        late_ms = waited - factor * SETTINGS.create_timeout_ms
        assert 0 <= late_ms <= 2 * SETTINGS.scan_interval_ms + 1000, waited_ms


def passing(cluster: MasterWithServers, wanted: Callable[[TabletRecord], bool]) -> list[TabletRecord]:
    """Let time pass, all servers being heard of, until there are tablets as wanted."""
    for _ in range(10_000):
        if found := [tablet for tablet in cluster.core.catalog.tablets.values() if wanted(tablet)]:
            return found
        for server in SERVERS[:3]:
            cluster.heartbeat(server)
        cluster.pass_ms(100)
        cluster.commit()
    return pytest.fail("it never came to that")


def test_a_policy_that_names_one_member_at_a_time_is_asked_until_there_are_enough() -> None:
    def one_by_one(snapshot: PolicySnapshot, rng: random.Random) -> tuple[Action, ...]:
        found = []
        for tablet in snapshot.tablets.values():
            members = {replica.node_id for replica in tablet.replicas}
            free = [n for n in sorted(snapshot.nodes) if n not in members]
            kind = ActionKind.ADD if members else ActionKind.PLACE
            if len(members) < tablet.replication_factor and free:
                found.append(
                    Action(kind=kind, tablet_id=tablet.tablet_id, node_id=free[0], cas=tablet.config_op_id, reason="")
                )
        return tuple(found)

    cluster = MasterWithServers(planner=one_by_one)
    cluster.lead(1)
    cluster.hear()
    cluster.ask(create())
    assert len(sent(cluster.commit(), CreateReplica)) == 6


# -- reports (behaviour M4) --------------------------------------------------------------------------
