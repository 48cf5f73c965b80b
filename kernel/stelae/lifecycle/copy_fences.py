"""Decides whether the snapshot of a source may become the replica of this node. Pure.

Source: ``durability.md`` rules 3, 18 and 19. A snapshot must have reached what this node has, whenever that may have
changed: when a source answers, at each resume, at each change of the source, and under the lock of the tablet before
the replica becomes READY. ``inconsistent`` comes first: a snapshot comes from another node."""

from __future__ import annotations

from dataclasses import dataclass

from stelae.lifecycle.copy_facts import CopyFacts, RowsForm
from stelae.lifecycle.copy_guards import CopyRefusal, CopyRefusalCode
from stelae.lifecycle.offer_check import contradiction
from stelae.spi.copy_plan import CopySnapshot, Fences
from stelae.spi.ids import ZERO, NodeId, OpId, TabletId


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyFences:
    """What a snapshot must have reached, and what this node can use."""

    node_id: NodeId  #: This node.
    op_ids: Fences
    leader_config: OpId  #: The config that the leader named when it asked for the copy. It lists this node.
    consensus: str  #: Name of the node's consensus engine.
    store: str  #: Name of the node's store engine.
    store_format: str  #: ``files_format`` of that engine.
    keeps_rows: bool  #: Whether that store can keep rows without the log (``durable_flush``).

    def refusal(self, snapshot: CopySnapshot) -> CopyRefusal | None:
        """Return why a consistent snapshot must not be used, or ``None`` if it may be used. Cheap."""
        if snapshot.last < self.op_ids.tombstone:
            code = CopyRefusalCode.SOURCE_BEHIND
        else:
            code = CopyRefusalCode.SOURCE_CONFIG_OLD
        behind = self.op_ids.refusal(snapshot)
        if behind is not None:
            return CopyRefusal(code, f"{behind}; another source must be used, or this one must catch up")
        config = snapshot.committed_config
        if config.op_id > self.leader_config and config.member(self.node_id) is None:
            # A replica with this config would stay for ever: no later one tells the masters that it is left over.
            fact = f"config {config.op_id} does not list this node, which config {self.leader_config} did"
            return CopyRefusal(CopyRefusalCode.NOT_A_MEMBER, f"{fact}: it was removed")
        if (lacks := self._lacks_config(snapshot)) is not None:
            return CopyRefusal(CopyRefusalCode.SOURCE_CONFIG_OLD, f"{lacks}; another source must be used")
        return self._unusable(CopyFacts.from_bytes(snapshot.facts), snapshot)

    def _lacks_config(self, snapshot: CopySnapshot) -> str | None:
        """Return what is wrong if the copied log could not tell this node the config that lists it.

        Entries up to the base are not copied. If the leader's config is among them, the source must know it as
        committed. Otherwise this node would go on with an older one, and would never learn better."""
        config = snapshot.committed_config.op_id
        if config >= self.leader_config or self.leader_config.index > snapshot.base.index:
            return None
        return f"the source knows config {config}, and its log begins after config {self.leader_config} of the leader"

    def _unusable(self, facts: CopyFacts, snapshot: CopySnapshot) -> CopyRefusal | None:
        """Return why this node's engines cannot use a snapshot that is correct."""
        if facts.consensus_engine != self.consensus:
            theirs, ours = facts.consensus_engine, self.consensus
            fact = f"the snapshot is of consensus engine {theirs[:80]!r}, and this node has {ours!r}"
            return CopyRefusal(CopyRefusalCode.OTHER_CONSENSUS_ENGINE, fact)
        files, readable = (facts.store_engine, facts.store_format), (self.store, self.store_format)
        if facts.rows_form is RowsForm.FILES and files != readable:
            fact = "the snapshot has files of store engine {!r} in format {!r}".format(*(text[:80] for text in files))
            fact += ", and this node reads those of {!r} in format {!r}".format(*readable)
            return CopyRefusal(CopyRefusalCode.OTHER_STORE_ENGINE, fact)
        if snapshot.base != ZERO and not self.keeps_rows:
            fact = f"store engine {self.store!r} keeps no rows, and the log begins behind {snapshot.base}"
            return CopyRefusal(CopyRefusalCode.OTHER_STORE_ENGINE, f"{fact}; use a store that can flush")
        return None


def inconsistent(snapshot: CopySnapshot, tablet_id: TabletId) -> CopyRefusal | None:
    """Return why nothing of a snapshot must be used, or ``None`` if it is consistent. Long: call it off the loop."""
    wrong = contradiction(snapshot, tablet_id)
    if wrong is None:
        return None
    return CopyRefusal(CopyRefusalCode.SOURCE_INCONSISTENT, f"{wrong}; another source must be used")
