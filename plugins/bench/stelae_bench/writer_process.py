"""One of the eight client processes: told on standard input when to write, answers on output.

Run as ``python -m stelae_bench.writer_process JSON`` with a :class:`WriterTask`. Each line in is a
:class:`Go`, each line out a ``Sample``; the first line out is empty and says that it is connected.
It ends when its standard input closes, so none is left behind, however the parent ends."""

from __future__ import annotations

import asyncio
import sys
import time

import msgspec

from stelae.client.async_client import connect_async
from stelae_bench.rows import RowSource
from stelae_bench.single_writes import SingleWrites


class WriterTask(msgspec.Struct, frozen=True, kw_only=True):
    """Which table to write to, and as which of all writers, numbered from 0."""

    addresses: list[str]
    table: str
    writer: int
    seed: int


class Go(msgspec.Struct, frozen=True, kw_only=True):
    """One round. ``begin_at`` is on the machine's monotonic clock, so that all begin together."""

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
        _say(b"")
        while line := await commands.readline():
            go = msgspec.json.decode(line, type=Go)
            await asyncio.sleep(max(0.0, go.begin_at - time.monotonic()))
            _say(msgspec.json.encode(await writes.run(go.in_flight, go.seconds)))


def _say(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
