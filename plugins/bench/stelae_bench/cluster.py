"""Runs ``stelae bench cluster``: starts three nodes with a tablet for each part, and measures the parts in turn."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from stelae.client.async_client import AsyncClient, connect_async
from stelae.local.cluster import ClusterOptions, LocalCluster, TabletSpec
from stelae.spi.errors import RetryableError, Unavailable
from stelae.spi.ids import TabletId
from stelae_bench import machine
from stelae_bench.cluster_context import START_TIMEOUT_S, Bench, BenchPart, ClusterBenchSettings
from stelae_bench.cluster_costs import CostMeter
from stelae_bench.cluster_data import DataSet, LineitemUnavailable, lineitem, mixed
from stelae_bench.cluster_loads import Loads
from stelae_bench.cluster_scans import UNFLUSHED
from stelae_bench.cluster_tablets import add_tablets
from stelae_bench.cluster_writes import Writes
from stelae_bench.cluster_ycsb import TABLET as USERTABLE
from stelae_bench.cluster_ycsb import Ycsb
from stelae_bench.flush_service import SERVICE
from stelae_bench.peer_figures import PeerFigures
from stelae_bench.report import ClusterReport
from stelae_bench.rows import COLUMNS, KEY

NODES = 3

CLOCK_DRIFT_PPM_MAX = 1000
"""The bound for read leases. The nodes share the clock of one machine, so any bound is safe here."""


def run(settings: ClusterBenchSettings, note: Callable[[str], None]) -> ClusterReport:
    """Measure, and return the report. However it ends, no process and no file is left, except a table in the cache.

    Args:
        settings: what to measure.
        note: called with messages about the progress.

    Raises:
        StelaeError: the cluster could not be started, or a process of the benchmark ended.
        OSError: a directory cannot be written to.
    """
    described = machine.describe()
    report = ClusterReport(peers={one.name: PeerFigures(command=one.text) for one in settings.peers})
    with tempfile.TemporaryDirectory(prefix="stelae-bench-", dir=settings.directory) as folder:
        spec = TabletSpec(tablet_id=TabletId("bench"), columns=COLUMNS, key=KEY)
        options = ClusterOptions(node_count=NODES, engines=settings.engines, settings=_node_settings(settings))
        cluster = LocalCluster.create(Path(folder) / "cluster", spec, options)
        data = _data(settings, report, note)  # After the check of the engines, because it may take minutes.
        add_tablets(cluster, _tablets(settings, data))
        note(f"starting {NODES} nodes")
        try:
            cluster.start()
            asyncio.run(_measure(cluster, data, settings, report, note))
        finally:
            cluster.stop()
    report.machine = {
        **described,
        "seed": settings.seed,
        "rounds": settings.rounds,
        "settings": {
            "nodes": NODES,
            "columns": len(COLUMNS),
            "parts": [part for part in BenchPart if part in settings.parts],
            "round_seconds": settings.seconds,
            "slot_seconds": settings.slot_s,
            "log_sync": "always",
            "log_fast": settings.fast_log,
            "leases": settings.leases,
            **{f"{kind}_engine": name for kind, name in settings.engines.items()},
        },
    }
    return report


def _data(settings: ClusterBenchSettings, report: ClusterReport, note: Callable[[str], None]) -> list[DataSet]:
    """Return the data sets to load: ``lineitem`` first if it is available, and the mixed rows last."""
    found: list[DataSet] = []
    parts, rows_max = settings.parts, settings.bulk_rows_max
    if parts & {BenchPart.BULK, BenchPart.SCAN}:
        note(f"lineitem at scale {settings.scale:g}")
        try:
            found.append(lineitem(settings.scale, settings.cache, rows_max))
        except LineitemUnavailable as error:
            note(f"lineitem is left out: {error}")
            report.left_out["lineitem"] = str(error)
    if parts & {BenchPart.BULK, BenchPart.READS} or (BenchPart.SCAN in parts and not found):
        found.append(mixed(rows_max, settings.seed))
    return found


def _tablets(settings: ClusterBenchSettings, data: Sequence[DataSet]) -> list[TabletSpec]:
    specs = [TabletSpec(tablet_id=one.tablet_id, columns=one.columns, key=one.key) for one in data]
    if BenchPart.SCAN in settings.parts:
        specs.append(TabletSpec(tablet_id=UNFLUSHED, columns=data[0].columns, key=data[0].key))
    return [*specs, *([USERTABLE] if BenchPart.YCSB in settings.parts else [])]


def _node_settings(settings: ClusterBenchSettings) -> dict[str, dict[str, Any]]:
    """Return the sections of every ``node.toml``."""
    sections: dict[str, dict[str, Any]] = {"log": {"fast": settings.fast_log}, "plugins": {"services": [SERVICE]}}
    if settings.leases:
        sections["consensus.raft"] = {"clock_drift_ppm_max": CLOCK_DRIFT_PPM_MAX}
    return sections


async def _measure(
    cluster: LocalCluster,
    data: Sequence[DataSet],
    settings: ClusterBenchSettings,
    report: ClusterReport,
    note: Callable[[str], None],
) -> None:
    rng = random.Random(settings.seed)
    async with await _connect(cluster) as client:
        meter = CostMeter(cluster, client.connection)
        bench = Bench(cluster=cluster, client=client, settings=settings, report=report, note=note, rng=rng, meter=meter)
        if BenchPart.WRITES in settings.parts:
            await Writes(bench).measure()
        if data and report.is_sound:
            await Loads(bench, data).measure()
        if BenchPart.YCSB in settings.parts and report.is_sound:
            await Ycsb(bench, await bench.table(USERTABLE.tablet_id)).measure()


async def _connect(cluster: LocalCluster) -> AsyncClient:
    """Connect as soon as a node answers. A node that ends meanwhile is reported at once."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        cluster.check()
        try:
            return await connect_async(cluster.addresses, timeout_s=1.0)
        except RetryableError as error:
            if time.monotonic() > deadline:
                raise Unavailable(f"the nodes do not serve: {error}") from error
