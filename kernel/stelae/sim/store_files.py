"""The files of one replica's store, as its disk has them, and the superblock that names them."""

from __future__ import annotations

from collections.abc import Callable

from stelae.host.directory_layout import DirectoryLayout
from stelae.host.superblock import Superblock, SuperblockFile
from stelae.sim.disk import VirtualDisk
from stelae.sim.fact_feed import Facts
from stelae.sim.world import ObservedNode
from stelae.spi.ids import TabletId
from stelae.spi.store import Edit


class StoreFiles:
    """Which files the durable superblock needs, engine by engine alike: those that are there when an edit is proposed,
    without those that the edit makes obsolete."""

    def __init__(self, disk: VirtualDisk, directory: str, node: ObservedNode, watch: Facts) -> None:
        self._disk = disk
        self._directory = directory
        self._node = node
        self._watch = watch
        self._proposed: frozenset[str] = frozenset()
        self._needed: frozenset[str] = frozenset()

    def opened(self) -> None:
        """The store was opened: what it has left in its directory it needs."""
        self._needed = self._proposed = self._listed()

    def proposed(self, edit: Edit) -> None:
        """The store has proposed an edit."""
        self.look()
        self._proposed = self._listed() - set(edit.obsolete)
        self._watch.proposed(self._node, edit.flushed)

    def saved(self, block: Superblock) -> None:
        """A superblock is durable, with what was proposed last."""
        unsynced = [name for name in sorted(self._proposed) if not self._disk.is_durable(f"{self._directory}/{name}")]
        self._watch.saved(self._node, block, unsynced)
        self._needed = self._proposed

    def look(self) -> None:
        """See whether everything is there that the durable superblock needs."""
        missing = self._needed - self._listed()
        if missing:
            self._watch.missing(self._node, sorted(missing))

    def _listed(self) -> frozenset[str]:
        if not self._disk.exists(self._directory):
            return frozenset()
        return frozenset(self._disk.listdir(self._directory))


class WatchedSuperblock(SuperblockFile):
    """A superblock on a virtual disk; ``on_saved`` hears of each that is durable."""

    def __init__(
        self, disk: VirtualDisk, layout: DirectoryLayout, tablet: TabletId, on_saved: Callable[[Superblock], None]
    ) -> None:
        super().__init__(disk, layout, tablet)
        self._on_saved = on_saved

    def save(self, block: Superblock) -> None:
        """As the superblock's file."""
        super().save(block)
        self._on_saved(block)
