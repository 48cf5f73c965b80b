"""Begins the replica of a witness over a tombstone, without a copy: its log alone, from a committed op id on.

Source: ``durability.md`` rules 12 and 18 to 20. What the tombstone has acknowledged and voted stays:

- Its last op id stays in the superblock until the new log has reached it. Until then votes use the larger of the two,
  so this vote elects no replica that lacks an entry which the tombstone has acknowledged.
- The core begins no campaign before that. The log may have an older config in which this node had a vote; the entry
  that makes it a witness has a higher op id than the tombstone.
- Term and vote go on in the voter of the tombstone, which is in service until the replica takes its place.
- The op id of the committed config never goes back. The config becomes that of the message, as of the base of the log.
  If the tombstone knows a newer one, the witness keeps its op id and no member of it: it does not act on a vote that
  it had then. The config that made it a witness is newer still, and comes with an entry after the base. A request of a
  leader with an older config or term than the tombstone knows is refused, as for a copy.

A crash before the last step leaves the tombstone, with the same last op id."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from stelae.host.new_replica import NewReplica
from stelae.host.settings import TabletSettings
from stelae.host.start_copy import StartCopy
from stelae.host.superblock import DataState, Superblock
from stelae.lifecycle.blocking_steps import OffLoop, Steps, WithLog
from stelae.lifecycle.copy_guards import OVER_TOMBSTONE, TargetFacts, TargetState, refusal
from stelae.lifecycle.copy_target_facts import of_files
from stelae.lifecycle.log_only_creation import LogOnlyCreation
from stelae.lifecycle.startup_decisions import StartupAction, TabletFinding
from stelae.lifecycle.tablet_loader import TabletLoader
from stelae.lifecycle.tablet_manager import TabletExists, TabletManager
from stelae.lifecycle.tombstones import Tombstones
from stelae.lifecycle.voter_handover import host_with_votes, merged_by_voter
from stelae.spi.errors import Full, StelaeError
from stelae.spi.ids import NodeId, OpId, TabletId
from stelae.spi.members import MemberType, TabletConfig

if TYPE_CHECKING:
    from stelae.host.node import Node

log = logging.getLogger(__name__)


class WitnessOverTombstone:
    """Begins replicas without rows over the tombstones of one node."""

    def __init__(self, node: Node, loader: TabletLoader, manager: TabletManager, tombstones: Tombstones) -> None:
        self._node = node
        self._loader = loader
        self._manager = manager
        self._tombstones = tombstones

    def steps(self, new: TabletSettings, asked: NewReplica, found: TabletFinding) -> Steps[None]:
        """Begin the replica and start it. The caller has locked the tablet, and has found a tombstone.

        Raises:
            TabletExists: a guard refuses the request. Nothing was changed.
            StorageError: a step failed. The tombstone stays, or the tablet is offline until the next start.
        """
        start = asked.log_only
        assert start is not None
        self._check(asked, found)
        assert found.consensus is not None
        known = found.consensus.committed_config
        tombstone = promising(known.op_id, (yield from self._ended(found)))
        creation = self._loader.log_only_creation(new, start, tombstone)
        yield OffLoop(creation.begin)
        yield WithLog(creation.create_log)
        config = newer_config(start.committed, known, self._node.node_id)
        yield from merged_by_voter(self._tombstones, new.id, start.term, config)
        creation.metadata_saved()
        yield from self._commit(new.id, creation)
        yield from host_with_votes(self._node, self._loader, self._manager.look, self._tombstones, new.id)
        log.info("witness begins over tombstone tablet=%s base=%s had=%s", new.id, start.base, tombstone.tombstone)

    def _check(self, asked: NewReplica, found: TabletFinding) -> None:
        node, start = self._node, asked.log_only
        assert start is not None
        common = TargetFacts(
            node_id=node.node_id,
            hosts_tables=True,
            consensus=node.config.consensus.name,
            state=TargetState.DOES_NOT_EXIST,
        )
        as_copy = StartCopy(
            to=node.node_id,
            leader=start.leader,
            term=start.term,
            tablet_id=asked.tablet_id,
            table_name=asked.table_name,
            consensus=asked.consensus,
            config=asked.config,
            member_type=MemberType.PRE_WITNESS,
            pre_witness=True,
            hosted=False,
            log_base=start.base,
            sources=(),
        )
        refused = refusal(as_copy, of_files(node, self._loader, common, found), OVER_TOMBSTONE)
        if refused is not None:
            raise TabletExists(f"tablet {asked.tablet_id} was on this node, and no witness begins over it: {refused}")

    def _ended(self, found: TabletFinding) -> Steps[Superblock]:
        """Complete a deletion, or undo a copy, that an error has cut short. Return the tombstone."""
        block = found.superblock
        assert block is not None
        if found.decision.action is StartupAction.ROLL_FORWARD:
            yield from self._manager.complete_deletion(block)
        if block.data_state is DataState.COPYING:
            yield from self._manager.abandon_copy(block, keep_stage=True)
            block = yield OffLoop(self._loader.superblock_file(found.tablet_id).load)
        return block

    def _commit(self, tablet_id: TabletId, creation: LogOnlyCreation) -> Steps[None]:
        """Make the superblock READY durable. After an error other than ``Full`` it may be the old or the new one."""
        try:
            yield OffLoop(creation.finish)
        except Full:
            raise
        except StelaeError as error:
            self._loader.fail(tablet_id, f"its superblock may not be durable: {error}; restart the node")
            raise


def promising(known: OpId, tombstone: Superblock) -> Superblock:
    """Return a tombstone whose last op id is not below that of the committed config that it knows.

    It is below if a crash has cut an earlier beginning short. Every later leader has the entry of the config."""
    last = tombstone.tombstone
    assert isinstance(last, OpId)
    return msgspec.structs.replace(tombstone, tombstone=max(last, known))


def newer_config(given: TabletConfig, known: TabletConfig, node_id: NodeId) -> TabletConfig:
    """Return the committed config of the witness: the newer one, without members if this node votes or is none in it.

    Args:
        given: as of the base of the log; the empty config if it comes with an entry after that.
        known: that of the tombstone.
        node_id: this node.
    """
    if given.op_id >= known.op_id:
        return given
    joins = known.member(node_id) is not None and node_id not in known.voters()
    return known if joins else msgspec.structs.replace(known, members=())
