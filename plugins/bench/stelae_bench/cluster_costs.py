"""What the operations of a measurement cost: processor time and context switches of all processes, entries of the log.

Processor times are those of whole processes, so a share of idle work (heartbeats, timers) is in them. The nodes are
asked before and after the measured time, and not within it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from stelae.client.connection import Connection
from stelae.local.cluster import LocalCluster
from stelae.local.node_process import NodeProcess
from stelae.spi.errors import RetryableError, Unavailable
from stelae.spi.ids import NodeId, TabletId
from stelae_bench.node_counters import node_counter
from stelae_bench.process_cpu import ProcessUsage, cpu_seconds, spent

_Found = TypeVar("_Found")

LED_TIMEOUT_S = 20.0
ASK_MS = 2000
POLL_S = 0.05
OPERATIONS = "write_operations"
"""The counter of the operations that a node was asked to write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What all operations of one measurement cost together. ``None``: it is not known.

    Attributes:
        client_s, leader_s, followers_s: processor time, in seconds. There may be several client processes.
        switches: context switches of all these processes.
        entries: entries that the leader has appended to the log of the tablet.
        written: operations that the leader was asked to write.
    """

    client_s: float | None = None
    leader_s: float | None = None
    followers_s: float | None = None
    switches: int | None = None
    entries: int | None = None
    written: int | None = None

    @property
    def cpu_s(self) -> float | None:
        """The processor time of all processes."""
        parts = (self.client_s, self.leader_s, self.followers_s)
        return None if None in parts else sum(part for part in parts if part is not None)


UNKNOWN_COST = Cost()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderLog:
    """The leader of a tablet, its last log index, and the counter of operations of its node."""

    leader: NodeId
    term: int
    last_index: int
    written: int


class CostMeter:
    """Measures the costs of operations on the tablets of a cluster."""

    def __init__(self, cluster: LocalCluster, connection: Connection) -> None:
        self._cluster = cluster
        self._connection = connection

    async def until_led(self, tablet_id: TabletId) -> tuple[NodeId, int, int]:
        """Wait until all nodes name the same leader of a tablet; return it, its term and its last log index.

        Raises:
            NodeExited: a node does not run any more.
            Unavailable: there is no such leader in time.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + LED_TIMEOUT_S
        while True:
            self._cluster.check()
            self._connection.add_peers([(node.node_id, node.address) for node in self._cluster.nodes])
            asked = [self._connection.status(node.node_id, deadline_ms=ASK_MS) for node in self._cluster.nodes]
            found = await asyncio.gather(*asked, return_exceptions=True)
            for answer in found:
                if isinstance(answer, BaseException) and not isinstance(answer, RetryableError):
                    raise answer
            reports = [one for had in found if not isinstance(had, BaseException) for one in had]
            here = [one for one in reports if one.tablet_id == tablet_id]
            leading = [one for one in here if (one.role, one.state) == ("LEADER", "RUNNING")]
            if len(leading) == 1 and [one.leader for one in here] == [leading[0].node_id] * len(self._cluster.nodes):
                return leading[0].node_id, leading[0].term, leading[0].last.index
            if loop.time() > deadline:
                raise Unavailable(f"the nodes name no common leader of {tablet_id} within {LED_TIMEOUT_S:.0f} s")
            await asyncio.sleep(POLL_S)

    async def measured(
        self, tablet_id: TabletId, further_clients: Sequence[int], run: Callable[[], Awaitable[_Found]]
    ) -> tuple[_Found, Cost]:
        """Run a measurement on one tablet, and return its result and its cost.

        Args:
            tablet_id: the tablet that is used.
            further_clients: the process ids of clients besides this process.
            run: the measurement.
        """
        clients = [os.getpid(), *further_clients]
        nodes = [pid for node in self._cluster.nodes if (pid := node.pid) is not None]
        log = await self._log(tablet_id)
        before = [ProcessUsage.of(pid) for pid in (*clients, *nodes)]
        found = await run()
        after = [ProcessUsage.of(pid) for pid in (*clients, *nodes)]
        later = await self._log(tablet_id)
        leader = self._cluster.node(log.leader).pid
        used = {
            pid: (spent([old.cpu_s], [new.cpu_s]), new.switches_since(old))
            for pid, old, new in zip((*clients, *nodes), before, after, strict=True)
        }
        same = (later.leader, later.term) == (log.leader, log.term)
        return found, Cost(
            client_s=_sum([used[pid][0] for pid in clients]),
            leader_s=_sum([used[pid][0] for pid in nodes if pid == leader and same]),
            followers_s=_sum([used[pid][0] for pid in nodes if pid != leader and same]),
            switches=_sum([switches for _, switches in used.values()]),
            entries=later.last_index - log.last_index if same else None,
            written=later.written - log.written if same else None,
        )

    def nodes_cpu_s(self) -> float | None:
        """Return the processor time of all nodes so far, in seconds."""
        return _sum([None if node.pid is None else cpu_seconds(node.pid) for node in self._cluster.nodes])

    async def _log(self, tablet_id: TabletId) -> LeaderLog:
        leader, term, last_index = await self.until_led(tablet_id)
        node: NodeProcess = self._cluster.node(leader)
        written = await asyncio.to_thread(node_counter, node, OPERATIONS)
        return LeaderLog(leader=leader, term=term, last_index=last_index, written=written)


_Number = TypeVar("_Number", int, float)


def _sum(values: Sequence[_Number | None]) -> _Number | None:
    """Return the sum of values; ``None`` if there are none, or one is not known."""
    known = [value for value in values if value is not None]
    return sum(known[1:], known[0]) if known and len(known) == len(values) else None
