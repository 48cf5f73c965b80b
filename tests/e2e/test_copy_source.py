"""Copies from running nodes, over real sockets: what a source serves is a whole replica as of one op id.

The target is a spare node's messenger and the transport. What arrives is put together here: rows, then the log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stelae.host.node import Node
from stelae.lifecycle import tablet_manager
from stelae.lifecycle.copy_facts import CopyFacts, RowsForm
from stelae.lifecycle.copy_items import ItemKind, kind_of
from stelae.lifecycle.tablet_manager import TabletManager
from stelae.protocol.codec import encode
from stelae.protocol.copy_messages import ASK_COPY, BEGIN_COPY, END_COPY, AskSource, BeginCopy
from stelae.protocol.tablet_messages import NoSuchTablet
from stelae.server.tserver.copy_sources import MessengerSources
from stelae.server.tserver.served_snapshot import SnapshotTaker
from stelae.spi.copy import FetchChunk
from stelae.spi.copy_plan import Complete, CopyOffer, CopyOutcome, CopyPlan, CopySessionEnded, Interruption, Partial
from stelae.spi.errors import CallerError, Full, TooLarge, Unavailable, Unsupported
from stelae.spi.ids import NodeId, OpId, TabletId
from stelae.spi.members import AddServer, Member, MemberType
from stelae.spi.scan import ScanSpec
from stelae.testing.copy_world import NO_FENCES, ManualClock, MemoryControl, MemorySink
from stelae.wire.settings import Lane
from stelae_wal_segmented import SegmentedWal
from tests.e2e.copied_store import built
from tests.e2e.nodes import TABLET, WAIT_S, Cluster, changed, connected, insert, running, until

FLUSHING = """
[maintenance]
flush_bytes = 65536
flush_interval_ms = 10
"""
SLOW = "[copy.streaming]\nchunk_bytes = 4096\nchunks_in_flight = 1\n"
SHORT = "[copy.streaming]\nsession_ttl_ms = 1000\nchunk_bytes = 4096\n"
COUNT = 3000


def settings_of(wal: str = "segmented", store: str = "columnar", more: str = "") -> str:
    return f'[engines]\nwal = "{wal}"\nstore = "{store}"\n{FLUSHING}{more}'


@dataclass
class Target:
    """A spare node that copies."""

    cluster: Cluster
    node: Node

    def __post_init__(self) -> None:
        chosen = self.node.config.copy
        assert chosen is not None
        self.sources = MessengerSources(self.node)
        self.transport = chosen.engine.target(chosen.config, self.node.engines.services)
        self.control = MemoryControl(ManualClock())

    async def begin(self, source: NodeId, tablet: TabletId = TABLET, *, as_export: bool = False) -> CopyOffer:
        answer: asyncio.Future[CopyOffer] = asyncio.get_running_loop().create_future()

        def done(found: CopyOffer | Exception) -> None:
            if isinstance(found, Exception):
                answer.set_exception(found)
            else:
                answer.set_result(found)

        self.sources.begin(
            Member(node_id=source, address=self.cluster.address(source)), tablet, done, as_export=as_export
        )
        async with asyncio.timeout(WAIT_S):
            return await answer

    async def fetch(self, offer: CopyOffer, sink: MemorySink) -> CopyOutcome:
        plan = CopyPlan(offer=offer, items=offer.snapshot.items, fences=NO_FENCES)
        network = self.sources.network()

        def run() -> Any:
            return self.transport.run(plan, have=sink.have, sink=sink, network=network, control=self.control)

        async with asyncio.timeout(WAIT_S):
            outcome: CopyOutcome = await asyncio.to_thread(run)
            return outcome


def on_cluster(
    path: Path, settings: str, work: Callable[[Cluster, Target], Awaitable[None]], spare_settings: str | None = None
) -> None:
    """Run ``work`` on three nodes with rows, and a spare that copies."""

    async def run() -> None:
        async with running(path, settings, spares=1) as cluster:
            spare = cluster.ids[3]
            if spare_settings is not None:
                await cluster.stop(spare)
                cluster.settings = spare_settings
                await cluster.start(spare)
                cluster.settings = settings
            async with connected(cluster) as tablet:
                await insert(tablet, range(COUNT))
            target = Target(cluster, cluster.nodes[spare])
            await work(cluster, target)
            target.sources.stop()

    asyncio.run(run())


def checksum_of(node: Node) -> str:
    return node.replicas[TABLET].applier.store.checksum(None)


@pytest.mark.parametrize(
    ("wal", "source_store", "target_store"),
    [
        ("segmented", "columnar", "columnar"),
        ("shared", "columnar", "lmdb"),
        ("lmdb", "lmdb", "columnar"),
        ("shared", "columnar", "columnar"),
    ],
)
def test_a_copy_is_the_whole_replica_whatever_the_engines(
    tmp_path: Path, wal: str, source_store: str, target_store: str
) -> None:
    async def work(cluster: Cluster, target: Target) -> None:
        source = await cluster.leading()
        replica = cluster.nodes[source].replicas[TABLET]
        await until(lambda: replica.flusher.superblock.flushed.index > 0 and not replica.flusher.busy)
        offer = await target.begin(source)
        sink = MemorySink(offer.snapshot.items)
        outcome = await target.fetch(offer, sink=sink)
        assert outcome == Complete(bytes_fetched=sum(unit.size_bytes for unit in offer.snapshot.items))
        facts = CopyFacts.from_bytes(offer.snapshot.facts)
        same = source_store == target_store
        assert facts.rows_form is (RowsForm.FILES if same else RowsForm.EXPORT)
        assert facts.flushed.index > 0
        assert facts.results
        assert facts.timestamp > 0
        store = built(target.node, offer, sink, str(tmp_path / "built"))
        assert store.checksum(None) == checksum_of(cluster.nodes[source])
        store.close()

    on_cluster(tmp_path, settings_of(wal, source_store), work, settings_of(wal, target_store))


@pytest.mark.parametrize("log_snapshots", [True, False])
def test_a_snapshot_of_a_replica_that_is_written_has_every_row_that_was_acknowledged_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_snapshots: bool
) -> None:
    """A log engine without snapshots served no copies, so no replica of its nodes was ever replaced."""
    if not log_snapshots:
        monkeypatch.setattr(SegmentedWal, "capabilities", SegmentedWal.capabilities - {"snapshot"})

    async def work(cluster: Cluster, target: Target) -> None:
        source, acknowledged = await cluster.leading(), COUNT
        async with connected(cluster) as tablet:

            async def write() -> None:
                nonlocal acknowledged
                while acknowledged < 3 * COUNT:
                    await insert(tablet, range(acknowledged, acknowledged + 50))
                    acknowledged += 50

            writing = asyncio.ensure_future(write())
            for number in range(4):
                before = acknowledged
                offer = await target.begin(source)
                sink = MemorySink(offer.snapshot.items)
                assert isinstance(await target.fetch(offer, sink=sink), Complete)
                store = built(target.node, offer, sink, str(tmp_path / f"built-{number}"))
                with store.scan(ScanSpec()) as cursor:
                    ids = {row[0] for batch in cursor for row in batch.to_rows()}
                assert ids >= set(range(before)), "an acknowledged row is missing"
                assert ids == set(range(len(ids))), "rows of an entry are missing"
                store.close()
                target.sources.end(offer)
                await until(lambda: not _sessions(cluster.nodes[source]))
            await writing

    on_cluster(tmp_path, settings_of(), work)


def test_a_config_that_is_committed_while_the_snapshot_is_taken_is_in_its_log_or_in_its_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the copied replica would never learn it, and could vote by members that are no majority any more."""
    asked: list[None] = []
    rows_of = SnapshotTaker._rows

    async def work(cluster: Cluster, target: Target) -> None:
        loop, source = asyncio.get_running_loop(), await cluster.leading()
        replica = cluster.nodes[source].replicas[TABLET]
        spare = cluster.ids[3]

        async def add_a_member() -> OpId:
            change = AddServer(node_id=spare, address=cluster.address(spare), member_type=MemberType.NON_VOTER)
            config = await changed(replica, change)
            await until(lambda: replica.applier.applied >= config.op_id)
            return replica.status.committed_config.op_id

        def rows_after_a_change(taker: SnapshotTaker, *arguments: Any) -> Any:
            if not asked:
                asked.append(None)
                asyncio.run_coroutine_threadsafe(add_a_member(), loop).result(WAIT_S)
            return rows_of(taker, *arguments)

        monkeypatch.setattr(SnapshotTaker, "_rows", rows_after_a_change)
        offer = await target.begin(source, as_export=True)
        assert replica.status.committed_config.member(spare) is not None
        assert offer.snapshot.base >= replica.status.committed_config.op_id
        assert offer.snapshot.committed_config == replica.status.committed_config

    on_cluster(tmp_path, settings_of(), work)


def _sessions(node: Node) -> Any:
    return _service(node).sessions()


def _service(node: Node) -> Any:
    [server] = [service for service in node._services if hasattr(service, "_services")]
    return next(one for one in server._services if type(one).__name__ == "CopyService")


def _anchors(node: Node) -> dict[str, int]:
    """The anchors of copies."""
    return node.replicas[TABLET].flusher.retention._anchors


def test_the_log_after_the_copy_is_kept_until_the_session_ends_whatever_the_cap_on_lagging_peers(
    tmp_path: Path,
) -> None:
    async def work(cluster: Cluster, target: Target) -> None:
        source = await cluster.leading()
        node = cluster.nodes[source]
        offer = await target.begin(source)
        last = offer.snapshot.last.index
        assert list(_anchors(node).values()) == [last + 1]
        again = await target.begin(source)
        assert again == offer, "a repeated begin gets the same session"
        async with connected(cluster) as tablet:
            await insert(tablet, range(COUNT, 2 * COUNT))
        flusher = node.replicas[TABLET].flusher
        # The log may be collected when the store has committed a flush, which is after its superblock is durable.
        await until(lambda: flusher.superblock.flushed.index > last and not flusher.busy)
        flusher.collect()
        assert flusher.retention.collectable() == last
        assert node.engines.wal.op_id_at(node.replicas[TABLET].log, last + 1).index == last + 1
        target.sources.end(offer)
        await until(lambda: not _anchors(node))
        await until(lambda: flusher.retention.collectable() > last)

    on_cluster(tmp_path, settings_of(more="[log]\nlagging_peer_bytes_max = 1\n"), work)


def test_the_log_after_the_copy_is_kept_over_a_restart_of_the_replica_in_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deletion that failed started the replica again without the anchors of the copies from it. The log after them
    was collected, and the target began the whole copy again."""

    def no_space(*_arguments: Any, **_named: Any) -> Any:
        raise Full("no space")

    async def work(cluster: Cluster, target: Target) -> None:
        source = await cluster.leading()
        node, loop = cluster.nodes[source], asyncio.get_running_loop()
        offer = await target.begin(source)
        before, deleted = node.replicas[TABLET], loop.create_future()
        anchors = dict(_anchors(node))
        monkeypatch.setattr(tablet_manager, "write_tombstone", no_space)
        TabletManager(node, node.tablets).delete(TABLET, "", deleted.set_result, seen=None)  # type: ignore[arg-type]
        async with asyncio.timeout(WAIT_S):
            assert isinstance(await deleted, Full)
        assert node.replicas[TABLET] is not before
        assert _anchors(node) == anchors
        target.sources.end(offer)
        await until(lambda: not _anchors(node))

    on_cluster(tmp_path, settings_of(), work)


def test_an_idle_session_expires_and_leaves_neither_anchor_nor_file(tmp_path: Path) -> None:
    async def work(cluster: Cluster, target: Target) -> None:
        source = await cluster.leading()
        node = cluster.nodes[source]
        offer = await target.begin(source)
        spools = _spools(node)
        assert len(spools) == 1
        await until(lambda: not _sessions(node))
        await until(lambda: not _anchors(node) and not _spools(node))
        sink = MemorySink(offer.snapshot.items)
        outcome = await target.fetch(offer, sink=sink)
        assert isinstance(outcome, Partial)
        assert outcome.why is Interruption.SESSION_ENDED

    on_cluster(tmp_path, settings_of(more=SHORT), work)


def _spools(node: Node) -> list[Path]:
    return [path for path in Path(node.layout.serving).rglob("copy-*") if path.is_file()]


def test_a_copy_that_has_begun_outlives_the_deletion_of_its_source(tmp_path: Path) -> None:
    async def work(cluster: Cluster, target: Target) -> None:
        leader = await cluster.leading()
        source = next(node for node in cluster.ids[:3] if node != leader)
        replica = cluster.nodes[source].replicas[TABLET]
        await until(lambda: replica.flusher.superblock.flushed.index > 0 and not replica.flusher.busy)
        offer = await target.begin(source)
        assert any(kind_of(unit.name) is ItemKind.ROWS for unit in offer.snapshot.items)
        deleted: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        manager = _lifecycle(cluster.nodes[source]).manager
        manager.delete(TABLET, "a test", deleted.set_result, seen=replica.status.committed_config.op_id)
        assert await deleted is None
        assert not cluster.nodes[source].files.exists(cluster.nodes[source].layout.data_of(TABLET))
        sink = MemorySink(offer.snapshot.items)
        assert isinstance(await target.fetch(offer, sink=sink), Complete)
        store = built(target.node, offer, sink, str(tmp_path / "built"))
        assert store.checksum(None) == checksum_of(cluster.nodes[await cluster.leading()])
        store.close()
        target.sources.end(offer)
        await until(lambda: not _sessions(cluster.nodes[source]))
        with pytest.raises(NoSuchTablet):
            await target.begin(source)

    on_cluster(tmp_path, settings_of(), work)


def _lifecycle(node: Node) -> Any:
    [server] = [service for service in node._services if hasattr(service, "_services")]
    return next(one for one in server._services if type(one).__name__ == "ReplicaLifecycle")


def test_after_a_restart_of_the_source_another_one_goes_on_and_equal_pieces_are_not_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stelae.lifecycle.copy_items.LOG_PIECE_BYTES", 8192)

    async def work(cluster: Cluster, target: Target) -> None:
        first = await cluster.leading()
        second = next(node for node in cluster.ids[:3] if node != first)
        async with connected(cluster) as tablet:
            for begin in range(COUNT, 2 * COUNT, 200):
                await insert(tablet, range(begin, begin + 200))
        offer = await target.begin(first)
        sink = MemorySink(offer.snapshot.items)
        target.control.cancelled_when = lambda: len(sink.durable) > 0
        assert isinstance(await target.fetch(offer, sink=sink), Partial)
        target.control.cancelled_when = lambda: False
        assert _spools(cluster.nodes[first])
        await cluster.stop(first)
        outcome = await target.fetch(offer, sink=sink)
        assert isinstance(outcome, Partial)
        assert outcome.why is Interruption.SOURCE_LOST
        await until(lambda: cluster.leader() is not None)
        newer = await target.begin(second)
        sink.units = {unit.name: unit for unit in newer.snapshot.items}
        kept = {unit.name for unit in newer.snapshot.items if sink.have.get(unit.name) == unit.digest}
        sink.durable = {name: data for name, data in sink.durable.items() if name in kept}
        assert kept, "no piece of the first source is a piece of the second one"
        size_bytes = sum(unit.size_bytes for unit in newer.snapshot.items if unit.name not in kept)
        outcome = await target.fetch(newer, sink=sink)
        assert isinstance(outcome, Complete)
        assert outcome.bytes_fetched <= size_bytes
        store = built(target.node, newer, sink, str(tmp_path / "built"))
        assert store.checksum(None) == checksum_of(cluster.nodes[second])
        store.close()
        await cluster.start(first)
        await until(lambda: not _spools(cluster.nodes[first]))
        with pytest.raises(CopySessionEnded):
            await ask(
                target.node, first, ASK_COPY, encode(AskSource(request=FetchChunk(offer.session, "log/1-1", 0, 1)))
            )

    on_cluster(tmp_path, settings_of(store="memory", more=SLOW), work)


async def ask(node: Node, source: NodeId, kind: str, *frames: bytes) -> Any:
    await until(lambda: node.messenger.connected(source, Lane.BULK) is not None)
    return await node.messenger.call(source, kind, frames, deadline_ms=10_000, lane=Lane.BULK)


def test_a_target_without_a_durable_store_gets_the_whole_log_or_a_refusal(tmp_path: Path) -> None:
    async def work(cluster: Cluster, target: Target) -> None:
        source = await cluster.leading()
        flusher = cluster.nodes[source].replicas[TABLET].flusher
        await until(lambda: flusher.log_base.index > 0)
        with pytest.raises(Unsupported, match="collected"):
            await target.begin(source)
        assert not _anchors(cluster.nodes[source])
        assert not _sessions(cluster.nodes[source])

    on_cluster(tmp_path, settings_of("lmdb", "columnar"), work, settings_of("lmdb", "memory"))


def test_a_replica_without_rows_and_a_failed_one_serve_no_copies(tmp_path: Path) -> None:
    async def work(cluster: Cluster, target: Target) -> None:
        leader = await cluster.leading()
        source = next(node for node in cluster.ids[:3] if node != leader)
        replica = cluster.nodes[source].replicas[TABLET]
        block = replica.flusher.superblock
        replica.flusher.superblock = msgspec.structs.replace(block, log_only=True)
        with pytest.raises(Unsupported, match="no rows"):
            await target.begin(source)
        replica.flusher.superblock = block
        replica.fail("a test")
        with pytest.raises(Unavailable, match="a test"):
            await target.begin(source)
        assert not _anchors(cluster.nodes[source])
        assert not _spools(cluster.nodes[source])

    on_cluster(tmp_path, '[engines]\nstore = "columnar"\n', work)


def test_malformed_requests_are_refused_and_the_node_goes_on(tmp_path: Path) -> None:
    async def work(cluster: Cluster, target: Target) -> None:
        source, node = await cluster.leading(), target.node
        offer = await target.begin(source)
        good = BeginCopy(tablet_id=TABLET, store_engine="x", store_format="1", durable_store=True)

        def begin(**changed: Any) -> bytes:
            return encode(msgspec.structs.replace(good, **changed))

        def chunk(*args: Any) -> bytes:
            return encode(AskSource(request=FetchChunk(*args)))

        refused: list[tuple[str, list[bytes], type[Exception]]] = [
            (BEGIN_COPY, [], CallerError),
            (BEGIN_COPY, [b"", b""], CallerError),
            (BEGIN_COPY, [b"\xc1junk"], CallerError),
            (BEGIN_COPY, [begin(tablet_id="../../etc")], CallerError),
            (BEGIN_COPY, [begin(store_engine="../x")], CallerError),
            (BEGIN_COPY, [begin(store_engine="x" * 5000)], TooLarge),
            (BEGIN_COPY, [begin(store_format="x" * 65)], CallerError),
            (BEGIN_COPY, [begin(tablet_id="unknown")], NoSuchTablet),
            (ASK_COPY, [b"\x80"], CallerError),
            (ASK_COPY, [chunk("no-session", "rows/a", 0, 10)], CopySessionEnded),
            (ASK_COPY, [chunk(offer.session, "../instance", 0, 10)], CallerError),
            (ASK_COPY, [chunk(offer.session, offer.snapshot.items[0].name, -1, 10)], CallerError),
            (ASK_COPY, [chunk(offer.session, offer.snapshot.items[0].name, 0, 1 << 40)], CallerError),
            (END_COPY, [b"\x90"], CallerError),
        ]
        for kind, frames, error in refused:
            with pytest.raises(error):
                await ask(node, source, kind, *frames)
        stranger = cluster.nodes[cluster.others(source)[0]]
        with pytest.raises(CopySessionEnded):
            await ask(stranger, source, ASK_COPY, chunk(offer.session, offer.snapshot.items[0].name, 0, 10))
        sink = MemorySink(offer.snapshot.items)
        assert isinstance(await target.fetch(offer, sink=sink), Complete)
        assert cluster.nodes[source].crashed is None

    on_cluster(tmp_path, settings_of(), work)


def test_a_node_that_stops_in_the_middle_of_a_copy_stops(tmp_path: Path) -> None:
    async def work(cluster: Cluster, target: Target) -> None:
        source = await cluster.leading()
        offer = await target.begin(source)
        sink = MemorySink(offer.snapshot.items)
        target.control.paused_when = lambda: len(sink.parts) > 0
        fetching = asyncio.ensure_future(target.fetch(offer, sink=sink))
        await until(lambda: bool(sink.parts))
        async with asyncio.timeout(WAIT_S):
            await cluster.stop(source)
        target.control.cancelled_when = lambda: True
        assert isinstance(await fetching, Partial)
        directory = cluster.root / source / "serving"
        assert not [file for file in directory.rglob("*") if file.is_file()]

    on_cluster(tmp_path, settings_of(more=SLOW), work)
