"""The parts ``bulk``, ``scan`` and ``reads``: loads of data sets, and reads of the loaded rows.

A scan reads a whole data set and is compared with plain Parquet. Both sides give the same rows as a ``pyarrow.Table``:
the client from any replica, at one snapshot, and ``pyarrow.parquet.read_table`` from a file in the page cache."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from pyarrow import parquet

from stelae.client.table import AsyncTable
from stelae_bench.cluster_bulk import BulkLoad, differences
from stelae_bench.cluster_context import Bench, BenchPart
from stelae_bench.cluster_data import DataSet
from stelae_bench.cluster_reads import Reads
from stelae_bench.report import LoadFigures, ScanFigures, ScanRound


class Loads:
    """Loads data sets, each into its tablet. Scans the first of them, and reads rows of the last."""

    def __init__(self, bench: Bench, data: Sequence[DataSet]) -> None:
        self._bench = bench
        self._data = data

    async def measure(self) -> None:
        """Load, compare the stored rows with the loaded ones, and scan and read rows if these parts are chosen."""
        bench, settings = self._bench, self._bench.settings
        tables = [await bench.table(data.tablet_id) for data in self._data]
        loads = [BulkLoad(table, data, settings.rounds) for table, data in zip(tables, self._data, strict=True)]
        figures = [LoadFigures(scale=data.scale) for data in self._data]

        async def load(one: BulkLoad, found: LoadFigures) -> None:
            found.rounds.append(await one.round(settings.seconds))
            bench.report.problems += one.problems

        for one in loads:
            await one.warm_up()
        await bench.rounds("bulk", [partial(load, *pair) for pair in zip(loads, figures, strict=True)])
        if BenchPart.BULK in settings.parts:
            for data, found in zip(self._data, figures, strict=True):
                bench.report.loads[_key(data)] = found
        for data, table, one in zip(self._data, tables, loads, strict=True):
            await self._verify(data, table, one)
        if BenchPart.SCAN in settings.parts and bench.report.ok:
            await self._scans(self._data[0], tables[0], loads[0])
        if BenchPart.READS in settings.parts and bench.report.ok:
            rows = loads[-1]  # The mixed rows: their keys count up.
            await Reads(bench, tables[-1], len(rows.loaded), rows.timestamp).measure()

    async def _verify(self, data: DataSet, table: AsyncTable, load: BulkLoad) -> None:
        """Compare the replicas with each other by checksum, and one of them with the source, value by value."""
        bench = self._bench
        if not bench.report.ok:
            return
        bench.note(f"comparing {len(load.loaded):,} rows of {data.tablet_id} with what was loaded")
        await bench.compare_replicas(data.tablet_id)
        read = await table.scan(at=load.timestamp).to_arrow()
        # Millions of rows take seconds. On the event loop the links to the nodes would time out meanwhile.
        bench.report.problems += await asyncio.to_thread(differences, data.tablet_id, load.loaded, read, data.key)

    async def _scans(self, data: DataSet, table: AsyncTable, load: BulkLoad) -> None:
        bench = self._bench
        count = len(load.loaded)
        path = Path(bench.cluster.directory) / "scan.parquet"
        parquet.write_table(load.loaded, path)
        parquet.read_table(path)  # Warms up Parquet. The comparison has just warmed up the scan.
        stelae_s: list[float] = []
        parquet_s: list[float] = []

        async def scan_table() -> None:
            began = time.monotonic()
            read = await table.scan(at=load.timestamp).to_arrow()
            stelae_s.append(time.monotonic() - began)
            if len(read) != count:
                bench.report.problems.append(f"a scan returned {len(read)} of {count} rows")

        async def read_parquet() -> None:
            began = time.monotonic()
            parquet.read_table(path)
            parquet_s.append(time.monotonic() - began)

        await bench.rounds("scan", [scan_table, read_parquet])
        path.unlink()
        pairs = zip(stelae_s, parquet_s, strict=False)
        rounds = [ScanRound(rows=count, seconds=scan_s, parquet_s=file_s) for scan_s, file_s in pairs]
        bench.report.scan = ScanFigures(table=data.tablet_id, rounds=rounds)


def _key(data: DataSet) -> str:
    """Return the key of a load in the report's document."""
    return "bulk_mixed" if data.scale is None else "bulk"
