"""A file whose sync has failed is not used again."""

from __future__ import annotations

from typing import ClassVar

from stelae.sim.invariants.base import Invariant
from stelae.sim.world import ObservedNode

ENTRIES = (".seg", ".new")
"""How the names of files end that hold entries, or will."""


class FailedSync(Invariant):
    """After a failed sync a process neither writes to that file nor syncs it.

    The system may have dropped what it could not write, and the next sync of the file succeeds all the same. So a sync
    that is repeated says nothing, and what is written behind the gap is not durable either.

    Judged are files with entries. The base of a log and the marker of an engine have two slots each, of which the
    newest whole one counts, so the next write replaces what a failed sync left there."""

    name: ClassVar[str] = "failed_sync"
    source: ClassVar[str] = "durability.md rule 7"

    def on_trusted_again(self, node: ObservedNode, operation: str, path: str) -> None:
        """A file was used whose sync had failed."""
        if path.endswith(ENTRIES):
            self.fail(f"node {node.position}: {operation} of {path}, whose sync has failed before")
