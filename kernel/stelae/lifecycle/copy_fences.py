"""Decides whether the snapshot of a source may become the replica of this node. Pure.

Source: ``durability.md`` rules 3, 18 and 19. A snapshot comes from another node, so it is checked as a whole before
anything of it is used. It is checked when a source answers, at each resume, at each change of the source, and under the
lock of the tablet before the replica becomes READY."""

from __future__ import annotations

from dataclasses import dataclass

from stelae.lifecycle.copy_facts import CopyFacts, RowsForm
from stelae.lifecycle.copy_guards import CopyRefusal, CopyRefusalCode
from stelae.lifecycle.copy_items import ItemKind, check_items, kind_of
from stelae.spi.copy_plan import CopySnapshot, Fences
from stelae.spi.errors import StelaeError
from stelae.spi.ids import ZERO, TabletId
from stelae.spi.schema import Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyFences:
    """What a snapshot must have reached, and what this node can use."""

    tablet_id: TabletId
    op_ids: Fences
    consensus: str  #: Name of the node's consensus engine.
    store: str  #: Name of the node's store engine.
    keeps_rows: bool  #: Whether that store can keep rows without the log (``durable_flush``).

    def refusal(self, snapshot: CopySnapshot) -> CopyRefusal | None:
        """Return why a snapshot must not be used, or ``None`` if it may be used."""
        wrong = self._contradiction(snapshot)
        if wrong is not None:
            return CopyRefusal(CopyRefusalCode.SOURCE_INCONSISTENT, f"{wrong}; another source must be used")
        if snapshot.last < self.op_ids.tombstone:
            code = CopyRefusalCode.SOURCE_BEHIND
        else:
            code = CopyRefusalCode.SOURCE_CONFIG_OLD
        behind = self.op_ids.refusal(snapshot)
        if behind is not None:
            return CopyRefusal(code, f"{behind}; another source must be used, or this one must catch up")
        return self._unusable(CopyFacts.from_bytes(snapshot.facts), snapshot)

    def _contradiction(self, snapshot: CopySnapshot) -> str | None:
        """Return what no correct source sends."""
        config = snapshot.committed_config.op_id
        try:
            check_items(snapshot.items, snapshot.base, snapshot.last)
            facts = CopyFacts.from_bytes(snapshot.facts)
            schemas = [Schema.from_bytes(body).version for body in facts.schemas]
        except StelaeError as error:
            return str(error)
        if snapshot.tablet_id != self.tablet_id or facts.tablet_id != self.tablet_id:
            return f"the snapshot is of tablet {snapshot.tablet_id}, its facts are of {facts.tablet_id}"
        if not ZERO <= snapshot.base <= snapshot.last or snapshot.base.index > snapshot.last.index:
            return f"the log from {snapshot.base} to {snapshot.last} ends before it begins"
        if snapshot.last.term > snapshot.term:
            return f"the log ends at {snapshot.last}, but the source is in term {snapshot.term}"
        if config > snapshot.last or config.index > snapshot.last.index:
            return f"config {config} is committed, but the log ends at {snapshot.last}"
        if facts.flushed != snapshot.base:
            return f"the rows are as of {facts.flushed}, but the log begins after {snapshot.base}"
        if not schemas or schemas != sorted(set(schemas)):
            return f"the schema versions {schemas[:8]} do not increase"
        forms = {kind_of(item.name) for item in snapshot.items} - {ItemKind.LOG}
        allowed = ItemKind.ROWS if facts.rows_form is RowsForm.FILES else ItemKind.EXPORT
        return None if forms <= {allowed} else f"the rows are {facts.rows_form}, but there are other items"

    def _unusable(self, facts: CopyFacts, snapshot: CopySnapshot) -> CopyRefusal | None:
        """Return why this node's engines cannot use a snapshot that is correct."""
        if facts.consensus_engine != self.consensus:
            found = (CopyRefusalCode.OTHER_CONSENSUS_ENGINE, "consensus", facts.consensus_engine, self.consensus)
        elif facts.rows_form is RowsForm.FILES and facts.store_engine != self.store:
            found = (CopyRefusalCode.OTHER_STORE_ENGINE, "store", facts.store_engine, self.store)
        else:
            if snapshot.base != ZERO and not self.keeps_rows:
                fact = f"store engine {self.store!r} keeps no rows, and the log begins behind {snapshot.base}"
                return CopyRefusal(CopyRefusalCode.OTHER_STORE_ENGINE, f"{fact}; use a store that can flush")
            return None
        code, kind, theirs, ours = found
        return CopyRefusal(code, f"the snapshot is of {kind} engine {theirs[:80]!r}, and this node has {ours!r}")
