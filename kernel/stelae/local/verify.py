"""After a load: do all replicas agree, and is every acknowledged row there, as it was sent?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stelae.check.cluster_check import check
from stelae.client import AsyncTable
from stelae.client.catalog import CatalogClient
from stelae.client.connection import Connection
from stelae.local.sources import DemoSource
from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.spi.errors import RetryableError, StelaeError
from stelae.spi.ids import NodeId, TabletId
from stelae.spi.rows import RowBatch

AGREEMENT_TIMEOUT_S = 15.0
HEALTH_TIMEOUT_S = 15.0
POLL_S = 0.1
EXAMPLES_MAX = 3


@dataclass(frozen=True, slots=True)
class Agreement:
    """Whether all replicas hold the same rows; ``detail`` says how they differ."""

    agree: bool
    detail: str


@dataclass(slots=True)
class LoadVerdict:
    """What a scan gave: rows read, acknowledged rows that are missing, rows that differ."""

    read: int = 0
    lost: int = 0
    wrong: int = 0
    examples: list[str] = field(default_factory=list)


async def replicas_of(connection: Connection, catalog: CatalogClient, table: str) -> dict[TabletId, list[NodeId]]:
    """Members of every tablet of a table, and of the system tablet, in which the masters keep what they know."""
    found = {tablet.tablet_id: tablet.members for tablet in (await catalog.get_table(table)).tablets}
    found[SYSTEM_TABLET] = await connection.members(SYSTEM_TABLET)
    return {tablet_id: [node_id for node_id, _ in members] for tablet_id, members in found.items()}


async def wait_for_agreement(
    client: Connection, replicas: Mapping[TabletId, Sequence[NodeId]], check_nodes: Callable[[], None]
) -> Agreement:
    """Wait until all replicas of each tablet have applied the same entries to the same effect.

    Args:
        replicas: the nodes of each tablet.
        check_nodes: raises if a node has ended.
    """
    deadline = time.monotonic() + AGREEMENT_TIMEOUT_S
    pending = dict(replicas)
    while True:
        check_nodes()
        details = {tablet_id: await _difference(client, tablet_id, nodes) for tablet_id, nodes in pending.items()}
        pending = {tablet_id: pending[tablet_id] for tablet_id, detail in details.items() if detail}
        if not pending:
            return Agreement(True, "")
        if time.monotonic() > deadline:
            return Agreement(False, "; ".join(f"tablet {tablet_id}: {details[tablet_id]}" for tablet_id in pending))
        await asyncio.sleep(POLL_S)


async def _difference(client: Connection, tablet_id: TabletId, nodes: Sequence[NodeId]) -> str:
    """In which the replicas of a tablet differ now; empty if in nothing."""
    try:
        found = await asyncio.gather(*(client.checksum(node, tablet_id) for node in nodes))
    except RetryableError as error:
        return str(error)
    if len({(one.checksum, one.applied) for one in found}) == 1:
        return ""
    said = zip(nodes, found, strict=True)
    return ", ".join(f"{node[:8]} at {one.applied} has {one.checksum[:12]}" for node, one in said)


async def wait_for_health(
    connection: Connection, catalog: CatalogClient, check_nodes: Callable[[], None]
) -> Sequence[str]:
    """Wait until ``stelae check`` would find nothing to say; return what it says at last."""
    deadline = time.monotonic() + HEALTH_TIMEOUT_S
    while True:
        check_nodes()
        try:
            problems: Sequence[str] = (await check(connection, catalog)).problems
        except StelaeError as error:
            problems = [str(error)]
        if not problems or time.monotonic() > deadline:
            return problems
        await asyncio.sleep(POLL_S)


async def read_back(
    table: AsyncTable, source: DemoSource, acked: bytearray, progress: Callable[[int], None]
) -> LoadVerdict:
    """Scan everything and compare it with the source, row by row; ``progress`` is told how many were read."""
    verdict = LoadVerdict()
    expected = {key: number for number, key in enumerate(source.keys())}
    places = [[column["name"] for column in source.columns].index(name) for name in source.key]
    seen = bytearray(len(source.rows))
    async for batch in table.scan():
        for row in RowBatch(table.schema.layout, batch).to_rows():
            verdict.read += 1
            number = expected.get(tuple(row[place] for place in places))
            if number is None or seen[number] or not _same(row, source.rows[number]):
                verdict.wrong += 1
                if len(verdict.examples) < EXAMPLES_MAX:
                    sent = "nothing" if number is None else source.rows[number]
                    verdict.examples.append(f"read {row!r} where {sent!r} was sent")
            if number is not None:
                seen[number] = 1
        progress(verdict.read)
    for number, is_acked in enumerate(acked):
        if is_acked and not seen[number]:
            verdict.lost += 1
            if len(verdict.examples) < EXAMPLES_MAX:
                verdict.examples.append(f"acknowledged row is missing: {source.rows[number]!r}")
    return verdict


def _same(read: tuple[Any, ...], sent: tuple[Any, ...]) -> bool:
    """Equal values; a NaN equals a NaN."""
    return len(read) == len(sent) and all(
        one == other or (one != one and other != other) for one, other in zip(read, sent, strict=True)
    )
