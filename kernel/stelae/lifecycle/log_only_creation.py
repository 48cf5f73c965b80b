"""Creates a replica without rows, as that of a witness, on a node without a replica of the tablet.

Source: the appendix of "Raft config change"; ``durability.md`` rule 12. The log begins at a committed op id, and the
consensus metadata have the committed config at that op id, because its entry may never reach this log.

The replica does not exist before the last step: until then its superblock is COPYING. If the node never had the tablet,
it has no last op id, so a start removes whatever a crash has left (row ``FIRST_COPY`` of ``startup_decisions``). It has
promised nothing by then. Over a tombstone it keeps the last op id of the tombstone, so a start goes back to that (row
``COPYING``). It still has it when it is READY, as long as the new log has not reached it (rule 18), and the consensus
metadata are merged by the voter of the tombstone instead of step 3 (``witness_over_tombstone``)."""

from __future__ import annotations

import msgspec

from stelae.host.consensus_metadata import ConsensusMetadata
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.metadata_files import NO_CRASH, CrashPoints
from stelae.host.new_replica import LogStart
from stelae.host.superblock import DataState, Superblock, SuperblockFile
from stelae.spi.consensus import HardState
from stelae.spi.ids import OpId
from stelae.spi.services import Files
from stelae.spi.wal import WalEngine


class LogOnlyCreation:
    """The steps of one creation, in order. Each is durable on return, and may be repeated.

    Args:
        block: describes the tablet. The engine of ``store_engine`` is opened once the rows arrive.
        start: where the log begins.
        over: the tombstone; ``None``: the node never had the tablet. The generation rises, as with a copy.
    """

    def __init__(
        self,
        files: Files,
        layout: DirectoryLayout,
        block: Superblock,
        start: LogStart,
        crash: CrashPoints = NO_CRASH,
        over: Superblock | None = None,
    ) -> None:
        self._start = start
        self._crash = crash
        self.block = msgspec.structs.replace(
            block,
            data_state=DataState.COPYING,
            log_only=True,
            flushed=start.base,
            generation=block.generation if over is None else over.generation + 1,
            tombstone=None if over is None else over.tombstone,
            quarantine=None if over is None else over.quarantine,
        )
        self._superblock = SuperblockFile(files, layout, block.tablet_id, crash)
        self._metadata = ConsensusMetadata(files, layout, block.tablet_id, crash)

    def begin(self) -> None:
        """Step 1: the superblock says that what follows is not complete."""
        self._superblock.save(self.block)
        self._crash.hit("witness.after_begin")

    def create_log(self, wal: WalEngine) -> None:
        """Step 2: the empty log after ``start.base``. It replaces a log that an earlier attempt left."""
        wal.drop(self.block.log_id)
        wal.create(self.block.log_id, self._start.base)
        self._crash.hit("witness.after_log")

    def save_metadata(self) -> None:
        """Step 3: the committed config, and the term of ``start.base``, which no vote of this replica is older than."""
        self._metadata.save(HardState(term=self._start.base.term), self._start.committed)
        self.metadata_saved()

    def metadata_saved(self) -> None:
        """Pass the crash point after step 3."""
        self._crash.hit("witness.after_metadata")

    def finish(self) -> Superblock:
        """Step 4: the superblock makes the replica READY. Returns it."""
        had = self.block.tombstone
        reached = isinstance(had, OpId) and had <= self._start.base
        ready = msgspec.structs.replace(
            self.block, data_state=DataState.READY, tombstone=None if reached else had, quarantine=None
        )
        self._superblock.save(ready)
        return ready
