"""Whether the masters have begun to replace the replicas of servers that are lost, and whether they have ended."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from stelae.client.catalog import CatalogClient, tablets_of
from stelae.protocol.master_messages import TableDescription
from stelae.spi.ids import NodeId, TabletId

Members = Mapping[TabletId, frozenset[NodeId]]
"""The members of tablets, as the masters know them."""


async def members_of_tablets(catalog: CatalogClient) -> Members:
    """Return the members of all tablets. ``StelaeError``: no master answers."""
    return {place.tablet_id: frozenset(node for node, _ in place.members) async for place in tablets_of(catalog)}


def is_being_replaced(node_id: NodeId, before: Members, now: Members) -> bool:
    """Return whether the members of a tablet that a server had have changed: a new one is there, or it is none."""
    return any(node_id in members and now.get(tablet_id, members) != members for tablet_id, members in before.items())


async def unreplaced(catalog: CatalogClient, lost: Collection[NodeId]) -> list[str]:
    """Return a sentence for each tablet that lacks a voter among the servers that are not lost, or has a lost member.

    ``StelaeError``: no master answers."""
    problems: list[str] = []
    for table in (await catalog.list_tables()).tables:
        problems += _unreplaced(await catalog.get_table(table.table_id), lost)
    return problems


def _unreplaced(table: TableDescription, lost: Collection[NodeId]) -> list[str]:
    problems = []
    for place in table.tablets:
        where = f"tablet {place.tablet_id} of {table.name}"
        members = {node for node, _ in place.members}
        voters = members - {*lost} - {*place.learners}
        if members & {*lost}:
            problems.append(f"{where} still has a member whose disk was lost")
        elif len(voters) < table.replication_factor:
            problems.append(f"{where} has {len(voters)} voters, {table.replication_factor} are wanted")
    return problems
