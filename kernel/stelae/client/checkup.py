"""Asks every master, every tablet server and every replica how it is; ``stelae.client.health`` judges the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import msgspec

from stelae.client.catalog import SYSTEM_TABLET, Catalog
from stelae.client.client import Client
from stelae.client.health import Members, NodeFacts, TableHealth, TabletHealth, Verdict, table_health, tablet_health
from stelae.client.master_requests import ServerLine
from stelae.spi.errors import StelaeError
from stelae.spi.ids import NodeId, TabletId

ASK_MS = 3_000
"""How long a node may take to answer, in milliseconds; it counts as silent then."""

SILENT_MS = 5_000
"""Masters that have not heard of a server for so long put nothing new on it."""

CHECKSUM_ROUNDS = 5
"""How often replicas whose checksums differ are asked again: a tablet that is written to has no rest."""


class ServerHealth(msgspec.Struct, frozen=True, kw_only=True):
    """One tablet server; ``problem`` is empty if it answers and masters hear of it."""

    node_id: NodeId
    address: str
    location: str
    mode: str
    problem: str


class Checkup(msgspec.Struct, frozen=True, kw_only=True):
    """All that was found. ``problems``: in words, one for each thing that is not as it should be."""

    masters: TabletHealth
    servers: tuple[ServerHealth, ...]
    tables: tuple[TableHealth, ...]
    checksums: Mapping[TabletId, str]  #: Of tablets whose replicas agree; empty unless asked for.
    problems: tuple[str, ...]

    @property
    def healthy(self) -> bool:
        """Whether there is nothing to say."""
        return not self.problems


async def check(
    connection: Client,
    catalog: Catalog,
    *,
    checksums: bool = False,
    progress: Callable[[str], None] = lambda text: None,
) -> Checkup:
    """Ask everybody.

    Args:
        connection: of the client that found the masters.
        catalog: the masters.
        checksums: compare the rows of all replicas, too; reads every row of the cluster.
        progress: is told what is being done.

    Raises:
        Unavailable: no master leads, so that nobody knows what there is.
    """
    progress("asking the masters")
    members = await connection.members(SYSTEM_TABLET)
    masters = await _ask(connection, members)
    lines = (await catalog.list_servers()).servers
    progress(f"asking {len(lines)} tablet servers")
    nodes = await _ask(connection, [(line.node_id, line.address) for line in lines])
    servers = [_server(line, nodes[line.node_id]) for line in lines]
    tables = []
    for summary in (await catalog.list_tables()).tables:
        tables.append(table_health(await catalog.get_table(summary.table_id), nodes))
    own = tablet_health(SYSTEM_TABLET, members, masters)
    problems = [*_problems(own, servers, tables)]
    sums: dict[TabletId, str] = {}
    if checksums:
        for table in tables:
            progress(f"comparing the replicas of {table.name}")
            problems += await _compare(connection, table, sums)
    return Checkup(masters=own, servers=tuple(servers), tables=tuple(tables), checksums=sums, problems=tuple(problems))


def _server(line: ServerLine, facts: NodeFacts) -> ServerHealth:
    problem = facts.problem
    if not problem and (line.silent_ms is None or line.silent_ms > SILENT_MS):
        silent = "since this master leads" if line.silent_ms is None else f"for {line.silent_ms / 1000:.1f} s"
        problem = f"the masters have not heard of it {silent}"
    return ServerHealth(
        node_id=line.node_id, address=line.address, location=line.location, mode=line.mode.value, problem=problem
    )


async def _compare(connection: Client, table: TableHealth, sums: dict[TabletId, str]) -> list[str]:
    """Compare the replicas of every tablet of a table; fill ``sums``, and return what does not agree."""
    problems = []
    for tablet in table.tablets:
        found = await _agreed(connection, tablet)
        if isinstance(found, str):
            sums[tablet.tablet_id] = found
        else:
            problems.append(f"tablet {tablet.tablet_id} of {table.name}: {'; '.join(found)}")
    return problems


async def _ask(connection: Client, members: Members | Sequence[tuple[NodeId, str]]) -> dict[NodeId, NodeFacts]:
    """Ask nodes for their replicas, all at once."""

    async def one(node_id: NodeId, address: str) -> NodeFacts:
        try:
            if (found := await connection.reach(address, deadline_ms=ASK_MS)) != node_id:
                return NodeFacts(node_id=node_id, address=address, problem=f"node {found} has its address now")
            reports = await connection.status(node_id, deadline_ms=ASK_MS)
        except StelaeError as error:
            return NodeFacts(node_id=node_id, address=address, problem=f"does not answer: {error}")
        return NodeFacts(node_id=node_id, address=address, reports={r.tablet_id: r for r in reports})

    found = await asyncio.gather(*(one(node_id, address) for node_id, address in members))
    return {facts.node_id: facts for facts in found}


def _problems(masters: TabletHealth, servers: Sequence[ServerHealth], tables: Sequence[TableHealth]) -> list[str]:
    found = []
    if masters.verdict is not Verdict.HEALTHY:
        found.append(f"masters: {masters.verdict}: {masters.why}")
    found += [f"tablet server {server.address}: {server.problem}" for server in servers if server.problem]
    for table in tables:
        bad = [tablet for tablet in table.tablets if tablet.verdict is not Verdict.HEALTHY]
        found += [f"tablet {t.tablet_id} of {table.name}: {t.verdict}: {t.why}" for t in bad]
        if not bad and not table.healthy:
            found.append(f"table {table.name} is {table.state}")
    return found


async def _agreed(connection: Client, tablet: TabletHealth) -> str | list[str]:
    """The checksum that all running replicas have at one op id; else what each said last."""
    running = [replica for replica in tablet.replicas if not replica.problem]
    said: list[str] = ["no replica runs"]
    for _ in range(CHECKSUM_ROUNDS):
        sums = await asyncio.gather(
            *(connection.checksum(replica.node_id, tablet.tablet_id) for replica in running), return_exceptions=True
        )
        said = []
        for replica, result in zip(running, sums, strict=True):
            text = str(result) if isinstance(result, BaseException) else f"{result.checksum} at {result.applied}"
            said.append(f"{replica.address}: {text}")
        values = {(s.checksum, s.applied) for s in sums if not isinstance(s, BaseException)}
        if len(values) == 1 and not any(isinstance(s, BaseException) for s in sums):
            return values.pop()[0]
        if len({applied for _, applied in values}) == 1 and len(values) > 1:
            return said  # At one op id, and different rows: no waiting will help.
    return said
