"""A time at which several tablets, or several scans, can be read as one."""

from __future__ import annotations

import asyncio

from stelae.client import AsyncClient
from stelae.client.locations import TabletLocation
from stelae.spi.scan import ScanSpec


async def latest(client: AsyncClient, tables: list[str], timeout_s: float) -> int:
    """Return a hybrid timestamp at which reads show every write that was acknowledged before the call.

    The leader of each tablet is asked, as for a linearizable read; no clock of this machine is trusted."""
    locations = [await client.locations.find(name) for name in tables]
    tablets = [tablet for location in locations for tablet in location.tablets]
    return max(await asyncio.gather(*(_asked(client, tablet, timeout_s) for tablet in tablets)), default=0)


async def _asked(client: AsyncClient, location: TabletLocation, timeout_s: float) -> int:
    tablet = await client.connection.tablet(location.tablet_id, members=location.members, timeout_s=timeout_s)
    spec = ScanSpec(columns=tablet.schema.key, limit=1)
    page, _ = await tablet.page(spec, timeout_s=timeout_s)
    return page.at


async def members_of(client: AsyncClient, table: str, timeout_s: float) -> tuple[str, ...]:
    """Return what tells a table from another of the same name: its tablets, whose ids masters draw anew for each table.

    Without masters a file names the tablets, the same on every cluster: there it is the nodes that hold them."""
    location = await client.locations.find(table)
    if client.catalog is not None:
        return tuple(sorted(one.tablet_id for one in location.tablets))
    found: set[str] = set()
    for one in location.tablets:
        tablet = await client.connection.tablet(one.tablet_id, members=one.members, timeout_s=timeout_s)
        found |= {*tablet.leader.members}
    return tuple(sorted(found))
