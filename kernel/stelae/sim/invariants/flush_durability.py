"""What a superblock says of a store is so, whenever power is lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from stelae.host.superblock import Superblock
from stelae.sim.invariants.base import Invariant
from stelae.sim.world import ObservedNode
from stelae.spi.consensus import HardState, LogView
from stelae.spi.ids import OpId


class FlushDurability(Invariant):
    """The order of a flush: own log, files, superblock; only then may older files go.

    A store never proposes more than its own log holds durably. When the superblock is durable, every file that its
    manifest needs is so already, name and contents, and stays there until another superblock is durable. What was once
    called flushed stays flushed. A start accepts no log that ends below that, or begins above it."""

    name: ClassVar[str] = "flush_durability"
    source: ClassVar[str] = "durability.md rules 3 and 24; contract store, 3"

    def on_proposed(self, node: ObservedNode, flushed: OpId) -> None:
        """Judge how far a store has come against the log beside it."""
        if not self.world.holds(node, flushed) and flushed.index:
            self.fail(f"the store of node {node.position} flushes up to {flushed}, which its log does not hold durably")

    def on_saved(self, node: ObservedNode, block: Superblock, unsynced: Sequence[str]) -> None:
        """Judge the files of a superblock, and that it goes on from the one before."""
        if unsynced:
            self.fail(f"node {node.position} names {', '.join(unsynced)} in its superblock, not durable yet")
        elif block.flushed.index < node.flushed.index:
            self.fail(f"node {node.position} goes back from flushed {node.flushed} to {block.flushed}")

    def on_missing(self, node: ObservedNode, names: Sequence[str]) -> None:
        """Files went too early."""
        self.fail(f"node {node.position} has removed {', '.join(names)}, which its durable superblock needs")

    def on_restart(self, node: ObservedNode, hard_state: HardState, log: LogView, commit: int) -> None:
        """Judge what a start takes for its log: it reaches from its base, at most, to what is flushed, at least."""
        if not log.base.index <= node.flushed.index <= log.last.index:
            ends = f"from {log.base} to {log.last}"
            self.fail(f"node {node.position} starts with a log {ends}, and {node.flushed} was flushed")

    def on_store_opened(self, node: ObservedNode, flushed: OpId) -> None:
        """Judge what a start takes for flushed."""
        if flushed.index < node.flushed.index:
            self.fail(f"node {node.position} starts at flushed {flushed}, {node.flushed} was durable")
