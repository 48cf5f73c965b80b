"""A leader returns a read index only once it knows what is committed, and the index covers all of that."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from stelae.sim.invariants.base import Invariant
from stelae.sim.world import ObservedNode, World
from stelae.spi.consensus import HardState, LogView, Ready
from stelae.spi.ids import OpId


class ReadIndex(Invariant):
    """A read index covers everything that was committed when the read was asked for.

    A leader does not know what is committed until an entry of its own term is committed. So the entry at a read index
    is of the leader's term, and the index is at least the commit index of the tablet when the core got the request."""

    name: ClassVar[str] = "read_index"
    source: ClassVar[str] = "Raft thesis 6.4; durability.md rules 10 and 13; behaviour C14"

    def __init__(self, world: World, report: Callable[[str, str], None]) -> None:
        super().__init__(world, report)
        self._committed_at: dict[tuple[int, int], int] = {}

    def on_restart(self, node: ObservedNode, hard_state: HardState, log: LogView, commit: int) -> None:
        """Drop the requests of the previous process. Its tokens may be used again."""
        self._committed_at = {
            request: index for request, index in self._committed_at.items() if request[0] != node.position
        }

    def on_read(self, node: ObservedNode, token: int) -> None:
        """Record what is committed when a read index is requested."""
        self._committed_at[node.position, token] = len(self.world.committed)

    def on_ready(self, node: ObservedNode, ready: Ready) -> None:
        """Check the read indexes of a Ready."""
        term = (ready.hard_state or node.hard_state).term
        for read in ready.reads_ready:
            committed = self._committed_at.pop((node.position, read.token), 0)
            op_id = node.op_id_after(ready, read.index)
            if op_id is None or op_id.term != term:
                self._fail_term(node, term, read.index, op_id)
            elif read.index < committed:
                self.fail(f"node {node.position} returns read index {read.index}, but {committed} was committed before")
        for rejection in ready.rejections:
            self._committed_at.pop((node.position, rejection.token), None)

    def _fail_term(self, node: ObservedNode, term: int, index: int, op_id: OpId | None) -> None:
        self.fail(
            f"node {node.position} returns read index {index} in term {term}, but {op_id or 'no entry'} is there:"
            f" the node cannot know yet what is committed"
        )
