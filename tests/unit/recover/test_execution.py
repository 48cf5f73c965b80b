"""A plan of recovery is carried out only on the replicas that it saw."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec

from stelae.protocol.codec import encode
from stelae.protocol.recovery_messages import RECOVER, SURVEY, RecoverReply, SurveyReply, SurvivorView
from stelae.recover.execution import RecoveryOutcome, RecoveryResult, apply_plan
from stelae.recover.plan import RecoveryPlan, TabletPlan
from stelae.recover.planning import KnownTablet, SurveyedNode, plan_tablet
from stelae.spi.ids import NodeId, OpId, TabletId
from stelae.spi.members import Member, TabletConfig

TABLET = TabletId("t")
A, B, C, D, E = (NodeId(letter * 32) for letter in "abcde")
FIVE = TabletConfig(op_id=OpId(1, 1), members=tuple(Member(node_id=n, address=f"{n[0]}:1") for n in (A, B, C, D, E)))


def view(last: OpId, term: int = 5) -> SurvivorView:
    return SurvivorView(
        tablet_id=TABLET, state="CONFIGURING", role="FOLLOWER", term=term, last=last, commit=9, config=FIVE
    )


class Survivors:
    """A connection to nodes that answer surveys with their views, and obey. The other nodes are down."""

    def __init__(self, views: dict[NodeId, SurvivorView]) -> None:
        self.views = views
        self.asked: list[tuple[str, NodeId]] = []

    async def reach(self, place: str, **_: object) -> NodeId:
        found = next((node for node in self.views if place == f"{node[0]}:1"), None)
        if found is None:
            raise msgspec.ValidationError("no node is there")
        return found

    async def ask(self, node: NodeId, kind: str, _body: bytes, **_: object) -> SimpleNamespace:
        if kind == SURVEY:
            return SimpleNamespace(body=[encode(SurveyReply((self.views[node],)))])
        self.asked.append((kind, node))
        return SimpleNamespace(body=[encode(RecoverReply(FIVE))] if kind == RECOVER else [])


def plan_of(views: dict[NodeId, SurvivorView]) -> TabletPlan:
    nodes = {node: SurveyedNode(node_id=node, address=f"{node[0]}:1", views={TABLET: v}) for node, v in views.items()}
    found = plan_tablet(KnownTablet(tablet_id=TABLET), nodes, 7)
    assert isinstance(found, TabletPlan)
    return msgspec.structs.replace(found, lost=())


def applied(tablet: TabletPlan, survivors: Any) -> RecoveryOutcome:
    plan = RecoveryPlan(made_us=0, tablets=(tablet,))
    (outcome,) = asyncio.run(apply_plan(survivors, plan, timeout_s=1.0, done=lambda _outcome: None))
    return outcome


def test_the_survivors_of_a_plan_stand_down_for_the_best_one() -> None:
    views = {A: view(OpId(1, 10)), B: view(OpId(1, 9))}
    survivors = Survivors(views)
    assert applied(plan_of(views), survivors).result is RecoveryResult.RECOVERED
    assert [node for _, node in survivors.asked] == [B, A]


def test_nothing_is_done_if_a_survivor_was_written_since_the_plan_was_made() -> None:
    """An old plan was applied while the tablet, which another plan had recovered meanwhile, had no leader. The survivor
    that was written since stood down, and what it had acknowledged was lost."""
    views = {A: view(OpId(1, 10)), B: view(OpId(1, 9))}
    for changed in (A, B):
        survivors = Survivors(views | {changed: view(OpId(1 << 40, 11), 1 << 40)})
        outcome = applied(plan_of(views), survivors)
        assert outcome.result is RecoveryResult.FAILED and "make a new plan" in outcome.text
        assert survivors.asked == []


def test_a_plan_that_was_carried_out_in_part_goes_on() -> None:
    views = {A: view(OpId(1, 10)), B: view(OpId(1, 9))}
    plan = plan_of(views)
    survivors = Survivors(views | {A: view(OpId(plan.term, 11), plan.term), B: view(OpId(1, 9), plan.term)})
    assert applied(plan, survivors).result is RecoveryResult.RECOVERED
