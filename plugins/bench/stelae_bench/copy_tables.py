"""The tables that ``stelae bench copy`` copies: one tablet with one replica each, of rows that cannot be compressed."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator

import pyarrow as pa

from stelae.client.replicas import AsyncReplicas
from stelae.client.table import AsyncTable
from stelae.local.node_process import NodeProcess
from stelae.spi.errors import Unavailable
from stelae.spi.ids import ZERO, NodeId, TabletId
from stelae_bench.copy_context import CopyBench
from stelae_bench.copy_nodes import sizes_in

ROW_BYTES = 1024
CALL_ROWS_MAX = 4096
CALLS_MIN = 64
"""The fewest calls that load a small tablet. With one call its log would be one entry, and never be collected."""

WRITERS = 4
TIMEOUT_S = 300.0
QUIET_S = 1.0
"""A replica whose files do not change for this time is not being compacted."""

POLL_S = 0.02


class CopiedTable:
    """A table of one tablet, which is loaded once, and then copied to new servers.

    Args:
        bench: the run.
        table: the table.
        replicas: the replicas of its tablet.
    """

    def __init__(self, bench: CopyBench, table: AsyncTable, replicas: AsyncReplicas) -> None:
        self._bench = bench
        self.table = table
        self.replicas = replicas

    @classmethod
    async def create(cls, bench: CopyBench, name: str) -> CopiedTable:
        """Create an empty table."""
        before = set(await bench.client.tablet_ids())
        columns = [{"name": "id", "type": "int64"}, {"name": "payload", "type": "binary"}]
        table = await bench.client.create_table(name, columns, "id", replicas=1, timeout_s=TIMEOUT_S)
        (tablet_id,) = set(await bench.client.tablet_ids()) - before
        return cls(bench, table, await bench.client.replicas(tablet_id, timeout_s=TIMEOUT_S))

    @property
    def tablet_id(self) -> TabletId:
        """Id of the tablet."""
        return self.replicas.tablet_id

    async def source(self) -> NodeProcess:
        """Return the server with the replica that leads."""
        return self._bench.nodes.server((await self.replicas.config(timeout_s=TIMEOUT_S)).node_id)

    async def move_to(self, node: NodeProcess) -> None:
        """Move the replica to another server, and open the table there."""
        source = await self.source()
        if source is not node:
            await self.replicas.move(source.node_id, node.address, to=node.node_id, timeout_s=TIMEOUT_S)
            self.table = await self._bench.client.table(self.table.name, timeout_s=TIMEOUT_S)

    async def load(self, size_bytes: int, seed: int) -> None:
        """Load rows, and wait until the replica is at rest: in files, and so that a new member needs a copy.

        Raises:
            Unavailable: it takes too long.
        """
        calls = batches(size_bytes, seed)

        async def write() -> None:
            for rows in calls:
                await self.table.insert(rows, timeout_s=TIMEOUT_S)

        await asyncio.gather(*(write() for _ in range(WRITERS)))
        await self._until_at_rest()

    async def _until_at_rest(self) -> None:
        nodes, source = self._bench.nodes, await self.source()
        loaded = (await self.replicas.config(timeout_s=TIMEOUT_S)).commit
        deadline, since, files = time.monotonic() + TIMEOUT_S, time.monotonic(), None
        while time.monotonic() < deadline:
            nodes.cluster.check()
            view = await self.replicas.config(timeout_s=TIMEOUT_S)
            now = sizes_in(nodes.data_of(source, self.tablet_id))
            waits = view.log_base == ZERO or nodes.flushed_index(source, self.tablet_id) < loaded
            if waits or now != files:
                files, since = now, time.monotonic()
            elif time.monotonic() - since > QUIET_S:
                return
            await asyncio.sleep(QUIET_S / 5)
        raise Unavailable(f"the rows of {self.table.name} are not flushed, or its log is not collected")

    async def add(self, target: NodeProcess) -> None:
        """Add a replica on a server, and wait until it is there and has its vote."""
        await self.replicas.add(target.address, node=target.node_id, timeout_s=TIMEOUT_S)
        await self.until_voter(target.node_id)

    async def until_voter(self, node_id: NodeId) -> None:
        """Wait until a new member has its vote.

        Raises:
            Unavailable: it takes too long, or there is no leader.
        """
        deadline = time.monotonic() + TIMEOUT_S + self._bench.settings.size_bytes / 1e6
        while time.monotonic() < deadline:
            self._bench.nodes.cluster.check()
            member = (await self.replicas.config(timeout_s=TIMEOUT_S)).committed.member(node_id)
            if member is not None and member.member_type == "VOTER":
                return
            await asyncio.sleep(POLL_S)
        raise Unavailable(f"the copy of {self.table.name} does not end")

    async def remove(self, target: NodeProcess) -> None:
        """Remove the replica on a server."""
        await self.replicas.remove(target.node_id, timeout_s=TIMEOUT_S)

    async def compare(self, target: NodeProcess) -> None:
        """Compare the rows of the copy with those of its source. A difference is a problem of the report."""
        ask, source = self._bench.client.connection, await self.source()
        deadline = time.monotonic() + TIMEOUT_S
        await ask.reach(target.address)
        while time.monotonic() < deadline:
            found = [await ask.checksum(node.node_id, self.tablet_id, deadline_ms=300_000) for node in (source, target)]
            if found[0].applied == found[1].applied:
                if found[0].checksum != found[1].checksum:
                    self._bench.report.problems.append(f"the copy of {self.table.name} has other rows than its source")
                return
            await asyncio.sleep(POLL_S)
        self._bench.report.problems.append(f"the copy of {self.table.name} does not catch up with its source")


def batches(size_bytes: int, seed: int) -> Iterator[pa.Table]:
    """Return rows with ``size_bytes`` in all, rounded up to whole rows, as tables for one call each."""
    rng, count = random.Random(seed), -(-size_bytes // ROW_BYTES)
    call_rows = min(CALL_ROWS_MAX, -(-count // CALLS_MIN))
    for first in range(0, count, call_rows):
        rows = min(call_rows, count - first)
        payload_bytes = ROW_BYTES - 8
        offsets = pa.array([number * payload_bytes for number in range(rows + 1)], pa.int32()).buffers()[1]
        values = pa.py_buffer(rng.randbytes(rows * payload_bytes))
        payload = pa.Array.from_buffers(pa.binary(), rows, [None, offsets, values])
        yield pa.table({"id": pa.array(range(first, first + rows), pa.int64()), "payload": payload})
