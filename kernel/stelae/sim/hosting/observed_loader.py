"""Production's loader of tablets, which reports how far each creation is."""

from __future__ import annotations

from stelae.host.assembly import Engines
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.settings import TabletSettings
from stelae.host.superblock import Superblock
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
        self._facts.replica_on_disk(self._node, ReplicaOnDisk.BEGUN)
        self._crashes.creation_begins()
        return super().save_consensus_metadata(tablet)

    def save_superblock(self, superblock: Superblock) -> None:
        """Do the last step of a creation, and report its begin and its end."""
        self._facts.replica_on_disk(self._node, ReplicaOnDisk.ENDING)
        self._crashes.superblock_begins()
        super().save_superblock(superblock)
        self._facts.replica_on_disk(self._node, ReplicaOnDisk.WHOLE)
