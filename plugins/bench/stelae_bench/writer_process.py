"""One of the eight client processes. It reads commands from standard input, and writes samples to standard output.

Run as ``python -m stelae_bench.writer_process JSON`` with a :class:`WriterTask`. Each line of input is a
:class:`StartRound`, each line of output a ``LoopSample``. The first line of output is empty: the process is connected.
It ends when its standard input closes, so that it never outlives its parent."""

from __future__ import annotations

import asyncio
import sys
import time

import msgspec

from stelae.client.async_client import connect_async
from stelae_bench.rows import RowSource
from stelae_bench.single_writes import SingleWrites


class WriterTask(msgspec.Struct, frozen=True, kw_only=True):
    """The table to write to, and the number of the writer, from 0."""

    addresses: list[str]
    table: str
    writer: int
    seed: int


class StartRound(msgspec.Struct, frozen=True, kw_only=True):
    """One round. ``begin_at`` is a time of the machine's monotonic clock, so that all processes begin together."""

    begin_at: float
    seconds: float
    in_flight: int


def main() -> None:
    """Run until standard input closes."""
    task = msgspec.json.decode(sys.argv[1], type=WriterTask)
    asyncio.run(_serve(task))


async def _serve(task: WriterTask) -> None:
    commands = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin.buffer)
    async with await connect_async(task.addresses) as client:
        writes = SingleWrites(await client.table(task.table), RowSource(task.writer, task.seed))
        _print_line(b"")
        while line := await commands.readline():
            command = msgspec.json.decode(line, type=StartRound)
            await asyncio.sleep(max(0.0, command.begin_at - time.monotonic()))
            _print_line(msgspec.json.encode(await writes.run(command.in_flight, command.seconds)))


def _print_line(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
