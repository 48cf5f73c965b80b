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
from tests.unit.master.company import SERVERS, SETTINGS, Company, full, place_on_the_least_loaded, sent, status
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


def moving(company: Company, newcomer: MemberType, **marks: object) -> TabletConfig:
    """The config after the first step of a move. A later type of the new member has a later op id."""
    fields = {"replaces": THIRD, **marks}
    new = Member(node_id=FOURTH, address="d:1", member_type=newcomer, **fields)  # type: ignore[arg-type]
    first = [m for m in config_of(company).members if m.node_id != FOURTH]
    return TabletConfig(op_id=OpId(1, 2 if newcomer is P else 3), members=(*first, new))


def follows(
    company: Company,
    config: TabletConfig,
    leader: NodeId = LEADER,
    lacking: tuple[NodeId, ...] = (),
    unhealthy: tuple[NodeId, ...] = (),
) -> None:
    """All members but the lacking ones report a config, in full as after a start or to a new leading master."""
    tablet = the_tablet(company)
    for server in SERVERS:
        held: tuple[ReplicaStatus, ...] = ()
        if config.member(server) is not None and server not in lacking:
            unheard = unhealthy if server == leader else ()
            held = (status(tablet, config, leads=server == leader, op_id=config.op_id, unhealthy=unheard),)
        company.heartbeat(server, full(*held), run=next(RUNS))
    company.commit()


RUNS = iter(range(2, 1 << 20))


def orders(company: Company) -> list[ServerAction]:
    """What the masters ask of tablet servers by the next plan."""
    company.effects.clear()
    company.pass_ms(SETTINGS.policy_interval_ms)
    return [action for action in sent(company.effects) if isinstance(action, ChangeConfig | TransferLeadership)]


def removal(company: Company, config: TabletConfig, gone: NodeId = THIRD, leader: NodeId = LEADER) -> ChangeConfig:
    """The fenced order to the leader to remove a member."""
    return ChangeConfig(
        node_id=leader,
        tablet_id=the_tablet(company),
        change=ConfigChange.REMOVE,
        member=gone,
        address="",
        member_type=None,
        cas=config.op_id,
    )


def test_the_old_member_is_removed_once_the_new_one_votes_and_not_before(company: Company, planner: Planner) -> None:
    joining = moving(company, P)
    follows(company, joining, lacking=(FOURTH,))
    assert orders(company) == [] and planner.shown is not None
    (seen,) = (r for r in planner.shown.tablets[the_tablet(company)].replicas if r.node_id == FOURTH)
    assert seen.replaces == THIRD and not seen.pinned
    follows(company, joining)
    assert orders(company) == [], "it is copied, and has no vote"
    voting = moving(company, V)
    follows(company, voting)
    assert orders(company) == [removal(company, voting)]


def test_the_next_leading_master_continues_and_a_repeated_order_is_the_same(company: Company) -> None:
    voting = moving(company, V)
    follows(company, voting)
    first = orders(company)
    assert first == [removal(company, voting)]
    company.follow(2)
    company.lead(3)
    company.pass_ms(SETTINGS.server_dead_ms)
    follows(company, voting)
    assert orders(company) == first, "the order is fenced by the config, so that it takes effect once"
    left = tuple(m for m in voting.members if m.node_id != THIRD)
    plain = tuple(msgspec.structs.replace(m, replaces=msgspec.UNSET) for m in left)
    follows(company, TabletConfig(op_id=OpId(1, 4), members=plain))
    assert orders(company) == []


def test_a_replaced_leader_hands_over_first(company: Company) -> None:
    voting = moving(company, V)
    follows(company, voting, leader=THIRD)
    (order,) = orders(company)
    assert isinstance(order, TransferLeadership) and order.node_id == THIRD and order.cas == voting.op_id
    follows(company, voting, leader=order.to)
    assert orders(company) == [removal(company, voting, leader=order.to)]


def test_the_old_member_stays_while_the_new_one_is_not_healthy_or_the_rest_no_majority(company: Company) -> None:
    voting = moving(company, V)
    follows(company, voting, unhealthy=(FOURTH,))
    removed = [order.member for order in orders(company) if isinstance(order, ChangeConfig)]
    assert THIRD not in removed
    follows(company, voting, unhealthy=(SECOND, FOURTH))
    assert orders(company) == [], "two of four voters are no majority"


def test_a_new_member_that_fails_is_removed_and_the_old_one_stays(company: Company) -> None:
    joining = moving(company, P)
    follows(company, joining, lacking=(FOURTH,), unhealthy=(FOURTH,))
    assert orders(company) == [removal(company, joining, FOURTH)]


def test_a_new_member_with_both_marks_replaces_too(company: Company) -> None:
    """An operator has added it before, and then asked for the move."""
    voting = moving(company, V, pinned=True)
    follows(company, voting)
    assert orders(company) == [removal(company, voting)]
