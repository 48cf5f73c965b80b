"""One client process. It runs the workloads and writes each operation to standard output.

Run as ``python -m stelae_chaos.client_process JSON`` with a :class:`ClientTask`. The first line of output is empty: the
tables are open. Every other line is one operation as JSON (``stelae_chaos.operations``). The process ends its
operations and itself when its standard input closes, so it never outlives its parent."""

from __future__ import annotations

import asyncio
import sys
import time

import msgspec

from stelae.client import connect_async
from stelae.sim.draw import stream
from stelae_chaos.operations import AnyOperation
from stelae_chaos.tables import ChaosTables, TableNames
from stelae_chaos.workloads import Workloads

OPEN_TIMEOUT_S = 120.0


class ClientTask(msgspec.Struct, frozen=True, kw_only=True):
    """What a client process needs to know.

    Attributes:
        client: number of the client, from 0.
        addresses: the masters.
        tables: names of the tables.
        seed: of the whole run.
        started_us: the start of the run on the machine's monotonic clock.
    """

    client: int
    addresses: list[str]
    tables: TableNames
    seed: int
    started_us: int


def monotonic_us() -> int:
    """Return microseconds of the monotonic clock, which all processes of a machine share."""
    return time.monotonic_ns() // 1000


def main() -> None:
    """Run until standard input closes."""
    asyncio.run(_run(msgspec.json.decode(sys.argv[1], type=ClientTask)))


async def _run(task: ClientTask) -> None:
    commands = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin.buffer)
    async with await connect_async(task.addresses, timeout_s=OPEN_TIMEOUT_S) as client:
        tables = await ChaosTables.open(client, task.tables, OPEN_TIMEOUT_S)
        rng = stream(task.seed, f"chaos/client {task.client}")
        work = Workloads(task.client, tables, rng, lambda: monotonic_us() - task.started_us, _print_operation)
        _print_line(b"")
        running = asyncio.create_task(work.run())
        closed = asyncio.create_task(commands.read())
        await asyncio.wait([running, closed], return_when=asyncio.FIRST_COMPLETED)
        work.stopping = True
        await running


def _print_operation(operation: AnyOperation) -> None:
    _print_line(msgspec.json.encode(operation))


def _print_line(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
