"""Verifies a load: whether all replicas agree, and whether every acknowledged row can be read as it was sent."""

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
from stelae.local.demo_source import DemoSource
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
    """Whether all replicas have the same rows. ``detail`` has the differences, for people."""

    agree: bool
    detail: str


@dataclass(slots=True)
class ReadBackResult:
    """The result of reading all rows of a table."""

    read: int = 0  #: Rows that were read.
    lost: int = 0  #: Acknowledged rows that are missing.
    wrong: int = 0  #: Rows that differ from the source.
    examples: list[str] = field(default_factory=list)  #: A few rows that are lost or wrong, for people.


async def replicas_of(catalog: CatalogClient, table: str) -> dict[TabletId, list[NodeId]]:
    """Return the members of every tablet of a table, and of the system tablet, which has the masters' catalog."""
    found = {tablet.tablet_id: tablet.members for tablet in (await catalog.get_table(table)).tablets}
    found[SYSTEM_TABLET] = (await catalog.masters_view()).members
    return {tablet_id: [node_id for node_id, _ in members] for tablet_id, members in found.items()}


async def wait_for_agreement(
    client: Connection,
    replicas: Mapping[TabletId, Sequence[NodeId]],
    check_nodes: Callable[[], None],
    *,
    timeout_s: float = AGREEMENT_TIMEOUT_S,
) -> Agreement:
    """Wait until all replicas of each tablet have applied the same entries and have the same rows.

    Args:
        replicas: the nodes of each tablet.
        check_nodes: raises an error if a node has ended.
        timeout_s: how long to wait, in seconds.
    """
    deadline = time.monotonic() + timeout_s
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
    """Return how the replicas of a tablet differ now; empty: they do not differ."""
    try:
        found = await asyncio.gather(*(client.checksum(node, tablet_id) for node in nodes))
    except RetryableError as error:
        return str(error)
    if len({(one.checksum, one.applied) for one in found}) == 1:
        return ""
    pairs = zip(nodes, found, strict=True)
    return ", ".join(f"{node[:8]} at {one.applied} has {one.checksum[:12]}" for node, one in pairs)


async def wait_for_health(
    connection: Connection,
    catalog: CatalogClient,
    check_nodes: Callable[[], None],
    *,
    timeout_s: float = HEALTH_TIMEOUT_S,
) -> Sequence[str]:
    """Wait until the check of the cluster finds no problem; return the problems of the last check."""
    deadline = time.monotonic() + timeout_s
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
) -> ReadBackResult:
    """Scan a table and compare each row with the source. ``progress`` is called with the number of rows read."""
    result = ReadBackResult()
    expected = {key: number for number, key in enumerate(source.keys())}
    positions = [[column["name"] for column in source.columns].index(name) for name in source.key]
    seen = bytearray(len(source.rows))
    async for batch in table.scan():
        for row in RowBatch(table.schema.layout, batch).to_rows():
            result.read += 1
            number = expected.get(tuple(row[position] for position in positions))
            if number is None or seen[number] or not _same(row, source.rows[number]):
                result.wrong += 1
                if len(result.examples) < EXAMPLES_MAX:
                    sent = "nothing" if number is None else source.rows[number]
                    result.examples.append(f"read {row!r} where {sent!r} was sent")
            if number is not None:
                seen[number] = 1
        progress(result.read)
    for number, is_acked in enumerate(acked):
        if is_acked and not seen[number]:
            result.lost += 1
            if len(result.examples) < EXAMPLES_MAX:
                result.examples.append(f"acknowledged row is missing: {source.rows[number]!r}")
    return result


def _same(read: tuple[Any, ...], sent: tuple[Any, ...]) -> bool:
    """Return whether two rows have equal values. A NaN equals a NaN."""
    return len(read) == len(sent) and all(a == b or (a != a and b != b) for a, b in zip(read, sent, strict=True))
