"""The config in force is the newest one in the log."""

from __future__ import annotations

from typing import ClassVar

from stelae.sim.invariants.base import Invariant
from stelae.sim.world import ObservedNode
from stelae.spi.consensus import Ready, Status
from stelae.spi.members import TabletConfig


class ConfigFollowsLog(Invariant):
    """A config is in force from the append of its entry until the entry is replaced.

    A committed config stays in force also if its entry is lost here in a failed append: a leader sends it again. A
    config that a core reports as committed is in the log, at or below the commit index. Only such a config is saved in
    consensus metadata: a config that is replaced later must not survive a restart. After a start, a config that was
    collected with the log is known from there. A log without rows may begin with an older config, or with none, as long
    as its node has no vote in that: the config with its vote is an entry of the log."""

    name: ClassVar[str] = "config_follows_log"
    source: ClassVar[str] = "durability.md rule 11; Raft section 6"

    def on_status(self, node: ObservedNode, before: Status | None, status: Status) -> None:
        """Compare the core's config with the newest config in its log."""
        newest = self.world.newest_config(node).op_id
        if status.config.op_id != newest:
            self.fail(f"node {node.position} uses config {status.config.op_id}, the newest in its log is {newest}")
        elif before is None and not (node.log_only and node.node_id not in status.config.voters()):
            collected = self.world.committed_config_below(node.base.index)
            if newest.index < collected.index:
                self.fail(f"node {node.position} starts with config {newest}, its log had {collected} before its base")

    def on_config_saved(self, node: ObservedNode, config: TabletConfig) -> None:
        """Check that a saved config is committed."""
        index, committed = config.op_id.index, self.world.committed
        if index and (index > len(committed) or committed[index - 1] != config.op_id):
            self.fail(f"node {node.position} has saved config {config.op_id}, which is not committed")

    def on_ready(self, node: ObservedNode, ready: Ready) -> None:
        """Check that a committed config is in the log, at or below the commit index."""
        config = ready.committed_config
        if config is None:
            return
        commit = node.commit if ready.commit is None else ready.commit
        index = config.op_id.index
        if index > commit or node.op_id_after(ready, index) != config.op_id:
            self.fail(f"node {node.position} reports config {config.op_id} as committed, its commit index is {commit}")
