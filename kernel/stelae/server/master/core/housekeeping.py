"""What the leader keeps in order besides tablets: who the servers are, old answers, tables whose time is over."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from stelae.protocol.catalog_names import TableState
from stelae.server.master.core.batches import CatalogBatch
from stelae.server.master.core.ddl import removal
from stelae.server.master.core.locks import LockRequest
from stelae.server.master.core.mutations import Mutation
from stelae.server.master.core.reconcile import ClusterView, Transition
from stelae.server.master.core.records import ClientRecord, ClusterRecord, Key, RequestRecord, ServerRecord
from stelae.server.master.core.servers import Liveness
from stelae.server.master.core.states import TableCause
from stelae.spi.ids import ClientId, ClusterId

_DROPS_MAX = 1024
"""Answers that one batch forgets."""


def new_cluster(view: ClusterView, cluster_id: ClusterId) -> list[Transition]:
    """Return what puts the cluster on record, once and for ever."""
    if view.catalog.cluster is not None:
        return []
    record = ClusterRecord(cluster_id=cluster_id, created_us=view.wall_us)
    return [Transition(puts=(record,), locks=LockRequest(write=("cluster",)))]


def new_servers(view: ClusterView) -> list[Transition]:
    """Return what puts live servers on record, and follows those that have moved."""
    found = []
    for server in view.servers:
        known = view.catalog.servers.get(server.node_id)
        if view.servers.liveness(server.node_id, view.now_us) is not Liveness.LIVE or not server.address:
            continue
        if known is None:
            record = ServerRecord(node_id=server.node_id, address=server.address, location=server.location)
        else:
            record = msgspec.structs.replace(known, address=server.address, location=server.location)
        if record != known:
            found.append(Transition(puts=(record,), locks=LockRequest(write=(server_lock(record),))))
    return found


def server_lock(record: ServerRecord) -> str:
    """The name under which a server's record is locked."""
    return f"server/{record.node_id}"


def client_lock(client_id: ClientId) -> str:
    """The name under which a client's floor is locked; its requests share it."""
    return f"client/{client_id}"


def expired_tables(view: ClusterView) -> Iterator[Mutation]:
    """Yield the end of each soft-deleted table whose time is over; its replicas go only after that is applied."""
    for table in view.catalog.tables.values():
        if table.state is TableState.SOFT_DELETED and view.wall_us >= table.purge_us:
            mutation = removal(view.catalog, table, TableCause.EXPIRED, view.wall_us)
            yield msgspec.structs.replace(mutation, answer=None)


def old_answers(view: ClusterView) -> Iterator[Mutation]:
    """Yield what forgets answers that are too old: first the floor rises, and when that is applied they are dropped.

    In between, and for ``client_keep_ms`` after, a request from below the floor is refused, and not taken for new."""
    answers_us = view.wall_us - view.settings.answer_keep_ms * 1000
    clients_us = view.wall_us - view.settings.client_keep_ms * 1000
    for client_id, requests in view.catalog.requests.items():
        old = max((n for n, request in requests.items() if request.decided_us < answers_us), default=0)
        known = view.catalog.clients.get(client_id)
        floor = 0 if known is None else known.floor
        if old > floor:
            record = ClientRecord(client_id=client_id, floor=old, changed_us=view.wall_us)
            yield Mutation(batch=CatalogBatch(puts=(record,)), locks=LockRequest(write=(client_lock(client_id),)))
            continue
        below = [request for n, request in sorted(requests.items()) if n <= floor]
        if below:
            yield _forget(client_id, below[:_DROPS_MAX])
    for client_id, client in view.catalog.clients.items():
        if client.changed_us < clients_us and client_id not in view.catalog.requests:
            yield Mutation(batch=CatalogBatch(drops=(client.key,)), locks=LockRequest(write=(client_lock(client_id),)))


def _forget(client_id: ClientId, requests: list[RequestRecord]) -> Mutation:
    drops: tuple[Key, ...] = tuple(request.key for request in requests)
    return Mutation(batch=CatalogBatch(drops=drops), locks=LockRequest(write=(client_lock(client_id),)))
