"""Runs ``stelae bench copy``: starts the nodes, loads the tablets, and measures the parts in turn."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stelae.client import connect_async
from stelae_bench import machine
from stelae_bench.copy_context import CopyBench, CopyBenchSettings, CopyPart
from stelae_bench.copy_nodes import SERVERS, CopyNodes
from stelae_bench.copy_report import CopyReport
from stelae_bench.copy_resume import CopyResume
from stelae_bench.copy_speed import CopySpeed
from stelae_bench.copy_tables import CopiedTable
from stelae_bench.copy_tablets import move_empty_tablets
from stelae_bench.copy_writes import WritesBesideCopy

CONNECT_TIMEOUT_S = 30.0
FLUSH_BYTES_MIN, FLUSH_BYTES_MAX = 64 << 10, 64 << 20
SEGMENT_BYTES_MIN, SEGMENT_BYTES_FIRST_MAX = 4096, 1 << 20
FLUSHES = 16
"""Small tablets are flushed about so often while they are loaded, so that their logs are collected, too."""

FLUSH_INTERVAL_MS = 5_000


def run(settings: CopyBenchSettings, note: Callable[[str], None]) -> CopyReport:
    """Measure, and return the report. However it ends, no process and no file is left.

    Args:
        settings: what to measure.
        note: called with messages about the progress.

    Raises:
        StelaeError: the cluster could not be started, a node ended, or a copy does not end.
        OSError: a folder cannot be written to.
    """
    described = machine.describe()
    report = CopyReport()
    with tempfile.TemporaryDirectory(prefix="stelae-bench-", dir=settings.directory) as name:
        folder = Path(name)
        if settings.parts - {CopyPart.TABLETS}:
            asyncio.run(_copies(folder / "copies", settings, report, note))
        if CopyPart.TABLETS in settings.parts and report.ok:
            report.moved = asyncio.run(move_empty_tablets(folder / "tablets", settings.tablets, note))
    report.machine = {
        **described,
        "seed": settings.seed,
        "rounds": settings.rounds,
        "settings": {
            "servers": SERVERS,
            "bytes": settings.size_bytes,
            "tablets": settings.tablets,
            "parts": [part for part in CopyPart if part in settings.parts],
            "seconds": settings.seconds,
            "log_sync": "always",
        },
    }
    return report


async def _copies(
    directory: Path, settings: CopyBenchSettings, report: CopyReport, note: Callable[[str], None]
) -> None:
    """Measure the parts that copy rows."""
    nodes = CopyNodes(directory, node_settings(settings.size_bytes))
    try:
        note(f"starting 1 master and {SERVERS} tablet servers")
        await nodes.start()
        async with await connect_async(nodes.cluster.addresses, timeout_s=CONNECT_TIMEOUT_S) as client:
            rng = random.Random(settings.seed)
            bench = CopyBench(nodes=nodes, client=client, settings=settings, report=report, note=note, rng=rng)
            writes = await WritesBesideCopy.create(bench) if CopyPart.WRITES in settings.parts else None
            note(f"loading {settings.size_bytes / 1e6:,.0f} MB")
            copied = await CopiedTable.create(bench, "whole")
            await copied.load(settings.size_bytes, settings.seed)
            if CopyPart.SPEED in settings.parts:
                await CopySpeed(bench, copied).measure()
            if CopyPart.RESUME in settings.parts and report.ok:
                await CopyResume(bench, copied).measure()
            if writes is not None and report.ok:
                await writes.measure(copied)
    finally:
        nodes.cluster.kill()


def node_settings(size_bytes: int) -> Mapping[str, Mapping[str, Any]]:
    """Return the sections of every ``node.toml``. From 1 GiB on, sizes are those of the defaults."""
    part = size_bytes // FLUSHES
    segment = min(max(part, SEGMENT_BYTES_MIN), FLUSH_BYTES_MAX)
    return {
        "maintenance": {
            "flush_bytes": min(max(part, FLUSH_BYTES_MIN), FLUSH_BYTES_MAX),
            "flush_interval_ms": FLUSH_INTERVAL_MS,
        },
        "wal.segmented": {"segment_bytes_first": min(segment, SEGMENT_BYTES_FIRST_MAX), "segment_bytes_max": segment},
        "policy.placement": {"moves_max": 0, "transfers_max": 0},
    }
