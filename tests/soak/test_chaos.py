"""Long chaos on real processes: every log engine under every store, killed, stopped, partitioned, its leadership moved.

Each run lasts ``CHAOS_S``. It must end with one history in which everything that clients were told is possible, the
last read of every key included, and with replicas that agree. A run that fails prints its seed and what was done."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stelae.cli.node_formatting import format_here
from stelae.client.connection import Connection
from stelae.local.cluster import ClusterOptions, LocalCluster, TabletSpec
from stelae.local.demo_verification import wait_for_agreement
from stelae.sim.history import ClientAction
from stelae.spi.ids import TabletId
from tests.soak.clients import ChaosClient, cancel_all, read_all, stop_all
from tests.soak.faults import ProcessFaults, rules_path
from tests.soak.history import KeyHistories

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

MIXED = {"wal": ",".join(LOGS), "store": ",".join(STORES)}
ENGINES = [{"wal": wal, "store": store} for wal in LOGS for store in STORES]


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalCluster]:
    """Three nodes on engines, with rules for their networks; whatever happens, none of them is left."""
    options = ClusterOptions(engines=request.param, settings=SETTINGS)
    made = LocalCluster.create(tmp_path / "cluster", SPEC, options, formatted=format_here)
    for node in made.nodes:
        with node.config_path.open("a") as file:
            file.write(f'\n[chaos]\nnetwork_rules = "{rules_path(node)}"\n')
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
    history, driver = asyncio.run(live(cluster, SEED))
    seen = f"{history.acknowledged} writes acknowledged, {history.unknown} of unknown outcome, {dict(driver.done)}"
    story = "\n".join([f"STELAE_CHAOS_SEED={SEED} STELAE_CHAOS_S={CHAOS_S}", seen, *driver.story])
    with capsys.disabled():
        print(f"\n{seen}")
    assert {kind for kind in driver.kinds if not driver.done[kind]} == set(), story
    assert history.acknowledged > 10 * CHAOS_S, story
    assert history.judge() == {}, story


async def live(cluster: LocalCluster, seed: int) -> tuple[KeyHistories, ProcessFaults]:
    """Let clients and faults at a cluster, then heal it, and read everything once more."""
    history, started = KeyHistories(), time.monotonic()
    async with await Connection.connect(cluster.addresses, timeout_s=60) as client:
        clients = [ChaosClient(n, history, random.Random(f"{seed}/{n}"), started) for n in range(CLIENTS)]
        tasks = [asyncio.create_task(one.run(cluster.addresses, cluster.tablet_id)) for one in clients]
        driver = ProcessFaults(cluster, client, random.Random(f"{seed}/faults"))
        work = asyncio.create_task(driver.run())
        try:
            done, _ = await asyncio.wait([work, *tasks], timeout=CHAOS_S, return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                ended.result()  # Nobody ends by itself, but by an error.
            driver.stopping = True
            await work
            await stop_all(clients, tasks)
        finally:
            cancel_all([work, *tasks])
        tablet = await client.tablet(cluster.tablet_id)
        await read_all(tablet, history)
        replicas = {cluster.tablet_id: [node.node_id for node in cluster.nodes]}
        agreement = await wait_for_agreement(client, replicas, cluster.check)
        assert agreement.agree, "\n".join([agreement.detail, *driver.story])
    return history, driver


def test_a_history_from_which_an_acknowledged_write_is_gone_is_impossible() -> None:
    history = KeyHistories()
    first = history.begin("1/1", ClientAction.UPSERT, 7, "1/1")
    history.end_write(first, None, 10)
    second = history.begin("1/2", ClientAction.UPSERT, 7, "1/2")
    history.end_write(second, None, 20)
    unknown = history.begin("2/1", ClientAction.DELETE, 7, None)
    history.give_up(unknown)
    last = history.begin("last", ClientAction.READ, 7, None)
    history.end_read(last, "1/2")
    assert history.judge() == {}
    assert list(history.without(second).judge()) == [7], "a value that nobody wrote"
    last.value = "1/1"
    assert list(history.judge()) == [7], "the second write is gone"
    last.value = None
    assert history.judge() == {}, "the deletion of unknown outcome may have taken effect"
