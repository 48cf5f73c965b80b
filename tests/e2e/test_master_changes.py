"""Masters come and go while clients work: no node is restarted, and no file is edited."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import msgspec
import pytest

from stelae.client.async_client import AsyncClient, connect_async
from stelae.local.ports import free_ports
from stelae.server.tserver import heartbeats
from stelae.spi.errors import Unavailable
from stelae.spi.ids import ClusterId, NodeId
from stelae.spi.members import MemberType
from tests.e2e.in_process import stelae
from tests.e2e.master_nodes import Cluster, running, until, until_every_replica_runs
from tests.e2e.test_masters import COLUMNS, QUICK

SILENT = "server_silent_ms = 1500"


def by_name(address: str) -> str:
    return address.replace("127.0.0.1", "localhost")


def waits_to_join(cluster: Cluster, master: NodeId) -> bool:
    return "stelae master add" in cluster.late(master)


async def add_master(cluster: Cluster, client: AsyncClient, master: NodeId) -> None:
    """Start a new master, and let it join."""
    await cluster.start(master)
    await until(partial(waits_to_join, cluster, master))
    assert (await client.masters.add(cluster.addresses[master], wait=True, timeout_s=60.0)).changed


def test_masters_are_named_and_replaced_by_name(tmp_path: Path) -> None:
    """A master named by DNS ended at its start: it listens on an address, and no master had that."""

    async def run() -> None:
        cluster = Cluster(tmp_path, 1, 1, QUICK)
        cluster.by_name = True
        first = cluster.ids[0]
        cluster.addresses = {node: by_name(address) for node, address in cluster.addresses.items()}
        try:
            for node in cluster.ids:
                await cluster.start(node)
            await until(lambda: cluster.leader() == first)
            new = cluster.new_master()
            cluster.addresses[new] = by_name(cluster.addresses[new])
            await cluster.start(new)
            async with await connect_async(cluster.addresses[first], timeout_s=20.0) as client:
                done = await client.masters.replace(first, cluster.addresses[new], timeout_s=60.0)
                assert [member.address for member in done.view.committed.members] == [cluster.addresses[new]]
                await cluster.stop(first)
                await client.create_table("people", COLUMNS, "id", replicas=1)
        finally:
            for node in list(cluster.nodes):
                await cluster.stop(node)

    asyncio.run(run())


def test_the_only_master_may_be_stopped_as_soon_as_it_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two of its heartbeats, a tablet server never learned of the new master, and was lost for good."""
    monkeypatch.setattr(heartbeats, "INTERVAL_US", 3_000_000)

    async def run() -> None:
        async with running(tmp_path, masters=1, servers=1, settings=QUICK) as cluster:
            (first,) = cluster.masters
            new = cluster.new_master()
            await cluster.start(new)
            await until(partial(waits_to_join, cluster, new))
            async with await connect_async(cluster.addresses[first], timeout_s=20.0) as client:
                await client.masters.replace(first, cluster.addresses[new], timeout_s=60.0)
                await cluster.stop(first)
                await client.create_table("people", COLUMNS, "id", replicas=1)

    asyncio.run(run())


def test_a_client_that_was_idle_while_all_masters_were_replaced_finds_the_new_ones(tmp_path: Path) -> None:
    """No master that it knows is left. The tablet server of its table names the present ones."""

    async def run() -> None:
        async with running(tmp_path, masters=1, servers=1, settings=QUICK) as cluster:
            (first,) = cluster.masters
            async with await connect_async(cluster.addresses[first]) as idle:
                await idle.create_table("people", COLUMNS, "id", replicas=1)
                table = await idle.table("people")
                async with await connect_async(cluster.addresses[first]) as client:
                    new = cluster.new_master()
                    await add_master(cluster, client, new)
                    await client.masters.remove(first)
                server = cluster.nodes[cluster.servers[0]]
                await until(lambda: server.messenger.connected(first) is None)
                await cluster.stop(first)
                assert await idle.tables() == ["people"]
                await table.insert([{"id": 1, "text": "x"}])
                view = await idle.masters.view()
                assert [node for node, _ in view.members] == [new] and view.leader == new

    asyncio.run(run())


def test_a_client_finds_the_masters_by_a_tablet_server_or_by_contacts_of_an_earlier_client(tmp_path: Path) -> None:
    """A worker of Spark knew the addresses of its option alone. All masters there had been replaced, and it failed.

    A client that was given a tablet server did not ask it for the masters."""

    async def run() -> None:
        async with running(tmp_path, masters=1, servers=1, settings=QUICK) as cluster:
            (first,), (server,) = cluster.masters, cluster.servers
            async with await connect_async(cluster.addresses[first]) as client:
                await client.create_table("people", COLUMNS, "id", replicas=1)
                contacts = await client.contacts()
                assert contacts.addresses == (cluster.addresses[first], cluster.addresses[server])
                new = cluster.new_master()
                await add_master(cluster, client, new)
                await client.masters.remove(first)
            await until(lambda: cluster.nodes[server].messenger.connected(first) is None)
            await cluster.stop(first)
            async with await connect_async(cluster.addresses[server]) as later:
                assert await later.tables() == ["people"]
                assert [node for node, _ in (await later.masters.view()).members] == [new]
            async with await connect_async(cluster.addresses[first], contacts=contacts, timeout_s=60.0) as later:
                assert await later.tables() == ["people"]
                assert (await later.contacts()).addresses[0] == cluster.addresses[new]
            reused = Cluster(tmp_path / "reused", 1, 0, cluster_id=ClusterId("reused"))
            reused.addresses[reused.ids[0]] = cluster.addresses[first]  # That of a contact.
            await reused.start(reused.ids[0])
            try:
                nowhere = f"127.0.0.1:{free_ports(1)[0]}"
                async with await connect_async(nowhere, contacts=contacts, timeout_s=60.0) as later:
                    assert await later.tables() == ["people"]
            finally:
                await reused.stop(reused.ids[0])
            foreign = msgspec.structs.replace(contacts, cluster_id=ClusterId("another"))
            with pytest.raises(Unavailable, match=cluster.addresses[first]):
                await connect_async(cluster.addresses[first], contacts=foreign, timeout_s=3.0)

    asyncio.run(run())


def test_a_server_that_was_down_while_all_masters_were_replaced_finds_the_new_ones(tmp_path: Path) -> None:
    """No master that it knows is left. The other members of its tablets name the present ones."""

    async def run() -> None:
        async with running(tmp_path, masters=1, servers=3, settings=QUICK + SILENT) as cluster:
            (first,), away = cluster.masters, cluster.servers[0]
            async with await connect_async(cluster.addresses[first]) as client:
                await client.create_table("people", COLUMNS, "id", replicas=3)
                await until_every_replica_runs(cluster)
                await cluster.stop(away)
                new = cluster.new_master()
                await add_master(cluster, client, new)
                await client.masters.remove(first)
            others = [cluster.nodes[server] for server in cluster.servers[1:]]
            await until(lambda: all(server.messenger.connected(first) is None for server in others))
            await cluster.stop(first)
            await cluster.start(away)
            await until(lambda: cluster.core(new).servers.get(away) is not None)

    asyncio.run(run())


def test_one_master_becomes_three_and_one_again_and_everybody_follows(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, masters=1, servers=1, settings=QUICK) as cluster:
            (first,) = cluster.masters
            async with await connect_async(cluster.addresses[first]) as client:
                await client.create_table("before", COLUMNS, "id", replicas=1)
                more = [cluster.new_master(), cluster.new_master()]
                for master in more:
                    await add_master(cluster, client, master)
                    again = await client.masters.add(cluster.addresses[master], wait=True)
                    assert not again.changed
                view = await client.masters.config()
                assert {m.node_id for m in view.committed.members} == {first, *more}
                assert {m.member_type for m in view.committed.members} == {MemberType.VOTER}
                server = cluster.nodes[cluster.servers[0]]
                await until(lambda: all(server.messenger.connected(master) for master in more))
                gone = await client.masters.remove(first)
                assert gone.changed and not (await client.masters.remove(first)).changed
                await cluster.stop(first)
                await client.create_table("after", COLUMNS, "id", replicas=1)
                assert await client.tables() == ["after", "before"]
                await until(lambda: server.messenger.connected(first) is None)
                await client.masters.remove(more[0])
                await cluster.stop(more[0])
                await client.create_table("alone", COLUMNS, "id", replicas=1)
                assert await client.tables() == ["after", "alone", "before"]
            await cluster.stop(cluster.servers[0])
            await cluster.start(cluster.servers[0])  # Its file lists the first master only.
            async with await connect_async(cluster.addresses[more[1]]) as client:
                await client.create_table("late", COLUMNS, "id", replicas=1)
                table = await client.table("late")
                await table.insert([{"id": 1, "text": "x"}])

    asyncio.run(run())


def test_a_command_that_leaves_an_even_number_of_masters_says_what_that_is_worth(tmp_path: Path) -> None:
    """In ``--json`` the number of masters says it."""

    async def run() -> None:
        async with running(tmp_path, masters=1, servers=0, settings=QUICK) as cluster:
            (first,) = cluster.masters
            more = [cluster.new_master(), cluster.new_master()]
            where = ("--connect", cluster.addresses[first])
            told = []
            for master in more:
                await cluster.start(master)
                added = await asyncio.to_thread(stelae, "master", "add", cluster.addresses[master], "--wait", *where)
                told.append((added.exit_code, "no more failures than 1: add one more, or remove one" in added.stderr))
            removed = await asyncio.to_thread(stelae, "master", "remove", cluster.addresses[more[1]], *where)
            assert told == [(0, True), (0, False)]
            assert removed.exit_code == 0 and "2 masters tolerate no more failures than 1" in removed.stderr
            last = await asyncio.to_thread(stelae, "master", "remove", cluster.addresses[more[0]], *where)
            assert last.exit_code == 0 and "tolerate" not in last.stderr

    asyncio.run(run())
