"""Sources of copies and a transport as fakes, which can be interrupted anywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from stelae.spi.copy_plan import (
    Complete,
    CopyOffer,
    CopyOutcome,
    CopyPlan,
    CopyProgress,
    CopySessionEnded,
    CopySnapshot,
    Interruption,
    Partial,
    SourceDamaged,
)
from stelae.spi.errors import Corrupt, DeadlineExceeded, Full, Overloaded, StelaeError, Unavailable
from stelae.spi.ids import NodeId, TabletId
from stelae.spi.members import Member

TTL_MS = 1000  #: The time to live of a session.


class Served(msgspec.Struct, frozen=True):
    """What a source serves: a snapshot, and the bytes of its items."""

    snapshot: CopySnapshot
    contents: Mapping[str, bytes]

    def changed(self, **changed: Any) -> Served:
        return Served(msgspec.structs.replace(self.snapshot, **changed), self.contents)


class FakeNetwork:
    """Sources by node, and the transport that fetches from them: a ``CopySources`` and a ``CopyTarget``."""

    def __init__(self, sources: Mapping[NodeId, Served | StelaeError]) -> None:
        self.sources = dict(sources)
        self.asked: list[NodeId] = []
        #: Sources that answer nothing. ``let_deadlines_pass`` lets the deadlines of all requests to them pass.
        self.silent: set[NodeId] = set()
        self._unanswered: list[tuple[Member, Callable[[Any], None], Callable[[], bool]]] = []
        self.as_export: list[bool] = []
        #: What every source serves that is asked for an export.
        self.exported: Served | None = None
        self.open: set[str] = set()
        self.fetched: list[str] = []
        self.slots = 1
        self.commit: int | Exception = 0  #: What a source answers that is asked what it knows as committed.
        self.commit_asked = 0
        self.chunk_bytes = 64
        #: How long ago each open session was heard of. A session ends when that is longer than its time to live.
        self.idle_us: dict[str, int] = {}
        #: Called before each chunk with the item; returns how the run ends there, or ``None``.
        self.on_chunk: Callable[[str], CopyOutcome | None] = lambda _item: None

    # -- CopySources -----------------------------------------------------------------------------

    def begin(
        self,
        source: Member,
        tablet_id: TabletId,
        done: Callable[[CopyOffer | Exception], None],
        *,
        as_export: bool = False,
        ask_again: Callable[[], bool] = lambda: True,
    ) -> None:
        self.asked.append(source.node_id)
        if source.node_id in self.silent:
            self._unanswered.append((source, done, ask_again))
            return
        self.as_export.append(as_export)
        found = self.sources.get(source.node_id, Unavailable("it does not answer"))
        if as_export and self.exported is not None:
            found = self.sources[source.node_id] = self.exported
        if isinstance(found, StelaeError):
            done(found)
            return
        self.open.add(source.node_id)
        self.idle_us[source.node_id] = 0
        done(CopyOffer(source=source.node_id, session=source.node_id, ttl_ms=TTL_MS, snapshot=found.snapshot))

    def let_deadlines_pass(self, error: StelaeError | None = None) -> None:
        """Ask every silent source again, or give up with this error."""
        unanswered, self._unanswered = self._unanswered, []
        for source, done, ask_again in unanswered:
            if ask_again():
                self.asked.append(source.node_id)
                self._unanswered.append((source, done, ask_again))
            else:
                done(error or DeadlineExceeded("no answer in time"))

    def keep_alive(self, offer: CopyOffer, done: Callable[[Exception | None], None]) -> None:
        is_open = offer.session in self.open
        self.idle_us[offer.session] = 0
        done(None if is_open else CopySessionEnded("no such session"))

    def pass_us(self, passed_us: int) -> None:
        """Let time pass at the sources."""
        self.idle_us = {session: idle + passed_us for session, idle in self.idle_us.items()}
        self.open -= {session for session, idle in self.idle_us.items() if idle > TTL_MS * 1000}

    def committed_index(self, offer: CopyOffer, tablet_id: TabletId, done: Callable[[int | Exception], None]) -> None:
        self.commit_asked += 1
        done(self.commit)

    def end(self, offer: CopyOffer) -> None:
        self.open.discard(offer.session)

    def network(self) -> Any:
        return None

    # -- CopyTarget ------------------------------------------------------------------------------

    def reserve(self, tablet_id: TabletId) -> None:
        if self.slots < 1:
            raise Overloaded("all slots are in use")
        self.slots -= 1

    def release(self, tablet_id: TabletId) -> None:
        self.slots += 1

    def run(self, plan: CopyPlan, *, have: Mapping[str, str], sink: Any, network: Any, control: Any) -> CopyOutcome:
        source = self.sources[plan.offer.source]
        assert isinstance(source, Served)
        done = sum(item.size_bytes for item in plan.items if item.name in have)
        total = plan.bytes_total
        for item in plan.items:
            if have.get(item.name) == item.digest:
                continue
            data = source.contents[item.name]
            done += sink.stored(item.name)
            for at in range(sink.stored(item.name), max(1, len(data)), self.chunk_bytes):
                if control.cancelled():
                    return Partial(why=Interruption.CANCELLED, reason="cancelled")
                if (ends := self.on_chunk(item.name)) is not None:
                    return ends
                self.fetched.append(item.name)
                try:
                    sink.write(item.name, at, data[at : at + self.chunk_bytes])
                except Full as error:
                    return Partial(why=Interruption.NO_SPACE, reason=str(error))
                done += len(data[at : at + self.chunk_bytes])
                control.progress(CopyProgress(bytes_done=done, bytes_total=total, bytes_fetched=done, eta_ms=None))
            try:
                sink.finish(item.name)
            except Corrupt as error:
                return SourceDamaged(source=plan.offer.source, item=item.name, detail=str(error))
        return Complete(bytes_fetched=done)
