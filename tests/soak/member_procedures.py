"""Procedures that change members, on real processes, with SIGKILL at a named step of each.

A procedure is a replacement of a dead server (3-4-3), a move, a retirement of a server, a rebalance, or a move whose
copy is abandoned because its target was killed before. A row of the
matrix is a step and a victim: the leading master, the server that the replica comes from, or the one that it goes to.
The victim is killed by the process that is first at the step (``killing_node``), and started again at once. That
process also knows which server the replica comes from: the masters choose what a rebalance moves. Afterwards
every tablet must be whole, where it was ordered to be, with every acknowledged row and no replica too many. During the
procedure a config must never have fewer members than before."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from stelae.check.cluster_state import ask_nodes
from stelae.cli.node_formatting import format_here
from stelae.client import AsyncClient, AsyncTable, connect_async
from stelae.client.catalog import CatalogClient
from stelae.local.cluster import ClusterOptions
from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.local.demo_verification import wait_for_agreement
from stelae.local.leftover_files import orphan_files
from stelae.local.node_health import until_served
from stelae.local.node_process import NodeProcess
from stelae.local.replica_status import leaders
from stelae.local.whole_tables import wait_until_whole
from stelae.protocol.catalog_names import SYSTEM_TABLET, ServerMode
from stelae.protocol.master_messages import SetServerMode
from stelae.protocol.tablet_messages import NoSuchTablet
from stelae.spi.errors import DeadlineExceeded, MemberChangeRefused, StelaeError
from stelae.spi.ids import NodeId, TabletId
from tests.soak.kill_steps import (
    CHANGE_REQUESTS,
    COPY_STEPS,
    DELETE_REQUESTS,
    DELETE_STEPS,
    FIRST_COPY_STEPS,
    HANDOVER_STEPS,
    LATER_COPY_STEPS,
    PROMOTION_STEPS,
    REMOVE_REQUESTS,
    SELF,
    SOURCE,
    TRANSFER_REQUESTS,
    Row,
    rows,
)

WAIT_S = 180.0
"""Longest wait for a step or for the end of a procedure; reached only by a defect."""

POLL_S = 0.05
REPLICAS = 3
ROWS_FIRST = 500
ROWS_AT_ONCE = 5
ROWS_COLLECTED = 40
TEXT = "x" * 200

SETTINGS: dict[str, dict[str, Any]] = {
    "consensus.raft": {"election_timeout_ms": 500},
    "wal.segmented": {"segment_bytes_first": 4096, "segment_bytes_max": 4096},
    "maintenance": {"flush_bytes": 65536, "flush_interval_ms": 10},
    "log": {"lagging_peer_bytes_max": 30000},
    "master": {"server_silent_ms": 2000, "server_dead_ms": 4000, "policy_interval_ms": 200, "action_retry_ms": 500},
    "tserver": {"follower_unhealthy_ms": 4000},
    "stage": {"age_s_max": 60, "interval_ms": 1000},
    "quarantine": {"age_s_max": 60, "interval_ms": 1000},
}
"""Logs are collected at once, so that a new member needs a copy, and masters replace what is lost within seconds."""


class Writer:
    """Inserts rows until it is stopped. Each is repeated until it is acknowledged, which has no double effect."""

    def __init__(self, table: AsyncTable) -> None:
        self._table = table
        self.count = 0

    async def run(self) -> None:
        """Insert rows without end."""
        while True:
            await self.insert(ROWS_AT_ONCE)
            await asyncio.sleep(POLL_S)

    async def insert(self, count: int) -> None:
        """Insert the next rows, as one batch. They count as acknowledged afterwards."""
        batch = [{"id": number, "text": TEXT} for number in range(self.count, self.count + count)]
        await self._table.upsert(batch, timeout_s=WAIT_S)
        self.count += count


async def new_table(client: AsyncClient, name: str, *, tablets: int = 1) -> AsyncTable:
    """Create a table for a procedure."""
    buckets = {"hash": [{"columns": ["id"], "buckets": tablets}]} if tablets > 1 else None
    columns = {"id": "int64", "text": "string"}
    return await client.create_table(name, columns, ["id"], partition=buckets, timeout_s=WAIT_S)


class Stage:
    """A cluster of three masters and four tablet servers, with a table, on which procedures are carried out."""

    def __init__(self, cluster: ClusterWithMasters, order: Path, client: AsyncClient, table: AsyncTable) -> None:
        assert client.catalog is not None
        self.cluster = cluster
        self.client = client
        self.catalog: CatalogClient = client.catalog
        self.table = table
        self.writer = Writer(table)
        self.kept_down: set[NodeProcess] = set()
        self._order = order
        self._done = order.with_suffix(".done")

    # -- who is who ------------------------------------------------------------------------------

    def server(self, node_id: NodeId) -> NodeProcess:
        """Return the node with a uuid."""
        return next(node for node in self.cluster.nodes if node.node_id == node_id)

    async def members(self) -> dict[TabletId, set[NodeId]]:
        """Return the members of each tablet as the masters know them."""
        described = await self.catalog.get_table(self.table.name, timeout_s=WAIT_S)
        return {one.tablet_id: {node for node, _ in one.members} for one in described.tablets}

    async def leader(self, tablet: TabletId) -> NodeProcess:
        """Return the node that leads a tablet. ``SYSTEM_TABLET``: the leading master."""
        async with asyncio.timeout(WAIT_S):
            while True:
                found = await leaders(self.client.connection, self.cluster.nodes)
                if tablet in found:
                    return self.server(found[tablet].node_id)
                await asyncio.sleep(POLL_S)

    async def collect_logs(self) -> None:
        """Write until the logs of all members begin after all that is in them now, so that others need a copy."""
        members = await self.members()
        ends: dict[TabletId, int] = {}
        async with asyncio.timeout(WAIT_S):
            while True:
                found = await ask_nodes(
                    self.client.connection, [(node.node_id, node.address) for node in self.cluster.servers]
                )
                bases: dict[TabletId, list[int]] = {}
                for tablet, nodes in members.items():
                    facts = [found[node].facts[tablet] for node in nodes if tablet in found[node].facts]
                    bases[tablet] = [one.log_base.index for one in facts if one.log_base is not None]
                    lasts = [found[node].reports[tablet].last.index for node in nodes if tablet in found[node].reports]
                    ends.setdefault(tablet, max(lasts, default=0))
                if all(len(bases[tablet]) == REPLICAS and min(bases[tablet]) > ends[tablet] for tablet in members):
                    return
                await self.writer.insert(ROWS_COLLECTED)

    # -- killing ---------------------------------------------------------------------------------

    def order_kill(self, step: str, victim: str, *, starting: NodeProcess | None = None) -> None:
        """Have a node killed at a step: the one with a uuid, the one that is first there (``SELF``), or ``SOURCE``.

        ``starting``: a node that is started next. It has no process id yet."""
        self._done.unlink(missing_ok=True)
        pids = {node.node_id: node.pid for node in self.cluster.nodes}
        started = "" if starting is None else starting.node_id
        self._order.write_text(json.dumps({"step": step, "victim": victim, "pids": pids, "starting": started}))

    @property
    def killed(self) -> bool:
        """Whether the order was carried out."""
        return self._done.exists()

    @property
    def victim(self) -> NodeProcess:
        """The node that was killed."""
        return self.server(NodeId(self._done.read_text()))

    async def renew_table(self) -> None:
        """Go on with another table, of which no server had a replica before."""
        former, self.table = self.table, await new_table(self.client, f"{self.table.name}x")
        await self.client.drop_table(former.name, timeout_s=WAIT_S)
        self.writer = Writer(self.table)
        await self.writer.insert(ROWS_FIRST)

    def start_killed(self) -> None:
        """Start nodes again whose processes have ended."""
        for node in self.cluster.nodes:
            if node not in self.kept_down and node.running_pid() is None:
                node.kill()  # Only to reap it.
                node.start()

    # -- judging ---------------------------------------------------------------------------------

    async def until(self, holds: Callable[[], Awaitable[bool]], what: str) -> None:
        """Wait until something holds, start nodes that were killed, and check that no config has too few voters."""
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            self.start_killed()
            with suppress(StelaeError):
                for tablet, members in (await self.members()).items():
                    assert len(members) >= REPLICAS, f"tablet {tablet} has {len(members)} members only"
                if await holds():
                    return
            await asyncio.sleep(POLL_S)
        order = self._order.read_text() if self._order.exists() else "carried out"
        pytest.fail(f"not so within {WAIT_S:.0f} s: {what}; order: {order}; members {await self.members()}")

    async def until_whole(self) -> None:
        """Wait until every tablet is whole."""
        problems = await wait_until_whole(self.client.connection, self.catalog, self.start_killed, timeout_s=WAIT_S)
        assert not problems, problems

    async def check_whole(self) -> None:
        """Check that every tablet is whole, that its replicas agree, and that all acknowledged rows are there.

        Nobody writes meanwhile. The masters may still move a replica for balance: then the members are looked up again.
        """
        async with asyncio.timeout(2 * WAIT_S):
            while True:
                await self.until_whole()
                members = {tablet: [*nodes] for tablet, nodes in (await self.members()).items()}
                with suppress(NoSuchTablet):
                    agreement = await wait_for_agreement(
                        self.client.connection, members, self.start_killed, timeout_s=WAIT_S
                    )
                    break
        assert agreement.agree, agreement.detail
        assert await self.table.scan(timeout_s=WAIT_S).count() == self.writer.count, "an acknowledged row is lost"

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Let a client write meanwhile. Every row that it began is acknowledged at the end."""
        task = asyncio.create_task(self.writer.run())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await self.writer.insert(ROWS_AT_ONCE)  # The batch that was cut short is repeated.

    async def set_mode(self, server: NodeProcess, mode: ServerMode) -> None:
        """Set the mode of a tablet server; repeated until a leading master has done it."""

        async def done() -> bool:
            await self.catalog.change(SetServerMode(node_id=server.node_id, mode=mode))
            return True

        await self.until(done, f"the mode of {server.name} is {mode}")


Procedure = Callable[[Stage, Row], Awaitable[None]]


async def _order(stage: Stage, row: Row, target: NodeProcess) -> None:
    """Order the kill of a row. ``target`` is where a replica goes.

    The process that copies is the target, the one that sends requests is the master, and the ones that delete, promote
    and hand over are the source."""
    first = {"copy": "target", "delete": "source", "leader": "source", "master": "master"}[row.step.partition(".")[0]]
    if row.victim == first:
        stage.order_kill(row.step, SELF)
    elif row.victim == "master":
        stage.order_kill(row.step, (await stage.leader(SYSTEM_TABLET)).node_id)
    elif row.victim == "source":
        stage.order_kill(row.step, SOURCE)
    else:
        stage.order_kill(row.step, target.node_id)


class Parts(NamedTuple):
    """A tablet, its members, the server that its replica leaves, which leads, and a server without a replica."""

    tablet: TabletId
    members: set[NodeId]
    source: NodeProcess
    target: NodeProcess


async def _parts(stage: Stage) -> Parts:
    """Return the first tablet with its parts."""
    tablet, members = next(iter((await stage.members()).items()))
    spare = next(node for node in stage.cluster.servers if node.node_id not in members)
    return Parts(tablet, members, await stage.leader(tablet), spare)


async def move(stage: Stage, row: Row) -> None:
    """Move the replica of the leader to the server without one; a call that fails is repeated."""
    parts = await _parts(stage)
    await _order(stage, row, parts.target)
    await _until_moved(stage, parts)


async def _until_moved(stage: Stage, parts: Parts, *, kills: bool = True) -> None:
    tablet, members, source, target = parts

    async def done() -> bool:
        with suppress(MemberChangeRefused):  # It was removed again: it did not answer for too long.
            replicas = await stage.client.replicas(tablet)
            await replicas.move(source.node_id, target.address, to=target.node_id, timeout_s=20.0)
        now = (await stage.members())[tablet]
        return now == members - {source.node_id} | {target.node_id} and (stage.killed or not kills)

    await stage.until(done, f"the replica is moved from {source.name} to {target.name}")


async def first_copy(stage: Stage, row: Row) -> None:
    """Move a replica to a server that never had one. It is killed in mid-copy, and abandons the copy at its start."""
    await _abandon(stage, row, await _parts(stage))


async def later_copy(stage: Stage, row: Row) -> None:
    """Move a replica away and back. The target is killed in mid-copy, and its tombstone is back after its start."""
    await _until_moved(stage, await _parts(stage), kills=False)
    await stage.until_whole()
    await _abandon(stage, row, await _parts(stage))


async def _abandon(stage: Stage, row: Row, parts: Parts) -> None:
    tablet, _, source, target = parts
    stage.order_kill("copy.after_rows", SELF)
    stage.kept_down.add(target)

    async def interrupted() -> bool:
        with suppress(MemberChangeRefused, DeadlineExceeded):
            replicas = await stage.client.replicas(tablet)
            await replicas.move(source.node_id, target.address, to=target.node_id, timeout_s=20.0, wait_s=POLL_S)
        return stage.killed

    await stage.until(interrupted, f"{target.name} is killed while it copies")
    assert stage.victim is target, f"{stage.victim.name} has copied instead of {target.name}"
    target.kill()  # Only to reap it.
    killed = {"target": SELF, "source": source.node_id, "master": (await stage.leader(SYSTEM_TABLET)).node_id}
    stage.order_kill(row.step, killed[row.victim], starting=target)
    stage.kept_down.remove(target)
    await _until_moved(stage, parts)


async def retire(stage: Stage, row: Row) -> None:
    """Retire the server that leads: its replica goes to the one without. It is made active again afterwards."""
    tablet, members, source, target = await _parts(stage)
    await _order(stage, row, target)
    await stage.set_mode(source, ServerMode.RETIRING)

    async def done() -> bool:
        return (await stage.members())[tablet] == members - {source.node_id} | {target.node_id} and stage.killed

    await stage.until(done, f"{source.name} is retired, and {target.name} has its replica")
    await stage.until_whole()
    await stage.set_mode(source, ServerMode.NORMAL)


async def replace(stage: Stage, row: Row) -> None:
    """Kill a follower for good; the masters replace its replica. Then it returns, and its replica is deleted."""
    tablet, members, leader, target = await _parts(stage)
    dead = next(node for node in map(stage.server, sorted(members)) if node is not leader)
    stage.kept_down.add(dead)
    dead.kill()
    deleting = row.step.startswith("delete.") or row.step in DELETE_REQUESTS
    if not deleting:
        await _order(stage, row, target)

    async def replaced() -> bool:
        now = (await stage.members())[tablet]
        return now == members - {dead.node_id} | {target.node_id} and (deleting or stage.killed)

    await stage.until(replaced, f"the replica of {dead.name} is replaced by one on {target.name}")
    stage.kept_down.remove(dead)
    if deleting:
        dead.start()
        await _order(stage, row, target)

        async def deleted() -> bool:
            return stage.killed

        await stage.until(deleted, f"the replica of {dead.name} is deleted")


async def rebalance(stage: Stage, row: Row) -> None:
    """Make a server active that has no replica, while others have two: one moves to it. The table has two tablets."""
    count = {node: sum(node.node_id in nodes for nodes in (await stage.members()).values()) for node in _servers(stage)}
    target = min(count, key=lambda node: count[node])
    await stage.set_mode(target, ServerMode.RETIRING)

    async def empty() -> bool:
        return not any(target.node_id in nodes for nodes in (await stage.members()).values())

    await stage.until(empty, f"{target.name} has no replica")
    await stage.until_whole()
    await _order(stage, row, target)
    await stage.set_mode(target, ServerMode.NORMAL)

    async def balanced() -> bool:
        return not await empty() and stage.killed

    await stage.until(balanced, f"a replica moves to {target.name}")


def _servers(stage: Stage) -> list[NodeProcess]:
    return list(stage.cluster.servers)


_BY_MASTERS = (*COPY_STEPS, *PROMOTION_STEPS, *DELETE_STEPS, *CHANGE_REQUESTS, *DELETE_REQUESTS)

FIRST_COPY = "first copy"

PROCEDURES: dict[str, tuple[Procedure, list[Row]]] = {
    "move": (
        move,
        rows(
            *COPY_STEPS,
            *PROMOTION_STEPS,
            *HANDOVER_STEPS,
            *TRANSFER_REQUESTS,
            *REMOVE_REQUESTS,
            *DELETE_STEPS,
            *DELETE_REQUESTS,
        ),
    ),
    "retire": (retire, rows(*_BY_MASTERS, *TRANSFER_REQUESTS, *HANDOVER_STEPS)),
    "replace": (replace, rows(*_BY_MASTERS)),
    "rebalance": (rebalance, rows(*_BY_MASTERS)),
    FIRST_COPY: (first_copy, rows(*FIRST_COPY_STEPS)),
    "later copy": (later_copy, rows(*LATER_COPY_STEPS)),
}
"""Each procedure with its rows."""


@contextmanager
def interpreter_that_kills(folder: Path) -> Iterator[Path]:
    """Let nodes that are started meanwhile obey orders to kill. Yields the file of the order."""
    script, order, python = (folder / "python").resolve(), (folder / "order").resolve(), sys.executable
    script.write_text(f'#!/bin/sh\nexec {python} {Path(__file__).with_name("killing_node.py")} "$@"\n')
    script.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", str(script))
        patch.setitem(os.environ, "STELAE_KILL_ORDER", str(order))
        yield order


async def carry_out(
    folder: Path, chosen: Sequence[tuple[str, Row]], told: Callable[[str], None] = print, *, tablets: int = 1
) -> None:
    """Carry out a procedure for each row, on one cluster, and look for orphan files at the end.

    Args:
        folder: an empty folder for the cluster.
        chosen: names of procedures with rows.
        told: called with a line for each row.
        tablets: the number of tablets of the table; a rebalance needs two, the others one.
    """
    options = ClusterOptions(node_count=4, engines={"store": "columnar"}, settings=SETTINGS)
    with interpreter_that_kills(folder) as order:
        cluster = ClusterWithMasters.create(folder / "cluster", options, masters=3, formatted=format_here)
        try:
            cluster.start()
            await until_served(cluster, WAIT_S)
            async with await connect_async(cluster.addresses, timeout_s=WAIT_S) as client:
                stage = Stage(cluster, order, client, await new_table(client, "t", tablets=tablets))
                await stage.writer.insert(ROWS_FIRST)
                for number, (name, row) in enumerate(chosen):
                    if number and name == FIRST_COPY:
                        await stage.renew_table()
                    told(f"{name}: {await _carried_out(stage, name, row)}")
            for node in cluster.nodes:
                node.ask_to_stop()
            orphans = {node.name: found for node in cluster.servers if (found := orphan_files(node))}
            assert not orphans, orphans
        finally:
            cluster.kill()


async def _carried_out(stage: Stage, name: str, row: Row) -> str:
    """Carry out a procedure once; return a line about it."""
    begun = time.monotonic()
    try:
        await stage.collect_logs()
        collected = time.monotonic()
        async with stage.writing():
            await PROCEDURES[name][0](stage, row)
        done = time.monotonic()
        await stage.check_whole()
    except BaseException as error:
        error.add_note(f"procedure {name}, {row}; the nodes and their logs: {stage.cluster.directory}")
        raise
    ended = time.monotonic()
    killed = stage.victim.name
    parts = f"logs {collected - begun:.1f} s, procedure {done - collected:.1f} s, whole {ended - done:.1f} s"
    return f"{row}: {killed} killed, {parts}, {stage.writer.count} rows"
