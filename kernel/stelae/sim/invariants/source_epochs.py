"""No operation of an earlier epoch takes effect after one of a later epoch of the same source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from stelae.host.exactly_once_results import ResultsTable
from stelae.host.superblock import Superblock
from stelae.sim.agreed_writes import LogPosition
from stelae.sim.invariants.base import AppliedRequest, Invariant
from stelae.sim.world import ObservedNode
from stelae.spi.ids import OpId


class EpochsOnlyRise(Invariant):
    """The epochs of the operations of a source that take effect never fall, from one log position to the next.

    A superblock knows the highest epoch of each source up to the flushed entry: the log before it is not read again."""

    name: ClassVar[str] = "epochs_only_rise"
    source: ClassVar[str] = "durability.md rule 16; docs/adr/0064-source-epochs.md"

    def on_applied(self, node: ObservedNode, op_id: OpId, requests: Sequence[AppliedRequest]) -> None:
        """Check each operation that takes effect against the epochs before it."""
        for request in requests:
            if request.skipped or request.fence is None:
                continue
            source, epoch = request.fence
            highest = self.world.agreed.epochs_before(LogPosition(op_id.index, request.order)).get(source, 0)
            if epoch < highest:
                identity = (request.client, request.sequence)
                fact = f"node {node.position} applies {identity} of epoch {epoch} of {source!r} at {op_id}"
                self.fail(f"{fact}, but epoch {highest} took effect before")

    def on_saved(self, node: ObservedNode, block: Superblock, unsynced: Sequence[str]) -> None:
        """Check that a superblock knows every epoch that has begun up to its flushed entry.

        A replica without rows has no results."""
        if block.log_only:
            return
        sources = ResultsTable.load(block.results).sources
        for source, epoch in self.world.agreed.epochs_before(LogPosition(block.flushed.index + 1, 0)).items():
            known = sources.epoch_of(source)
            if known is None or known < epoch:
                fact = f"node {node.position} saves epoch {known} of {source!r} as of {block.flushed}"
                self.fail(f"{fact}, but epoch {epoch} took effect before")
