"""What a copy does to the files of its node, from the superblock COPYING to the running replica.

Source: "Follower Tablet Copy" of the tablet-copy design, steps 1, 2, 5 and 6; ``durability.md`` rules 18 to 22. Each
method is the work of one ``CopyState``: a sequence of blocking steps, with named crash points. The first copy of a
tablet has no voter: its consensus metadata is written at the end. A copy over a tombstone merges it through the voter
that stays in service (``tombstones``)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from stelae.host.consensus_metadata import ConsensusMetadata
from stelae.host.metadata_files import NO_CRASH, CrashPoints, MetadataMissing
from stelae.host.superblock import DataState, Superblock, SuperblockFile
from stelae.lifecycle.abandoned_copy import abandon_copy, is_first_copy
from stelae.lifecycle.blocking_steps import OffLoop, Steps, WithLog
from stelae.lifecycle.copy_facts import CopyFacts
from stelae.lifecycle.copy_install import append_piece, begin_log, check_log, copying_block, install_rows, ready_block
from stelae.lifecycle.copy_items import ItemKind, kind_of
from stelae.lifecycle.copy_log import decode_entries
from stelae.lifecycle.copy_stage import CopyStage, remove_stage
from stelae.lifecycle.startup_decisions import TabletFinding
from stelae.lifecycle.tablet_loader import TabletLoader
from stelae.lifecycle.tombstones import Tombstones
from stelae.lifecycle.voter_handover import host_with_votes, merged_by_voter
from stelae.spi.consensus import HardState
from stelae.spi.copy_plan import CopySnapshot
from stelae.spi.errors import Full, StelaeError
from stelae.spi.ids import OpId, TabletId
from stelae.spi.log import Entry

if TYPE_CHECKING:
    from stelae.host.node import Node

log = logging.getLogger(__name__)


class CopiedTablet:
    """The tablet that one copy builds.

    Args:
        look: inspects the files of a tablet (``TabletManager.look``).
        stage: what has arrived.
        crash: points at which tests end the process.
    """

    def __init__(
        self,
        node: Node,
        loader: TabletLoader,
        look: Callable[[TabletId], Steps[TabletFinding]],
        tombstones: Tombstones,
        tablet_id: TabletId,
        stage: CopyStage,
        crash: CrashPoints = NO_CRASH,
    ) -> None:
        self._node = node
        self._loader = loader
        self._look = look
        self._tombstones = tombstones
        self._tablet_id = tablet_id
        self._stage = stage
        self._crash = crash
        self._block: Superblock | None = None
        self._manifest = b""

    @property
    def block(self) -> Superblock:
        """The superblock COPYING."""
        assert self._block is not None
        return self._block

    def mark(self, old: Superblock | None, table_name: str) -> Steps[None]:
        """Step 1: make the superblock COPYING durable. ``old`` is what the superblock says now, if there is one.

        If it says COPYING, the way back from an earlier copy is completed first."""
        if old is not None and old.data_state is DataState.COPYING:
            yield from self._undo(old, keep_stage=True)
            old = None if is_first_copy(old) else (yield OffLoop(self._file().load))
        config = self._node.config
        block = copying_block(
            old, self._tablet_id, table_name, consensus=config.consensus.name, store=config.store.name
        )
        yield OffLoop(lambda: self._file().save(block))
        self._block = block
        self._crash.hit("copy.after_marked")

    def install_log(self, snapshot: CopySnapshot, cancelled: Callable[[], bool]) -> Steps[bool]:
        """Build the log under the generation of the superblock. Return False if the copy was cancelled meanwhile."""
        name, after = self.block.log_id, snapshot.base
        yield WithLog(lambda wal: begin_log(wal, name, snapshot.base))
        self._crash.hit("copy.after_log_created")
        for item in snapshot.items:
            if kind_of(item.name) is ItemKind.LOG:
                if cancelled():
                    return False
                after = yield from self._install_piece(item.name, after, snapshot.base.index)
        yield WithLog(lambda wal: check_log(wal, name, snapshot))
        self._crash.hit("copy.after_log")
        return True

    def _install_piece(self, item: str, after: OpId, commit_hint: int) -> Steps[OpId]:
        """Append one piece of the log, and return its last op id.

        What the rows contain is known to be committed, which is the hint. Of the rest, the leader will say it."""
        entries: list[Entry] = yield OffLoop(lambda: decode_entries(item, self._stage.read(item), after))
        yield WithLog(lambda wal: append_piece(wal, self.block.log_id, entries, commit_hint))
        self._crash.hit("copy.after_log_piece")
        return entries[-1].op_id

    def install_rows(self, snapshot: CopySnapshot, facts: CopyFacts, cancelled: Callable[[], bool]) -> Steps[None]:
        """Install the rows in the directory of the store. Raises ``CopyCancelled``."""
        node, stage, crash = self._node, self._stage, self._crash
        self._manifest = yield OffLoop(
            lambda: install_rows(node.files, node.layout, stage, snapshot, facts, node.engines, cancelled, crash)
        )

    def merge_metadata(self, snapshot: CopySnapshot) -> Steps[None]:
        """Step 2: merge the consensus metadata of the source, as of this moment. Raises ``StorageError``."""
        term, config = snapshot.term, snapshot.committed_config
        if is_first_copy(self.block):
            metadata = ConsensusMetadata(self._node.files, self._node.layout, self._tablet_id, self._crash)
            yield OffLoop(lambda: metadata.save(HardState(term, None), config))
        else:
            yield from merged_by_voter(self._tombstones, self._tablet_id, term, config)
        self._crash.hit("copy.after_merge")

    def commit(self, snapshot: CopySnapshot, facts: CopyFacts) -> Steps[None]:
        """Step 5: make the superblock READY durable.

        Raises ``Full`` if it still says COPYING. After another ``StorageError`` the tablet is offline until the next
        start, which reads which of the two it says."""
        block = ready_block(self.block, facts, snapshot, self._manifest)
        try:
            yield OffLoop(lambda: self._file().save(block))
        except Full:
            raise
        except StelaeError as error:
            self._loader.fail(self._tablet_id, f"its copied superblock may not be durable: {error}; restart the node")
            raise
        self._crash.hit("copy.after_ready")

    def host(self) -> Steps[None]:
        """Step 6: start the replica, with every vote that its voter has given. Raises as ``host_with_votes``."""
        yield OffLoop(self._remove_stage)
        self._crash.hit("copy.after_stage_removed")
        yield from host_with_votes(self._node, self._loader, self._look, self._tombstones, self._tablet_id)

    def _remove_stage(self) -> None:
        """Remove the stage, if possible. The next start removes it otherwise."""
        self._stage.close()
        try:
            remove_stage(self._node.files, self._node.layout, self._tablet_id)
        except StelaeError as error:
            log.warning("stage not removed tablet=%s reason=%s", self._tablet_id, error)

    def abandon(self, *, drops_stage: bool) -> Steps[None]:
        """Go back to the tombstone, or to no tablet after a first copy. May be repeated. Raises ``StorageError``."""
        yield OffLoop(self._stage.close)
        block: Superblock | None = yield OffLoop(self._present)
        if block is not None and block.data_state is DataState.COPYING:
            yield from self._undo(block, keep_stage=not drops_stage)

    def _undo(self, block: Superblock, *, keep_stage: bool) -> Steps[None]:
        return abandon_copy(self._node.files, self._node.layout, block, keep_stage=keep_stage, crash=self._crash)

    def _present(self) -> Superblock | None:
        """Return what the superblock says now. After a failed sync it may be the old or the new one."""
        try:
            return self._file().load()
        except MetadataMissing:
            return None

    def _file(self) -> SuperblockFile:
        return SuperblockFile(self._node.files, self._node.layout, self._tablet_id, self._crash)
