"""No acknowledged change is lost, and none is carried out twice."""

from __future__ import annotations

from typing import ClassVar

from stelae.protocol.master_messages import ChangeOutcome, ChangeRefused, ChangeReply, decode_outcome
from stelae.server.master.core.catalog import Catalog
from stelae.server.master.core.records import RequestRecord, TableRecord
from stelae.sim.masters.client import ClientChange
from stelae.sim.masters.invariants.base import MastersInvariant
from stelae.sim.masters.master import SimMaster
from stelae.sim.masters.tablet_groups import TabletGroups
from stelae.sim.masters.tserver import SimServer
from stelae.sim.masters.world import Committed, MastersWorld
from stelae.spi.ids import ClientId, OpId

_UNRECORDED_CODES = ("STALE_CHANGE", "PAYLOAD_MISMATCH")


class AcknowledgedChanges(MastersInvariant):
    """At most one entry of the log decides a change.

    A client's outcome is that of the entry, and the entry is committed by then. At the end every master has the
    outcome."""

    name: ClassVar[str] = "acknowledged_changes"
    source: ClassVar[str] = "issue: no acknowledged change is lost or doubled; durability.md rules 16 and 26"

    def __init__(self, world: MastersWorld, groups: TabletGroups) -> None:
        super().__init__(world, groups)
        self._decided: dict[tuple[ClientId, int], tuple[OpId, ChangeOutcome]] = {}

    def on_committed(self, before: Catalog, entry: Committed) -> None:
        """Check that each identity is decided by one entry."""
        puts = () if entry.batch is None else entry.batch.puts
        for record in puts:
            if isinstance(record, RequestRecord):
                identity = (record.client_id, record.sequence)
                earlier = self._decided.get(identity)
                if earlier is not None:
                    self.fail(f"change {identity} is decided at {earlier[0]} and again at {entry.op_id}")
                self._decided[identity] = (entry.op_id, decode_outcome(record.answer))
        created = [r for r in puts if isinstance(r, TableRecord) and r.table_id not in before.tables]
        if created and not any(isinstance(record, RequestRecord) for record in puts):
            self.fail(f"table {created[0].name} is created at {entry.op_id} without the record of a request")

    def on_outcome(self, client_change: ClientChange) -> None:
        """Check that the outcome is in the log, and is the same there."""
        identity = (client_change.request.client_id, client_change.request.sequence)
        decided = self._decided.get(identity)
        if decided is None:
            outcome = client_change.outcome
            if not isinstance(outcome, ChangeRefused) or outcome.code not in _UNRECORDED_CODES:
                self.fail(f"change {identity} is answered with {outcome}, but no entry has this outcome")
        elif decided[1] != client_change.outcome:
            self.fail(
                f"change {identity} is answered with {client_change.outcome}, "
                f"but the entry {decided[0]} has {decided[1]}"
            )
        elif (
            isinstance(client_change.outcome, ChangeReply)
            and client_change.outcome.table_id not in self.world.committed_catalog.tables
        ):
            self.fail(f"change {identity} is answered with a table that has no record")

    def at_end(self, masters: list[SimMaster], servers: list[SimServer]) -> None:
        """Check that every master has every acknowledged change."""
        for master in masters:
            catalog = master.core.catalog
            for (client_id, sequence), (op_id, _) in self._decided.items():
                if sequence not in catalog.requests.get(client_id, {}):
                    self.fail(f"change {(client_id, sequence)} of {op_id} is lost on {master.endpoint.name}")
                    return
