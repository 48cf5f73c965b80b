"""Work of the leader besides tablets: it records servers, drops old answers and removes expired tables.

Each change is a transition. Many of them share a batch. The next scan returns those that did not fit into it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from stelae.protocol.catalog_names import TableState
from stelae.server.master.core.batches import CatalogBatch
from stelae.server.master.core.ddl import removal
from stelae.server.master.core.locks import LockRequest
from stelae.server.master.core.reconcile import ClusterView, Transition
from stelae.server.master.core.records import ClientRecord, ClusterRecord, Key, ServerRecord
from stelae.server.master.core.servers import Liveness
from stelae.server.master.core.states import TableCause
from stelae.spi.ids import ClientId, ClusterId

_DROPS_MAX = 1024
"""The most answers that one batch drops."""


def new_cluster(view: ClusterView, cluster_id: ClusterId) -> list[Transition]:
    """Return the transition that records the cluster, or none if it is on record."""
    if view.catalog.cluster is not None:
        return []
    record = ClusterRecord(cluster_id=cluster_id, created_us=view.wall_us)
    return [Transition(batch=CatalogBatch(puts=(record,)), locks=LockRequest(write=("cluster",)))]


def new_servers(view: ClusterView) -> list[Transition]:
    """Return the transitions that record live servers that are new or have another address."""
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
            locks = LockRequest(write=(server_lock(record),))
            found.append(Transition(batch=CatalogBatch(puts=(record,)), locks=locks))
    return found


def server_lock(record: ServerRecord) -> str:
    """Return the name of the lock of a server's record."""
    return f"server/{record.node_id}"


def client_lock(client_id: ClientId) -> str:
    """Return the name of the lock of a client's floor. Requests of the client take it as readers."""
    return f"client/{client_id}"


def expired_tables(view: ClusterView) -> Iterator[Transition]:
    """Yield the removal of each expired soft-deleted table. Its replicas are deleted after the removal is applied."""
    for table in view.catalog.tables.values():
        if table.state is TableState.SOFT_DELETED and view.wall_us >= table.purge_us:
            mutation = removal(view.catalog, table, TableCause.EXPIRED, view.wall_us)
            yield Transition(batch=mutation.batch, locks=mutation.locks)


def old_answers(view: ClusterView) -> list[Transition]:
    """Return the transitions that forget old answers, those that put records first: puts and drops share no batch."""
    return sorted(_old_answers(view), key=lambda one: bool(one.batch.drops))


def _old_answers(view: ClusterView) -> Iterator[Transition]:
    """Yield the transitions that forget old answers: the first raises the client's floor, the next drop the answers.

    The drops follow once the new floor is applied. Until ``client_keep_ms`` after the floor rose, a request below it is
    refused, and not taken for a new one."""
    answers_us = view.wall_us - view.settings.answer_keep_ms * 1000
    clients_us = view.wall_us - view.settings.client_keep_ms * 1000
    for client_id, requests in view.catalog.requests.items():
        old = max((n for n, request in requests.items() if request.decided_us < answers_us), default=0)
        known = view.catalog.clients.get(client_id)
        floor = 0 if known is None else known.floor
        if old > floor:
            record = ClientRecord(client_id=client_id, floor=old, changed_us=view.wall_us)
            yield Transition(batch=CatalogBatch(puts=(record,)), locks=LockRequest(write=(client_lock(client_id),)))
            continue
        below = [request for n, request in sorted(requests.items()) if n <= floor]
        if below:
            yield _drop(client_id, tuple(request.key for request in below[:_DROPS_MAX]))
    for client_id, client in view.catalog.clients.items():
        if client.changed_us < clients_us and client_id not in view.catalog.requests:
            yield _drop(client_id, (client.key,))


def _drop(client_id: ClientId, keys: tuple[Key, ...]) -> Transition:
    return Transition(batch=CatalogBatch(drops=keys), locks=LockRequest(write=(client_lock(client_id),)))
