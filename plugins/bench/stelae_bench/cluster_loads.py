"""The parts ``bulk``, ``scan`` and ``reads``: loads of data sets, and reads of what was loaded.

A scan is of a whole data set, beside plain Parquet. Both sides give the same rows as a ``pyarrow.Table``: the client
from whichever replica it draws, at one snapshot, and ``pyarrow.parquet.read_table`` from a file that the system has in
its cache."""

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
    """Loads data sets, each into its tablet; scans the first of them and reads rows of the last."""

    def __init__(self, bench: Bench, data: Sequence[DataSet]) -> None:
        self._bench = bench
        self._data = data

    async def measure(self) -> None:
        """Load, compare what is there with what was loaded, and scan or read rows if that is asked for."""
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
            rows = loads[-1]  # the mixed ones: their keys count up
            await Reads(bench, tables[-1], len(rows.loaded), rows.timestamp).measure()

    async def _verify(self, data: DataSet, table: AsyncTable, load: BulkLoad) -> None:
        """Compare the replicas with each other by checksum, and one of them with the source, value for value."""
        bench = self._bench
        if not bench.report.ok:
            return
        bench.note(f"comparing {len(load.loaded):,} rows of {data.tablet_id} with what was loaded")
        await bench.agree(data.tablet_id)
        read = await table.scan(at=load.timestamp).to_arrow()
        # Millions of rows take seconds, in which nobody would answer for the links to the nodes.
        bench.report.problems += await asyncio.to_thread(differences, data.tablet_id, load.loaded, read, data.key)

    async def _scans(self, data: DataSet, table: AsyncTable, load: BulkLoad) -> None:
        bench = self._bench
        count = len(load.loaded)
        path = Path(bench.cluster.directory) / "scan.parquet"
        parquet.write_table(load.loaded, path)
        parquet.read_table(path)  # Both sides are warm: the comparison has just read ours.
        stelae_s: list[float] = []
        parquet_s: list[float] = []

        async def ours() -> None:
            began = time.monotonic()
            read = await table.scan(at=load.timestamp).to_arrow()
            stelae_s.append(time.monotonic() - began)
            if len(read) != count:
                bench.report.problems.append(f"a scan gave {len(read)} of {count} rows")

        async def plain() -> None:
            began = time.monotonic()
            parquet.read_table(path)
            parquet_s.append(time.monotonic() - began)

        await bench.rounds("scan", [ours, plain])
        path.unlink()
        pairs = zip(stelae_s, parquet_s, strict=False)
        rounds = [ScanRound(rows=count, seconds=mine, parquet_s=theirs) for mine, theirs in pairs]
        bench.report.scan = ScanFigures(table=data.tablet_id, rounds=rounds)


def _key(data: DataSet) -> str:
    """Where the figures of a load stand in the document."""
    return "bulk_mixed" if data.scale is None else "bulk"
