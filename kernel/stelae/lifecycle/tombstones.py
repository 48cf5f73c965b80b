"""Tombstones that vote: woken by whoever asks for their vote, and forgotten again.

A replica that was deleted has promised votes and acknowledged entries, so it stays a voter for ever: its term and vote
are in the consensus metadata, the last op id of its log in the superblock. Tombstones of dropped tables pile up on
disk, small as they are, and not in memory (T13): at most ``AWAKE_MAX`` are awake, the one asked longest ago goes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from stelae.host.consensus_metadata import ConsensusMetadata, ConsensusRecord
from stelae.host.metadata_files import MetadataMissing
from stelae.host.superblock import DataState, Superblock, SuperblockFile
from stelae.host.tombstone_voter import TombstoneVoter
from stelae.spi.errors import StelaeError
from stelae.spi.ids import TabletId

if TYPE_CHECKING:
    from stelae.host.node import Node

log = logging.getLogger(__name__)

AWAKE_MAX = 1024
"""Voters in memory. Each is a few kilobytes; elections of more tablets at once wait for their files."""


WAITING_MAX = 64
"""Messages that wait for the files of one tablet: bounds what a node can be made to keep."""


class Tombstones:
    """Wakes the tombstones of one node, on its event loop."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._waking: dict[TabletId, list[Callable[[], None]]] = {}

    def start(self) -> None:
        """Begin to answer for tablets that are not here."""
        self._node.peers.wake_voter = self._wake

    def _wake(self, tablet_id: TabletId, then: Callable[[], None]) -> None:
        waiting = self._waking.setdefault(tablet_id, [])
        if len(waiting) >= WAITING_MAX:
            return  # Candidates ask again.
        waiting.append(then)
        if len(waiting) > 1:
            return
        node = self._node

        def read() -> tuple[Superblock, ConsensusRecord] | None:
            try:
                block = SuperblockFile(node.files, node.layout, tablet_id).load()
            except MetadataMissing:
                return None  # never here: it has no vote
            return block, ConsensusMetadata(node.files, node.layout, tablet_id).load()

        # Behind what is written under this key: a vote that is under way belongs to the record.
        node.metadata_pool.run(f"consensus/{tablet_id}", read, lambda found: self._woken(tablet_id, found))

    def _woken(self, tablet_id: TabletId, found: object) -> None:
        waiting = self._waking.pop(tablet_id)
        if isinstance(found, Exception):
            log.warning("tombstone cannot be read tablet=%s reason=%s", tablet_id, found)
            if not isinstance(found, StelaeError):
                raise found
        elif isinstance(found, tuple) and tablet_id not in self._node.replicas:
            block, record = found
            if block.data_state is not DataState.READY:
                self._keep(self._voter(block, record))
        for then in waiting:
            then()

    def _voter(self, block: Superblock, record: ConsensusRecord) -> TombstoneVoter:
        node = self._node
        core = node.engines.consensus.restore_voter(
            node_id=node.node_id,
            hard_state=record.hard_state,
            last=None if isinstance(block.tombstone, str) else block.tombstone,
            config=node.engines.consensus_config,
            now_us=node.turns.now_us(),
        )
        return TombstoneVoter(
            block.tablet_id,
            core,
            record.committed_config,
            turns=node.turns,
            hard_states=node.hard_states,
            network=node.peers,
        )

    def _keep(self, voter: TombstoneVoter) -> None:
        voters = self._node.peers.voters
        voters[voter.tablet_id] = voter
        for tablet_id in list(voters)[: max(0, len(voters) - AWAKE_MAX)]:
            if voters[tablet_id].idle:
                del voters[tablet_id]
