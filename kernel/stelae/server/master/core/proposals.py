"""Computes the proposal of a policy from a snapshot. The state may have changed when the answer arrives.

A proposal is not trusted: ``accepted_proposals`` checks each part of it against the current state."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping

import msgspec

from stelae.spi.consensus import Role
from stelae.spi.ids import NodeId, TabletId
from stelae.spi.members import MemberType
from stelae.spi.policy import Action, ActionKind, NodeHealth, PolicySnapshot, ReplicaView

Planner = Callable[[PolicySnapshot, random.Random], tuple[Action, ...]]
"""``MasterPolicy.plan`` with its config filled in."""

Members = dict[TabletId, tuple[NodeId, ...]]


class PolicyProposal(msgspec.Struct, frozen=True, kw_only=True):
    """``members`` for tablets without members, and ``actions`` on all others."""

    members: Mapping[TabletId, tuple[NodeId, ...]] = {}
    actions: tuple[Action, ...] = ()


def propose(snapshot: PolicySnapshot, planner: Planner, rng: random.Random) -> PolicyProposal:
    """Ask the policy. A tablet is left out if the policy names fewer members than are wanted."""
    proposed = planner(snapshot, rng)
    wanted = {t: view.replication_factor for t, view in snapshot.tablets.items() if not view.replicas}
    chosen = _first_members(snapshot, proposed, dict.fromkeys(wanted, ()))
    for _ in range(max(wanted.values(), default=0)):
        # A policy may name one member at a time. It is asked again, with a snapshot that has the members named so far.
        if all(len(nodes) >= wanted[t] for t, nodes in chosen.items()):
            break
        again = _first_members(snapshot, planner(_with_members(snapshot, chosen), rng), chosen)
        if again == chosen:
            break
        chosen = again
    return PolicyProposal(
        members={t: nodes for t, nodes in chosen.items() if len(nodes) >= wanted[t]},
        actions=tuple(action for action in proposed if action.tablet_id not in wanted),
    )


def _first_members(snapshot: PolicySnapshot, proposed: Iterable[Action], before: Members) -> Members:
    """Return the nodes named for tablets without replicas, those named before first."""
    chosen = dict(before)
    for action in proposed:
        nodes = chosen.get(action.tablet_id)
        if nodes is None or action.kind not in (ActionKind.PLACE, ActionKind.ADD):
            continue
        node = snapshot.nodes.get(action.node_id)
        fit = node is not None and node.health is NodeHealth.LIVE and action.node_id not in nodes
        if fit and len(nodes) < snapshot.tablets[action.tablet_id].replication_factor:
            chosen[action.tablet_id] = (*nodes, action.node_id)
    return chosen


def _with_members(snapshot: PolicySnapshot, chosen: Members) -> PolicySnapshot:
    tablets = dict(snapshot.tablets)
    for tablet_id, nodes in chosen.items():
        replicas = tuple(
            ReplicaView(node_id=node_id, member_type=MemberType.VOTER, role=Role.FOLLOWER, healthy=True)
            for node_id in nodes
        )
        tablets[tablet_id] = msgspec.structs.replace(tablets[tablet_id], replicas=replicas)
    return msgspec.structs.replace(snapshot, tablets=tablets)
