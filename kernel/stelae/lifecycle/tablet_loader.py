"""The tablets of a node at start: the configured one is created, every other one is recovered.

What a crash cut short is ended first: deletions are rolled forward, copies taken back. A tombstone costs no memory:
who asks for its vote wakes it (``tombstones``).

Creation is ordered so that a crash at any step leaves either nothing or a whole tablet: consensus
metadata first (term 0, no vote, the initial config: ``durability.md`` rule 10), then the empty log,
then the superblock, whose presence means that the tablet exists."""

import logging
from collections.abc import Mapping

from stelae.host.assembly import Engines, RecoveredTablet
from stelae.host.consensus_metadata import ConsensusMetadata
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.metadata_files import NO_CRASH, CrashPoints
from stelae.host.settings import TabletSettings
from stelae.host.superblock import Superblock, SuperblockFile
from stelae.lifecycle.configured_tablet import check_configured
from stelae.lifecycle.deletion import abandon_copy, roll_forward
from stelae.lifecycle.log_agreement import LogContradicts
from stelae.lifecycle.quarantine import remove_unfinished
from stelae.lifecycle.startup_decisions import StartupAction, TabletFinding, look, scan_tablets
from stelae.lifecycle.tablet_recovery import recover
from stelae.spi.consensus import HardState
from stelae.spi.errors import StelaeError
from stelae.spi.ids import ZERO, LogId, TabletId
from stelae.spi.services import Files
from stelae.spi.wal import LogState, WalEngine

log = logging.getLogger(__name__)


class TabletLoader:
    """Brings a node's tablets up from its files. Every call may block. ``names`` are of consensus and store engine."""

    def __init__(
        self,
        files: Files,
        layout: DirectoryLayout,
        engines: Engines,
        names: tuple[str, str],
        crash: CrashPoints = NO_CRASH,
    ) -> None:
        self._files = files
        self._layout = layout
        self._engines = engines
        self._consensus_name, self._store_name = names
        self._crash = crash
        self.failed: dict[TabletId, str] = {}
        """Tablets that stay offline, and why; the node serves the others."""
        self.lost: set[TabletId] = set()
        """Tablets whose last op id is UNKNOWN, deleted since or not: they never vote again (rule 19)."""
        self.late: dict[TabletId, str] = {}
        """Tablets that are made only when something else has happened, and what that is."""
        self._configured: TabletSettings | None = None

    def create(self, tablet: TabletSettings) -> bool:
        """Create the configured tablet unless it exists or has failed; True if it was created.

        One that exists is compared with the stored one when it is recovered.

        ``StorageError``: no space, or the disk failed; creation can be repeated."""
        self._configured = tablet
        if self.has(tablet.id):
            return False
        superblock = self.begin(tablet)
        self.create_log(self._engines.wal, superblock)
        self.exist(superblock)
        return True

    def has(self, tablet_id: TabletId) -> bool:
        """Whether there is something of a tablet, be it that it cannot be read."""
        return self.look(tablet_id, self._engines.wal.logs()).decision.action is not StartupAction.NOTHING

    # -- the steps of a creation, in order; each may be repeated -------------------------------------

    def begin(self, tablet: TabletSettings) -> Superblock:
        """Make the consensus metadata of a tablet that does not exist durable; return the superblock that is to be."""
        metadata = ConsensusMetadata(self._files, self._layout, tablet.id, self._crash)
        metadata.save(HardState(), tablet.initial_config())
        self._crash.hit("tablet.create.after_consensus")
        return Superblock(
            tablet_id=tablet.id,
            table_name=tablet.table_name,
            consensus_engine=self._consensus_name,
            store_engine=self._store_name,
            schemas=(tablet.schema.to_bytes(),),
            partition=tablet.partition,
        )

    def create_log(self, wal: WalEngine, superblock: Superblock) -> None:
        """Create the empty log, in place of one that an earlier attempt left."""
        wal.drop(superblock.log_id)
        wal.create(superblock.log_id, ZERO)
        self._crash.hit("tablet.create.after_log")

    def exist(self, superblock: Superblock) -> None:
        """Make the superblock durable: from here on the tablet exists."""
        self.superblock_file(superblock.tablet_id).save(superblock)
        log.info("tablet created tablet=%s", superblock.tablet_id)

    # -- recovery ------------------------------------------------------------------------------------

    def superblock_file(self, tablet_id: TabletId) -> SuperblockFile:
        """The superblock of a tablet, for its one writer."""
        return SuperblockFile(self._files, self._layout, tablet_id, self._crash)

    def recover_all(self) -> list[RecoveredTablet]:
        """Recover every READY tablet; what cannot be recovered is in ``failed``.

        ``ConfigError``: the configured tablet contradicts the stored one."""
        recovered, found = [], self._scan()
        named = {one.superblock.quarantine for one in found if one.superblock is not None}
        remove_unfinished(self._files, self._layout, named)
        for one in found:
            match one.decision.action:
                case StartupAction.START:
                    replica = self.recover(one)
                    recovered += [] if replica is None else [replica]
                case StartupAction.FAIL:
                    # Each such row of the table means that log, superblock or consensus metadata cannot be read.
                    self.lost.add(one.tablet_id)
                    self.fail(one.tablet_id, one.failure)
                case StartupAction.OFFLINE:
                    self.fail(one.tablet_id, one.failure)
                case StartupAction.TOMBSTONE:
                    self._remove_leftovers(one.tablet_id)
                case StartupAction.ROLL_FORWARD | StartupAction.DELETE_SELF:
                    self._end_deletion(one)
        for replica in recovered:
            if self._configured is not None and self._configured.id == replica.superblock.tablet_id:
                check_configured(self._configured, replica.schemas)
        return recovered

    def _scan(self) -> list[TabletFinding]:
        wal = self._engines.wal
        return scan_tablets(self._files, self._layout, wal.logs(), wal.op_id_at)

    def _remove_leftovers(self, tablet_id: TabletId) -> None:
        """A tombstone owns neither log nor data: what there is was made by a restore that a crash took back."""
        wal, directory = self._engines.wal, self._layout.data_of(tablet_id)
        for log_id in [log_id for log_id in wal.logs() if log_id.tablet_id == tablet_id]:
            wal.drop(log_id)
        if self._files.exists(directory):
            self._files.remove_tree(directory)
            self._files.sync_directory(self._layout.data)

    def look(self, tablet_id: TabletId, logs: Mapping[LogId, LogState]) -> TabletFinding:
        """Look at one tablet, as at start."""
        return look(self._files, self._layout, logs, self._engines.wal.op_id_at, tablet_id)

    def _end_deletion(self, found: TabletFinding) -> None:
        files, layout, wal, block = self._files, self._layout, self._engines.wal, found.superblock
        assert block is not None
        try:
            if found.decision.action is StartupAction.ROLL_FORWARD:
                roll_forward(files, layout, block, wal.set_aside, self._crash)
            else:
                abandon_copy(files, layout, block, wal.drop, self._crash)
            log.info("tablet deleted, as a crash had cut it short tablet=%s", found.tablet_id)
        except (StelaeError, OSError) as error:
            self.fail(found.tablet_id, f"its deletion cannot be ended: {error}")

    def recover(self, found: TabletFinding) -> RecoveredTablet | None:
        """Recover one READY tablet; ``None``: it has failed, and ``failed`` says why."""
        assert found.superblock is not None and found.consensus is not None
        wrong = self._wrong_engine(found.superblock)
        if wrong:
            self.fail(found.tablet_id, wrong)
            return None
        directory = self._layout.data_of(found.tablet_id)
        try:
            return recover(found.superblock, found.consensus, self._engines, directory)
        except LogContradicts as error:
            self.lost.add(found.tablet_id)
            self.fail(found.tablet_id, str(error))
            return None
        except (StelaeError, OSError) as error:  # ``Files`` raises OSError for missing names
            self.fail(found.tablet_id, str(error))
            return None

    def _wrong_engine(self, superblock: Superblock) -> str:
        """Two consensus engines never mix in one tablet, and a store reads only its own files."""
        for kind, recorded, picked in (
            ("consensus", superblock.consensus_engine, self._consensus_name),
            ("store", superblock.store_engine, self._store_name),
        ):
            if recorded != picked:
                return (
                    f"the tablet was made with {kind} engine {recorded!r}, the node runs "
                    f"{picked!r}; set [engines] {kind} = {recorded!r}"
                )
        return ""

    def fail(self, tablet_id: TabletId, reason: str) -> None:
        """Keep a tablet offline; the node serves the others."""
        self.failed[tablet_id] = reason
        log.error("tablet failed tablet=%s reason=%s", tablet_id, reason)
