"""Tracks which store files the durable superblock of one replica needs, and whether they exist."""

from __future__ import annotations

from collections.abc import Callable

from stelae.host.directory_layout import DirectoryLayout
from stelae.host.superblock import Superblock, SuperblockFile
from stelae.sim.disk import VirtualDisk
from stelae.sim.fact_feed import FactFeed
from stelae.sim.world import ObservedNode
from stelae.spi.ids import TabletId
from stelae.spi.store import Edit


class StoreFiles:
    """The store files of one replica.

    The rule is the same for all engines: an edit needs the files that exist when the store proposes it, except those
    that it or an earlier edit makes obsolete. Obsolete files stay as long as a copy or a cursor pins them."""

    def __init__(self, disk: VirtualDisk, directory: str, node: ObservedNode, facts: FactFeed) -> None:
        self._disk = disk
        self._directory = directory
        self._node = node
        self._facts = facts
        self._obsolete: set[str] = set()
        self._leaving: frozenset[str] = frozenset()
        self._proposed: frozenset[str] = frozenset()
        self._needed: frozenset[str] = frozenset()

    def opened(self) -> None:
        """Record that the store was opened. It needs all files that it has left in its directory."""
        self._obsolete.clear()
        self._needed = self._proposed = self._listed()

    def set_aside(self) -> None:
        """Record that the replica is a tombstone. It needs no files."""
        self._needed = self._proposed = frozenset()

    def proposed(self, edit: Edit) -> None:
        """Record and report that the store has proposed an edit."""
        self.check_missing()
        self._leaving = frozenset(edit.obsolete)
        self._proposed = self._listed() - self._obsolete - self._leaving
        self._facts.proposed(self._node, edit.flushed)

    def saved(self, block: Superblock) -> None:
        """Report that the superblock with the last proposed edit is durable, with the files that are not."""
        unsynced = [name for name in sorted(self._proposed) if not self._disk.is_durable(f"{self._directory}/{name}")]
        self._facts.saved(self._node, block, unsynced)
        self._obsolete |= self._leaving
        self._needed = self._proposed

    def check_missing(self) -> None:
        """Report files that the durable superblock needs and that do not exist."""
        missing = self._needed - self._listed()
        if missing:
            self._facts.missing(self._node, sorted(missing))

    def _listed(self) -> frozenset[str]:
        if not self._disk.exists(self._directory):
            return frozenset()
        return frozenset(self._disk.listdir(self._directory))


class ObservedSuperblockFile(SuperblockFile):
    """A superblock file on a virtual disk. ``on_saved`` gets each superblock once it is durable."""

    def __init__(
        self, disk: VirtualDisk, layout: DirectoryLayout, tablet: TabletId, on_saved: Callable[[Superblock], None]
    ) -> None:
        super().__init__(disk, layout, tablet)
        self._on_saved = on_saved

    def save(self, block: Superblock) -> None:
        """Save as ``SuperblockFile`` does, then call ``on_saved``."""
        super().save(block)
        self._on_saved(block)
