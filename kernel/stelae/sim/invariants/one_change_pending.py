"""At most one change of config is pending, and each change concerns one voter at most."""

from __future__ import annotations

from typing import ClassVar

from stelae.sim.invariants.base import Invariant
from stelae.sim.world import ObservedNode
from stelae.spi.consensus import Ready
from stelae.spi.members import TabletConfig


class OneChangePending(Invariant):
    """A leader appends a config only when the one before is committed, and so is an entry of its own term.

    The new config adds or removes one voter at most. So two majorities that do not overlap never exist."""

    name: ClassVar[str] = "one_change_pending"
    source: ClassVar[str] = "Raft thesis section 4.1; durability.md rule 11; behaviours.md C9"

    def on_ready(self, node: ObservedNode, ready: Ready) -> None:
        """Check the configs that a leader appends. Those of a follower are in its leader's log already."""
        for before, config in self.world.appended_by_leader(node, ready):
            self._judge(node, before, config, ready)

    def _judge(self, node: ObservedNode, before: TabletConfig, config: TabletConfig, ready: Ready) -> None:
        # The Ready that appends the config may also be the one that reports what it depends on as committed.
        commit = max(node.commit, ready.commit or 0)
        if before.op_id.index > commit:
            self.fail(f"node {node.position} appends config {config.op_id} while {before.op_id} is not committed")
        changed = set(before.voters()) ^ set(config.voters())
        if len(changed) > 1:
            self.fail(f"config {config.op_id} of node {node.position} changes {len(changed)} voters: {sorted(changed)}")
        newest = node.op_id_after(ready, commit)
        if config.op_id.index > 1 and (newest is None or newest.term < config.op_id.term):
            self.fail(f"node {node.position} appends config {config.op_id} before it has committed in its term")
