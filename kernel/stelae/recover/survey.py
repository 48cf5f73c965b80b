"""Asks masters and nodes what is left of the tablets of a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from stelae.client.catalog import CatalogClient
from stelae.client.connection import Connection
from stelae.client.counted import counted
from stelae.protocol.catalog_names import SYSTEM_TABLET, TabletState
from stelae.protocol.codec import decode, encode
from stelae.protocol.master_errors import NoTable
from stelae.protocol.master_messages import TableDescription, TabletPlace
from stelae.protocol.recovery_messages import SURVEY, SurveyReply, SurveyRequest, SurvivorView
from stelae.recover.loss import CATALOG
from stelae.recover.plan import NotPlanned, RecoveryPlan, TabletPlan
from stelae.recover.planning import KnownTablet, Nodes, SurveyedNode, plan_tablet
from stelae.spi.errors import CallerError, RetryableError, StelaeError, Unavailable
from stelae.spi.ids import NodeId, TabletId

ASK_MS = 3_000
"""How long a node may take to answer, in milliseconds. After that it counts as lost."""

PAUSE_S = 0.2
"""Pause before a node is asked again, in seconds."""

ASKED_MAX = 64
"""How many nodes or tables are asked about at the same time."""


class Survey:
    """What masters and nodes have said.

    Attributes:
        silent: given addresses at which no node answered, each with the reason. Tablets that only these nodes have are
            not in a plan, because without masters only a replica tells that there is a tablet.
    """

    def __init__(self, tablets: Sequence[KnownTablet], nodes: Nodes, silent: Mapping[str, str] | None = None) -> None:
        self.tablets = tablets
        self.nodes = nodes
        self.silent = silent or {}

    def plans(self, tag: int, only: Collection[TabletId] = ()) -> list[TabletPlan | NotPlanned]:
        """Return the plan of each tablet, or of those in ``only``."""
        return [plan_tablet(tablet, self.nodes, tag) for tablet in self.tablets if not only or tablet.tablet_id in only]

    def plan(self, tag: int, made_us: int, only: Collection[TabletId] = ()) -> tuple[RecoveryPlan, list[NotPlanned]]:
        """Return the plan, and the tablets that need no recovery."""
        found = self.plans(tag, only)
        left = [one for one in found if isinstance(one, NotPlanned)]
        plan = RecoveryPlan(
            made_us=made_us,
            tablets=tuple(one for one in found if isinstance(one, TabletPlan)),
            unrecoverable=tuple(one for one in left if not one.has_majority),
        )
        return plan, [one for one in left if one.has_majority]


async def survey_masters(
    connection: Connection,
    catalog: CatalogClient,
    *,
    table: str = "",
    timeout_s: float = 10.0,
    progress: Callable[[str], None] = lambda text: None,
) -> Survey:
    """Ask the masters for tables and servers, then every server.

    Raises:
        Unavailable: no master leads. The masters have to be repaired first.
        NoTable: ``table`` does not exist.
    """
    progress("asking the masters")
    try:
        servers = (await catalog.list_servers(timeout_s=timeout_s)).servers
    except Unavailable as error:
        step = "if they have lost their majority, recover them first: stelae recover plan --masters HOST:PORT,..."
        raise Unavailable(f"{error}; {step}") from error
    listed = () if table else (await catalog.list_tables(timeout_s=timeout_s)).tables
    names = [table] if table else [one.table_id for one in listed]
    turns = asyncio.Semaphore(ASKED_MAX)

    async def describe(name: str) -> list[KnownTablet]:
        async with turns:
            try:
                found = await catalog.get_table(name, timeout_s=timeout_s)
            except NoTable:
                if table:
                    raise
                return []  # Dropped since it was listed.
        return [_known(found, place) for place in found.tablets if place.state is TabletState.RUNNING]

    tablets = [tablet for found in await asyncio.gather(*map(describe, names)) for tablet in found]
    # A server may be a member before the masters have recorded it.
    asked = {node_id: address for tablet in tablets for node_id, address in tablet.members}
    asked |= {line.node_id: line.address for line in servers}
    progress(f"asking {counted(len(asked), 'tablet server')}")
    silences = {line.node_id: line.silent_ms for line in servers}
    nodes = await survey_nodes(connection, asked.items(), (), silences)
    return Survey(tablets, nodes)


def _known(table: TableDescription, place: TabletPlace) -> KnownTablet:
    return KnownTablet(
        tablet_id=place.tablet_id,
        table=table.name,
        replicas_wanted=table.replication_factor,
        members=place.members,
        learners=place.learners,
        config=place.config,
    )


async def survey_servers(connection: Connection, addresses: Sequence[str], *, timeout_s: float = 10.0) -> Survey:
    """Ask nodes without masters, given by their addresses, and the members that they name.

    Raises:
        CallerError: a node is a master.
    """
    nodes, silent = await _survey_addresses(connection, addresses, timeout_s)
    ids = sorted({view.tablet_id for node in nodes.values() for view in node.views.values()})
    if SYSTEM_TABLET in ids:
        raise CallerError(
            "a node of --servers is a master; pass --connect with the masters, or only tablet servers. To recover the "
            "masters themselves, pass them as --masters"
        )
    return Survey([KnownTablet(tablet_id=tablet_id) for tablet_id in ids], nodes, silent)


async def survey_system_tablet(connection: Connection, addresses: Sequence[str], *, timeout_s: float = 10.0) -> Survey:
    """Ask masters that are left, given by their addresses, and the masters that they name, for the system tablet.

    Raises:
        CallerError: a node is a tablet server.
    """
    nodes, silent = await _survey_addresses(connection, addresses, timeout_s)
    for node in nodes.values():
        if node.views and SYSTEM_TABLET not in node.views:
            raise CallerError(f"{node.address} is a tablet server; pass masters as --masters")
    return Survey([KnownTablet(tablet_id=SYSTEM_TABLET, table=CATALOG)], nodes, silent)


async def _survey_addresses(
    connection: Connection, addresses: Sequence[str], timeout_s: float
) -> tuple[Nodes, dict[str, str]]:
    """Ask the nodes at some addresses, and the members that they name. Return also which addresses are silent."""
    found: dict[NodeId, str] = {}
    silent: dict[str, str] = {}
    for address in addresses:
        try:
            found[await connection.reach(address, deadline_ms=int(min(timeout_s * 1000, ASK_MS)))] = address
        except StelaeError as error:
            silent[address] = str(error)
    nodes = dict(await survey_nodes(connection, [*found.items()]))
    silent |= {node.address: node.problem for node in nodes.values() if node.problem}
    views = [view for node in nodes.values() for view in node.views.values()]
    members = {m.node_id: m.address for v in views if v.config is not None for m in v.config.members}
    missing = [(node_id, address) for node_id, address in members.items() if node_id not in nodes]
    return nodes | await survey_nodes(connection, missing), silent


async def survey_nodes(
    connection: Connection,
    asked: Iterable[tuple[NodeId, str]],
    tablet_ids: Collection[TabletId] = (),
    silences: dict[NodeId, int | None] | None = None,
) -> dict[NodeId, SurveyedNode]:
    """Ask nodes what their replicas hold; without ``tablet_ids``: all of them."""
    turns = asyncio.Semaphore(ASKED_MAX)

    async def one(node_id: NodeId, address: str) -> SurveyedNode:
        silent_ms = (silences or {}).get(node_id)
        async with turns:
            try:
                views = await _ask_patiently(connection, node_id, address, tuple(tablet_ids))
            except StelaeError as error:
                problem = f"its server does not answer: {error}"
                return SurveyedNode(node_id=node_id, address=address, problem=problem, silent_ms=silent_ms)
        return SurveyedNode(node_id=node_id, address=address, silent_ms=silent_ms, views=views)

    found = await asyncio.gather(*(one(node_id, address) for node_id, address in asked))
    return {node.node_id: node for node in found}


async def _ask_patiently(
    connection: Connection, node_id: NodeId, address: str, tablet_ids: tuple[TabletId, ...]
) -> dict[TabletId, SurvivorView]:
    """Ask until the node answers, or counts as lost: one that has just restarted must not be taken for a lost one."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + ASK_MS / 1000
    while True:
        try:
            return await _ask(connection, node_id, address, tablet_ids)
        except RetryableError:
            if loop.time() + PAUSE_S >= deadline:
                raise
            await asyncio.sleep(PAUSE_S)


async def _ask(
    connection: Connection, node_id: NodeId, address: str, tablet_ids: tuple[TabletId, ...]
) -> dict[TabletId, SurvivorView]:
    if (there := await connection.reach(address, deadline_ms=ASK_MS)) != node_id:
        raise CallerError(f"expected node {node_id} at {address}, but node {there} answers there; update the plan")
    answer = await connection.ask(node_id, SURVEY, encode(SurveyRequest(tablet_ids)), deadline_ms=ASK_MS)
    if not answer.body:
        raise CallerError("its answer to the survey is empty; run the same version of Stelae on all nodes")
    return {view.tablet_id: view for view in decode(answer.body[0], SurveyReply).replicas}
