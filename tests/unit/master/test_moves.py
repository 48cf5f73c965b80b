"""A move that an operator has begun is completed by the masters, whatever becomes of its client.

Masters with the policy `placement` get reports of a tablet on three servers, whose third replica moves to a fourth."""

from __future__ import annotations

import random

import msgspec
import pytest

from stelae.protocol.actions import ChangeConfig, ConfigChange, ServerAction, TransferLeadership
from stelae.protocol.master_heartbeats import ReplicaStatus
from stelae.spi.ids import NodeId, OpId
from stelae.spi.members import Member, MemberType, TabletConfig
from stelae.spi.policy import Action, PolicySnapshot
from stelae_placement_policy import PlacementPolicy
from stelae_placement_policy.config import PlacementConfig
from tests.unit.master.master_with_servers import (
    SERVERS,
    SETTINGS,
    MasterWithServers,
    full,
    place_on_the_least_loaded,
    sent,
    status,
)
from tests.unit.master.planned import FOURTH, LEADER, SECOND, THIRD, Planner, config_of, the_tablet

P, V = MemberType.PRE_VOTER, MemberType.VOTER


class Placement(Planner):
    """Places new tablets as other tests do. For the rest it is the policy that masters run."""

    def __call__(self, snapshot: PolicySnapshot, rng: random.Random) -> tuple[Action, ...]:
        self.shown = snapshot
        placed = place_on_the_least_loaded(snapshot, rng)
        return placed or PlacementPolicy.plan(snapshot, PlacementConfig(transfers_max=0), rng)


@pytest.fixture
def planner() -> Planner:
    return Placement()


def moving(cluster: MasterWithServers, newcomer: MemberType, **marks: object) -> TabletConfig:
    """The config after the first step of a move. A later type of the new member has a later op id."""
    fields = {"replaces": THIRD, **marks}
    new = Member(node_id=FOURTH, address="d:1", member_type=newcomer, **fields)  # type: ignore[arg-type]
    first = [m for m in config_of(cluster).members if m.node_id != FOURTH]
    return TabletConfig(op_id=OpId(1, 2 if newcomer is P else 3), members=(*first, new))


def follows(
    cluster: MasterWithServers,
    config: TabletConfig,
    leader: NodeId = LEADER,
    lacking: tuple[NodeId, ...] = (),
    unhealthy: tuple[NodeId, ...] = (),
) -> None:
    """All members but the lacking ones report a config, in full as after a start or to a new leading master."""
    tablet = the_tablet(cluster)
    for server in SERVERS:
        held: tuple[ReplicaStatus, ...] = ()
        if config.member(server) is not None and server not in lacking:
            unheard = unhealthy if server == leader else ()
            held = (status(tablet, config, leads=server == leader, op_id=config.op_id, unhealthy=unheard),)
        cluster.heartbeat(server, full(*held), run=next(RUNS))
    cluster.commit()


RUNS = iter(range(2, 1 << 20))


def orders(cluster: MasterWithServers) -> list[ServerAction]:
    """What the masters ask of tablet servers by the next plan."""
    cluster.effects.clear()
    cluster.pass_ms(SETTINGS.policy_interval_ms)
    return [action for action in sent(cluster.effects) if isinstance(action, ChangeConfig | TransferLeadership)]


def removal(
    cluster: MasterWithServers, config: TabletConfig, gone: NodeId = THIRD, leader: NodeId = LEADER
) -> ChangeConfig:
    """The fenced order to the leader to remove a member."""
    return ChangeConfig(
        node_id=leader,
        tablet_id=the_tablet(cluster),
        change=ConfigChange.REMOVE,
        member=gone,
        address="",
        member_type=None,
        cas=config.op_id,
    )


def test_the_old_member_is_removed_once_the_new_one_votes_and_not_before(
    cluster: MasterWithServers, planner: Planner
) -> None:
    joining = moving(cluster, P)
    follows(cluster, joining, lacking=(FOURTH,))
    assert orders(cluster) == [] and planner.shown is not None
    (seen,) = (r for r in planner.shown.tablets[the_tablet(cluster)].replicas if r.node_id == FOURTH)
    assert seen.replaces == THIRD and not seen.pinned
    follows(cluster, joining)
    assert orders(cluster) == [], "it is copied, and has no vote"
    voting = moving(cluster, V)
    follows(cluster, voting)
    assert orders(cluster) == [removal(cluster, voting)]


def test_the_next_leading_master_continues_and_a_repeated_order_is_the_same(cluster: MasterWithServers) -> None:
    voting = moving(cluster, V)
    follows(cluster, voting)
    first = orders(cluster)
    assert first == [removal(cluster, voting)]
    cluster.follow(2)
    cluster.lead(3)
    cluster.pass_ms(SETTINGS.server_dead_ms)
    follows(cluster, voting)
    assert orders(cluster) == first, "the order is fenced by the config, so that it takes effect once"
    left = tuple(m for m in voting.members if m.node_id != THIRD)
    plain = tuple(msgspec.structs.replace(m, replaces=msgspec.UNSET) for m in left)
    follows(cluster, TabletConfig(op_id=OpId(1, 4), members=plain))
    assert orders(cluster) == []


def test_a_replaced_leader_hands_over_first(cluster: MasterWithServers) -> None:
    voting = moving(cluster, V)
    follows(cluster, voting, leader=THIRD)
    (order,) = orders(cluster)
    assert isinstance(order, TransferLeadership) and order.node_id == THIRD and order.cas == voting.op_id
    follows(cluster, voting, leader=order.to)
    assert orders(cluster) == [removal(cluster, voting, leader=order.to)]


def test_the_old_member_stays_while_the_new_one_is_not_healthy_or_the_rest_no_majority(
    cluster: MasterWithServers,
) -> None:
    voting = moving(cluster, V)
    follows(cluster, voting, unhealthy=(FOURTH,))
    removed = [order.member for order in orders(cluster) if isinstance(order, ChangeConfig)]
    assert THIRD not in removed
    follows(cluster, voting, unhealthy=(SECOND, FOURTH))
    assert orders(cluster) == [], "two of four voters are no majority"


def test_a_new_member_that_fails_is_removed_and_the_old_one_stays(cluster: MasterWithServers) -> None:
    joining = moving(cluster, P)
    follows(cluster, joining, lacking=(FOURTH,), unhealthy=(FOURTH,))
    assert orders(cluster) == [removal(cluster, joining, FOURTH)]


def test_a_new_member_with_both_marks_replaces_too(cluster: MasterWithServers) -> None:
    """An operator has added it before, and then asked for the move."""
    voting = moving(cluster, V, pinned=True)
    follows(cluster, voting)
    assert orders(cluster) == [removal(cluster, voting)]
