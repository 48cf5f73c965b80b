"""Fills a log in a process of its own, which is killed then: what it leaves is a log after a crash.

Run as ``python -m stelae_bench.wal_fill_process JSON`` with a :class:`FillTask`; prints a :class:`Filled`
and waits to be killed. It ends when its standard input closes, so none is left behind."""

from __future__ import annotations

import asyncio
import math
import sys
from pathlib import Path

import msgspec

from stelae.config.contracts import EngineKind
from stelae.config.registry import Registry
from stelae.machine.event_loop import new_event_loop
from stelae.spi.errors import StorageError
from stelae_bench.wal_cases import Bodies
from stelae_bench.wal_open import Desk, OpenLogs

ENTRY_BYTES = 4096
IN_FLIGHT = 64


class FillTask(msgspec.Struct, frozen=True, kw_only=True):
    """Append ``entries`` of ``ENTRY_BYTES`` to one log of an engine in ``directory``."""

    engine: str
    directory: str
    entries: int
    seed: int
    fast: bool


class Filled(msgspec.Struct, frozen=True, kw_only=True):
    """How long it took, with how much processor time."""

    seconds: float
    cpu_s: float


def main() -> None:
    """Fill, say so, and wait."""
    task = msgspec.json.decode(sys.argv[1], type=FillTask)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        filled = runner.run(_fill(task))
    sys.stdout.buffer.write(msgspec.json.encode(filled) + b"\n")
    sys.stdout.buffer.flush()
    sys.stdin.buffer.read()


async def _fill(task: FillTask) -> Filled:
    with Desk(fast=task.fast) as desk:
        engine = Registry.installed().engine(EngineKind.WAL, task.engine)
        logs = OpenLogs(desk, engine, Path(task.directory), 1, collect_bytes=math.inf)
        sample = await logs.measure(Bodies(ENTRY_BYTES, task.seed), IN_FLIGHT, math.inf, entries_max=task.entries)
    if sample.problems:
        raise StorageError("; ".join(sample.problems))
    return Filled(seconds=sample.seconds, cpu_s=sample.cpu_s)


if __name__ == "__main__":
    main()
