"""Selects the parts of a policy's proposal that are carried out.

A policy proposes where replicas go. ``stelae.server.master.core.policy_guards`` decides whether they may go there, from
the state at the moment the proposal arrives."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from stelae.protocol.actions import ChangeConfig, ConfigChange, ServerAction, TransferLeadership
from stelae.protocol.catalog_names import TableState, TabletState
from stelae.server.master.core.mutations import move_tablet
from stelae.server.master.core.policy_guards import health_of, refusal_of
from stelae.server.master.core.proposals import PolicyProposal
from stelae.server.master.core.reconcile import ClusterView, ReconcilePlan
from stelae.server.master.core.records import TabletRecord
from stelae.server.master.core.states import TabletCause
from stelae.spi import policy
from stelae.spi.ids import ZERO, NodeId
from stelae.spi.members import Member, MemberType, TabletConfig
from stelae.spi.policy import ActionKind, NodeHealth


class RefusedProposal(msgspec.Struct, frozen=True, kw_only=True):
    """An action of the policy that was refused, and the reason."""

    action: policy.Action
    reason: str


def repair(view: ClusterView, proposal: PolicyProposal, plan: ReconcilePlan) -> list[RefusedProposal]:
    """Add the allowed parts of a proposal to ``plan``, and return the refused actions.

    A new tablet waits for the next plan if one of its nodes is no longer live."""
    for tablet_id, nodes in proposal.members.items():
        tablet = view.catalog.tablets.get(tablet_id)
        if tablet is None or tablet.state is not TabletState.PREPARING:
            continue
        live = all(health_of(view, node_id) is NodeHealth.LIVE for node_id in nodes)
        if live and view.catalog.tables[tablet.table_id].state is not TableState.SOFT_DELETED:
            _place(view, tablet, nodes, plan)
    return _carry_out(view, proposal.actions, plan)


def _place(view: ClusterView, tablet: TabletRecord, nodes: tuple[NodeId, ...], plan: ReconcilePlan) -> None:
    members = tuple(Member(node_id=node_id, address=_address(view, node_id)) for node_id in sorted(nodes))
    moved = move_tablet(tablet, TabletCause.PLACED, view.wall_us)
    plan.change_tablet(msgspec.structs.replace(moved, config=TabletConfig(op_id=ZERO, members=members)))


def _address(view: ClusterView, node_id: NodeId) -> str:
    server = view.servers.get(node_id)
    return "" if server is None else server.address


def _carry_out(view: ClusterView, proposed: Iterable[policy.Action], plan: ReconcilePlan) -> list[RefusedProposal]:
    refused, touched = [], set()
    for action in proposed:
        first = "another action on this tablet comes first"
        reason = first if action.tablet_id in touched else refusal_of(view, action)
        if reason is not None:
            refused.append(RefusedProposal(action=action, reason=reason))
            continue
        touched.add(action.tablet_id)
        plan.actions.append(_as_action(view, action))
    return refused


def _as_action(view: ClusterView, action: policy.Action) -> ServerAction:
    leader = view.leader_of(action.tablet_id)
    assert leader is not None
    if action.kind is ActionKind.TRANSFER:
        return TransferLeadership(node_id=leader[0], tablet_id=action.tablet_id, to=action.node_id, cas=action.cas)
    adding = action.kind is ActionKind.ADD
    return ChangeConfig(
        node_id=leader[0],
        tablet_id=action.tablet_id,
        change=ConfigChange(action.kind.value),
        member=action.node_id,
        address=_address(view, action.node_id) if adding else "",
        member_type=(action.member_type or MemberType.PRE_VOTER) if adding else action.member_type,
        cas=action.cas,
    )
