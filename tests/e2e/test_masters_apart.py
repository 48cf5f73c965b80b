"""Masters that must not meet, or that come back: each is refused or harmless, and says what to do."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from functools import partial
from pathlib import Path

import pytest

from stelae.check.cluster_check import check
from stelae.client.async_client import AsyncClient, connect_async
from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.protocol.codec import encode
from stelae.protocol.master_errors import TooFewServers
from stelae.protocol.master_messages import READ, CatalogReadRequest, ListTables
from stelae.spi.errors import MemberChangeRefused, NotLeader, Unavailable
from stelae.spi.ids import ClusterId, NodeId
from stelae.wire.refusals import WrongCluster
from tests.e2e import in_process
from tests.e2e.master_nodes import Cluster, running, until
from tests.e2e.test_master_changes import add_master
from tests.e2e.test_masters import COLUMNS, QUICK

COLLECTING = """
[maintenance]
flush_bytes = 65536
flush_interval_ms = 10
[wal.segmented]
segment_bytes_first = 4096
segment_bytes_max = 4096
"""

SLOW = """
[copy.streaming]
chunk_bytes = 4096
fetch_bytes_per_s_max = 4096
"""


async def connected(cluster: Cluster, master: NodeId) -> AsyncClient:
    return await connect_async(cluster.addresses[master], timeout_s=20.0)


def serves(cluster: Cluster, master: NodeId) -> bool:
    core = cluster.core_of(master)
    return core is not None and core.status().serving


def has_tables(cluster: Cluster, master: NodeId) -> bool:
    core = cluster.core_of(master)
    return core is not None and bool(core.catalog.tables)


def has_the_catalog_of(cluster: Cluster, master: NodeId, other: NodeId) -> bool:
    core = cluster.core_of(master)
    return core is not None and core.catalog.tables == cluster.core(other).catalog.tables


def test_a_removed_master_says_so_leads_clients_to_the_others_and_may_be_added_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with running(tmp_path, servers=1, settings=QUICK) as cluster:
            gone, *others = cluster.masters
            async with await connected(cluster, others[0]) as client:
                await client.create_table("people", COLUMNS, "id", replicas=1)
                await cluster.stop(gone)
                await client.masters.remove(gone)
                await cluster.start(gone)
                await until(lambda: "this master was removed: config " in caplog.text)
                assert "add it again with: stelae master add" in caplog.text
                present = ", ".join(cluster.addresses[master] for master in sorted(others))
                for staleness_ms in (0, 600_000):
                    read = encode(CatalogReadRequest(question=ListTables(), staleness_ms=staleness_ms))
                    with pytest.raises(NotLeader, match=f"this master was removed: .* has the masters {present}"):
                        await client.connection.ask(gone, READ, read)
                there = cluster.addresses[gone]
                words = ("master", "describe", there, "--connect", there, "--json")
                shown = json.loads((await asyncio.to_thread(in_process.stelae, *words)).stdout)
                assert shown["node_id"] == gone and "it was removed" in shown["problem"] and shown["cluster_id"]
            async with await connected(cluster, gone) as client:
                view = await client.masters.view()
                assert {node for node, _ in view.members} == set(others) and view.leader in others
                assert await client.tables() == ["people"]
                assert (await client.masters.add(cluster.addresses[gone], wait=True)).changed
                await until(partial(has_tables, cluster, gone))
                assert len((await client.masters.view()).members) == 3

    asyncio.run(run())


def test_a_master_of_another_cluster_is_refused_also_if_both_have_one_id(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path / "one", 1, 0, QUICK) as one, running(tmp_path / "two", 1, 0, QUICK) as two:
            (ours,), (theirs,) = one.masters, two.masters
            async with await connected(one, ours) as client:
                before = await client.masters.config()
                with pytest.raises(MemberChangeRefused, match=r"another cluster with the same id.*nothing was changed"):
                    await client.masters.add(two.addresses[theirs])
                assert (await client.masters.config()).config == before.config
            assert one.leader() == ours and two.leader() == theirs
        named = Cluster(tmp_path / "three", 1, 0, QUICK, cluster_id=ClusterId("other"))
        async with running(tmp_path / "four", 1, 0, QUICK) as one:
            try:
                await named.start(named.masters[0])
                async with await connected(one, one.masters[0]) as client:
                    with pytest.raises(WrongCluster, match="this is 'other'"):
                        await client.masters.add(named.addresses[named.masters[0]])
            finally:
                await named.stop(named.masters[0])

    asyncio.run(run())


def test_what_cannot_join_is_refused_and_leaves_no_trace(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, masters=1, servers=1, settings=QUICK) as cluster:
            absent = cluster.new_master()
            async with await connected(cluster, cluster.first[0]) as client:
                before = (await client.masters.config()).config
                with pytest.raises(Unavailable, match=r"no answer from .*start the new master first"):
                    await client.masters.node_at(cluster.addresses[absent], timeout_s=0.5)
                with pytest.raises(MemberChangeRefused, match=r"does not answer as master .*start it with"):
                    await client.masters.add(cluster.addresses[absent], node=absent)
                with pytest.raises(MemberChangeRefused, match="runs as a tserver; start a master"):
                    await client.masters.add(cluster.addresses[cluster.servers[0]])
                assert (await client.masters.config()).config == before

    asyncio.run(run())


def test_a_new_master_that_dies_in_its_copy_is_removed_again_and_may_come_back(tmp_path: Path) -> None:
    """It had answered the leader once, so it stayed a member without a vote for ever."""
    settings = f"member_join_timeout_ms = 1000\n{QUICK}"  # Behind the section [consensus.raft].

    async def run() -> None:
        async with running(tmp_path, masters=1, servers=1, settings=settings + COLLECTING) as cluster:
            (first,) = cluster.masters
            async with await connected(cluster, first) as client:
                await until_collected(cluster, client, 3)
                await cluster.stop(first)  # It may send entries that are collected while it has them in memory.
                await cluster.start(first)
                dies, plain = cluster.new_master(), cluster.settings
                cluster.settings = plain + SLOW
                await cluster.start(dies)
                cluster.settings = plain
                await until(lambda: "stelae master add" in cluster.late(dies))
                await client.masters.add(cluster.addresses[dies])
                await until(lambda: any((tmp_path / dies / "copying").iterdir()))
                await cluster.stop(dies)
                leader = cluster.nodes[first].replicas[SYSTEM_TABLET]
                assert len(leader.status.config.members) == 2
                await until(lambda: len(leader.status.committed_config.members) == 1)
                await cluster.start(dies)
                assert (await client.masters.add(cluster.addresses[dies], wait=True, timeout_s=60.0)).changed

    asyncio.run(run())


def test_a_master_that_lost_its_disk_is_replaced_at_its_address_under_a_new_uuid(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, servers=1, settings=QUICK) as cluster:
            keeps, other, lost = cluster.masters
            async with await connected(cluster, keeps) as client:
                await client.create_table("people", COLUMNS, "id", replicas=1)
                await cluster.stop(lost)
                shutil.rmtree(tmp_path / lost)
                await cluster.start(lost)  # Formatted under its old uuid.
                await until(lambda: SYSTEM_TABLET in cluster.nodes[lost].failed_tablets)
                assert "would vote without" in cluster.nodes[lost].failed_tablets[SYSTEM_TABLET]
                await cluster.stop(lost)
                new = cluster.new_master()
                cluster.addresses[new] = cluster.addresses[lost]
                cluster.lists[new] = [keeps]
                await cluster.start(new)
                done = await client.masters.replace(lost, cluster.addresses[new], timeout_s=60.0)
                assert {member.node_id for member in done.view.committed.members} == {keeps, other, new}
                await cluster.stop(keeps)
                await client.create_table("more", COLUMNS, "id", replicas=1)
                assert await client.tables() == ["more", "people"]

    asyncio.run(run())


def test_a_first_master_that_founds_anew_by_its_old_list_stays_apart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its file lists itself alone, because it began alone. With its old uuid it is a voter of the others' config."""

    async def run() -> None:
        async with running(tmp_path, masters=1, servers=1, settings=QUICK) as cluster:
            (first,) = cluster.masters
            more = [cluster.new_master(), cluster.new_master()]
            async with await connected(cluster, first) as client:
                for master in more:
                    await add_master(cluster, client, master)
                await client.create_table("people", COLUMNS, "id", replicas=1)
            await cluster.stop(first)
            shutil.rmtree(tmp_path / first)
            await until(lambda: cluster.leader() in more)
            await cluster.start(first)
            await until(lambda: serves(cluster, first))
            await until(lambda: re.search("heartbeat failed .*two clusters have one", caplog.text) is not None)
            leader = await cluster.leading()
            left = next(master for master in more if master != leader)
            await cluster.stop(next(master for master in more if master != left))
            async with await connected(cluster, first) as client:
                with pytest.raises((TooFewServers, Unavailable)):
                    await client.create_table("wrong", COLUMNS, "id", replicas=1, timeout_s=1.0)
            await asyncio.sleep(2.0)
            assert not cluster.core(left).status().serving, "the new directory has voted in its old name"
            assert cluster.core(first).catalog.tables == {}
            await cluster.start(next(master for master in more if master != left))
            await cluster.stop(first)
            async with await connected(cluster, left) as client:
                assert await client.tables() == ["people"]
                await client.masters.remove(first)

    asyncio.run(run())


def test_a_master_joins_by_copy_and_one_that_lags_is_copied_again(tmp_path: Path) -> None:
    """The log begins behind its first entries, so only a copy can feed a new master, or one that was away for long."""

    async def run() -> None:
        async with running(tmp_path, servers=1, settings=QUICK + COLLECTING) as cluster:
            lags, *others = cluster.masters
            async with await connected(cluster, others[0]) as client:
                await client.create_table("first", COLUMNS, "id", replicas=1)
                await until(partial(has_tables, cluster, lags))
                await cluster.stop(lags)
                await client.masters.remove(lags)
                # The last entry here lies behind all that the stopped master has got.
                last = cluster.nodes[others[0]].replicas[SYSTEM_TABLET].status.last.index
                await until_collected(cluster, client, last)
                for master in others:  # A leader may send entries that are collected while it has them in memory.
                    await cluster.stop(master)
                    await cluster.start(master)
                await until(lambda: cluster.leader() in others)
                new = cluster.new_master()
                await add_master(cluster, client, new)
                await cluster.start(lags)
                await client.masters.add(cluster.addresses[lags], wait=True, timeout_s=60.0)
                for master in (new, lags):
                    assert log_base(cluster, master) > 0
                    await until(partial(has_the_catalog_of, cluster, master, others[0]))
                assert client.catalog is not None
                found = await check(client.connection, client.catalog)
                assert not found.problems, found.problems

    asyncio.run(run())


async def until_collected(cluster: Cluster, client: AsyncClient, index: int) -> None:
    """Create tables until no master that runs has the entries of its log up to an index."""
    count, columns = 0, {"id": "int64", **{f"column_with_a_long_name_{n}": "string" for n in range(200)}}
    while not all(log_base(cluster, master) > index for master in cluster.masters if master in cluster.nodes):
        await client.create_table(f"wide_{count}", columns, "id", replicas=1)
        count += 1
        assert count < 300, "the log is never collected"


def log_base(cluster: Cluster, master: NodeId) -> int:
    return cluster.nodes[master].replicas[SYSTEM_TABLET].flusher.log_base.index
