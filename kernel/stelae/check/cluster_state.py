"""Asks the masters what there is, and every node how it is: what ``stelae check`` judges and other commands show."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

import msgspec

from stelae.check.health import SILENT, Members, NodeFacts
from stelae.client.catalog import Catalog
from stelae.client.connection import Client
from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.protocol.codec import decode, encode
from stelae.protocol.master_errors import NoTable
from stelae.protocol.master_messages import ServerLine, TableDescription, TableSummary
from stelae.protocol.node_messages import NODE, QUARANTINE, NodeInfo, NodeRequest, QuarantineInfo, QuarantineRequest
from stelae.spi.errors import CallerError, StelaeError
from stelae.spi.ids import NodeId

ASK_MS = 3_000
"""How long a node may take to answer, in milliseconds; it counts as silent then."""

ASKED_MAX = 64
"""Nodes, and tables, that are asked for at a time."""

_Answer = TypeVar("_Answer", NodeInfo, QuarantineInfo)


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """What was said. ``problem``: why the masters could not say which servers and tables there are."""

    masters: Members
    nodes: Mapping[NodeId, NodeFacts]
    servers: tuple[ServerLine, ...] = ()
    summaries: tuple[TableSummary, ...] = ()  #: All tables, those that can be recalled among them.
    tables: tuple[TableDescription, ...] = ()  #: Those that were asked for.
    problem: str = ""

    def address_of(self, node_id: NodeId | None) -> str:
        """Where a node is, or ``-``."""
        return "-" if node_id is None or node_id not in self.nodes else self.nodes[node_id].address


async def survey(
    connection: Client,
    catalog: Catalog,
    *,
    tables: Collection[str] | None = None,
    timeout_s: float = 10.0,
    progress: Callable[[str], None] = lambda text: None,
) -> Survey:
    """Ask everybody, each node once.

    Args:
        connection: of the client that found the masters.
        catalog: the masters.
        tables: names of the tables to describe; ``None``: all.
        timeout_s: how long the masters are asked for what there is.
        progress: is told what is being done.

    Raises:
        Unavailable: no master could be asked at all.
        NoTable: one of ``tables`` is not there.
    """
    progress("asking the masters")
    masters = await connection.members(SYSTEM_TABLET, timeout_s=timeout_s)
    try:
        servers = (await catalog.list_servers(timeout_s=timeout_s)).servers
        summaries = (await catalog.list_tables(soft_deleted=True, timeout_s=timeout_s)).tables
        described = await _describe(catalog, summaries, tables, timeout_s)
    except CallerError:
        raise
    except StelaeError as error:
        nodes = await ask_nodes(connection, masters)
        return Survey(masters=masters, nodes=nodes, problem=f"the masters cannot say what there is: {error}")
    progress(f"asking {len(masters)} masters and {len(servers)} tablet servers")
    nodes = await ask_nodes(connection, (*masters, *((line.node_id, line.address) for line in servers)))
    return Survey(masters=masters, nodes=nodes, servers=servers, summaries=summaries, tables=described)


async def ask_nodes(connection: Client, members: Sequence[tuple[NodeId, str]]) -> dict[NodeId, NodeFacts]:
    """Ask nodes for all that they say of themselves."""
    turns = asyncio.Semaphore(ASKED_MAX)

    async def one(node_id: NodeId, address: str) -> NodeFacts:
        async with turns:
            return await _ask_node(connection, node_id, address)

    found = await asyncio.gather(*(one(node_id, address) for node_id, address in members))
    return {facts.node_id: facts for facts in found}


async def _ask_node(connection: Client, node_id: NodeId, address: str) -> NodeFacts:
    try:
        if (found := await connection.reach(address, deadline_ms=ASK_MS)) != node_id:
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
    connection: Client, node_id: NodeId, kind: str, question: msgspec.Struct, answer: type[_Answer]
) -> _Answer | None:
    """What a node answers; ``None`` if it does not, as one of another release."""
    try:
        response = await connection.ask(node_id, kind, encode(question), deadline_ms=ASK_MS)
        return decode(response.body[0], answer)
    except (StelaeError, IndexError):
        return None


async def _describe(
    catalog: Catalog, summaries: Sequence[TableSummary], names: Collection[str] | None, timeout_s: float
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
