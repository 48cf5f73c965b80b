"""Waits until tables are whole: every tablet has as many healthy voters as its table wants, on servers that live.

``stelae check`` is content with a tablet whose members all run, however many they are, and only warns of replicas that
are members of nothing. After faults that make masters replace replicas, both would be a defect."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence

from stelae.check.cluster_check import judge
from stelae.check.cluster_state import collect_state
from stelae.check.findings import stray_replicas
from stelae.check.health import TableHealth
from stelae.client.catalog import CatalogClient
from stelae.client.connection import Connection
from stelae.spi.errors import StelaeError

POLL_S = 0.2


async def wait_until_whole(
    connection: Connection,
    catalog: CatalogClient,
    check_nodes: Callable[[], None],
    *,
    spares_allowed: bool = False,
    timeout_s: float,
) -> Sequence[str]:
    """Wait until a cluster is healthy and all of its tables are whole; return the problems of the last look.

    Args:
        connection: a connection to the cluster.
        catalog: the masters' catalog.
        check_nodes: raises an error if a node has ended.
        spares_allowed: whether a tablet may have more voters than its table wants. An operator may have added one.
        timeout_s: how long to wait, in seconds.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        check_nodes()
        try:
            state = await collect_state(connection, catalog)
            report = await judge(connection, state, checksums=False)
            wanted = {table.table_id: table.replication_factor for table in state.tables}
            counts = [
                problem
                for table in report.tables
                for problem in voter_problems(table, wanted[table.table_id], spares_allowed=spares_allowed)
            ]
            problems: Sequence[str] = [*report.problems, *counts, *stray_replicas(state)]
        except StelaeError as error:
            problems = [str(error)]
        if not problems or time.monotonic() > deadline:
            return problems
        await asyncio.sleep(POLL_S)


def voter_problems(table: TableHealth, wanted: int, *, spares_allowed: bool) -> Iterator[str]:
    """Return a sentence for each tablet that does not have as many healthy voters as wanted, or that has learners."""
    for tablet in table.tablets:
        healthy = sum(replica.votes and not replica.lost for replica in tablet.replicas)
        where = f"tablet {tablet.tablet_id} of {table.name}"
        if healthy < wanted or (healthy > wanted and not spares_allowed):
            yield f"{where}: {healthy} healthy voters, {wanted} are wanted"
        if learners := [replica.address for replica in tablet.replicas if not replica.votes]:
            yield f"{where}: {', '.join(learners)} does not vote"
