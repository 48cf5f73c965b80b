"""Loads tombstones when a node asks for their vote, and unloads them again.

A deleted replica has given votes and acknowledged entries, so it stays a voter for ever. Its term and vote are in the
consensus metadata, and the last op id of its log in the superblock. The tombstones of dropped tables accumulate on
disk, where they are small, but not in memory (T13): at most ``AWAKE_MAX`` are loaded. The one whose last request is
longest ago is unloaded first.

A replica that is being copied goes on to vote as its tombstone. If it has none, because the tablet was never on this
node, it has promised nothing and does not vote. If its consensus metadata is older than its last op id, votes are
missing, so it is not loaded, and does not vote. At the end of a copy the voter is *held*: it takes no message any more,
so that the replica starts with every vote that the voter gave."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from stelae.host.consensus_metadata import ConsensusMetadata, ConsensusRecord
from stelae.host.metadata_files import MetadataMissing
from stelae.host.superblock import DataState, Superblock, SuperblockFile
from stelae.host.tombstone_voter import TombstoneVoter
from stelae.lifecycle.abandoned_copy import is_first_copy
from stelae.lifecycle.log_agreement import older_metadata
from stelae.spi.errors import StelaeError
from stelae.spi.ids import OpId, TabletId

if TYPE_CHECKING:
    from stelae.host.node import Node

log = logging.getLogger(__name__)

AWAKE_MAX = 1024
"""The most tombstones in memory, of a few kilobytes each. With more elections at once, files are read again."""


WAITING_MAX = 64
"""The most messages that wait for the files of one tablet. It bounds the memory that peers can use."""


class Tombstones:
    """Loads the tombstones of one node, on its event loop."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._waking: dict[TabletId, list[Callable[[], None]]] = {}
        self._held: set[TabletId] = set()
        self._terms: dict[TabletId, int] = {}  # Of files that were read lately, oldest first.

    def start(self) -> None:
        """Start to answer for tablets without a replica on this node."""
        self._node.peers.wake_voter = self._arrived
        self._node.peers.term_without_replica = self._term

    def note_term(self, tablet_id: TabletId, term: int) -> None:
        """Note the term in the files of a tablet without a replica. Leaders of older terms hear it with heartbeats.

        Otherwise such a leader would ask for a copy again and again, and be refused, as long as it leads."""
        self._terms.pop(tablet_id, None)
        self._terms[tablet_id] = term
        if len(self._terms) > AWAKE_MAX:
            del self._terms[next(iter(self._terms))]

    def _term(self, tablet_id: TabletId) -> int:
        voter = self._node.peers.voters.get(tablet_id)
        return max(self._terms.get(tablet_id, 0), voter.status.term if voter is not None else 0)

    def voter(self, tablet_id: TabletId, then: Callable[[TombstoneVoter | None], None]) -> None:
        """Load the voter of a tablet if necessary, and pass it to ``then``; ``None`` if it has none or is not readable.

        It is called at once if the voter is in memory. A voter is in memory at least as long as it is not idle."""
        voters = self._node.peers.voters
        if tablet_id in voters:
            then(voters[tablet_id])
        else:
            self._wake(tablet_id, lambda: then(voters.get(tablet_id)), bounded=False)

    def hold(self, tablet_id: TabletId) -> None:
        """Pass no message to the voter of a tablet any more, and do not load it, until ``release``."""
        self._held.add(tablet_id)

    def release(self, tablet_id: TabletId) -> None:
        """End a hold. Harmless if there is none."""
        self._held.discard(tablet_id)

    def _arrived(self, tablet_id: TabletId, then: Callable[[], None]) -> None:
        if tablet_id in self._held:
            return  # The tablet will have a replica in a moment. Candidates ask again.
        if tablet_id in self._node.peers.voters:
            then()
        else:
            self._wake(tablet_id, then)

    def _wake(self, tablet_id: TabletId, then: Callable[[], None], *, bounded: bool = True) -> None:
        waiting = self._waking.setdefault(tablet_id, [])
        if bounded and len(waiting) >= WAITING_MAX:
            return  # Candidates ask again.
        waiting.append(then)
        if len(waiting) > 1:
            return
        node = self._node

        def read() -> tuple[Superblock, ConsensusRecord] | None:
            try:
                block = SuperblockFile(node.files, node.layout, tablet_id).load()
            except MetadataMissing:
                return None  # The tablet was never on this node, so it has no vote.
            # The last save of a replica that has failed may have ended before this sync. Its vote is in the file.
            node.files.sync_directory(node.layout.consensus)
            return block, ConsensusMetadata(node.files, node.layout, tablet_id).load()

        # With the key of hard state saves, so that it reads the file after a save that is in progress.
        node.metadata_pool.run(f"consensus/{tablet_id}", read, lambda found: self._woken(tablet_id, found))

    def _woken(self, tablet_id: TabletId, found: object) -> None:
        waiting = self._waking.pop(tablet_id)
        if isinstance(found, Exception):
            log.warning("tombstone cannot be read tablet=%s reason=%s", tablet_id, found)
            if not isinstance(found, StelaeError):
                raise found
        elif isinstance(found, tuple) and tablet_id not in self._node.replicas and tablet_id not in self._held:
            block, record = found
            last = block.tombstone
            if isinstance(last, OpId) and (older := older_metadata(record.term, last)):
                log.error("tombstone does not vote tablet=%s reason=%s", tablet_id, older)
            elif block.data_state is not DataState.READY and not is_first_copy(block):
                self._keep(self._voter(block, record))
        for then in waiting:
            then()

    def _voter(self, block: Superblock, record: ConsensusRecord) -> TombstoneVoter:
        node = self._node
        core = node.engines.consensus.restore_voter(
            node_id=node.node_id,
            hard_state=record.hard_state,
            last=block.tombstone if isinstance(block.tombstone, OpId) else None,
            config=node.engines.consensus_config,
            now_us=node.turns.now_us(),
        )
        return TombstoneVoter(
            block.tablet_id,
            core,
            record.hard_state,
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
