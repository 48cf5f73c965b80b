"""Real nodes under more rows than they may hold: memory stays bounded, and writers wait instead of failing."""

from __future__ import annotations

import asyncio
import json
import random
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families

from stelae.cli.node_formatting import format_here
from stelae.client import AsyncTable, connect_async
from stelae.host.apply import GROUP_BYTES_MAX
from stelae.local.cluster import ClusterOptions, LocalCluster, TabletSpec
from stelae.local.node_process import NodeProcess
from stelae.spi.ids import TabletId
from stelae.telemetry.target_file import TARGET_FILE
from tests.e2e.starting import start

MIB = 1 << 20
WAIT_S = 60.0  #: Longest wait for an answer; reached only by a defect.
SPEC = TabletSpec(
    tablet_id=TabletId("t"), columns=({"name": "id", "type": "int64"}, {"name": "data", "type": "binary"}), key=("id",)
)
MEMORY_MAX = 2 * MIB
SENT_BYTES_MAX = 2 * MIB
#: Applied after the store was full: one group of entries, and those that were sent before it said so. A version and its
#: key take up to a quarter of a row besides.
LET_IN_BYTES = (GROUP_BYTES_MAX + SENT_BYTES_MAX) * 5 // 4
SMALL = {
    "consensus.raft": {"in_flight_bytes_max": SENT_BYTES_MAX},
    "maintenance": {"flush_bytes": MEMORY_MAX, "replica_memory_bytes_max": MEMORY_MAX, "memory_bytes": 2 * MEMORY_MAX},
    "store.columnar": {
        "block_bytes_max": 4 * MIB,
        "merge_step_rows": 16_384,
        "row_group_rows": 1024,
        "cache_bytes": 4 * MIB,
    },
}
BATCH_ROWS, ROW_BYTES, IN_FLIGHT = 256, 1024, 8
BATCH_BYTES = BATCH_ROWS * ROW_BYTES
WARM_BATCHES = 32 * MIB // BATCH_BYTES  #: Till entries that peers may ask for have filled their cache, of 32 MiB.
MORE_BATCHES = 48 * MIB // BATCH_BYTES
BATCHES = WARM_BATCHES + MORE_BATCHES
GROWTH_MAX = 32 * MIB  #: What allocators keep; rows that nobody flushed would be one and a half times that.


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    made = LocalCluster.create(tmp_path / "cluster", SPEC, ClusterOptions(settings=SMALL), formatted=format_here)
    try:
        start(made)
        yield made
    finally:
        made.stop()


class Facts:
    """What nodes hold, by their own figures and by the system's."""

    def __init__(self, nodes: Sequence[NodeProcess]) -> None:
        self.nodes = nodes
        self.held_bytes_max = 0
        self.refused = self.flushes = self.compactions = self.lag = 0.0

    def look(self) -> None:
        """Ask every node."""
        found = [self._figures(node) for node in self.nodes]
        held = [int(figures["stelae_store_memory_bytes"]) for figures in found]
        self.held_bytes_max = max(self.held_bytes_max, *held)
        self.refused = sum(figures.get("overloaded", 0.0) for figures in found)
        self.flushes = min(figures["stelae_flushes_total"] for figures in found)
        self.lag = sum(f["stelae_replication_lag_entries"] + f["stelae_apply_lag_entries"] for f in found)
        self.compactions = min(figures["stelae_compactions_total"] for figures in found)

    async def shown(self) -> None:
        """Wait until every node shows its figures: a cluster serves without the last one."""
        async with asyncio.timeout(WAIT_S):
            while not all((node.directory / "data" / TARGET_FILE).exists() for node in self.nodes):
                await asyncio.sleep(0.05)

    async def caught_up(self) -> None:
        """Wait until every node has applied all that was written: a follower that is pushed back comes later."""
        async with asyncio.timeout(WAIT_S):
            while True:
                await asyncio.to_thread(self.look)
                if not self.lag:
                    return
                await asyncio.sleep(0.05)

    def _figures(self, node: NodeProcess) -> dict[str, float]:
        (target,) = json.loads((node.directory / "data" / TARGET_FILE).read_text())[0]["targets"]
        with urllib.request.urlopen(f"http://{target}/metrics", timeout=WAIT_S) as answer:
            text = answer.read().decode()
        samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
        return {s.labels.get("code", s.name): s.value for s in samples}

    def peaks(self) -> list[int]:
        """The most that each process has ever had in memory."""
        lines = [line for node in self.nodes for line in Path(f"/proc/{node.pid}/status").read_text().splitlines()]
        return [int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")]


def batch(number: int) -> pa.Table:
    """Rows from all over the table, so that what is flushed overlaps and has to be merged."""
    data = random.Random(number).randbytes(BATCH_BYTES)
    cells = [data[at : at + ROW_BYTES] for at in range(0, BATCH_BYTES, ROW_BYTES)]
    return pa.table({"id": range(number, BATCHES * BATCH_ROWS, BATCHES), "data": cells})


async def load(table: AsyncTable, numbers: range, watch: Facts) -> None:
    waiting = iter(numbers)

    async def write() -> None:
        for number in waiting:
            await table.insert(batch(number), timeout_s=WAIT_S)
            if number % 8 == 0:
                await asyncio.to_thread(watch.look)

    await asyncio.gather(*[write() for _ in range(IN_FLIGHT)])


def test_forty_times_what_memory_may_hold_is_written_and_memory_stays_bounded(cluster: LocalCluster) -> None:
    async def run() -> None:
        async with await connect_async(cluster.addresses, timeout_s=WAIT_S) as client:
            table, watch = await client.table("t", timeout_s=WAIT_S), Facts(cluster.nodes)
            await watch.shown()
            await load(table, range(WARM_BATCHES), watch)
            await watch.caught_up()  # A follower that lags would fill its cache of entries later, and seem to grow.
            before = watch.peaks()
            await load(table, range(WARM_BATCHES, BATCHES), watch)
            await watch.caught_up()
            cluster.check()
            assert watch.held_bytes_max <= MEMORY_MAX + LET_IN_BYTES
            assert [
                peak - was for peak, was in zip(watch.peaks(), before, strict=True) if peak - was > GROWTH_MAX
            ] == []
            assert watch.refused > 0, "nobody was pushed back"
            assert watch.flushes >= BATCHES * BATCH_BYTES // (MEMORY_MAX + LET_IN_BYTES) and watch.compactions > 0
            assert await table.scan(["id"]).count() == BATCHES * BATCH_ROWS

    asyncio.run(run())
