"""Creates and recovers the tablets of a node when it starts.

Operations that a crash has interrupted are completed first: deletions are finished, and copies are undone. What a copy
has fetched stays in its stage, for the next copy. A tombstone is not loaded into memory; it is loaded when a node asks
for its vote (``tombstones``).

A creation has three steps, so that a crash leaves either no tablet or a complete one:

1. the consensus metadata, with term 0, no vote and the initial config (``durability.md`` rule 10);
2. the empty log;
3. the superblock. A tablet exists if and only if it has a superblock."""

import logging
from collections.abc import Callable, Mapping
from functools import partial

from stelae.host.assembly import Engines, RecoveredTablet
from stelae.host.consensus_metadata import ConsensusMetadata
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.metadata_files import NO_CRASH, CrashPoints
from stelae.host.new_replica import LogStart
from stelae.host.settings import TabletSettings
from stelae.host.superblock import Superblock, SuperblockFile
from stelae.lifecycle.abandoned_copy import abandon_copy, remove_copied_files
from stelae.lifecycle.blocking_steps import run_now
from stelae.lifecycle.configured_tablet import check_configured
from stelae.lifecycle.copy_stage import read_manifest, remove_stage
from stelae.lifecycle.deletion import roll_forward
from stelae.lifecycle.log_agreement import LogContradicts
from stelae.lifecycle.log_only_creation import LogOnlyCreation
from stelae.lifecycle.quarantine import remove_unfinished
from stelae.lifecycle.startup_decisions import StartupAction, TabletFinding, inspect_tablet, scan_tablets
from stelae.lifecycle.tablet_recovery import recover
from stelae.spi.consensus import HardState
from stelae.spi.errors import Corrupt, StelaeError, StorageError
from stelae.spi.ids import ZERO, LogId, TabletId
from stelae.spi.members import TabletConfig
from stelae.spi.services import Files
from stelae.spi.wal import LogState, WalEngine

log = logging.getLogger(__name__)

_UNREAD = "; nothing is known to be damaged: repair the disk, and start the node again"
"""The next step if the disk did not return something. Errors with more to tell have types of their own."""

_OPERATION = {StartupAction.ROLL_FORWARD: "deletion", StartupAction.DELETE_SELF: "copy", StartupAction.REMOVE: "copy"}


class TabletLoader:
    """The ``TabletSource`` of a node. Its methods may block, except for ``fail``.

    ``names`` are the names of the node's consensus engine and store engine."""

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
        """The tablets that stay offline, and why. The node serves the others."""
        self.failed_configs: dict[TabletId, TabletConfig] = {}
        """The committed configs of tablets in ``failed``, where the consensus metadata can be read.

        Masters compare them with the config on record. So a replica that never starts again is deleted once the tablet
        has other members."""
        self.damaged: set[TabletId] = set()
        """The tablets that stay offline because their rows are damaged. A copy can replace them in their place."""
        self.unknown_op_ids: set[TabletId] = set()
        """The tablets whose last op id is UNKNOWN, even if they were deleted since. They never vote again (rule 19)."""
        self.delayed: dict[TabletId, str] = {}
        """The tablets whose creation waits for something, and for what."""
        self._configured: TabletSettings | None = None

    def create(self, tablet: TabletSettings) -> bool:
        """Create the configured tablet unless it exists or has failed. Return whether it was created.

        If it exists, it is compared with the configuration when it is recovered. Raises ``StorageError`` if there is no
        space or the disk fails; the creation can be repeated."""
        self._configured = tablet
        if self.has(tablet.id):
            return False
        superblock = self.save_consensus_metadata(tablet)
        self.create_log(self._engines.wal, superblock)
        self.save_superblock(superblock)
        return True

    def has(self, tablet_id: TabletId) -> bool:
        """Return whether anything of a tablet is on this node, even if it cannot be read."""
        return self.inspect(tablet_id, self._engines.wal.logs()).decision.action is not StartupAction.NOTHING

    # -- the steps of a creation, in order; each may be repeated -------------------------------------

    def save_consensus_metadata(self, tablet: TabletSettings) -> Superblock:
        """Step 1: make the consensus metadata of a new tablet durable. Return its future superblock."""
        metadata = ConsensusMetadata(self._files, self._layout, tablet.id, self._crash)
        metadata.save(HardState(), tablet.initial_config())
        self._crash.hit("tablet.create.after_consensus")
        return self.superblock_of(tablet)

    def superblock_of(self, tablet: TabletSettings) -> Superblock:
        """Return the superblock of a new tablet with the engines of this node. Nothing is written."""
        return Superblock(
            tablet_id=tablet.id,
            table_name=tablet.table_name,
            consensus_engine=self._consensus_name,
            store_engine=self._store_name,
            schemas=(tablet.schema.to_bytes(),),
            partition=tablet.partition,
        )

    def create_log(self, wal: WalEngine, superblock: Superblock) -> None:
        """Step 2: create the empty log. It replaces a log that an earlier attempt left."""
        wal.drop(superblock.log_id)
        wal.create(superblock.log_id, ZERO)
        self._crash.hit("tablet.create.after_log")

    def save_superblock(self, superblock: Superblock) -> None:
        """Step 3: make the superblock durable. The tablet exists from now on."""
        self.superblock_file(superblock.tablet_id).save(superblock)
        log.info("tablet created tablet=%s", superblock.tablet_id)

    def log_only_creation(
        self, tablet: TabletSettings, start: LogStart, over: Superblock | None = None
    ) -> LogOnlyCreation:
        """Return the creation of a replica without rows, whose log begins at ``start.base``. Nothing is written.

        ``over`` is the tombstone over which it begins, if there is one."""
        return LogOnlyCreation(self._files, self._layout, self.superblock_of(tablet), start, self._crash, over)

    # -- recovery ------------------------------------------------------------------------------------

    def superblock_file(self, tablet_id: TabletId) -> SuperblockFile:
        """Return the superblock file of a tablet, for the only writer of it."""
        return SuperblockFile(self._files, self._layout, tablet_id, self._crash)

    def recover_all(self) -> list[RecoveredTablet]:
        """Recover every READY tablet. Tablets that cannot be recovered are in ``failed``.

        Raises ``ConfigError`` if the configured tablet contradicts the stored one."""
        recovered, found = [], self._scan()
        named = {one.superblock.quarantine for one in found if one.superblock is not None}
        _try_removal("deletion", lambda: remove_unfinished(self._files, self._layout, named))
        for one in found:
            match one.decision.action:
                case StartupAction.START:
                    recovered += self._start(one)
                case StartupAction.FAIL:
                    # Each row with this action means that log, superblock or consensus metadata cannot be read.
                    self.unknown_op_ids.add(one.tablet_id)
                    self._fail_found(one, one.failure)
                case StartupAction.OFFLINE:
                    self._fail_found(one, one.failure)
                case StartupAction.TOMBSTONE:
                    _try_removal(f"restore of {one.tablet_id}", partial(self._remove_leftovers, one.tablet_id))
                case StartupAction.ROLL_FORWARD | StartupAction.DELETE_SELF | StartupAction.REMOVE:
                    self.end_interrupted(one)
        for replica in recovered:
            if self._configured is not None and self._configured.id == replica.superblock.tablet_id:
                check_configured(self._configured, replica.schemas)
        return recovered

    def _start(self, found: TabletFinding) -> list[RecoveredTablet]:
        """Recover a READY tablet and remove what a copy has left. Return an empty list if it failed.

        A replica with rows that starts needs no copy any more. One that does not start keeps its stage: it may be
        damaged, and then the next copy goes on with what an earlier one has fetched.

        If nothing is left, it costs no sync. A removal of before that is not durable is repeated after a power loss."""
        files, layout, tablet_id, block = self._files, self._layout, found.tablet_id, found.superblock
        of = f"copy of {tablet_id}"
        if block is not None and block.log_only:
            _try_removal(of, partial(self._put_rows_back, tablet_id, block))
        replica = self.recover(found)
        if replica is None:
            return []
        if not replica.superblock.log_only:
            _try_removal(of, lambda: remove_stage(files, layout, tablet_id))
        return [replica]

    def _put_rows_back(self, tablet_id: TabletId, block: Superblock) -> None:
        """Move what a copy has installed for a replica without rows back into the stage, for the next copy of them."""
        files, layout = self._files, self._layout
        intact = read_manifest(files, layout, tablet_id) is not None
        if files.exists(layout.data_of(tablet_id)) or (not intact and files.exists(layout.stage_of(tablet_id))):
            remove_copied_files(files, layout, block, keep_stage=intact, crash=self._crash)

    def _scan(self) -> list[TabletFinding]:
        wal = self._engines.wal
        return scan_tablets(self._files, self._layout, wal.logs(), wal.op_id_at)

    def _remove_leftovers(self, tablet_id: TabletId) -> None:
        """Remove log and data of a tombstone. It should have none: a crash has interrupted a restore."""
        wal, directory = self._engines.wal, self._layout.data_of(tablet_id)
        for log_id in [log_id for log_id in wal.logs() if log_id.tablet_id == tablet_id]:
            wal.drop(log_id)
        if self._files.exists(directory):
            self._files.remove_tree(directory)
            self._files.sync_directory(self._layout.data)

    def inspect(self, tablet_id: TabletId, logs: Mapping[LogId, LogState]) -> TabletFinding:
        """Inspect one tablet in the same way as at start."""
        return inspect_tablet(self._files, self._layout, logs, self._engines.wal.op_id_at, tablet_id)

    def end_interrupted(self, found: TabletFinding) -> None:
        """End the deletion or the copy that a crash has interrupted. A tablet for which that fails is in ``failed``."""
        files, layout, wal, block = self._files, self._layout, self._engines.wal, found.superblock
        assert block is not None
        try:
            if found.decision.action is StartupAction.ROLL_FORWARD:
                roll_forward(files, layout, block, wal.set_aside, self._crash)
            else:
                intact = read_manifest(files, layout, found.tablet_id) is not None
                run_now(abandon_copy(files, layout, block, keep_stage=intact, crash=self._crash), wal)
            log.info("interrupted operation ended tablet=%s action=%s", found.tablet_id, found.decision.action)
        except (StelaeError, OSError) as error:
            self._fail_found(found, f"its interrupted {_OPERATION[found.decision.action]} cannot be ended: {error}")

    def recover(self, found: TabletFinding) -> RecoveredTablet | None:
        """Recover one READY tablet. Return ``None`` if it failed; ``failed`` then has the reason."""
        if found.superblock is None or found.consensus is None:
            self._fail_found(found, found.failure)  # It was READY a moment ago, and the disk does not return that now.
            return None
        wrong = self._wrong_engine(found.superblock)
        if wrong:
            self._fail_found(found, wrong)
            return None
        directory = self._layout.data_of(found.tablet_id)
        try:
            return recover(found.superblock, found.consensus, self._engines, directory)
        except LogContradicts as error:
            self.unknown_op_ids.add(found.tablet_id)
            self._fail_found(found, str(error))
            return None
        except (StelaeError, OSError) as error:  # ``Files`` raises ``OSError`` for missing names.
            if isinstance(error, Corrupt) and error.path is not None and error.path.startswith(f"{directory}/"):
                self.damaged.add(found.tablet_id)
            self._fail_found(found, f"{error}{_UNREAD if type(error) is StorageError else ''}")
            return None

    def _wrong_engine(self, superblock: Superblock) -> str:
        """Return why a tablet does not fit the node's engines, or an empty text.

        A tablet changes its consensus engine only while the node is stopped, and a store reads only its own files."""
        convert = f"stelae tablet convert-consensus {self._layout.root} --to {self._consensus_name}"
        for kind, recorded, picked, other_way in (
            ("consensus", superblock.consensus_engine, self._consensus_name, f", or stop the node and run: {convert}"),
            ("store", superblock.store_engine, self._store_name, ""),
        ):
            if recorded != picked:
                return (
                    f"the tablet has {kind} engine {recorded!r}, but the node has "
                    f"{picked!r}; set [engines] {kind} = {recorded!r}{other_way}"
                )
        return ""

    def _fail_found(self, found: TabletFinding, reason: str) -> None:
        self.fail(found.tablet_id, reason, None if found.consensus is None else found.consensus.committed_config)

    def forget_failure(self, tablet_id: TabletId) -> None:
        """Note that a tablet is sound again: its replica runs, or what was wrong with it is removed."""
        self.failed.pop(tablet_id, None)
        self.failed_configs.pop(tablet_id, None)
        self.damaged.discard(tablet_id)

    def fail(self, tablet_id: TabletId, reason: str, config: TabletConfig | None = None) -> None:
        """Keep a tablet offline. The node serves the others. ``config``: its committed config, if that is known."""
        self.failed[tablet_id] = reason
        self.failed_configs.pop(tablet_id, None)
        if config is not None:
            self.failed_configs[tablet_id] = config
        log.error("tablet failed tablet=%s reason=%s", tablet_id, reason)


def _try_removal(of: str, remove: Callable[[], None]) -> None:
    """Remove what an operation has left, if possible. It disturbs nothing, so the node also starts if this fails."""
    try:
        remove()
    except (StelaeError, OSError) as error:  # ``Files`` raises ``OSError`` for missing names.
        log.warning("what an interrupted operation has left is not removed operation=%s reason=%s", of, error)
