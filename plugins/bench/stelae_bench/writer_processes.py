"""Client processes that write at the same time, as seen by their parent."""

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
from stelae_bench.writer_process import StartRound, WriterTask

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 5.0
LEAD_S = 0.05
"""Seconds from the announcement of a round to its beginning, so that every process knows of it in time."""

LINE_BYTES_MAX = 64 << 20
"""The limit of a line. A sample is one line, with every latency of the round."""


class WriterProcessEnded(StelaeError):
    """A client process of the benchmark ended, or did not answer in time."""

    code = "BENCH_WRITER_ENDED"


class WriterProcesses:
    """Processes that run :mod:`stelae_bench.writer_process`. Created by :meth:`start`."""

    def __init__(self) -> None:
        self._processes: list[Process] = []

    @classmethod
    async def start(cls, addresses: Sequence[str], table: str, writers: Sequence[int], seed: int) -> WriterProcesses:
        """Start one process for each writer; return when all are connected. After an error none is left.

        Raises:
            WriterProcessEnded: a process could not connect. Its message is on standard error.
        """
        started = cls()
        try:
            for writer in writers:
                task = WriterTask(addresses=list(addresses), table=table, writer=writer, seed=seed)
                started._processes.append(await _spawn(task))
            await started._lines(START_TIMEOUT_S)
        except BaseException:
            await started.stop()
            raise
        return started

    @property
    def pids(self) -> list[int]:
        """The process ids."""
        return [process.pid for process in self._processes]

    async def run(self, in_flight: int, seconds: float) -> list[LoopSample]:
        """Let all processes write at the same time, each with ``in_flight`` writes in flight.

        Raises:
            WriterProcessEnded: a process ended or did not answer.
        """
        command = StartRound(begin_at=time.monotonic() + LEAD_S, seconds=seconds, in_flight=in_flight)
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(msgspec.json.encode(command) + b"\n")
        lines = await self._lines(LEAD_S + seconds + 2 * TIMEOUT_S)
        return [msgspec.json.decode(line, type=LoopSample) for line in lines]

    async def stop(self) -> None:
        """End all processes, by force if necessary. Stopping twice is harmless."""
        processes, self._processes = self._processes, []
        for process in processes:
            if process.stdin is not None:
                process.stdin.close()
        try:
            for process in processes:
                await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
        except TimeoutError:
            pass  # The processes that are left are killed below.
        finally:
            for process in processes:
                if process.returncode is None:
                    process.kill()

    async def _lines(self, timeout_s: float) -> list[bytes]:
        """Read the next line of each process."""
        streams = [process.stdout for process in self._processes if process.stdout is not None]
        try:
            async with asyncio.timeout(timeout_s):
                lines = await asyncio.gather(*(stream.readline() for stream in streams))
        except TimeoutError as error:
            raise WriterProcessEnded(f"a client process did not answer within {timeout_s:.0f} s") from error
        if not all(lines):
            raise WriterProcessEnded("a client process ended; its message is above")
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
