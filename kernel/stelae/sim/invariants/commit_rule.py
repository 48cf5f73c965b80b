"""An entry is committed only once a majority holds it durably and its leader's term allows it."""

from __future__ import annotations

from typing import ClassVar

from stelae.sim.invariants.base import Invariant
from stelae.sim.world import ObservedNode
from stelae.spi.consensus import HardState, LogView, Ready
from stelae.spi.ids import OpId
from stelae.spi.log import EntryKind
from stelae.spi.members import TabletConfig, decode_config


class CommitRule(Invariant):
    """A leader commits up to an entry of its own term that is durable on a majority.

    The first core that reports an index as committed is a leader. At that moment, its entry at the
    index must be of its current term and durable on a majority of the voters of the newest config in
    its log. All later reports must agree with
    the first one. The commit index never decreases while a core runs."""

    name: ClassVar[str] = "commit_rule"
    source: ClassVar[str] = "Raft section 5.4.2; durability.md rule 9"

    def on_ready(self, node: ObservedNode, ready: Ready) -> None:
        """Check a new commit index."""
        commit = ready.commit
        if commit is None:
            return
        if commit < node.commit:
            self.fail(f"node {node.position}: commit goes back from {node.commit} to {commit}")
        op_id = node.op_id_after(ready, commit)
        if op_id is None:
            self.fail(f"node {node.position} commits {commit}, which is not in its log")
        elif commit > len(self.world.committed):
            self._judge_first(node, ready, op_id)
        elif op_id != self.world.committed[commit - 1]:
            agreed = self.world.committed[commit - 1]
            self.fail(f"node {node.position} commits {op_id} at index {commit}, other nodes committed {agreed}")

    def on_restart(self, node: ObservedNode, hard_state: HardState, log: LogView, commit: int) -> None:
        """Check that everything that a start takes as committed was committed."""
        if commit > len(self.world.committed):
            self.fail(
                f"node {node.position} starts with commit {commit}, only {len(self.world.committed)} are committed"
            )

    def _judge_first(self, node: ObservedNode, ready: Ready, op_id: OpId) -> None:
        term = (ready.hard_state or node.hard_state).term
        if op_id.term != term:
            self.fail(f"node {node.position} in term {term} commits {op_id} of an older term")
        # A config takes effect when it is appended: the newest one in the leader's log decides, committed or not.
        # If the Ready also appends a config, the commit may have been the condition of that.
        configs = [self.world.newest_config(node), *_configs_of(ready)]
        if not any(self.world.on_majority(op_id, config) for config in configs):
            ids = ", ".join(str(config.op_id) for config in configs)
            self.fail(f"node {node.position} commits {op_id}, which no majority of config {ids} has durably")


def _configs_of(ready: Ready) -> list[TabletConfig]:
    entries = ready.append.entries if ready.append is not None else ()
    return [decode_config(entry) for entry in entries if entry.kind is EntryKind.CONFIG]
