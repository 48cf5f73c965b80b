"""A complete copy has the bytes of its source, and the log that follows is kept until the replica has caught up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from stelae.host.start_copy import StartCopy
from stelae.host.superblock import DataState, Superblock
from stelae.sim.invariants.base import Invariant
from stelae.sim.log_model import LogModel
from stelae.sim.node_change import NodeChange
from stelae.sim.world import ObservedNode, World
from stelae.spi.copy import CopySession
from stelae.spi.ids import NodeId, OpId

ENDS = (NodeChange.CRASHED, NodeChange.KILLED)
"""Changes after which a target keeps no session."""


class CopiedItemsVerified(Invariant):
    """No damaged item of a copy is part of a replica that is READY.

    An item may be damaged after it has had its digest, so all items are read again before they are installed."""

    name: ClassVar[str] = "copied_items_verified"
    source: ClassVar[str] = "durability.md rules 21 and 24"

    def on_damage_installed(self, node: ObservedNode, paths: Sequence[str]) -> None:
        """Report where the damaged items are."""
        self.fail(f"node {node.position} is READY after a copy with damaged items: {', '.join(paths)}")


@dataclass(frozen=True, slots=True)
class _Served:
    session: str
    last: OpId
    source: ObservedNode
    starts: int


@dataclass(frozen=True, slots=True)
class _Complete:
    served: _Served
    commit: int  # What the source knew as committed when the copy was complete.


class CopiedLogKept(Invariant):
    """A target ends the session of its copy only once it has durably what the source knew as committed by then.

    A session keeps the log that follows the copy. If it ended before, the leader could collect entries that the replica
    lacks, and the replica would be copied again. Sessions that a source ends by itself are not judged, nor those of
    replicas that fail, are removed, or are asked for another copy."""

    name: ClassVar[str] = "copied_log_kept"
    source: ClassVar[str] = "durability.md rule 25"

    def __init__(self, world: World, report: Callable[[str, str], None]) -> None:
        super().__init__(world, report)
        self._served: dict[NodeId, _Served] = {}  # By target: the session that was opened last.
        self._complete: dict[NodeId, _Complete] = {}

    def on_copy_served(self, node: ObservedNode, peer: NodeId, session: CopySession) -> None:
        """Record the session."""
        self._served[peer] = _Served(session.id, session.snapshot.last, node, node.starts)

    def on_superblock(
        self, node: ObservedNode, before: Superblock | None, block: Superblock, log: LogModel | None
    ) -> None:
        """Record what the source of a complete copy knows as committed. The copied log tells which source it was."""
        served = self._served.get(node.node_id)
        if block.data_state is not DataState.READY:
            self._complete.pop(node.node_id, None)
        elif before is not None and before.data_state is DataState.COPYING and served is not None:
            is_source = log is not None and log.last() == served.last and served.source.starts == served.starts
            if is_source:
                self._complete[node.node_id] = _Complete(served, served.source.commit)

    def on_copy_asked(self, node: ObservedNode, asked: StartCopy) -> None:
        """Forget a copy that another one may replace."""
        self._complete.pop(asked.to, None)

    def on_node(self, node: ObservedNode, change: NodeChange) -> None:
        """Forget the copies to a node whose process has ended."""
        if change in ENDS:
            self._complete.pop(node.node_id, None)

    def on_copy_ended(self, node: ObservedNode, session: str) -> None:
        """Compare the durable log of the target with what the source knew."""
        for target in self.world.nodes:
            complete = self._complete.get(target.node_id)
            if complete is not None and complete.served.session == session and complete.served.source is node:
                del self._complete[target.node_id]
                self._judge(node, target, complete)

    def _judge(self, source: ObservedNode, target: ObservedNode, complete: _Complete) -> None:
        if target.status is None or target.given_up or target.rows_damaged or not self._is_member(source, target):
            return
        last = target.last_durable()
        if last.index < complete.commit:
            fact = f"node {target.position} ends the session of its copy with a log up to {last}"
            self.fail(f"{fact}; its source, node {source.position}, had the commit index {complete.commit}")

    def _is_member(self, source: ObservedNode, target: ObservedNode) -> bool:
        configs = (self.world.committed_config(), source.committed_config)
        return all(config is not None and config.member(target.node_id) is not None for config in configs)
