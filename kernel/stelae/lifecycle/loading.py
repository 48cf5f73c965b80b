"""The tablets of a node at start: the configured one is created, every other one is recovered.

Creation is ordered so that a crash at any step leaves either nothing or a whole tablet: consensus
metadata first (term 0, no vote, the initial config: ``durability.md`` rule 10), then the empty log,
then the superblock, whose presence means that the tablet exists."""

import logging

from stelae.host.bootstrap import Engines, Recovered, recover
from stelae.host.consensus_meta import ConsensusMetadata
from stelae.host.layout import Layout
from stelae.host.metadata import NO_CRASH, CrashPoints
from stelae.host.settings import TabletSettings
from stelae.host.superblock import Superblock, SuperblockFile
from stelae.lifecycle.startup import Action, Found, scan_tablets
from stelae.spi.consensus import HardState
from stelae.spi.errors import StelaeError
from stelae.spi.ids import ZERO, TabletId
from stelae.spi.services import Files

log = logging.getLogger(__name__)


class TabletLoader:
    """Brings a node's tablets up from its files. Every call may block. ``names`` are of consensus and store engine."""

    def __init__(
        self, files: Files, layout: Layout, engines: Engines, names: tuple[str, str], crash: CrashPoints = NO_CRASH
    ) -> None:
        self._files = files
        self._layout = layout
        self._engines = engines
        self._consensus_name, self._store_name = names
        self._crash = crash
        self.failed: dict[TabletId, str] = {}
        """Tablets that stay offline, and why; the node serves the others."""

    def create(self, tablet: TabletSettings) -> bool:
        """Create the configured tablet unless it exists or has failed; True if it was created.

        ``StorageError``: no space, or the disk failed; creation can be repeated."""
        wal = self._engines.wal
        found = {f.tablet_id: f for f in scan_tablets(self._files, self._layout, wal.logs())}
        existing = found.get(tablet.id)
        if existing is not None and existing.decision.action is not Action.NOTHING:
            return False
        superblock = Superblock(
            tablet_id=tablet.id,
            consensus_engine=self._consensus_name,
            store_engine=self._store_name,
            schemas=(tablet.schema.to_bytes(),),
        )
        if existing is None or existing.consensus is None:
            metadata = ConsensusMetadata(self._files, self._layout, tablet.id, self._crash)
            metadata.save(HardState(), tablet.initial_config())
        self._crash.hit("tablet.create.after_consensus")
        if existing is not None and existing.log is not None:
            wal.drop(superblock.log_id)
        wal.create(superblock.log_id, ZERO)
        self._crash.hit("tablet.create.after_log")
        self.superblock_file(tablet.id).save(superblock)
        log.info("tablet created tablet=%s", tablet.id)
        return True

    def superblock_file(self, tablet_id: TabletId) -> SuperblockFile:
        """The superblock of a tablet, for its one writer."""
        return SuperblockFile(self._files, self._layout, tablet_id, self._crash)

    def recover_all(self) -> list[Recovered]:
        """Recover every READY tablet; what cannot be recovered is in ``failed``."""
        recovered = []
        for found in scan_tablets(self._files, self._layout, self._engines.wal.logs()):
            if found.decision.action is Action.START:
                one = self._recover(found)
                if one is not None:
                    recovered.append(one)
            elif found.decision.action is Action.FAIL:
                self.fail(found.tablet_id, found.failure)
        return recovered

    def _recover(self, found: Found) -> Recovered | None:
        assert found.superblock is not None and found.consensus is not None
        wrong = self._wrong_engine(found.superblock)
        if wrong:
            self.fail(found.tablet_id, wrong)
            return None
        directory = self._layout.data_of(found.tablet_id)
        try:
            return recover(found.superblock, found.consensus, self._engines, directory)
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
