"""The client processes of a run, as seen by their parent."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence

import msgspec

from stelae.spi.errors import StelaeError
from stelae_chaos.client_process import OPEN_TIMEOUT_S, ClientTask
from stelae_chaos.operations import AnyOperation, decoder

STOP_TIMEOUT_S = 60.0
"""Time for the last operations of a client, on a machine that is busy."""

LINE_BYTES_MAX = 1 << 20


class ClientEnded(StelaeError, code="CHAOS_CLIENT_ENDED"):
    """A client process of a chaos run ended by itself, or did not answer in time."""


class ClientProcesses:
    """Processes that run :mod:`stelae_chaos.client_process`.

    Args:
        record: takes each operation of each client.
    """

    def __init__(self, record: Callable[[AnyOperation], None]) -> None:
        self._record = record
        self._processes: list[Process] = []
        self._stopping = False
        self._late = False
        self._give_up: asyncio.TimerHandle | None = None

    async def start(self, tasks: Sequence[ClientTask]) -> None:
        """Start one process for each task; return when all have opened their tables.

        Raises:
            ClientEnded: a process could not open the tables. Its message is on standard error.
        """
        for task in tasks:
            self._processes.append(await _spawn(task))
        try:
            async with asyncio.timeout(2 * OPEN_TIMEOUT_S):
                lines = await asyncio.gather(*(_stdout(process).readline() for process in self._processes))
        except TimeoutError as error:
            raise ClientEnded("a client process did not open the tables in time") from error
        if not all(lines):
            raise ClientEnded("a client process ended before it had opened the tables; its message is above")

    async def read(self) -> None:
        """Record the operations of all processes until :meth:`stop`.

        Raises:
            ClientEnded: a process ended by itself, or did not end within ``STOP_TIMEOUT_S`` after :meth:`stop`.
        """
        await asyncio.gather(*(self._read(process) for process in self._processes))

    async def _read(self, process: Process) -> None:
        while (line := await _stdout(process).readline()).endswith(b"\n"):  # A killed process may leave part of a line.
            self._record(decoder.decode(line))
        code = await process.wait()
        if code and self._late:
            raise ClientEnded(f"a client process did not end its operations within {STOP_TIMEOUT_S:.0f} s")
        if code or not self._stopping:
            raise ClientEnded(f"a client process ended with exit code {code}; its message is above")

    def stop(self) -> None:
        """Let every process end its operations. :meth:`read` returns when all have ended.

        A process that does not end in time is killed: an operation of the client that ignores its timeout would
        otherwise keep the run from its report."""
        self._stopping = True
        self._give_up = asyncio.get_running_loop().call_later(STOP_TIMEOUT_S, self._kill_late)
        for process in self._processes:
            if process.stdin is not None:
                process.stdin.close()

    def _kill_late(self) -> None:
        self._late = True
        for process in self._processes:
            if process.returncode is None:
                process.kill()

    async def kill(self) -> None:
        """End what is left of the processes, by force."""
        self._stopping = True
        if self._give_up is not None:
            self._give_up.cancel()
        for process in self._processes:
            if process.returncode is None:
                process.kill()
            await process.wait()


def _stdout(process: Process) -> asyncio.StreamReader:
    assert process.stdout is not None
    return process.stdout


async def _spawn(task: ClientTask) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "stelae_chaos.client_process",
        msgspec.json.encode(task).decode(),
        stdin=PIPE,
        stdout=PIPE,
        limit=LINE_BYTES_MAX,
        start_new_session=True,
    )
