"""The part ``scan``: whole tables into Arrow, beside plain Parquet of the same rows.

Two tables are scanned: one whose rows are all in memory (*unflushed*), and one whose rows are all in files (*flushed*).
Both sides give the same rows as a ``pyarrow.Table``: the client from any replica, at one snapshot, and
``pyarrow.parquet.read_table`` from a file in the page cache."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from pyarrow import parquet

from stelae.client.table import AsyncTable
from stelae.spi.errors import Unavailable
from stelae.spi.ids import TabletId
from stelae_bench.cluster_bulk import CALL_ROWS_MAX, BulkLoad, differences
from stelae_bench.cluster_context import Bench, ClusterMeasure
from stelae_bench.cluster_data import DataSet
from stelae_bench.flush_service import FLUSH, FlushRequest, FlushState
from stelae_bench.report import ScanFigures, ScanRound

UNFLUSHED = TabletId("unflushed")
"""The tablet with the rows that stay in memory."""

UNFLUSHED_ROWS_MAX = 100_000
"""The most rows of that tablet. A node flushes a replica at 64 MiB, or two minutes after its first row."""

FLUSH_TIMEOUT_S = 300.0
QUIET_S = 0.5
"""A flushed replica at which no flush and no merge runs for this time is at rest."""

POLL_S = 0.1


class Scans:
    """Scans the first rows of a load before they are flushed, and all of its rows after a flush.

    Args:
        bench: the run.
        data: what was loaded.
        table: the table with it.
        load: the load, which is complete.
    """

    def __init__(self, bench: Bench, data: DataSet, table: AsyncTable, load: BulkLoad) -> None:
        self._bench = bench
        self._data = data
        self._table = table
        self._load = load

    async def measure(self) -> None:
        """Measure both tables, each in rounds of its own."""
        bench, tablet_id = self._bench, self._data.tablet_id
        await self._unflushed()
        if not bench.report.is_sound:
            return
        bench.note(f"flushing {tablet_id}")
        if await self._flushed(tablet_id):
            rows, at = self._load.loaded, self._load.timestamp
            bench.report.scan_flushed = await self._compared("scan of flushed rows", self._table, tablet_id, rows, at)
        else:
            store = bench.settings.engines.get("store", "")
            bench.report.left_out["scan_flushed"] = f"the store {store!r} has no files to flush rows to"

    async def _unflushed(self) -> None:
        bench, rows = self._bench, self._load.loaded.slice(0, UNFLUSHED_ROWS_MAX)
        table, at = await bench.table(UNFLUSHED), 0
        for start in range(0, len(rows), CALL_ROWS_MAX):
            result = await table.insert(rows.slice(start, CALL_ROWS_MAX), errors="return")
            at = max(at, result.timestamp)
            if result.failed:
                bench.report.problems.append(f"{result.failed} rows were refused: {result.failures[0]}")
                return
        read = await table.scan(at=at).to_arrow()
        bench.report.problems += await asyncio.to_thread(differences, UNFLUSHED, rows, read, self._data.key)
        found = await self._compared("scan of unflushed rows", table, UNFLUSHED, rows, at)
        if any(state.flushed_index for state in await self._states(UNFLUSHED, begin=False)):
            bench.report.left_out["scan_unflushed"] = "a node has flushed the rows before they were scanned"
        else:
            bench.report.scan_unflushed = found

    async def _compared(self, what: str, table: AsyncTable, tablet_id: TabletId, rows: Any, at: int) -> ScanFigures:
        """Measure scans of a table beside Parquet. ``rows`` are what it has at the timestamp ``at``."""
        bench, path = self._bench, Path(self._bench.cluster.directory) / "scan.parquet"
        found = ScanFigures(table=str(self._data.tablet_id))
        parquet.write_table(rows, path)
        parquet.read_table(path)  # Warms up Parquet.
        await table.scan(at=at).to_arrow()  # Warms up the scan.

        async def scan_table() -> ScanRound:
            began = time.monotonic()
            read = await table.scan(at=at).to_arrow()
            seconds = time.monotonic() - began
            if len(read) != len(rows):
                bench.report.problems.append(f"a scan returned {len(read)} of {len(rows)} rows")
            return ScanRound(rows=len(rows), seconds=seconds)

        async def read_parquet() -> ScanRound:
            began = time.monotonic()
            parquet.read_table(path)
            return ScanRound(rows=len(rows), seconds=time.monotonic() - began)

        measures = [
            ClusterMeasure(run=scan_table, rounds=found.rounds, tablet_id=tablet_id),
            ClusterMeasure(run=read_parquet, rounds=found.parquet),
        ]
        await bench.rounds(what, measures)
        path.unlink()
        return found

    async def _flushed(self, tablet_id: TabletId) -> bool:
        """Flush a tablet on all nodes, and wait until it is at rest; return False if the store does not flush.

        Raises:
            Unavailable: it takes too long.
        """
        began = since = time.monotonic()
        while time.monotonic() - began < FLUSH_TIMEOUT_S:
            self._bench.cluster.check()
            states = await self._states(tablet_id, begin=True)
            if not all(state.able for state in states):
                return False
            if any(state.unflushed or state.busy for state in states):
                since = time.monotonic()
            elif time.monotonic() - since > QUIET_S:
                return True
            await asyncio.sleep(POLL_S)
        raise Unavailable(f"the rows of {tablet_id} are not flushed within {FLUSH_TIMEOUT_S:.0f} s")

    async def _states(self, tablet_id: TabletId, *, begin: bool) -> list[FlushState]:
        request = msgspec.msgpack.encode(FlushRequest(tablet_id, begin))
        ask = partial(self._bench.client.connection.ask, kind=FLUSH, body=request)
        answers = await asyncio.gather(*(ask(node.node_id) for node in self._bench.cluster.nodes))
        return [msgspec.msgpack.decode(answer.body[0], type=FlushState) for answer in answers]
