"""Waits until the tablets of a table have the number of replicas that it is to have."""

from __future__ import annotations

import asyncio

from msgspec import structs

from stelae.cli.asked_copies import CopyLooks
from stelae.cli.kit.output import note
from stelae.cli.kit.status_line import StatusLine
from stelae.client import AsyncClient
from stelae.client.catalog import CatalogClient
from stelae.client.replica_counts import ReplicaCounts, replica_counts
from stelae.protocol.master_messages import TableDescription
from stelae.spi.errors import DeadlineExceeded

POLL_S = 0.5


async def until_replicated(
    client: AsyncClient, catalog: CatalogClient, table: TableDescription, line: StatusLine, wait_s: float
) -> ReplicaCounts:
    """Wait until the masters have added or removed replicas, for ``wait_s`` seconds at most, and show how far they are.

    Raises:
        DeadlineExceeded: it takes longer. The masters go on.
    """
    loop = asyncio.get_running_loop()
    begun, why, looks = loop.time(), "", CopyLooks(client.connection, catalog)
    tablets = {one.tablet_id for one in table.tablets}
    while True:
        whole = await catalog.policy_snapshot()
        snapshot = structs.replace(whole, tablets={id_: view for id_, view in whole.tablets.items() if id_ in tablets})
        counts = replica_counts(tablets, table.replication_factor, snapshot)
        if counts.is_done:
            return counts
        if line.is_due:
            copies = await looks.amount(snapshot)
            line.show(f"{table.name}: {counts}" + (f"; copying {copies}" if copies.is_known else ""))
        if counts.why_impossible != why:
            why = counts.why_impossible
            if why:
                note(f"waiting: {why}")
        if loop.time() - begun > wait_s:
            fact = f"after {wait_s:.0f} s {table.name} has {counts}, and the masters go on"
            step = why or "see why they wait with: stelae policy explain"
            raise DeadlineExceeded(f"{fact}; {step}. Repeat the command to wait on")
        await asyncio.sleep(POLL_S)
