"""What identifies a table among all tables of the same name."""

from __future__ import annotations

from stelae.client import AsyncClient


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
