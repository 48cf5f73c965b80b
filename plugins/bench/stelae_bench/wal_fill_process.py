"""The process that fills a log and is then killed, so that it leaves a log after a crash.

Run as ``python -m stelae_bench.wal_fill_process JSON`` with a :class:`FillTask`. It prints a :class:`FillResult` and
waits to be killed. It ends when its standard input closes, so that it never outlives its parent."""

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
from stelae_bench.wal_open import BenchMachine, OpenLogs

ENTRY_BYTES = 4096
IN_FLIGHT = 64


class FillTask(msgspec.Struct, frozen=True, kw_only=True):
    """Append ``entries`` of ``ENTRY_BYTES`` to one log of an engine in ``directory``."""

    engine: str
    directory: str
    entries: int
    seed: int
    fast: bool


class FillResult(msgspec.Struct, frozen=True, kw_only=True):
    """The time and the processor time of a fill, in seconds."""

    seconds: float
    cpu_s: float


def main() -> None:
    """Fill the log, print the result, and wait."""
    task = msgspec.json.decode(sys.argv[1], type=FillTask)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        filled = runner.run(_fill(task))
    sys.stdout.buffer.write(msgspec.json.encode(filled) + b"\n")
    sys.stdout.buffer.flush()
    sys.stdin.buffer.read()


async def _fill(task: FillTask) -> FillResult:
    with BenchMachine(fast=task.fast) as machine:
        engine = Registry.installed().engine(EngineKind.WAL, task.engine)
        logs = OpenLogs(machine, engine, Path(task.directory), 1, collect_bytes=math.inf)
        sample = await logs.measure(Bodies(ENTRY_BYTES, task.seed), IN_FLIGHT, math.inf, entries_max=task.entries)
    if sample.problems:
        raise StorageError("; ".join(sample.problems))
    return FillResult(seconds=sample.seconds, cpu_s=sample.cpu_s)


if __name__ == "__main__":
    main()
