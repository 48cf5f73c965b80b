"""The part ``bulk``: loads of data sets. The parts ``scan`` and ``reads`` read the loaded rows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from stelae.client.table import AsyncTable
from stelae_bench.cluster_bulk import BulkLoad, LoadRound, differences
from stelae_bench.cluster_context import Bench, BenchPart, ClusterMeasure
from stelae_bench.cluster_data import DataSet
from stelae_bench.cluster_reads import Reads
from stelae_bench.cluster_scans import Scans
from stelae_bench.report import LoadFigures


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

        async def load(one: BulkLoad) -> LoadRound:
            found = await one.round(settings.seconds)
            bench.report.problems += one.problems
            return found

        for one in loads:
            await one.warm_up()
        measures = [
            ClusterMeasure(run=partial(load, one), rounds=found.rounds, tablet_id=data.tablet_id)
            for data, one, found in zip(self._data, loads, figures, strict=True)
        ]
        await bench.rounds("bulk", measures)
        if BenchPart.BULK in settings.parts:
            for data, found in zip(self._data, figures, strict=True):
                bench.report.loads[_key(data)] = found
        for data, table, one in zip(self._data, tables, loads, strict=True):
            await self._verify(data, table, one)
        if BenchPart.SCAN in settings.parts and bench.report.is_sound:
            await Scans(bench, self._data[0], tables[0], loads[0]).measure()
        if BenchPart.READS in settings.parts and bench.report.is_sound:
            rows = loads[-1]  # The mixed rows: their keys count up.
            tablet_id = self._data[-1].tablet_id
            await Reads(bench, tables[-1], tablet_id, len(rows.loaded), rows.timestamp).measure()

    async def _verify(self, data: DataSet, table: AsyncTable, load: BulkLoad) -> None:
        """Compare the replicas with each other by checksum, and one of them with the source, value by value."""
        bench = self._bench
        if not bench.report.is_sound:
            return
        bench.note(f"comparing {len(load.loaded):,} rows of {data.tablet_id} with what was loaded")
        await bench.compare_replicas(data.tablet_id)
        read = await table.scan(at=load.timestamp).to_arrow()
        # Millions of rows take seconds. On the event loop the links to the nodes would time out meanwhile.
        bench.report.problems += await asyncio.to_thread(differences, data.tablet_id, load.loaded, read, data.key)


def _key(data: DataSet) -> str:
    """Return the key of a load in the report's document."""
    return "bulk_mixed" if data.scale is None else "bulk"
