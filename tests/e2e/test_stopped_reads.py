"""A read whose replica is shut down before its turn in the pool is refused: a closed store has no rows."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stelae.client.connection import Connection
from stelae.client.leader_tracker import LeaderTracker
from stelae.client.page_rows import PageRows
from stelae.host.node import Node
from stelae.protocol.actions import DeleteReplica, Terminal
from stelae.protocol.catalog_names import TabletState
from stelae.protocol.tablet_messages import NoSuchTablet
from stelae.spi.errors import Unavailable
from stelae.spi.ids import NodeId
from stelae.spi.scan import Order, ScanSpec
from tests.e2e.nodes import TABLET, Cluster, agree, insert, running, until
from tests.e2e.test_tablet_life import act

KINDS = ["scan", "diff", "checksum"]


class BusyPool:
    """Keeps both threads of a node's pool for scans busy, as scans of others do, until ``go_on``."""

    def __init__(self, node: Node) -> None:
        self.queued = asyncio.Event()  #: Set when a read waits for a thread.
        self._free = threading.Event()
        run = node.scans.run
        for number in range(2):
            run(f"busy/{number}", lambda: self._free.wait(30), lambda _none: None)

        def queue(key: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
            run(key, work, done)
            self.queued.set()

        node.scans.run = queue  # type: ignore[method-assign]

    def go_on(self) -> None:
        """Let the reads that wait begin."""
        self._free.set()


@contextmanager
def busy(node: Node) -> Iterator[BusyPool]:
    pool = BusyPool(node)
    try:
        yield pool
    finally:
        pool.go_on()


async def read(client: Connection, server: NodeId, what: str, since: int, at: int) -> object:
    tablet = await client.tablet(TABLET)
    if what == "checksum":
        return await client.checksum(server, TABLET)
    reader = PageRows(ScanSpec(order=Order.KEY), since=since if what == "diff" else None)
    only = LeaderTracker([server])
    return await tablet.page(ScanSpec(order=Order.KEY), at=at, ask=only, reader=reader, timeout_s=1.5)


async def filled(cluster: Cluster, client: Connection) -> int:
    """Insert a hundred rows; return a time after the first one."""
    tablet = await client.tablet(TABLET)
    await insert(tablet, [-1])
    since = (await client.checksum(await cluster.leading(), TABLET)).at
    await insert(tablet, range(99))
    await until(lambda: agree(cluster))
    return since


@pytest.mark.parametrize("what", KINDS)
def test_a_read_of_a_replica_that_is_deleted_meanwhile_is_refused(tmp_path: Path, what: str) -> None:
    async def run() -> None:
        async with running(tmp_path) as cluster, await Connection.connect(cluster.addresses) as client:
            since = await filled(cluster, client)
            server = cluster.others(await cluster.leading())[0]
            node = cluster.nodes[server]
            at = node.replicas[TABLET].applier.timestamp
            deletion = DeleteReplica(node_id=server, tablet_id=TABLET, fence=Terminal(state=TabletState.REMOVED))
            with busy(node) as pool:
                asked = asyncio.create_task(read(client, server, what, since, at))
                await pool.queued.wait()
                await act(client, deletion)
                assert TABLET not in node.replicas
                pool.go_on()
                with pytest.raises((Unavailable, NoSuchTablet)):  # The second one when it was asked once more.
                    await asked

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_scan_of_a_node_that_stops_meanwhile_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node answers until its last store is closed."""

    async def run() -> None:
        async with running(tmp_path) as cluster, await Connection.connect(cluster.addresses) as client:
            since = await filled(cluster, client)
            server = cluster.others(await cluster.leading())[0]
            node = cluster.nodes[server]
            at = node.replicas[TABLET].applier.timestamp
            closed, answered, close = asyncio.Event(), asyncio.Event(), Node._close_store

            async def close_slowly(self: Node, replica: object) -> None:
                await close(self, replica)  # type: ignore[arg-type]
                if self is node:
                    closed.set()
                    await answered.wait()  # As long as with many tablets.

            monkeypatch.setattr(Node, "_close_store", close_slowly)
            with busy(node) as pool:
                asked = asyncio.create_task(read(client, server, "scan", since, at))
                await pool.queued.wait()
                stopping = asyncio.create_task(cluster.stop(server))
                await closed.wait()
                pool.go_on()
                with pytest.raises(Unavailable):
                    await asked
                answered.set()
            await stopping

    asyncio.run(asyncio.wait_for(run(), 60))
