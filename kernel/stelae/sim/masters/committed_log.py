"""Observes the consensus cores of all masters to learn what is committed in the log of the system tablet.

An entry counts as committed as soon as one core reports it as committed, before any replica has applied it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from stelae.server.master.driver.batch_proposals import batch_in
from stelae.sim.masters.world import Committed, MastersWorld
from stelae.sim.world import ObservedNode
from stelae.spi.consensus import ConsensusCore, ConsensusEngine, LogView, Ready, Role, Status
from stelae.spi.consensus_events import Event, PersistFailed
from stelae.spi.ids import OpId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.members import decode_config
from stelae.spi.payload import decode_payload


class CommittedLog:
    """The committed log of the system tablet.

    Attributes:
        term: the highest term that a core has reported.
    """

    def __init__(self, world: MastersWorld) -> None:
        self._world = world
        self._views: dict[int, ObservedNode] = {}
        self._entries: dict[OpId, Entry] = {}
        self.term = 0

    def observed_engine(self, engine: type[ConsensusEngine], position: int) -> type[ConsensusEngine]:
        """Return an engine whose cores report to this log."""
        view, committed_log = self._views.setdefault(position, ObservedNode(position)), self

        class ObservedConsensus(engine):  # type: ignore[misc, valid-type]
            """The engine under test. Only ``restore`` differs."""

            name: ClassVar[str] = engine.name

            @classmethod
            def restore(cls, *, log: LogView, **restored: Any) -> ConsensusCore:
                """Restore a core as the engine does, and observe it."""
                view.restore(restored["hard_state"], log, restored["committed_config"])
                return _ObservedMasterCore(super().restore(log=log, **restored), view, committed_log)

        return ObservedConsensus

    def record_ready(self, view: ObservedNode, ready: Ready, status: Status) -> None:
        """Record the effects that a core returned."""
        if ready.append is not None:
            self._note_lost_tail(view, ready.append.replace_from)
            self._entries.update((entry.op_id, entry) for entry in ready.append.entries)
        view.apply_ready(ready, ())
        for index in range(len(self._world.log) + 1, (ready.commit or 0) + 1):
            self._commit(view, index, status)

    def record_status(self, view: ObservedNode, status: Status) -> None:
        """Record the status of a core, taken after its effects."""
        if status.term > self.term:
            self.term = status.term
        before, view.status = view.status, status
        if status.role is Role.LEADER and (before is None or before.term != status.term or before.role != status.role):
            self._world.coverage.hit("log.elections")
            self._world.scheduler.note(f"m{view.position} leads in {status.term}")

    def _commit(self, view: ObservedNode, index: int, status: Status) -> None:
        op_id = view.op_id_at(index)
        entry = None if op_id is None else self._entries.get(op_id)
        if op_id is None or entry is None:
            self._world.report("committed_log", f"m{view.position} commits entry {index}, which is not in its log")
            return
        config = decode_config(entry) if entry.kind is EntryKind.CONFIG else None
        batch = batch_in(decode_payload(entry.body)) if entry.kind is EntryKind.WRITE else None
        if batch is not None and op_id.term < status.term:
            self._world.coverage.hit("log.tail_survived")
        if config is not None and op_id.term < status.term:
            self._world.coverage.hit("masters.config_survived")
        self._world.commit(Committed(op_id, batch, config))

    def _note_lost_tail(self, view: ObservedNode, replace_from: int | None) -> None:
        if replace_from is None:
            return
        lost = [view.op_id_at(index) for index in range(replace_from, view.last().index + 1)]
        if any(op_id is not None and self._entries[op_id].kind is EntryKind.WRITE for op_id in lost):
            self._world.coverage.hit("log.tail_lost")
        if any(op_id is not None and self._entries[op_id].kind is EntryKind.CONFIG for op_id in lost):
            self._world.coverage.hit("masters.config_lost")


class _ObservedMasterCore(ConsensusCore):
    """One core that reports to a ``CommittedLog``. Behaves exactly like ``inner``."""

    def __init__(self, inner: ConsensusCore, view: ObservedNode, committed_log: CommittedLog) -> None:
        self._inner = inner
        self._view = view
        self._log = committed_log

    def step(self, events: Sequence[Event]) -> None:
        """Forward events. A failed append truncates the view of the log at once."""
        for event in events:
            if isinstance(event, PersistFailed):
                self._view.truncate_log(event.durable_index + 1)
        self._inner.step(events)

    def can_wait(self, event: Event) -> bool:
        """As ``inner``."""
        return self._inner.can_wait(event)

    def take_ready(self) -> Ready | None:
        """Report effects, then return them."""
        ready, status = self._inner.take_ready(), self._inner.status()
        if ready is not None:
            self._log.record_ready(self._view, ready, status)
        self._log.record_status(self._view, status)
        return ready

    def next_deadline(self) -> int | None:
        """As ``inner``."""
        return self._inner.next_deadline()

    def status(self) -> Status:
        """As ``inner``."""
        return self._inner.status()

    def validate_state(self) -> None:
        """As ``inner``."""
        self._inner.validate_state()
