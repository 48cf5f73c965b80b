"""Rebuilds a catalog whose masters are all lost, from what the tablet servers have on record.

1. A new master has begun an empty catalog, alone. The servers know a config of the masters of an earlier creation,
   so the master refuses their heartbeats: it might be an accident. By its recovery it begins an epoch that is above all
   that the lost masters have left (``stelae.spi.recovery_epoch``).
2. The servers belong to the creation of the lost catalog, and ignore masters of any other one. So each of them is
   handed to the new masters. It refuses that while a master of its own leads.
3. The servers are asked what their replicas have on record, and each table is adopted as one change of the catalog.
4. The servers report their replicas, as to any new leader, and the masters heal what lacks replicas.

No replica on a tablet server is changed. Every step can be repeated: what the catalog has is left alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence

from stelae.client.catalog import CatalogClient, tablets_of
from stelae.client.connection import Connection
from stelae.client.counted import counted
from stelae.protocol.catalog_names import SYSTEM_TABLET, TableId, TableState
from stelae.protocol.codec import decode, encode
from stelae.protocol.masters_messages import MASTERS, MastersRequest, MastersView
from stelae.protocol.recovery_messages import (
    CATALOG_FACTS,
    FOLLOW_MASTERS,
    RECOVER,
    CatalogFactsReply,
    CatalogFactsRequest,
    FollowMastersRequest,
    RecoverRequest,
    TabletFacts,
)
from stelae.recover.catalog_plan import without_leader
from stelae.recover.survey import ASK_MS, ASKED_MAX, PAUSE_S, survey_nodes
from stelae.spi.errors import (
    AlreadyRecovered,
    CallerError,
    RecoveryOutdated,
    RecoveryRefused,
    RetryableError,
    StelaeError,
    Unavailable,
)
from stelae.spi.ids import NodeId, TabletId
from stelae.spi.recovery_epoch import first_term, recovery_epoch


class CatalogSurvey:
    """What the servers have, and what the catalog has.

    Attributes:
        replicas: what each replica has on record.
        silent: addresses of servers that did not answer, each with the reason.
        known: the tablets of the catalog.
        dropped: the tables that the catalog has, and that can be recalled. Their replicas are not in ``replicas``.
        masters: the newest config of the masters that the masters know.
        remembered: the masters as each server knows them, by the address of the server.
    """

    def __init__(self, masters: MastersView, known: Collection[TabletId], dropped: Collection[TableId] = ()) -> None:
        self.replicas: list[TabletFacts] = []
        self.silent: dict[str, str] = {}
        self.known = frozenset(known)
        self.dropped = frozenset(dropped)
        self.masters = masters
        self.remembered: dict[str, MastersView] = {}

    @property
    def astray(self) -> dict[str, MastersView]:
        """The servers that belong to another creation than this catalog, by address."""
        here = self.masters.cluster_created_us
        return {at: view for at, view in sorted(self.remembered.items()) if view.cluster_created_us not in (0, here)}

    @property
    def needs_epoch(self) -> bool:
        """Whether a server knows a config of lost masters, which is no older than that of this catalog."""
        here = self.masters.config
        return here is not None and any(
            view.config is not None and view.config.op_id >= here.op_id for view in self.astray.values()
        )


async def survey_catalog(
    connection: Connection,
    catalog: CatalogClient,
    servers: Sequence[str] = (),
    *,
    timeout_s: float,
    progress: Callable[[str], None] = lambda text: None,
) -> CatalogSurvey:
    """Ask the masters and every tablet server that they know, and those at the addresses ``servers``. Changes nothing.

    Waits until every tablet has a leader, which alone is sure to know the newest schema, for at most ``timeout_s``.

    Raises:
        CallerError: no server is known and none is given.
        Unavailable: no master leads.
    """
    progress("asking the masters")
    masters = await catalog.masters_view(timeout_s=timeout_s)
    try:
        known = [place.tablet_id async for place in tablets_of(catalog, timeout_s=timeout_s)]
        tables = (await catalog.list_tables(soft_deleted=True, timeout_s=timeout_s)).tables
        listed = (await catalog.list_servers(timeout_s=timeout_s)).servers
    except Unavailable as error:  # An attempt that ended early may have left a master that stands down.
        step = "if no master leads after a while either, recover one first: stelae recover plan --masters HOST:PORT"
        raise Unavailable(f"{error}; {step}") from error
    addresses = dict.fromkeys((*servers, *(server.address for server in listed)))
    if not addresses:
        fact = "no tablet server has reported to the masters, as to a new catalog none does"
        raise CallerError(f"{fact}; pass the addresses of all tablet servers: --servers HOST:PORT,...")
    dropped = [table.table_id for table in tables if table.state is TableState.SOFT_DELETED]
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while True:
        progress(f"asking {counted(len(addresses), 'tablet server')}")
        survey = CatalogSurvey(masters, known, dropped)
        await _ask_all(connection, addresses, survey)
        waiting = without_leader(survey.replicas, survey.known)
        if not waiting or loop.time() + PAUSE_S >= deadline:
            return survey
        progress(f"waiting for the leaders of {counted(len(waiting), 'tablet')}")
        await asyncio.sleep(PAUSE_S)


async def _ask_all(connection: Connection, addresses: Iterable[str], survey: CatalogSurvey) -> None:
    """Ask every server what its replicas have on record."""
    turns = asyncio.Semaphore(ASKED_MAX)

    async def one(address: str) -> None:
        async with turns:
            try:
                facts, remembered = await _ask_server(connection, address)
            except StelaeError as error:
                survey.silent[address] = str(error)
                return
        survey.replicas += [one for one in facts if one.table_id not in survey.dropped]
        survey.remembered[address] = remembered

    await asyncio.gather(*map(one, addresses))


async def begin_epoch(connection: Connection, survey: CatalogSurvey, tag: int, *, timeout_s: float) -> None:
    """Let the only master begin a recovery epoch above all that the servers remember of lost masters. Repeatable.

    What may pass is repeated: its log goes on meanwhile, or it does not answer. All other errors are raised at once.

    Raises:
        CallerError: there is more than one master.
        RecoveryRefused: the master can begin none. The message says what to do next.
        Unavailable: the master did not do it in time.
    """
    config = survey.masters.config
    assert config is not None
    if len(config.members) != 1:
        raise CallerError(
            f"the new catalog has {len(config.members)} masters; begin it with one, rebuild it, and add the others "
            "afterwards with `stelae master add`"
        )
    (master,) = config.members
    known = [view.config for view in survey.astray.values() if view.config is not None]
    epoch = max(recovery_epoch(one.op_id.term) for one in (config, *known))
    term = first_term(epoch + 1, tag)
    deadline = asyncio.get_running_loop().time() + timeout_s
    while True:
        try:
            await _recover(connection, master.node_id, master.address, term)
        except AlreadyRecovered:
            return
        except (RetryableError, RecoveryOutdated) as error:  # Its log has gone on since it was asked.
            if asyncio.get_running_loop().time() >= deadline:
                raise Unavailable(f"master {master.address} did not begin a recovery epoch: {error}") from error
            await asyncio.sleep(PAUSE_S)
        else:
            return


async def _recover(connection: Connection, node_id: NodeId, address: str, term: int) -> None:
    found = (await survey_nodes(connection, [(node_id, address)], (SYSTEM_TABLET,)))[node_id]
    view = found.views.get(SYSTEM_TABLET)
    if view is None:  # It may be starting.
        raise Unavailable(found.problem or f"{address} has no system tablet")
    if view.config is None:
        raise RecoveryRefused(f"the system tablet of {address} has failed: {view.failure}; restart the master")
    request = RecoverRequest(SYSTEM_TABLET, term, view.last, view.config.op_id)
    await connection.ask(node_id, RECOVER, encode(request), deadline_ms=ASK_MS)


async def hand_over(connection: Connection, catalog: CatalogClient, survey: CatalogSurvey, *, timeout_s: float) -> None:
    """Hand the servers of a lost catalog to the masters of this one, one after the other. Repeatable.

    Raises:
        RecoveryRefused: a server belongs to neither catalog by now.
        Unavailable: no master answered, or the masters of a server lead, or it did not answer in time.
    """
    deadline = asyncio.get_running_loop().time() + timeout_s
    view = await catalog.masters_view(timeout_s=timeout_s)
    if view.config is None or not view.cluster_created_us:
        raise Unavailable("the masters of the new catalog could not say when it was created; run the command again")
    for address, known in survey.astray.items():
        request = encode(FollowMastersRequest(view.cluster_created_us, view.config, known.cluster_created_us))
        while True:
            try:
                node_id = await connection.reach(address, deadline_ms=ASK_MS)
                await connection.ask(node_id, FOLLOW_MASTERS, request, deadline_ms=ASK_MS)
            except RetryableError as error:
                if asyncio.get_running_loop().time() >= deadline:
                    raise Unavailable(f"server {address} was not handed to the new masters: {error}") from error
                await asyncio.sleep(PAUSE_S)
            else:
                break


async def _ask_server(connection: Connection, address: str) -> tuple[list[TabletFacts], MastersView]:
    node_id = await connection.reach(address, deadline_ms=ASK_MS)
    answer = await connection.ask(node_id, MASTERS, encode(MastersRequest()), deadline_ms=ASK_MS)
    remembered = decode(answer.body[0], MastersView)
    found: list[TabletFacts] = []
    more = True
    while more:
        after = found[-1].tablet_id if found else None
        answer = await connection.ask(node_id, CATALOG_FACTS, encode(CatalogFactsRequest(after)), deadline_ms=ASK_MS)
        page = decode(answer.body[0], CatalogFactsReply)
        found += page.tablets
        more = page.more and bool(page.tablets)
    return found, remembered
