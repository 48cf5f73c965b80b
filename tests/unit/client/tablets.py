"""Tablets in memory, for the client above them: real batcher, real results, real store; no network, no clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from stelae.client.found_parts import FoundPart, FoundValues, found_pages
from stelae.client.locations import TableLocation, TabletLocation
from stelae.client.page_rows import PageRows
from stelae.client.table import AsyncTable
from stelae.host.exactly_once_results import ResultsTable
from stelae.host.hybrid_clock import timestamp
from stelae.partition.partitioning import Partitioning
from stelae.partition.plain_partitioning import partition_schema_from_plain
from stelae.partition.schema import PartitionSchema
from stelae.partition.tablet_partition import tablet_scheme
from stelae.protocol.codec import decode
from stelae.protocol.lookup_messages import LookupReply, LookupRequest
from stelae.protocol.tablet_messages import ScanPage, SplitKeys
from stelae.rows.batcher import Batcher, OutsideCheck
from stelae.rows.operation_encoding import Operation, sequence_ranges_of
from stelae.rows.plain_schema import schema_from_plain
from stelae.server.partition_bounds import check_of, stored_bounds
from stelae.server.tserver.diff_pages import DiffReader
from stelae.server.tserver.lookup_answer import LookupAnswer
from stelae.spi.errors import CallerError
from stelae.spi.ids import ClientId, OpId, TabletId
from stelae.spi.payload import decode_payload
from stelae.spi.rows import RowBatch
from stelae.spi.scan import Order, ScanSpec
from stelae.spi.schema import Schema
from stelae.spi.store import ApplyEntry
from stelae.spi.write import OpResult, digests_of, refused
from stelae_store_memory.store import MemoryStore

PAGE_ROWS = 3
"""Rows of a page: few, so that small tables have several."""

ME = ClientId("me")


class Clock:
    """One logical clock for all tablets of a table."""

    def __init__(self) -> None:
        self.us = 1_000

    def now(self) -> int:
        self.us += 1
        return timestamp(self.us)


class MemoryTablet:
    """Takes operations, scans and lookups as a tablet server does.

    While it is ``held``, operations are kept back until ``release``; ``error`` is raised by pages and
    lookups, and answers operations."""

    def __init__(
        self, tablet_id: str, schema: Schema, clock: Clock, bounds: Callable[[Schema], OutsideCheck] | None = None
    ) -> None:
        self.tablet_id = TabletId(tablet_id)
        self.schema = schema
        self.clock = clock
        self.bounds = bounds
        self.store = MemoryStore({schema.version: schema})
        self.operations: list[Operation] = []
        self.follows: list[bool] = []
        self.pages: list[tuple[ScanSpec, int | None, int | None]] = []
        self.lookups: list[tuple[tuple[bytes, ...], int | None]] = []
        self.splits: list[bytes] = []
        self.size_bytes = 0
        self.held = False
        self.retries: dict[str, int] = {}
        self.error: Exception | None = None
        self.refusal: CallerError | None = None  # With which it answers every operation.
        self._waiting: list[tuple[Operation, asyncio.Future[OpResult]]] = []
        self._results = ResultsTable()
        self._applied = 0

    def send(self, encoded: Operation, timeout_s: float, *, follows: bool = False) -> asyncio.Future[OpResult]:
        future: asyncio.Future[OpResult] = asyncio.get_running_loop().create_future()
        self.operations.append(encoded)
        self.follows.append(follows)
        if self.error is not None:
            future.set_exception(self.error)
        else:
            self._waiting.append((encoded, future))
            if not self.held:
                asyncio.get_running_loop().call_soon(self.release)
        return future

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def release(self, count: int | None = None) -> None:
        """Carry out operations that wait, the first ``count`` of them."""
        due, self._waiting = self._waiting[:count], self._waiting[len(self._waiting[:count]) :]
        for encoded, future in due:
            if not future.done():
                future.set_result(self._apply(encoded))

    def _apply(self, encoded: Operation) -> OpResult:
        if self.refusal is not None:
            return refused(self.refusal)
        self._applied += 1
        (run,) = sequence_ranges_of([(self._applied, encoded)])
        batcher = Batcher(self.schema, bounds=self.bounds)
        try:
            batcher.add(ME, self._applied, run, digests_of(run), None)
        except CallerError as error:
            return refused(error)
        ((body, _),) = batcher.build()
        payload, now = decode_payload(body), self.clock.now()
        admission = self._results.admit(payload, now)
        entry = ApplyEntry(OpId(1, self._applied), now, payload, admission.skip)
        (applied,) = self.store.apply([entry])
        ((answer,),) = self._results.record(admission, applied.faults)
        return answer.result

    def change_schema(self, schema: Schema) -> None:
        """Apply a new version of the schema."""
        self._applied += 1
        self.store.apply([ApplyEntry(OpId(1, self._applied), self.clock.now(), schema)])

    async def page(
        self, spec: ScanSpec, *, at: int | None, at_least: int | None, reader: PageRows, timeout_s: float
    ) -> tuple[ScanPage, asyncio.Future[RowBatch | None]]:
        self.pages.append((spec, at, at_least))
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        if reader.since is not None:
            return self._diff_page(spec, reader, at)
        order = Order.KEY if spec.order is Order.ANY else spec.order
        chosen = self.clock.now() if at is None else at
        with self.store.scan(msgspec.structs.replace(spec, order=order), chosen) as cursor:
            rows = cursor.next_batch(PAGE_ROWS)
            after = cursor.resume_token if rows is not None else None
        page = ScanPage(chosen, self.schema.version, 0 if rows is None else len(rows), after)
        frames = [] if rows is None else [rows.to_ipc()]
        return page, reader.read(page, reader.layout(self.schema, spec.columns), frames)

    async def look_up(self, keys: Sequence[bytes], *, at: int | None, timeout_s: float) -> Sequence[FoundPart]:
        self.lookups.append((tuple(keys), at))
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        parts: list[FoundPart] = []
        left = keys
        while left:
            answer = LookupAnswer(LookupRequest(self.tablet_id, tuple(left), self.schema.version, at))
            while not answer.is_complete:
                answer.add(self.store.lookup(answer.next_keys, self.clock.now() if at is None else at))
            frames = answer.frames()
            reply = decode(frames[0], LookupReply)
            pages = found_pages(reply, frames[1:], self.schema)
            parts += [FoundValues(reply.ids or self.schema.layout.ids, reply.rows), *pages]
            left = left[len(reply.rows) + sum(len(page.positions) for page in pages) :]
        return parts

    async def split_keys(self, spec: ScanSpec, bytes_max: int, *, timeout_s: float) -> SplitKeys:
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        low, high = spec.key_from or b"", spec.key_until or b"\xff" * 99
        return SplitKeys(tuple(key for key in self.splits if low < key < high), self.size_bytes)

    def _diff_page(
        self, spec: ScanSpec, reader: PageRows, at: int | None
    ) -> tuple[ScanPage, asyncio.Future[RowBatch | None]]:
        """As the server makes it."""
        assert at is not None and reader.since is not None
        frames = DiffReader(self.store, spec, reader.since, at, PAGE_ROWS).next()
        page = decode(frames[0], ScanPage)
        return page, reader.read(page, reader.layout(self.schema, spec.columns), frames[1:])


SCHEMA = schema_from_plain(
    {
        "columns": [
            {"name": "sensor", "type": "int32"},
            {"name": "minute", "type": "int64"},
            {"name": "celsius", "type": "double", "nullable": True},
            {"name": "note", "type": "string", "nullable": True},
        ],
        "key": ["sensor", "minute"],
    }
)


def tablets_of(name: str, schema: Schema, scheme: PartitionSchema, clock: Clock) -> list[MemoryTablet]:
    """The tablets of a table, each with its bounds."""
    partitions = Partitioning(schema, scheme).partitions
    stored = [stored_bounds(schema, one, tablet_scheme(scheme, one)) for one in partitions]
    return [MemoryTablet(f"{name}-{n}", schema, clock, check_of(one)) for n, one in enumerate(stored)]


class MemoryTable:
    """A table over tablets in memory."""

    def __init__(
        self, schema: Schema = SCHEMA, partition: Mapping[str, Any] | None = None, name: str = "readings"
    ) -> None:
        scheme = partition_schema_from_plain(schema, partition or {})
        self.clock = Clock()
        self.tablets = tablets_of(name, schema, scheme, self.clock)
        where = tuple(TabletLocation(tablet.tablet_id) for tablet in self.tablets)
        location = TableLocation(name, schema, scheme, where)
        self.table = AsyncTable(location, self.tablets, ["127.0.0.1:1"], self.clock.now)

    def held_rows(self) -> list[int]:
        """Number of rows that each tablet holds."""
        return [int(tablet.store.checksum().rpartition("-")[2]) for tablet in self.tablets]


def one_column(name: str, type_text: str, *, nullable: bool = True, key_type: str = "int64") -> Schema:
    """A schema with the key ``id`` and one more column."""
    columns = [{"name": "id", "type": key_type}, {"name": name, "type": type_text, "nullable": nullable}]
    return schema_from_plain({"columns": columns, "key": ["id"]})


def failures(error: Any) -> list[tuple[int, str]]:
    """Row and code of each failure."""
    return [(failure.row, failure.code) for failure in error.value.failures]


def ids(rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    return [row["id"] for row in rows]
