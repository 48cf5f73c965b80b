"""Masters and tablet servers, as users have them: tables are made, changed, dropped, and survive dead masters."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from stelae.check.cluster_check import check
from stelae.cli.masters_target import MastersTarget as Target
from stelae.cli.run_table import run_drop
from stelae.cli.run_table_alter import AlterOptions, run_alter, run_recall, run_rename
from stelae.client.async_client import AsyncClient, connect_async
from stelae.client.table import AsyncTable
from stelae.host.hybrid_clock import physical_us
from stelae.protocol.actions import ACTION, DeleteReplica, Terminal, encode_action
from stelae.protocol.catalog_names import SYSTEM_TABLET, TabletState
from stelae.protocol.codec import decode, encode
from stelae.protocol.master_errors import BadChange, NoTable, TableExists, TooFewServers
from stelae.protocol.master_messages import (
    READ,
    AddColumn,
    CatalogReadRequest,
    DropColumn,
    ListTables,
    RenameColumn,
    RenameTable,
    TableList,
)
from stelae.protocol.read_index_messages import READ_INDEX, ReadIndexAnswer, ReadIndexRequest
from stelae.server.master.core.events import Event, MasterTick
from stelae.server.master.core.master_core import MasterCore
from stelae.spi.errors import CallerError, NotLeader, PeerError, RetryableError, SchemaMismatch, Unavailable
from stelae.spi.ids import ClusterId, NodeId, TabletId
from stelae.spi.write import OpKind
from stelae.wire.refusals import WrongCluster
from tests.e2e import in_process
from tests.e2e.master_nodes import Cluster, running, until
from tests.e2e.nodes import WAIT_S
from tests.tablet_rows import write_to

COLUMNS = {"id": "int64", "text": "string"}
RANGED = {"range": {"columns": ["id"], "ranges": [{"until": [10]}]}}
BOUND_MS = 1_500
FOUR = {"hash": [{"columns": ["id"], "buckets": 4}]}
QUICK = """
[master]
scan_interval_ms = 100
policy_interval_ms = 100
"""


async def connect(cluster: Cluster) -> AsyncClient:
    """Connect by the address of one master that runs."""
    return await connect_async(next(cluster.addresses[m] for m in cluster.masters if m in cluster.nodes))


def rows(count: int) -> list[dict[str, object]]:
    return [{"id": n, "text": f"row {n}"} for n in range(count)]


async def column(table: AsyncTable, name: str) -> list[object]:
    """The values of a column, sorted."""
    return sorted(row[name] for row in await table.scan().to_pylist())


def replicas(cluster: Cluster) -> int:
    """How many replicas the tablet servers have."""
    return sum(len(cluster.nodes[server].replicas) for server in cluster.servers if server in cluster.nodes)


def test_a_table_is_created_written_read_changed_and_dropped(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, settings=QUICK) as cluster, await connect(cluster) as client:
            table = await client.create_table("people", COLUMNS, "id", partition=FOUR)
            await until(lambda: replicas(cluster) == 12)
            await table.insert(rows(100))
            assert await column(table, "id") == list(range(100))
            assert await client.tables() == ["people"]
            changed = await client.alter_table(
                "people", AddColumn(name="size", type="int64", default=7), RenameColumn(name="text", to="words")
            )
            assert list(changed.columns) == ["id", "words", "size"]
            await changed.insert([{"id": 100, "words": "new", "size": 8}])
            assert await column(changed, "size") == [*[7] * 100, 8]
            renamed = await client.alter_table("people", RenameTable(to="folk"), DropColumn(name="size"))
            assert await client.tables() == ["folk"] and list(renamed.columns) == ["id", "words"]
            await client.drop_table("folk")
            assert await client.tables() == []
            await until(lambda: replicas(cluster) == 0)

    asyncio.run(run())


def test_a_table_outlives_every_master_and_every_server_one_after_the_other(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, settings=QUICK) as cluster, await connect(cluster) as client:
            table = await client.create_table("people", COLUMNS, "id", partition=FOUR)
            await table.insert(rows(50))
            for number, node in enumerate(cluster.ids):
                await cluster.stop(node)
                await until(lambda: cluster.leader() is not None)
                await table.upsert([{"id": 1000 + number, "text": "more"}])
                if node in cluster.masters:
                    await client.create_table(f"made-{number}", COLUMNS, "id", replicas=3)
                await cluster.start(node)
            async with await connect(cluster) as again:
                assert await again.tables() == ["made-0", "made-1", "made-2", "people"]
                assert await column(await again.table("people"), "id") == [*range(50), *range(1000, 1006)]

    asyncio.run(run())


def test_what_cannot_be_is_refused_with_the_fact_and_the_next_step(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, settings=QUICK) as cluster, await connect(cluster) as client:
            with pytest.raises(TooFewServers, match="5"):
                await client.create_table("people", COLUMNS, "id", replicas=5)
            await client.create_table("people", COLUMNS, "id")
            with pytest.raises(TableExists, match="already"):
                await client.create_table("people", COLUMNS, "id")
            with pytest.raises(NoTable, match="there are: people"):
                await client.drop_table("peolpe")
            with pytest.raises(BadChange):
                await client.alter_table("people", DropColumn(name="id"))
            with pytest.raises(SchemaMismatch, match="is not a column; the columns are: id, text"):
                await client.create_table("other", COLUMNS, "ident")
            with pytest.raises(SchemaMismatch, match="unknown column type"):
                await client.create_table("other", {"id": "integer"}, "id")

    asyncio.run(run())


def test_nobody_but_masters_writes_the_catalog(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, masters=1, servers=1, settings=QUICK) as cluster, await connect(cluster) as client:
            catalog = await client.connection.tablet(SYSTEM_TABLET)
            with pytest.raises(CallerError, match="only masters write"):
                await write_to(catalog, OpKind.UPSERT, [("table", "x", b"nonsense")])
            with pytest.raises(CallerError, match="only masters write"):
                await client.connection.change_schema(catalog, catalog.schema)
            with pytest.raises(CallerError, match="only masters write"):
                deletion = DeleteReplica(
                    node_id=cluster.masters[0], tablet_id=SYSTEM_TABLET, fence=Terminal(state=TabletState.REMOVED)
                )
                await client.connection.ask(cluster.masters[0], ACTION, encode_action(deletion))
            await client.create_table("people", COLUMNS, "id", replicas=1)

    asyncio.run(run())


def test_many_tables_at_once_are_created_listed_and_dropped(tmp_path: Path) -> None:
    names = sorted(f"t{number:02}" for number in range(30))

    async def run() -> None:
        async with running(tmp_path, masters=1, settings=QUICK) as cluster, await connect(cluster) as client:
            await asyncio.gather(*(client.create_table(name, COLUMNS, "id", replicas=1) for name in names))
            assert await client.tables() == names
            # The masters even out what the choice of two nodes for each replica left uneven: a moving replica is two.
            await until(lambda: replicas(cluster) == 30)
            await asyncio.gather(*(client.drop_table(name) for name in names))
            assert await client.tables() == []
            await until(lambda: replicas(cluster) == 0)

    asyncio.run(run())


def test_a_table_is_altered_renamed_dropped_and_recalled_by_commands_while_it_is_written(tmp_path: Path) -> None:
    """Who opened it before goes on writing through all of it."""

    async def run() -> None:
        async with running(tmp_path, masters=1, servers=1, settings=QUICK) as cluster, await connect(cluster) as client:
            people = await client.create_table("people", COLUMNS, "id", partition=RANGED, replicas=1)
            masters = Target(None, cluster.addresses[cluster.masters[0]], 30.0)
            await people.insert(rows(2))

            async def command(work: Callable[..., int], *words: Any) -> None:
                assert await asyncio.to_thread(work, masters, *words, as_json=False) == 0

            await command(
                run_alter, "people", AlterOptions(add=["size:int64=7"], rename=["text:words"], add_range=["10..20"])
            )
            await people.upsert([{"id": 2, "text": "by the old name"}])
            await people.insert([{"id": 15, "words": "of the new range", "size": 8}])
            await command(run_alter, "people", AlterOptions(default=["size=9"], drop_range=["..10"]))
            await command(run_rename, "people", "folk")
            await people.upsert([{"id": 16, "words": "default"}])
            assert people.name == "folk"
            await command(run_drop, "folk", 600.0)
            assert await client.tables() == []
            with pytest.raises(BadChange, match="can be recalled: folk"):
                await command(run_recall, "flok", None)
            await command(run_recall, "folk", "people")
            found = await (await client.table("people")).scan().to_pylist()
            assert sorted((row["id"], row["words"], row["size"]) for row in found) == [
                (15, "of the new range", 8),
                (16, "default", 9),
            ]

    asyncio.run(run())


def test_a_server_of_another_cluster_is_not_heard_is_told_so_and_keeps_what_it_has(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with running(tmp_path, masters=1, servers=1, settings=QUICK) as cluster, await connect(cluster) as client:
            stranger = Cluster(tmp_path / "stranger", 1, 1, QUICK, cluster_id=ClusterId("other"))
            stranger.addresses[stranger.masters[0]] = cluster.addresses[cluster.masters[0]]
            (tmp_path / "stranger").mkdir()
            try:
                await stranger.start(stranger.servers[0])
                with pytest.raises(WrongCluster, match="this is 'test'"):
                    await stranger.nodes[stranger.servers[0]].messenger.connect(
                        cluster.addresses[cluster.masters[0]], deadline_ms=5_000
                    )
                await client.create_table("people", COLUMNS, "id", replicas=1)
                with pytest.raises(TooFewServers, match="1"):
                    await client.create_table("more", COLUMNS, "id", replicas=3)
                assert client.catalog is not None
                listed = (await client.catalog.list_servers()).servers
                assert [server.node_id for server in listed] == cluster.servers
                await until(
                    lambda: bool(re.search("heartbeat failed master=127.*this is 'test'.*correct", caplog.text))
                )
            finally:
                for node in list(stranger.nodes):
                    await stranger.stop(node)

    asyncio.run(run())


def test_masters_whose_lists_overlap_form_one_cluster_at_most_and_say_why(tmp_path: Path) -> None:
    """Two of the three that the first two name, and two of the three that the last three name, are a majority each."""

    async def run() -> None:
        cluster = Cluster(tmp_path, 5, 0, QUICK)
        first, second = cluster.masters[:3], cluster.masters[2:]
        cluster.lists = {m: first if m in first[:2] else second for m in cluster.masters}
        try:
            for master in first[:2]:
                await cluster.start(master)
            with pytest.raises(Unavailable, match="all masters have to run when a cluster first starts"):
                await create_at(cluster, first[0])
            for master in second:
                await cluster.start(master)
            await until(lambda: cluster.leader() in second)
            present = ", ".join(cluster.addresses[master] for master in sorted(second))
            with pytest.raises(
                Unavailable, match=f"has begun without this master .* with the masters {present}; to let"
            ):
                await create_at(cluster, first[0])
            assert not any(cluster.nodes[master].replicas for master in first[:2])
            assert cluster.core(second[0]).catalog.cluster is not None
        finally:
            for master in list(cluster.nodes):
                await cluster.stop(master)

    asyncio.run(run())


def test_a_master_that_comes_back_without_its_disk_does_not_vote_away_what_was_acknowledged(tmp_path: Path) -> None:
    """Two of three hold a table. One of them loses its disk and is formatted under its old uuid: with the one that was
    away it would be a majority that has never heard of the table."""

    async def run() -> None:
        async with running(tmp_path, servers=1, settings=QUICK) as cluster:
            keeps, loses, away = cluster.masters
            await cluster.stop(away)
            async with await connect_async(cluster.addresses[keeps]) as client:
                await client.create_table("people", COLUMNS, "id", replicas=1)
            await cluster.stop(loses)
            await cluster.stop(keeps)
            shutil.rmtree(tmp_path / loses)
            await cluster.start(loses)
            await cluster.start(away)
            waits_for = re.compile(f"master {cluster.addresses[keeps]} does not answer")
            await until(lambda: bool(waits_for.search(cluster.late(loses))))
            await cluster.start(keeps)
            await until(lambda: SYSTEM_TABLET in cluster.nodes[loses].failed_tablets)
            assert cluster.nodes[loses].failed_tablets[SYSTEM_TABLET].startswith("the cluster has begun (according to ")
            async with await connect_async(cluster.addresses[keeps]) as client:
                assert await client.tables() == ["people"]
                assert client.catalog is not None
                found = await check(client.connection, client.catalog)
            assert [problem for problem in found.problems if "an empty one would vote" in problem], found.problems
            assert not cluster.nodes[loses].replicas

    asyncio.run(run())


def test_masters_make_their_system_tablets_only_once_all_of_them_agree(tmp_path: Path) -> None:
    """A list that is wrong at a first start leaves nothing behind: it is corrected, and no directory made anew."""

    async def run() -> None:
        cluster = Cluster(tmp_path, 4, 0, QUICK)
        *three, stranger = cluster.masters
        wrong = three[0]
        cluster.lists = dict.fromkeys(three, three) | {wrong: [*three[:2], stranger]}
        try:
            for master in three:
                await cluster.start(master)
            with pytest.raises(Unavailable, match=r"tablet sys-catalog is not created yet: .*make \[masters\] alike"):
                await create_at(cluster, wrong)
            assert not any(node.replicas for node in cluster.nodes.values())
            await cluster.stop(wrong)
            cluster.lists[wrong] = three
            await cluster.start(wrong)
            await until(lambda: cluster.leader() is not None)
        finally:
            for master in list(cluster.nodes):
                await cluster.stop(master)

    asyncio.run(run())


async def create_at(cluster: Cluster, master: NodeId) -> None:
    async with await connect_async(cluster.addresses[master], timeout_s=4.0) as client:
        await client.create_table("people", COLUMNS, "id", replicas=1, timeout_s=1.0)


def test_a_master_that_does_not_lead_answers_as_long_as_it_is_fresh_enough(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, servers=1, settings=QUICK) as cluster, await connect(cluster) as client:
            await client.create_table("people", COLUMNS, "id", replicas=1)
            (left, *others) = cluster.masters
            await until(lambda: len(cluster.core(left).catalog.tables) == 1)
            for master in others:
                await cluster.stop(master)
            await until(lambda: cluster.leader() is None)
            assert client.catalog is not None
            found = await client.catalog.list_tables(staleness_ms=600_000)
            assert [table.name for table in found.tables] == ["people"]
            with pytest.raises(Unavailable, match=r"catalog is \d+ ms old; 1 ms are allowed"):
                await client.catalog.list_tables(staleness_ms=1, timeout_s=1.0)
            with pytest.raises(Unavailable):
                await client.tables(timeout_s=1.0)
            assert await client.tables(staleness_s=600.0) == ["people"]
            with pytest.raises(Unavailable, match=r"1 ms are allowed.*allow more"):
                await client.tables(staleness_s=0.000_001, timeout_s=1.0)
            stale = ("--connect", cluster.addresses[left], "--staleness-s", "600")
            listed = await asyncio.to_thread(in_process.stelae, "table", "list", *stale)
            assert "people" in listed.stdout and "may be up to 600 s old" in listed.stderr
            described = await asyncio.to_thread(in_process.stelae, "table", "describe", "people", *stale, "--json")
            assert json.loads(described.stdout)["name"] == "people" and "may be up to 600 s old" in described.stderr

    asyncio.run(run())


def test_every_master_of_an_idle_cluster_answers_within_a_stated_staleness(tmp_path: Path) -> None:
    """The age of a follower's catalog was that of its last entry: without changes it grew, and every question was
    refused that allowed less."""

    async def run() -> None:
        async with running(tmp_path, servers=1, settings=QUICK) as cluster, await connect(cluster) as client:
            await client.create_table("people", COLUMNS, "id", replicas=1)
            for master in cluster.masters:
                async with asyncio.timeout(WAIT_S):
                    while not await answers_while_idle(cluster, master):
                        pass

    async def answers_while_idle(cluster: Cluster, master: NodeId) -> bool:
        """Whether no entry was made between an idle time and the answer, by an election or by the question itself."""
        await until(lambda: idle_ms(cluster, master) > 2 * BOUND_MS)
        before = cluster.core(master).catalog.applied
        assert await tables_within(cluster, master, BOUND_MS) == ["people"]
        return cluster.core(master).catalog.applied == before

    def idle_ms(cluster: Cluster, master: NodeId) -> int:
        """How long ago the last entry was made, by the clock that made it."""
        node = cluster.nodes[master]
        applied = node.replicas[SYSTEM_TABLET].applier.timestamp
        return (physical_us(node.time.now()) - physical_us(applied)) // 1000

    asyncio.run(run())


def test_a_read_index_is_told_to_masters_alone_and_by_the_one_that_leads(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, servers=1, settings=QUICK) as cluster:
            leader = await cluster.leading()
            one, other = (master for master in cluster.masters if master != leader)
            (server,) = cluster.servers
            assert await read_index(cluster, one, leader) >= 1
            with pytest.raises(NotLeader, match=leader):
                await read_index(cluster, one, other)
            with pytest.raises(PeerError, match=f"node {server} is not a member of the system tablet"):
                await read_index(cluster, server, leader)

    asyncio.run(run())


async def read_index(cluster: Cluster, asker: NodeId, master: NodeId) -> int:
    """What a master tells another node, once it has started and the two are connected.

    The cluster leads as soon as two of three masters have started, whoever is connected to whom by then."""
    body = [encode(ReadIndexRequest())]
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                answer = await cluster.nodes[asker].messenger.call(master, READ_INDEX, body, deadline_ms=10_000)
                return decode(answer.body[0], ReadIndexAnswer).index
            except Unavailable as error:
                assert "is starting" in str(error) or "not yet" in str(error)
                await asyncio.sleep(0.05)


async def tables_within(cluster: Cluster, master: NodeId, staleness_ms: int) -> list[str]:
    """What this very master answers, as soon as it is fresh enough."""
    body = [encode(CatalogReadRequest(question=ListTables(), staleness_ms=staleness_ms))]
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                call = cluster.nodes[cluster.servers[0]].messenger.call(master, READ, body, deadline_ms=1_000)
                answer = decode((await call).body[0], TableList)
            except RetryableError:
                await asyncio.sleep(0.01)
            else:
                return [table.name for table in answer.tables]


def test_a_server_that_was_away_while_a_table_was_made_has_its_replicas_once_it_is_back(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, masters=1, settings=QUICK) as cluster, await connect(cluster) as client:
            away = cluster.servers[0]
            await client.create_table("before", COLUMNS, "id", replicas=3)
            await cluster.stop(away)
            table = await client.create_table("people", COLUMNS, "id", partition=FOUR, replicas=3)
            await table.insert(rows(100))
            await cluster.start(away)
            await until(lambda: len(cluster.nodes[away].replicas) == 5)
            await until(lambda: held(cluster, away) == held(cluster, cluster.servers[1]))

    def held(cluster: Cluster, server: NodeId) -> dict[TabletId, object]:
        appliers = ((tablet_id, replica.applier) for tablet_id, replica in cluster.nodes[server].replicas.items())
        return {tablet_id: (applier.applied, applier.store.checksum(None)) for tablet_id, applier in appliers}

    asyncio.run(run())


def test_a_master_steps_on_events_and_deadlines_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It once stepped twenty times a second, whether anything happened or not."""
    step, steps = MasterCore.step, [0]
    early: list[tuple[MasterTick, int | None]] = []

    def stepped(core: MasterCore, events: Sequence[Event]) -> None:
        steps[0] += 1
        deadline, (now, *others) = core.next_deadline(), events
        assert isinstance(now, MasterTick)
        if not others and (deadline is None or now.now_us < deadline):
            early.append((now, deadline))
        step(core, events)

    monkeypatch.setattr(MasterCore, "step", stepped)

    async def run() -> None:
        async with running(tmp_path, masters=3, servers=1, settings=QUICK) as cluster, await connect(cluster) as client:
            await client.create_table("people", COLUMNS, "id", replicas=1)
            led_before = await cluster.leading()
            await cluster.stop(led_before)
            await until(lambda: cluster.leader() not in (None, led_before))
            await client.create_table("pets", COLUMNS, "id", replicas=1)

    asyncio.run(run())
    assert steps[0] > 20
    # The first step after the catalog was loaded has nothing to wait for.
    assert all(deadline is None for _, deadline in early) and len(early) <= 3
