"""What a durable superblock states about its store stays true across power losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from stelae.host.superblock import Superblock
from stelae.sim.hosting.superblock_changes import rows_reach_log
from stelae.sim.invariants.base import Invariant
from stelae.sim.log_model import LogModel
from stelae.sim.world import ObservedNode
from stelae.spi.consensus import HardState, LogView
from stelae.spi.ids import OpId


class FlushDurability(Invariant):
    """A flush makes things durable in this order: the local log, the files, the superblock. Older files go last.

    A store never proposes more than its own log holds durably. When a superblock becomes durable, every file that its
    manifest needs is durable already, name and contents, and stays until another superblock is durable. The flushed op
    id never decreases. A start accepts no log that ends below the flushed op id or begins above it.

    Rows that are copied to a replica which has only a log are as of an op id of that log, or of its base: the replica
    goes on from there. Its log is still the one in which it acknowledged entries."""

    name: ClassVar[str] = "flush_durability"
    source: ClassVar[str] = "durability.md rules 3 and 24; contract store, 3"

    def on_proposed(self, node: ObservedNode, flushed: OpId) -> None:
        """Check that the log holds durably what the store flushes."""
        if not self.world.holds(node, flushed) and flushed.index:
            self.fail(f"the store of node {node.position} flushes up to {flushed}, which its log does not hold durably")

    def on_saved(self, node: ObservedNode, block: Superblock, unsynced: Sequence[str]) -> None:
        """Check the files of a superblock, and that its flushed op id does not decrease."""
        if unsynced:
            self.fail(f"the superblock of node {node.position} needs {', '.join(unsynced)}, which is not durable yet")
        elif block.flushed.index < node.flushed.index:
            self.fail(f"node {node.position} goes back from flushed {node.flushed} to {block.flushed}")

    def on_superblock(
        self, node: ObservedNode, before: Superblock | None, block: Superblock, log: LogModel | None
    ) -> None:
        """Check that the log of a replica which gets its rows continues them."""
        if before is None or not rows_reach_log(before, block):
            return
        if block.log_id != before.log_id:
            self.fail(f"node {node.position} gets rows, and its log changes from {before.log_id} to {block.log_id}")
        elif log is None or log.op_id_at(block.flushed.index) != block.flushed:
            self.fail(f"node {node.position} gets rows as of {block.flushed}, which its log does not have")

    def on_missing(self, node: ObservedNode, names: Sequence[str]) -> None:
        """Report files that were removed too early."""
        self.fail(f"node {node.position} has removed {', '.join(names)}, which its durable superblock needs")

    def on_restart(self, node: ObservedNode, hard_state: HardState, log: LogView, commit: int) -> None:
        """Check that the log of a start begins at or below the flushed op id and ends at or above it."""
        if not log.base.index <= node.flushed.index <= log.last.index:
            ends = f"from {log.base} to {log.last}"
            self.fail(f"node {node.position} starts with a log {ends}, but has flushed {node.flushed}")

    def on_store_opened(self, node: ObservedNode, flushed: OpId) -> None:
        """Check that a start does not go back behind a durable flush."""
        if flushed.index < node.flushed.index:
            self.fail(f"node {node.position} starts with flushed {flushed}, but {node.flushed} was durable")
