"""Pages of a scan as a tablet server answers them: bounded in rows and in bytes, none lost in between."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from stelae.host.read_faults import ReadFaults
from stelae.host.replica_state import ReplicaState
from stelae.protocol.codec import decode, encode
from stelae.protocol.tablet_messages import SCAN_PAGE_ROWS_MAX, ScanPage, ScanRequest
from stelae.rows.batch_building import build_batch
from stelae.server.tserver import scan_pages
from stelae.server.tserver.load_meter import LoadMeter
from stelae.server.tserver.tablet_service import TabletService
from stelae.spi.errors import CallerError
from stelae.spi.ids import ClientId, OpId, TabletId
from stelae.spi.payload import OpGroup, PayloadClient, PayloadSequenceRange, WritePayload
from stelae.spi.rows import RowBatch
from stelae.spi.scan import Compare, Order, ScanSpec
from stelae.spi.store import ApplyEntry
from stelae.spi.write import OpKind
from stelae_store_memory.store import MemoryStore
from tests.unit.client.tablets import one_column

SCHEMA = one_column("text", "string")
AT = 100
T = TabletId("t")


class Request:
    """A request whose reply is kept."""

    def __init__(self, scan: ScanRequest) -> None:
        self.body = [encode(scan)]
        self.kind, self.sender, self.request_id = "tablet.scan", "me", 1
        self.answer: Any = None
        self.open = True

    def reply(self, frames: list[bytes]) -> None:
        self.answer = frames

    def refuse(self, error: Exception) -> None:
        self.answer = error


def serving(rows: list[tuple[int, str]]) -> TabletService:
    """A tablet server whose one replica has applied these rows at ``AT``, and asks nobody."""
    store = MemoryStore({1: SCHEMA})
    batch = build_batch(SCHEMA.layout, rows)
    payload = WritePayload(
        1,
        (PayloadClient(ClientId("me"), 1),),
        (PayloadSequenceRange(0, 1, (len(rows),), (1,), ()),),
        (OpGroup(OpKind.INSERT, None, len(rows), batch.to_ipc()),),
    )
    store.apply([ApplyEntry(OpId(1, 1), AT, payload)])
    applier = SimpleNamespace(store=store, timestamp=AT, applied=OpId(1, 1))
    faults = ReadFaults(lambda _reason: None, lambda _reason: None)
    replica = SimpleNamespace(state=ReplicaState.RUNNING, applier=applier, read_faults=faults, log_only=False)
    pool = SimpleNamespace(run=lambda _key, work, done: done(outcome(work)))
    turns = SimpleNamespace(now_us=lambda: 0, call_at=lambda _when, _call: SimpleNamespace(cancel=lambda: None))
    metrics = SimpleNamespace(count=lambda _name, _amount=1: None, histogram=lambda _name: lambda _us: None)
    node: Any = SimpleNamespace(replicas={T: replica}, failed_tablets={}, scans=pool, turns=turns, metrics=metrics)
    return TabletService(node, LoadMeter())


def outcome(work: Any) -> Any:
    try:
        return work()
    except Exception as error:
        return error


def page(server: TabletService, spec: ScanSpec, **fields: Any) -> tuple[ScanPage, list[int]]:
    request: Any = Request(ScanRequest(T, spec, AT, **fields))
    server._scan(request)
    assert isinstance(request.answer, list), request.answer
    found = decode(request.answer[0], ScanPage)
    if not found.row_count:
        return found, []
    rows = RowBatch.from_ipc(SCHEMA.layout, memoryview(request.answer[1]))
    return found, rows.values(0)


def all_pages(server: TabletService, **fields: Any) -> list[list[int]]:
    listed, after = [], None
    while True:
        found, keys = page(server, ScanSpec(order=Order.KEY, after=after), **fields)
        listed.append(keys)
        after = found.after
        if after is None:
            return listed


def test_a_page_holds_fewer_rows_when_they_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_pages, "PAGE_BYTES_MAX", 1000)
    # Large rows first, so that the average of a page misleads; one alone is above the bound.
    rows = [(n, "x" * (600 if n < 10 else 3000 if n == 10 else 1)) for n in range(200)]
    found = all_pages(serving(rows))
    assert [key for keys in found for key in keys] == list(range(200))
    assert all(sum(len(rows[key][1]) for key in keys) <= 1000 or len(keys) == 1 for keys in found)
    assert len(found) < 40


def test_a_page_holds_as_many_rows_as_were_asked_for() -> None:
    server = serving([(n, "x") for n in range(10)])
    assert [len(keys) for keys in all_pages(server, rows_max=4) if keys] == [4, 4, 2]


def test_a_page_on_which_nothing_matches_says_where_to_go_on() -> None:
    server = serving([(n, "x") for n in range(100)])
    spec = ScanSpec(order=Order.KEY, predicates=(Compare(1, "=", 99),))
    found, keys = page(server, spec, rows_max=2)
    assert keys == [] and found.after is not None


@pytest.mark.parametrize("rows_max", [0, -1, SCAN_PAGE_ROWS_MAX + 1])
def test_a_page_of_too_many_rows_is_refused(rows_max: int) -> None:
    request: Any = Request(ScanRequest(T, ScanSpec(), AT, rows_max))
    with pytest.raises(CallerError, match="rows_max"):
        serving([(1, "x")])._scan(request)


class Wandering:
    """A cursor that looks at much before it finds a row; ``moves``: its token says how far it is."""

    def __init__(self, empty: int, *, moves: bool) -> None:
        self.empty, self.moves = empty, moves
        self.looked = 0

    def next_batch(self, rows_max: int) -> RowBatch | None:
        self.looked += 1
        if self.looked > self.empty + 1:
            return None
        return build_batch(SCHEMA.layout, [(self.looked, "x")] if self.looked > self.empty else [])

    @property
    def resume_token(self) -> bytes | None:
        return b"%05d" % self.looked if self.moves or self.looked > self.empty else None

    def close(self) -> None:
        pass


@pytest.mark.parametrize("moves", [False, True])
def test_a_page_ends_without_rows_only_where_its_token_leads_on(moves: bool) -> None:
    """Without a token it would be taken for the last one, and the rows behind it would be lost to the reader."""
    cursor = Wandering(40, moves=moves)
    store: Any = SimpleNamespace(schema=SCHEMA, scan=lambda _spec, _at: cursor)
    reader, found, ended = scan_pages.PageReader(store, ScanSpec(order=Order.KEY), AT, 100), 0, 0
    while reader.more:
        page = decode(reader.next()[0], ScanPage)
        found += page.row_count
        ended += page.after is None
    assert (found, ended) == (1, 1)
    assert cursor.looked == 42


@pytest.mark.parametrize(
    ("kind", "fields", "spec", "problem"),
    [
        ("tablet.scan", {"since": 1}, ScanSpec(), "tablet.diff needs since, and no other request may have it"),
        ("tablet.diff", {}, ScanSpec(), "tablet.diff needs since"),
        ("tablet.diff", {"since": -1}, ScanSpec(), "since is -1; hybrid timestamps are from 0"),
        ("tablet.diff", {"since": 1 << 63}, ScanSpec(), "hybrid timestamps are from 0"),
        ("tablet.diff", {"since": 1}, ScanSpec(order=Order.KEY_DESCENDING), "in ascending order"),
        ("tablet.diff", {"since": 1}, ScanSpec(predicates=(Compare(1, "=", 1),)), "no predicates"),
    ],
)
def test_what_no_diff_can_be_is_refused(kind: str, fields: dict[str, int], spec: ScanSpec, problem: str) -> None:
    request: Any = Request(ScanRequest(T, spec, AT, **fields))  # type: ignore[arg-type]
    request.kind = kind
    with pytest.raises(CallerError, match=problem):
        serving([(1, "x")])._scan(request)
