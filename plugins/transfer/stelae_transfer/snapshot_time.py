"""The time of a snapshot that several tablets or several scans share."""

from __future__ import annotations

import asyncio

from stelae.client import AsyncClient
from stelae.client.locations import TabletLocation
from stelae.spi.scan import ScanSpec


async def latest(client: AsyncClient, tables: list[str], timeout_s: float) -> int:
    """Return a hybrid timestamp at which reads show every write that was acknowledged before the call.

    Asks the leader of each tablet, as a linearizable read does. The clock of this machine is not used."""
    locations = [await client.locations.find(name) for name in tables]
    tablets = [tablet for location in locations for tablet in location.tablets]
    return max(await asyncio.gather(*(_leader_time(client, tablet, timeout_s) for tablet in tablets)), default=0)


async def _leader_time(client: AsyncClient, location: TabletLocation, timeout_s: float) -> int:
    tablet = await client.connection.tablet(location.tablet_id, members=location.members, timeout_s=timeout_s)
    spec = ScanSpec(columns=tablet.schema.key, limit=1)
    page, _ = await tablet.page(spec, timeout_s=timeout_s)
    return page.at


async def members_of(client: AsyncClient, table: str, timeout_s: float) -> tuple[str, ...]:
    """Return what identifies a table among all tables of the same name.

    With masters these are the ids of its tablets, which are unique. Without masters the ids come from a file and may be
    the same on every cluster, so these are the ids of the nodes that hold the tablets."""
    location = await client.locations.find(table)
    if client.catalog is not None:
        return tuple(sorted(one.tablet_id for one in location.tablets))
    found: set[str] = set()
    for place in location.tablets:
        tablet = await client.connection.tablet(place.tablet_id, members=place.members, timeout_s=timeout_s)
        found |= {*tablet.leader.members}
    return tuple(sorted(found))
