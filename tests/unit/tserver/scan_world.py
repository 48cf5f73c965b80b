"""Scans of one store in memory, on a pool, a clock and turns of the loop that a test moves."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Event
from types import SimpleNamespace
from typing import Any

from stelae.protocol.codec import decode
from stelae.protocol.tablet_messages import ScanPage, ScanRequest
from stelae.rows.batch_building import build_batch
from stelae.server.tserver.diff_pages import reader_of
from stelae.server.tserver.open_scans import OpenScans
from stelae.spi.ids import ClientId, NodeId, OpId, TabletId
from stelae.spi.payload import OpGroup, PayloadClient, PayloadSequenceRange, WritePayload
from stelae.spi.rows import RowBatch
from stelae.spi.scan import ScanSpec
from stelae.spi.store import ApplyEntry, Cursor
from stelae.spi.write import OpKind
from stelae_store_memory.store import MemoryStore
from tests.unit.client.tablets import one_column

SCHEMA = one_column("text", "string")
AT = 100
ME, OTHER = NodeId("me"), NodeId("other")


class Store(MemoryStore):
    """Counts cursors, those that are open and those that were opened; may refuse to go on, or give what it has in steps
    of this many rows, none of which a batch crosses."""

    opened = 0
    refuse: Exception | None = None
    inline_rows_max = 0  #: The event loop may scan this many rows.
    on_inline: Callable[[], None] = staticmethod(lambda: None)

    def __init__(self, rows: int) -> None:
        super().__init__({1: SCHEMA})
        self.open: set[int] = set()
        self.asked: list[int] = []
        self.steps_of: int | None = None
        batch = build_batch(SCHEMA.layout, [(n, f"row {n}") for n in range(rows)])
        payload = WritePayload(
            1,
            (PayloadClient(ClientId("me"), 1),),
            (PayloadSequenceRange(0, 1, (rows,), (1,), ()),),
            (OpGroup(OpKind.INSERT, None, rows, batch.to_ipc()),),
        )
        self.apply([ApplyEntry(OpId(1, 1), AT, payload)])

    def scan_inline(self, spec: ScanSpec, at: int | None = None) -> Cursor | None:
        self.on_inline()
        return self.scan(spec, at) if spec.limit is not None and spec.limit <= self.inline_rows_max else None

    def scan(self, spec: ScanSpec, at: int | None = None) -> Cursor:
        self.opened += 1
        number, cursor = self.opened, super().scan(spec, at)
        self.open.add(number)
        next_batch, close, given = cursor.next_batch, cursor.close, 0

        def following(rows_max: int = 0) -> RowBatch | None:
            nonlocal given
            self.asked.append(rows_max)
            if self.refuse is not None:
                raise self.refuse
            rows = next_batch(min(rows_max, self.steps_of - given % self.steps_of) if self.steps_of else rows_max)
            given += 0 if rows is None else len(rows)
            return rows

        def closing() -> None:
            self.open.discard(number)
            close()

        cursor.next_batch, cursor.close = following, closing  # type: ignore[method-assign]
        return cursor


class World:
    """Pages of one store, on a pool and a clock that a test moves."""

    def __init__(self, rows: int = 10) -> None:
        self.store = Store(rows)
        self.now_us = 0
        self.work: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []
        self.timers: dict[int, tuple[int, Callable[[], None]]] = {}
        self.answers: list[Any] = []
        pool = SimpleNamespace(run=lambda _key, work, done: self.work.append((work, done)))
        self.deferred: list[Callable[[], None]] = []
        turns = SimpleNamespace(now_us=lambda: self.now_us, call_at=self._call_at, defer=self.deferred.append)
        self.pages = OpenScans(SimpleNamespace(scans=pool, turns=turns), reader_of)  # type: ignore[arg-type]

    def _call_at(self, when_us: int, call: Callable[[], None]) -> Any:
        number = len(self.timers)
        self.timers[number] = (when_us, call)
        return SimpleNamespace(cancel=lambda: self.timers.update({number: (1 << 62, call)}))

    def ask(
        self,
        spec: ScanSpec,
        *,
        sender: NodeId = ME,
        rows_max: int = 3,
        store: Store | None = None,
        at: int | None = AT,
        lz4: bool = False,
    ) -> Event:
        """Ask for a page, and return an event that gives the request up."""
        asked, given_up = ScanRequest(TabletId("t"), spec, at, rows_max, lz4=lz4), Event()
        still_open = partial(self.is_open, given_up)
        self.pages.read(sender, store or self.store, asked, AT, self.answers.append, still_open)
        return given_up

    @staticmethod
    def is_open(given_up: Event) -> bool:
        return not given_up.is_set()

    def end_turn(self) -> None:
        while self.deferred:
            self.deferred.pop(0)()

    def run_pool(self) -> None:
        self.end_turn()
        while self.work:
            work, done = self.work.pop(0)
            try:
                done(work())
            except Exception as error:
                done(error)

    def pass_us(self, duration_us: int) -> None:
        self.now_us += duration_us
        for when_us, call in [*self.timers.values()]:
            if when_us <= self.now_us:
                call()

    def page(self, spec: ScanSpec, **fields: Any) -> tuple[ScanPage, list[int]]:
        self.ask(spec, **fields)
        self.run_pool()
        frames = self.answers.pop()
        assert isinstance(frames, list), frames
        found = decode(frames[0], ScanPage)
        return found, RowBatch.from_ipc(SCHEMA.layout, frames[1]).values(0) if len(frames) > 1 else []

    def scan(self, spec: ScanSpec, **fields: Any) -> list[int]:
        keys = []
        while True:
            found, some = self.page(spec, **fields)
            keys += some
            limit = None if spec.limit is None else spec.limit - len(some)
            if found.after is None or limit == 0:
                return keys
            spec = ScanSpec(
                columns=spec.columns, predicates=spec.predicates, order=spec.order, after=found.after, limit=limit
            )
