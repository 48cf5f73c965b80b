"""A process does not write to or sync a file after a sync of it has failed."""

from __future__ import annotations

from typing import ClassVar

from stelae.sim.invariants.base import Invariant
from stelae.sim.world import ObservedNode

ENTRIES = (".seg", ".new")
"""File name suffixes of log segments, and of prepared segments."""


class FailedSync(Invariant):
    """After a failed sync of a file a process neither writes to the file nor syncs it.

    The operating system may have dropped the data that it could not write, and the next sync of the file succeeds
    nevertheless. So a repeated sync proves nothing, and entries written after the gap are not durable either.

    The invariant judges files with entries only. The base of a log and the marker of an engine have two slots each, and
    the newest complete slot counts. So the next write replaces what a failed sync left there."""

    name: ClassVar[str] = "failed_sync"
    source: ClassVar[str] = "durability.md rule 7"

    def on_use_after_failed_sync(self, node: ObservedNode, operation: str, path: str) -> None:
        """Check the use of a file after a failed sync of it."""
        if path.endswith(ENTRIES):
            self.fail(f"node {node.position}: {operation} of {path} after a failed sync of the file")
