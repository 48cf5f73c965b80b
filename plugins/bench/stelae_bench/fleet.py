"""Client processes that write side by side, as their parent sees them."""

from __future__ import annotations

import asyncio
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence

import msgspec

from stelae.spi.errors import StelaeError
from stelae_bench.closed_loop import LoopSample
from stelae_bench.single_writes import TIMEOUT_S
from stelae_bench.writer_process import Go, WriterTask

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 5.0
LEAD_S = 0.05
"""How far ahead a round is announced, so that all processes have heard of it when it begins."""

LINE_BYTES_MAX = 64 << 20
"""A sample is one line; it holds every latency of the round."""


class WriterEnded(StelaeError):
    """A client process of the benchmark ended by itself, or did not answer in time."""

    code = "BENCH_WRITER_ENDED"


class Fleet:
    """Processes that each run :mod:`stelae_bench.writer_process`. Make one with :meth:`start`."""

    def __init__(self) -> None:
        self._processes: list[Process] = []

    @classmethod
    async def start(cls, addresses: Sequence[str], table: str, writers: Sequence[int], seed: int) -> Fleet:
        """Start one process per writer; return when all are connected. On error none is left.

        Raises:
            WriterEnded: one could not connect; what it said went to standard error.
        """
        fleet = cls()
        try:
            for writer in writers:
                task = WriterTask(addresses=list(addresses), table=table, writer=writer, seed=seed)
                fleet._processes.append(await _spawn(task))
            await fleet._lines(START_TIMEOUT_S)
        except BaseException:
            await fleet.stop()
            raise
        return fleet

    async def run(self, in_flight: int, seconds: float) -> list[LoopSample]:
        """Let all of them write at the same time, each with so many in flight.

        Raises:
            WriterEnded: one ended or did not answer.
        """
        go = Go(begin_at=time.monotonic() + LEAD_S, seconds=seconds, in_flight=in_flight)
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(msgspec.json.encode(go) + b"\n")
        lines = await self._lines(LEAD_S + seconds + 2 * TIMEOUT_S)
        return [msgspec.json.decode(line, type=LoopSample) for line in lines]

    async def stop(self) -> None:
        """End all processes, by force if need be. Stopping twice is harmless."""
        processes, self._processes = self._processes, []
        for process in processes:
            if process.stdin is not None:
                process.stdin.close()
        try:
            for process in processes:
                await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
        except TimeoutError:
            pass  # those that are left are ended below
        finally:
            for process in processes:
                if process.returncode is None:
                    process.kill()

    async def _lines(self, timeout_s: float) -> list[bytes]:
        """The next line of each process."""
        streams = [process.stdout for process in self._processes if process.stdout is not None]
        try:
            async with asyncio.timeout(timeout_s):
                lines = await asyncio.gather(*(stream.readline() for stream in streams))
        except TimeoutError as error:
            raise WriterEnded(f"a client process did not answer within {timeout_s:.0f} s") from error
        if not all(lines):
            raise WriterEnded("a client process ended; the reason stands above")
        return lines


async def _spawn(task: WriterTask) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "stelae_bench.writer_process",
        msgspec.json.encode(task).decode(),
        stdin=PIPE,
        stdout=PIPE,
        limit=LINE_BYTES_MAX,
        start_new_session=True,
    )
