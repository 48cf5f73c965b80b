"""Long chaos on real processes: every log engine under every store, killed, stopped, partitioned, its leadership moved.

Each run lasts ``CHAOS_S``. It must end with one history in which everything that clients were told is possible, the
last read of every key included, and with replicas that agree. A run that fails prints its seed and what was done."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from stelae.cli.node_formatting import format_here
from stelae.client.connection import Connection
from stelae.local.chaos.node_rules import RulesKind, enable_rules
from stelae.local.cluster import ClusterOptions, LocalCluster, TabletSpec
from stelae.local.demo_verification import wait_for_agreement
from stelae.spi.ids import TabletId
from stelae_chaos.fault_kinds import KINDS
from stelae_chaos.fault_target import FaultTarget
from stelae_chaos.nemesis import Nemesis
from stelae_chaos.operations import ChaosOutcome
from stelae_chaos.plan import planned_faults
from stelae_chaos.register_check import check_registers
from tests.soak.clients import ChaosClient, Recorder, cancel_all, read_all, stop_all

CHAOS_S = float(os.environ.get("STELAE_CHAOS_S", "180"))
SEED = int(os.environ.get("STELAE_CHAOS_SEED", "0")) or random.SystemRandom().getrandbits(32)
CLIENTS = 16
LOGS = ("segmented", "lmdb", "shared")
STORES = ("memory", "columnar", "lmdb")

SPEC = TabletSpec(
    tablet_id=TabletId("chaos"),
    columns=({"name": "id", "type": "int64"}, {"name": "text", "type": "string"}),
    key=("id",),
)
SMALL = {"segment_bytes_first": 65536, "segment_bytes_max": 65536, "prewrite_bytes_min": 65536}
SETTINGS = {
    "consensus.raft": {"election_timeout_ms": 300},
    "maintenance": {"flush_bytes": 65536, "flush_interval_ms": 200},
    "wal.segmented": SMALL,
    "wal.shared": SMALL,
}
"""Small, so that logs are rolled and collected, and stores flush and merge, while all this happens."""

POSSIBLE = [kind for kind, described in KINDS.items() if not described.needs_masters]
MIXED = {"wal": ",".join(LOGS), "store": ",".join(STORES)}
ENGINES = [{"wal": wal, "store": store} for wal in LOGS for store in STORES]


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalCluster]:
    """Three nodes on engines, with rules for networks, disks and clocks; whatever happens, none of them is left."""
    options = ClusterOptions(engines=request.param, settings=SETTINGS)
    made = LocalCluster.create(tmp_path / "cluster", SPEC, options, formatted=format_here)
    for node in made.nodes:
        enable_rules(node)
    try:
        made.start()
        yield made
    finally:
        for node in made.nodes:
            node.kill()


@pytest.mark.parametrize("cluster", [*ENGINES, MIXED], ids=lambda engines: "-".join(engines.values()), indirect=True)
def test_chaos_loses_nothing_that_was_acknowledged_and_brings_nothing_back(
    cluster: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    recorder, nemesis = asyncio.run(live(cluster, SEED))
    unknown = sum(call.outcome is ChaosOutcome.UNKNOWN for call in recorder.calls)
    seen = f"{recorder.acknowledged} writes acknowledged, {unknown} without an answer, {dict(nemesis.done)}"
    story = "\n".join([f"STELAE_CHAOS_SEED={SEED} STELAE_CHAOS_S={CHAOS_S}", seen, *map(str, nemesis.spans)])
    with capsys.disabled():
        print(f"\n{seen}")
    assert {kind for kind in POSSIBLE if not nemesis.done[kind]} == set(), story
    assert recorder.acknowledged > 10 * CHAOS_S, story
    assert check_registers(recorder.calls) == [], story


async def live(cluster: LocalCluster, seed: int) -> tuple[Recorder, Nemesis]:
    """Let clients and faults at a cluster, then heal it, and read everything once more."""
    recorder = Recorder()
    async with await Connection.connect(cluster.addresses, timeout_s=60) as client:
        clients = [ChaosClient(n, recorder, random.Random(f"{seed}/{n}")) for n in range(CLIENTS)]
        nodes = [node.node_id for node in cluster.nodes]
        tasks = [asyncio.create_task(one.run(cluster.addresses, cluster.tablet_id, nodes)) for one in clients]
        target = FaultTarget((), cluster.nodes, [cluster.tablet_id], client, outlive=False)
        assert all(target.has_rules(kind) for kind in RulesKind)
        nemesis = Nemesis(target, planned_faults(seed, POSSIBLE), recorder.now_us)
        work = asyncio.create_task(nemesis.run())
        try:
            done, _ = await asyncio.wait([work, *tasks], timeout=CHAOS_S, return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                ended.result()  # Nobody ends by itself, but by an error.
            nemesis.stop()
            await work
            await stop_all(clients, tasks)
        finally:
            cancel_all([work, *tasks])
        tablet = await client.tablet(cluster.tablet_id)
        await read_all(tablet, recorder)
        agreement = await wait_for_agreement(client, {cluster.tablet_id: nodes}, cluster.check)
        assert agreement.agree, "\n".join([agreement.detail, *map(str, nemesis.spans)])
    return recorder, nemesis
