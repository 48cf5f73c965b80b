"""A file whose sync has failed is not used again."""

from __future__ import annotations

from typing import ClassVar

from stelae.sim.invariants.base import Invariant
from stelae.sim.world import NodeView


class FailedSync(Invariant):
    """After a failed sync a process neither writes to that file nor syncs it.

    The system may have dropped what it could not write, and the next sync of the file succeeds all the same. So a sync
    that is repeated says nothing, and what is written behind the gap is not durable either."""

    name: ClassVar[str] = "failed_sync"
    source: ClassVar[str] = "durability.md rule 7"

    def on_trusted_again(self, node: NodeView, operation: str, path: str) -> None:
        """A file was used whose sync had failed."""
        self.fail(f"node {node.position}: {operation} of {path}, whose sync has failed before")
