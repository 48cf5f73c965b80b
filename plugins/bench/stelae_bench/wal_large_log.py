"""Measures one large log: it is filled, killed, opened, read, closed, opened again, and collected.

Its files stay in the page cache, so that the engine is measured and not a cold disk."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from stelae.spi.errors import StelaeError, StorageError
from stelae.spi.ids import LogId
from stelae.spi.wal import WalEngine
from stelae_bench.figures import percentile
from stelae_bench.wal_fill_process import ENTRY_BYTES, FillResult, FillTask
from stelae_bench.wal_open import BenchMachine

READ_BYTES = 1 << 20
"""The bytes of one sequential read, as for a copy or a lagging follower."""

RANDOM_READS = 1000
_SECTOR_BYTES = 512


class FillProcessEnded(StelaeError):
    """The process that fills a log ended before the log was full."""

    code = "BENCH_FILLER_ENDED"


async def measure_large_log(
    machine: BenchMachine, engine: type[WalEngine], directory: Path, payload_bytes: int, seed: int
) -> Mapping[str, float]:
    """Measure one log with at least ``payload_bytes`` of bodies, and remove its directory.

    Raises:
        FillProcessEnded: the log could not be filled.
        StorageError: the entries that were read differ from the acknowledged ones.
    """
    entries = max(1, -(-payload_bytes // ENTRY_BYTES))
    payload = entries * ENTRY_BYTES
    task = FillTask(engine=engine.name, directory=str(directory), entries=entries, seed=seed, fast=machine.fast)
    try:
        filled = await _fill(task)
        figures = {
            "fill_mb_per_s": payload / filled.seconds / 1e6,
            "cpu_s_per_gb": filled.cpu_s / payload * 1e9,
            "disk_bytes_per_payload_byte": disk_bytes(directory) / payload,
        }
        return figures | await asyncio.to_thread(_read_and_collect, machine, engine, directory, entries, seed)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


async def _fill(task: FillTask) -> FillResult:
    """Let a process fill the log, and kill it before it closes the log."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "stelae_bench.wal_fill_process", msgspec.json.encode(task).decode()),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        line = await process.stdout.readline()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
    if not line:
        raise FillProcessEnded(f"the process that fills a log of {task.engine} ended; its message is above")
    return msgspec.json.decode(line, type=FillResult)


def _read_and_collect(
    machine: BenchMachine, engine_class: type[WalEngine], directory: Path, entries: int, seed: int
) -> dict[str, float]:
    began = time.perf_counter()
    engine = machine.open(engine_class, directory)
    figures = {"restart_after_kill_s": time.perf_counter() - began}
    try:
        ((log, state),) = engine.logs().items()
        if state.last.index != entries or state.damage is not None:
            raise StorageError(f"{engine.name}: {entries} entries were acknowledged, but the log is {state}")
        figures |= _read_in_sequence(engine, log, entries) | _read_at_random(engine, log, entries, seed)
        engine.close()
        began = time.perf_counter()
        engine = machine.open(engine_class, directory)
        figures["restart_after_close_s"] = time.perf_counter() - began
        before = disk_bytes(directory)
        began = time.perf_counter()
        engine.collect(log, entries)
        figures["collect_s"] = time.perf_counter() - began
        figures["collect_freed_percent"] = 100 * (1 - disk_bytes(directory) / before)
    finally:
        engine.close()
    return figures


def _read_in_sequence(engine: WalEngine, log: LogId, entries: int) -> dict[str, float]:
    began, first = time.perf_counter(), 1
    while first <= entries:
        first = engine.read(log, first, entries + 1, READ_BYTES)[-1].op_id.index + 1
    return {"read_sequential_mb_per_s": entries * ENTRY_BYTES / (time.perf_counter() - began) / 1e6}


def _read_at_random(engine: WalEngine, log: LogId, entries: int, seed: int) -> dict[str, float]:
    rng = random.Random(seed)
    times_us = []
    for _ in range(RANDOM_READS):
        index = 1 + int(rng.random() * entries)
        began = time.perf_counter()
        (entry,) = engine.read(log, index, index + 1, READ_BYTES)
        times_us.append((time.perf_counter() - began) * 1e6)
        if entry.op_id.index != index:
            raise StorageError(f"{engine.name}: entry {entry.op_id} was read at index {index}")
    times_us.sort()
    return {"read_random_p50_us": percentile(times_us, 0.50), "read_random_p99_us": percentile(times_us, 0.99)}


def disk_bytes(directory: Path) -> int:
    """Return the disk space of the files below a directory, without holes."""
    found = 0
    for folder, _, names in os.walk(directory):
        found += sum(os.stat(os.path.join(folder, name)).st_blocks for name in names)
    return found * _SECTOR_BYTES
