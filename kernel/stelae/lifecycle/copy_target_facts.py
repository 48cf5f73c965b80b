"""Gathers what the guards of ``StartTabletCopy`` need to know of the node and its tablet. Changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from stelae.host.start_copy import StartCopy
from stelae.lifecycle.blocking_steps import OffLoop, Steps
from stelae.lifecycle.copy_environment import CopyEnvironment
from stelae.lifecycle.copy_guards import TargetFacts, TargetState
from stelae.lifecycle.deletion import LastOpId
from stelae.lifecycle.startup_decisions import StartupAction, TabletFinding
from stelae.lifecycle.tablet_loader import TabletLoader
from stelae.spi.consensus import Role
from stelae.spi.errors import Compacted, StelaeError
from stelae.spi.ids import ZERO, LogId, OpId
from stelae.spi.wal import WalEngine

if TYPE_CHECKING:
    from stelae.host.node import Node
    from stelae.host.replica import Replica

_STATES = {
    StartupAction.NOTHING: TargetState.DOES_NOT_EXIST,
    StartupAction.REMOVE: TargetState.DOES_NOT_EXIST,  # An interrupted first copy. The next one removes what it left.
    StartupAction.TOMBSTONE: TargetState.DELETED,
    StartupAction.ROLL_FORWARD: TargetState.DELETED,  # Its deletion was interrupted, by a full disk. The copy ends it.
    StartupAction.DELETE_SELF: TargetState.DELETED,  # An interrupted copy over a tombstone.
}
"""The states of tablets without a replica. In all other cases the tablet is offline."""


def gather(
    env: CopyEnvironment, asked: StartCopy, look: Callable[[], Steps[TabletFinding]]
) -> Steps[tuple[TargetFacts, TabletFinding | None]]:
    """Return the facts, and what was found on the disk if there is no replica.

    The caller has locked the tablet and holds a slot, so only term, vote and the log of a replica can change
    afterwards."""
    node, loader = env.node, env.loader
    common = TargetFacts(
        node_id=node.node_id,
        hosts_tables=env.hosts(asked.tablet_id),
        consensus=node.config.consensus.name,
        state=TargetState.DOES_NOT_EXIST,
    )
    replica = node.replicas.get(asked.tablet_id)
    if replica is not None and not replica.failure:
        has_base = yield OffLoop(lambda: _has(node.engines.wal, replica.log, asked.log_base))
        return _of_replica(node, replica, common, has_base), None
    if replica is not None and replica.read_faults.explain(replica.failure):
        lately = env.replaced_damage.lately(asked.tablet_id, node.turns.now_us())
        facts = _of_replica(node, replica, common, has_log_base=False)
        return replace(facts, state=TargetState.DAMAGED, replaced_lately=lately), None
    found = yield from look()
    if replica is not None:
        return _offline(common, f"the replica has failed: {replica.failure}", found, loader), found
    if asked.tablet_id in loader.damaged and found.decision.action is StartupAction.START:
        lately = env.replaced_damage.lately(asked.tablet_id, node.turns.now_us())
        return _of_damaged_files(loader, common, found, lately), found
    return of_files(node, loader, common, found), found


def at_once(
    env: CopyEnvironment, asked: StartCopy, *, copying: bool, slot: bool, cancelled: bool = False, paused: bool = False
) -> TargetFacts:
    """Return what is known without a look at any file. The rest is as the leader believes.

    So a node that has no slot, or nothing to do with the tablet, refuses many requests cheaply."""
    believed = TargetState.READY if asked.hosted else TargetState.DELETED
    return TargetFacts(
        node_id=env.node.node_id,
        hosts_tables=env.hosts(asked.tablet_id),
        consensus=env.node.config.consensus.name,
        state=TargetState.COPYING if copying else believed,
        last=asked.last or ZERO,
        members=frozenset({asked.leader}),
        operation=env.manager.operation(asked.tablet_id),
        cancelled=cancelled,
        paused=paused,
        slots_free=int(slot),
    )


def _has(wal: WalEngine, log: LogId, base: OpId) -> bool:
    """Return whether a log contains the entry of an op id, or has collected it."""
    try:
        return wal.op_id_at(log, base.index) == base
    except Compacted:
        return True
    except StelaeError:
        return False  # The log ends before it.


def _of_replica(node: Node, replica: Replica, common: TargetFacts, has_log_base: bool) -> TargetFacts:
    status = replica.core.status()
    return replace(
        common,
        state=TargetState.READY,
        term=status.term,
        last=node.writer.acknowledged(replica.log),
        config=status.committed_config.op_id,
        members=frozenset(member.node_id for member in status.config.members),
        leads=status.role is Role.LEADER,
        has_log_base=has_log_base,
    )


def of_files(node: Node, loader: TabletLoader, common: TargetFacts, found: TabletFinding) -> TargetFacts:
    """Return the facts of a tablet without a replica, as it was found on the disk."""
    state = _STATES.get(found.decision.action)
    if state is None:
        return _offline(
            common, loader.failed.get(found.tablet_id) or found.failure or "it did not start", found, loader
        )
    if state is TargetState.DOES_NOT_EXIST:
        return replace(common, state=state)
    assert found.superblock is not None and found.superblock.tombstone is not None
    if found.superblock.tombstone == "UNKNOWN":
        return replace(common, state=state, last="UNKNOWN", removed=found.superblock.removed)
    assert found.consensus is not None
    voter = node.peers.voters.get(found.tablet_id)
    if voter is not None and voter.failure:  # Each copy would end when it merges its metadata.
        return _offline(common, f"its tombstone cannot vote: {voter.failure}", found, loader)
    return replace(
        common,
        state=state,
        term=max(found.consensus.term, voter.status.term if voter is not None else 0),
        last=found.superblock.tombstone,
        removed=found.superblock.removed,
        config=found.consensus.committed_config.op_id,
        members=frozenset(member.node_id for member in found.consensus.committed_config.members),
    )


def _of_damaged_files(
    loader: TabletLoader, common: TargetFacts, found: TabletFinding, replaced_lately: bool
) -> TargetFacts:
    """Return the facts of a replica that did not start because its rows are damaged."""
    if found.consensus is None or found.log is None or found.log.damage is not None:
        return _offline(common, loader.failed.get(found.tablet_id, "it did not start"), found, loader)
    return replace(
        common,
        state=TargetState.DAMAGED,
        term=found.consensus.term,
        last="UNKNOWN" if found.tablet_id in loader.unknown_op_ids else found.log.last,
        config=found.consensus.committed_config.op_id,
        members=frozenset(member.node_id for member in found.consensus.committed_config.members),
        replaced_lately=replaced_lately,
    )


def _offline(common: TargetFacts, why: str, found: TabletFinding, loader: TabletLoader) -> TargetFacts:
    last: LastOpId = "UNKNOWN" if found.tablet_id in loader.unknown_op_ids else ZERO
    return replace(common, state=TargetState.OFFLINE, why_offline=why, last=last)
