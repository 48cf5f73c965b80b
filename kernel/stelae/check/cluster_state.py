"""Collects the state of a cluster: tables and servers from the masters, and the state of each node from the node."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TypeVar

import msgspec

from stelae.check.health import SILENT, Members, NodeFacts
from stelae.client.catalog import CatalogClient
from stelae.client.connection import Connection
from stelae.client.counted import counted
from stelae.protocol.codec import decode, encode
from stelae.protocol.master_errors import NoTable
from stelae.protocol.master_messages import ServerLine, TableDescription, TableSummary
from stelae.protocol.node_messages import NODE, QUARANTINE, NodeInfo, NodeRequest, QuarantineInfo, QuarantineRequest
from stelae.spi.errors import CallerError, StelaeError
from stelae.spi.ids import NodeId
from stelae.spi.members import TabletConfig

ASK_MS = 3_000
"""How long a node may take to answer, in milliseconds. After that it counts as silent."""

ASKED_MAX = 64
"""How many nodes, or tables, are asked about at the same time."""

_Answer = TypeVar("_Answer", NodeInfo, QuarantineInfo)


class ClusterState(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of all nodes."""

    masters: Members
    masters_config: TabletConfig | None = None  #: The newest committed config of the masters that any node knows.
    nodes: Mapping[NodeId, NodeFacts]
    servers: tuple[ServerLine, ...] = ()
    summaries: tuple[TableSummary, ...] = ()  #: All tables, including soft-deleted ones.
    tables: tuple[TableDescription, ...] = ()  #: The requested tables.
    problem: str = ""  #: Why the masters could not list servers and tables; empty if they could.

    def address_of(self, node_id: NodeId | None) -> str:
        """Return the address of a node, or ``-`` if it is not known."""
        return "-" if node_id is None or node_id not in self.nodes else self.nodes[node_id].address


async def collect_state(
    connection: Connection,
    catalog: CatalogClient,
    *,
    tables: Collection[str] | None = None,
    timeout_s: float = 10.0,
    progress: Callable[[str], None] = lambda text: None,
) -> ClusterState:
    """Ask the masters, then every node once.

    Args:
        connection: the connection of the client that found the masters.
        catalog: the masters' catalog.
        tables: names of the tables to describe; ``None``: all.
        timeout_s: how long to ask the masters for the tables and servers.
        progress: called with a description of each step.

    Raises:
        Unavailable: no master answers.
        NoTable: one of ``tables`` does not exist.
    """
    progress("asking the masters")
    view = await catalog.masters_view(timeout_s=timeout_s)
    masters, config = view.members, view.config
    try:
        servers = (await catalog.list_servers(timeout_s=timeout_s)).servers
        summaries = (await catalog.list_tables(soft_deleted=True, timeout_s=timeout_s)).tables
        described = await _describe(catalog, summaries, tables, timeout_s)
    except CallerError:
        raise
    except StelaeError as error:
        nodes = await ask_nodes(connection, masters)
        return ClusterState(
            masters=masters,
            masters_config=config,
            nodes=nodes,
            problem=f"the masters cannot list the tables and servers: {error}",
        )
    progress(f"asking {counted(len(masters), 'master')} and {counted(len(servers), 'tablet server')}")
    nodes = await ask_nodes(connection, (*masters, *((line.node_id, line.address) for line in servers)))
    return ClusterState(
        masters=masters, masters_config=config, nodes=nodes, servers=servers, summaries=summaries, tables=described
    )


async def ask_nodes(connection: Connection, members: Sequence[tuple[NodeId, str]]) -> dict[NodeId, NodeFacts]:
    """Ask nodes for their state.

    Two of them may have one address: a server that lost its disk comes back there under a new uuid. The address is
    connected to once, because a second connection to the same process would end the first."""
    turns = asyncio.Semaphore(ASKED_MAX)
    reached: dict[str, asyncio.Task[NodeId]] = {}

    def reach(address: str) -> asyncio.Task[NodeId]:
        if address not in reached:
            reached[address] = asyncio.ensure_future(connection.reach(address, deadline_ms=ASK_MS))
        return reached[address]

    async def one(node_id: NodeId, address: str) -> NodeFacts:
        async with turns:
            return await _ask_node(connection, node_id, address, reach(address))

    found = await asyncio.gather(*(one(node_id, address) for node_id, address in members))
    return {facts.node_id: facts for facts in found}


async def _ask_node(connection: Connection, node_id: NodeId, address: str, reached: Awaitable[NodeId]) -> NodeFacts:
    try:
        if (found := await reached) != node_id:
            return NodeFacts(node_id=node_id, address=address, problem=f"node {found} has its address now")
        reports = await connection.status(node_id, deadline_ms=ASK_MS)
    except StelaeError as error:
        return NodeFacts(node_id=node_id, address=address, problem=f"{SILENT}: {error}")
    asked_s = time.time()
    info = await _ask(connection, node_id, NODE, NodeRequest(), NodeInfo)
    answered_s = time.time()
    middle_us = int((asked_s + answered_s) / 2 * 1_000_000)
    return NodeFacts(
        node_id=node_id,
        address=address,
        reports={report.tablet_id: report for report in reports},
        info=info,
        quarantine=await _ask(connection, node_id, QUARANTINE, QuarantineRequest(), QuarantineInfo),
        clock_ahead_ms=0 if info is None else (info.wall_us - middle_us) // 1000,
        clock_error_ms=int((answered_s - asked_s) * 1000) + 1,
    )


async def _ask(
    connection: Connection, node_id: NodeId, kind: str, question: msgspec.Struct, answer: type[_Answer]
) -> _Answer | None:
    """Return the answer of a node; ``None`` if it has none, as a node of another release."""
    try:
        response = await connection.ask(node_id, kind, encode(question), deadline_ms=ASK_MS)
        return decode(response.body[0], answer)
    except (StelaeError, IndexError):
        return None


async def _describe(
    catalog: CatalogClient, summaries: Sequence[TableSummary], names: Collection[str] | None, timeout_s: float
) -> tuple[TableDescription, ...]:
    turns = asyncio.Semaphore(ASKED_MAX)

    async def one(table: str) -> TableDescription | None:
        async with turns:
            try:
                return await catalog.get_table(table, timeout_s=timeout_s)
            except NoTable:
                if names is not None:
                    raise
                return None  # Soft-deleted, or dropped since it was listed.

    asked = names if names is not None else [summary.table_id for summary in summaries]
    found = await asyncio.gather(*(one(table) for table in asked))
    return tuple(table for table in found if table is not None)
