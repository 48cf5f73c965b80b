"""Production's loader of tablets, which reports how far each creation is.

A replica without rows has steps of its own. It exists as late as the others: with the last write of its superblock."""

from __future__ import annotations

from collections.abc import Callable

from stelae.host.assembly import Engines
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.new_replica import LogStart
from stelae.host.settings import TabletSettings
from stelae.host.superblock import Superblock
from stelae.lifecycle.log_only_creation import LogOnlyCreation
from stelae.lifecycle.tablet_loader import TabletLoader
from stelae.sim.disk import VirtualDisk
from stelae.sim.fact_feed import FactFeed
from stelae.sim.hosting.creation_crashes import CreationCrashes
from stelae.sim.hosting.replica_on_disk import ReplicaOnDisk
from stelae.sim.world import ObservedNode


class ObservedLoader(TabletLoader):
    """Does what ``TabletLoader`` does. Power may be lost from the begin of a creation on."""

    def __init__(
        self,
        disk: VirtualDisk,
        layout: DirectoryLayout,
        engines: Engines,
        names: tuple[str, str],
        node: ObservedNode,
        facts: FactFeed,
        crashes: CreationCrashes,
    ) -> None:
        super().__init__(disk, layout, engines, names)
        self._node = node
        self._facts = facts
        self._crashes = crashes

    def save_consensus_metadata(self, tablet: TabletSettings) -> Superblock:
        """Report that a creation begins, then do its first step."""
        self._begins()
        return super().save_consensus_metadata(tablet)

    def save_superblock(self, superblock: Superblock) -> None:
        """Do the last step of a creation, and report its begin and its end."""
        self._ends()
        super().save_superblock(superblock)
        self._ended()

    def log_only_creation(
        self, tablet: TabletSettings, start: LogStart, over: Superblock | None = None
    ) -> LogOnlyCreation:
        """Return the creation of a replica without rows, which reports the same.

        One over a tombstone reports nothing: it is seen by its superblocks, as a copy is."""
        if over is not None:
            return super().log_only_creation(tablet, start, over)
        block = self.superblock_of(tablet)
        creation = _ObservedLogOnlyCreation(self._files, self._layout, block, start, self._crash)
        creation.begins, creation.ends, creation.ended = self._begins, self._ends, self._ended
        return creation

    def _begins(self) -> None:
        self._facts.replica_on_disk(self._node, ReplicaOnDisk.BEGUN)
        self._crashes.creation_begins()

    def _ends(self) -> None:
        self._facts.replica_on_disk(self._node, ReplicaOnDisk.ENDING)
        self._crashes.superblock_begins()

    def _ended(self) -> None:
        self._facts.replica_on_disk(self._node, ReplicaOnDisk.WHOLE)


class _ObservedLogOnlyCreation(LogOnlyCreation):
    """Does what ``LogOnlyCreation`` does. The three functions are called before and after its steps."""

    begins: Callable[[], None]
    ends: Callable[[], None]
    ended: Callable[[], None]

    def begin(self) -> None:
        """Report that a creation begins, then do its first step."""
        self.begins()
        super().begin()

    def finish(self) -> Superblock:
        """Do the last step of the creation, and report its begin and its end."""
        self.ends()
        block = super().finish()
        self.ended()
        return block
