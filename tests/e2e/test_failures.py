"""Real nodes whose disks and clocks fail: nothing acknowledged is lost, nobody else suffers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from stelae.client.connection import Connection
from stelae.host.replica_state import ReplicaState
from stelae.spi.errors import CallerError, StelaeError, StorageError
from stelae.spi.scan import Compare, ScanSpec
from stelae.spi.write import OpKind, RowCode
from tests.e2e.nodes import PATIENT_MS, TABLET, agree, connected, insert, no_space, read_ids, running, sync_fails, until
from tests.tablet_rows import write_to


def test_a_full_disk_of_the_leader_moves_leadership_and_heals_without_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as cluster, connected(cluster) as tablet:
            await insert(tablet, range(100))
            full = await cluster.leading()
            cluster.files[full].broken = no_space
            await insert(tablet, range(100, 200))
            replica = cluster.nodes[full].replicas[TABLET]
            assert cluster.leader() != full
            assert replica.suspended and replica.state is not ReplicaState.FAILED
            cluster.files[full].broken = None
            await until(lambda: not replica.suspended and agree(cluster))
            assert await read_ids(tablet) == list(range(200))

    asyncio.run(scenario())


def test_a_full_disk_of_a_follower_disturbs_nobody_and_heals(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, election_timeout_ms=PATIENT_MS) as cluster, connected(cluster) as tablet:
            await insert(tablet, range(10))
            leader = await cluster.leading()
            full = cluster.others(leader)[0]
            term = cluster.nodes[leader].replicas[TABLET].status.term
            cluster.files[full].broken = no_space
            await insert(tablet, range(10, 300))
            assert cluster.leader() == leader
            assert cluster.nodes[leader].replicas[TABLET].status.term == term
            cluster.files[full].broken = None
            await until(lambda: agree(cluster))
            assert await read_ids(tablet) == list(range(300))

    asyncio.run(scenario())


def test_all_disks_full_acknowledge_nothing_and_resume_with_space(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as cluster, connected(cluster) as tablet:
            await insert(tablet, range(10))
            for files in cluster.files.values():
                files.broken = no_space
            late = asyncio.ensure_future(insert(tablet, range(10, 20)))
            await until(lambda: any(n.replicas[TABLET].suspended for n in cluster.nodes.values()))
            assert not late.done()
            for files in cluster.files.values():
                files.broken = None
            await late
            await until(lambda: agree(cluster))
            assert await read_ids(tablet) == list(range(20))

    asyncio.run(scenario())


def test_a_failed_sync_fails_that_replica_alone_and_the_tablet_serves_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as cluster, connected(cluster) as tablet:
            await insert(tablet, range(50))
            broken = await cluster.leading()
            files = cluster.files[broken]

            def fails_once(path: str) -> StorageError:
                files.broken = None
                return sync_fails(path)

            files.broken = fails_once
            await insert(tablet, range(50, 100))
            replica = cluster.nodes[broken].replicas[TABLET]
            # The two followers may have acknowledged the rows before the leader's own write has failed.
            await until(lambda: replica.state is ReplicaState.FAILED)
            assert "cannot be trusted" in replica.failure
            assert cluster.nodes[broken].crashed is None, "the node itself lives"
            assert await read_ids(tablet) == list(range(100))

    asyncio.run(scenario())


def test_a_node_an_hour_ahead_is_refused_and_the_others_serve_at_their_own_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as cluster, connected(cluster) as tablet:
            await insert(tablet, range(10))
            leader = await cluster.leading()
            ahead = cluster.others(leader)[0]
            await cluster.stop(ahead)
            cluster.clocks[ahead].ahead_us = 3_600_000_000
            node = await cluster.start(ahead)
            others = [cluster.nodes[n] for n in cluster.others(ahead)]
            await until(lambda: node.time.last - others[0].time.last > 1_800_000_000 << 12)  # It has spoken.
            await insert(tablet, range(10, 50))
            # The hour has not spread: no other clock has moved to it.
            assert all(node.time.last - other.time.last > 1_800_000_000 << 12 for other in others)
            assert await read_ids(tablet) == list(range(50))

    asyncio.run(scenario())


def test_two_of_three_down_acknowledge_nothing_and_one_back_commits_what_was_pending(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as cluster, connected(cluster) as tablet:
            await insert(tablet, range(10))
            leader = await cluster.leading()
            first, second = cluster.others(leader)
            await cluster.stop(first)
            await cluster.stop(second)
            pending = asyncio.ensure_future(insert(tablet, range(10, 20)))
            replica = cluster.nodes[leader].replicas[TABLET]
            await until(lambda: replica.status.last.index > replica.status.commit)
            assert not pending.done()
            await cluster.start(first)
            await pending
            assert await read_ids(tablet) == list(range(20))
            await cluster.start(second)
            await until(lambda: agree(cluster))

    asyncio.run(scenario())


def test_every_node_stopped_and_started_again_gives_every_row_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as cluster:
            async with connected(cluster) as tablet:
                await insert(tablet, range(500))
            for node_id in cluster.ids:
                await cluster.stop(node_id)
            for node_id in cluster.ids:
                await cluster.start(node_id)
            async with connected(cluster) as tablet:
                assert await read_ids(tablet) == list(range(500))
            await until(lambda: agree(cluster))

    asyncio.run(scenario())


def test_a_scan_goes_on_where_a_page_holds_no_match(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as cluster, connected(cluster) as tablet:
            rows = [(n, f"row {n}") for n in range(20_000)]
            for first in range(0, len(rows), 1000):
                await write_to(tablet, OpKind.INSERT, rows[first : first + 1000])
            for low, expected in ((19_990, 10), (19_999, 1), (20_000, 0)):
                spec = ScanSpec(predicates=(Compare(1, ">=", low),))
                found = [len(batch) async for batch in tablet.scan(spec)]
                assert sum(found) == expected

    asyncio.run(scenario())


def test_two_handles_of_one_tablet_do_not_share_their_operations(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as cluster, await Connection.connect(cluster.addresses) as client:
            one, other = await client.tablet(TABLET), await client.tablet(TABLET)
            await insert(one, [1])
            result = await write_to(other, OpKind.INSERT, [(1, "row 1")])
            assert [error.code for error in result.errors] == [RowCode.ALREADY_PRESENT]
            await insert(other, [2])
            await insert(one, [3])
            assert await read_ids(one) == [1, 2, 3]

    asyncio.run(scenario())


def test_a_store_that_breaks_in_a_scan_fails_the_scan_and_not_the_node(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as cluster, connected(cluster) as tablet:
            await insert(tablet, range(10))

            def breaks(*_: object) -> None:
                raise RuntimeError("a defect")

            for node in cluster.nodes.values():
                node.replicas[TABLET].applier.store.scan = breaks  # type: ignore[method-assign]
            with pytest.raises(StelaeError, match="unexpected error"):
                await read_ids(tablet)
            await insert(tablet, range(10, 20))
            assert all(node.crashed is None for node in cluster.nodes.values())

    asyncio.run(scenario())


def test_an_operation_is_not_retried_for_longer_than_its_result_is_kept(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as cluster, connected(cluster) as tablet:
            with pytest.raises(CallerError, match="at most 300"):
                write_to(tablet, OpKind.INSERT, [(1, "row 1")], timeout_s=601)

    asyncio.run(scenario())
