"""Changes the members of a tablet again and again while clients write to it at full speed, on real processes.

Each round adds the node that is no member, waits until it is a voter, and removes the leader. The removed leader is the
node that the next round adds, so after four rounds every node has been added, has led and has been removed."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from stelae.client import AsyncClient, AsyncReplicas, AsyncTable, connect_async
from stelae.local.ack_times import AckTimes
from stelae.local.cluster import ClusterOptions, LocalCluster, TabletSpec
from stelae.local.demo_verification import wait_for_agreement
from stelae.spi.ids import TabletId

ELECTION_TIMEOUT_MS = 1000
GAP_MS_MAX = 2 * ELECTION_TIMEOUT_MS + 1000
"""The longest time without an acknowledgement that users accept around a failure or a handover."""

WRITERS_COUNT = 32
TIMEOUT_S = 60.0

SPEC = TabletSpec(
    tablet_id=TabletId("rounds"),
    columns=({"name": "id", "type": "int64"}, {"name": "text", "type": "string"}),
    key=("id",),
)
OPTIONS = ClusterOptions(
    spare_count=1,
    settings={
        "consensus.raft": {"election_timeout_ms": ELECTION_TIMEOUT_MS},
        # A removed member is fed from the log when it is added again, so the log must not be collected meanwhile.
        "maintenance": {"flush_interval_ms": 3_600_000, "flush_bytes": 1 << 30, "replica_memory_bytes_max": 4 << 30},
    },
)


@dataclass(slots=True)
class RoundsReport:
    """What the rounds have shown."""

    rounds: int = 0
    acknowledged: int = 0
    retries: int = 0
    longest_gap_ms: float = 0.0
    lost: list[int] = field(default_factory=list)
    unexpected: list[int] = field(default_factory=list)
    disagreement: str = ""

    def __str__(self) -> str:
        return (
            f"{self.rounds} rounds, {self.acknowledged} rows acknowledged, {self.retries} retries, "
            f"longest gap {self.longest_gap_ms:.0f} ms, {len(self.lost)} lost, {len(self.unexpected)} unexpected"
        )


class Writers:
    """Inserts rows with ids of their own, as fast as they are acknowledged."""

    def __init__(self, table: AsyncTable) -> None:
        self._table = table
        self._next = 0
        self.stopping = False
        self.acknowledged: list[int] = []
        self.acks = AckTimes(time.monotonic)

    async def run(self) -> None:
        """Insert until ``stopping``. A write that fails ends the run: clients retry by themselves."""
        while not self.stopping:
            number, self._next = self._next, self._next + 1
            await self._table.insert({"id": number, "text": f"row {number}"}, timeout_s=TIMEOUT_S)
            self.acknowledged.append(number)
            self.acks.note()


async def change_members(cluster: LocalCluster, rounds: int) -> RoundsReport:
    """Run the rounds on a cluster that runs, and return what they have shown."""
    report = RoundsReport()
    async with await connect_async(cluster.addresses[:3], timeout_s=TIMEOUT_S) as client:
        table, replicas = await client.table(SPEC.tablet_id), await client.replicas(SPEC.tablet_id)
        writers, began_s = Writers(table), time.monotonic()
        tasks = [asyncio.create_task(writers.run()) for _ in range(WRITERS_COUNT)]
        try:
            for _ in range(rounds):
                await _one_round(cluster, replicas)
                cluster.check()
                report.rounds += 1
            writers.stopping = True
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        report.longest_gap_ms = writers.acks.longest_gap_ms(began_s, time.monotonic())
        report.acknowledged, report.retries = len(writers.acknowledged), sum(table.retries.values())
        await _verify(cluster, client, table, replicas, writers, report)
    return report


async def _one_round(cluster: LocalCluster, replicas: AsyncReplicas) -> None:
    before = await replicas.config(timeout_s=TIMEOUT_S)
    members = {member.node_id for member in before.committed.members}
    (outside,) = (node for node in cluster.nodes if node.node_id not in members)
    added = await replicas.add(outside.address, node=outside.node_id, wait=True, timeout_s=TIMEOUT_S)
    leader = added.view.node_id
    removed = await replicas.remove(leader, timeout_s=TIMEOUT_S)
    assert removed.view.node_id != leader, "the removed leader still answers"


async def _verify(
    cluster: LocalCluster,
    client: AsyncClient,
    table: AsyncTable,
    replicas: AsyncReplicas,
    writers: Writers,
    report: RoundsReport,
) -> None:
    """Read every row back, and compare the replicas of the last config."""
    read = {row["id"] for row in await table.scan(["id"]).to_pylist()}
    report.lost = sorted(set(writers.acknowledged) - read)
    report.unexpected = sorted(read - set(writers.acknowledged))
    members = (await replicas.config(timeout_s=TIMEOUT_S)).committed.members
    agreement = await wait_for_agreement(
        client.connection, {SPEC.tablet_id: [member.node_id for member in members]}, cluster.check
    )
    report.disagreement = "" if agreement.agree else agreement.detail
