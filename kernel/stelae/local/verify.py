"""After a load: do all replicas agree, and is every acknowledged row there, as it was sent?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from stelae.client.client import Client, Tablet
from stelae.local.cluster import LocalCluster
from stelae.local.sources import Source
from stelae.spi.errors import RetryableError

AGREEMENT_TIMEOUT_S = 15.0
POLL_S = 0.05
EXAMPLES_MAX = 3


@dataclass(frozen=True, slots=True)
class Agreement:
    """Whether all replicas hold the same rows; ``detail`` says how they differ."""

    agree: bool
    detail: str


@dataclass(slots=True)
class Verdict:
    """What a scan gave: rows read, acknowledged rows that are missing, rows that differ."""

    read: int = 0
    lost: int = 0
    wrong: int = 0
    examples: list[str] = field(default_factory=list)


async def wait_for_agreement(client: Client, cluster: LocalCluster, check: Callable[[], None]) -> Agreement:
    """Wait until every replica has applied the same entries to the same effect.

    Args:
        check: raises if a node has ended.
    """
    deadline = time.monotonic() + AGREEMENT_TIMEOUT_S
    detail = "no replica answered"
    while time.monotonic() < deadline:
        check()
        try:
            found = {node.name: await client.checksum(node.node_id, cluster.tablet_id) for node in cluster.nodes}
        except RetryableError as error:
            detail = str(error)
        else:
            if len({(c.checksum, c.applied) for c in found.values()}) == 1:
                return Agreement(True, "")
            detail = ", ".join(f"{name} at {c.applied} has {c.checksum[:12]}" for name, c in found.items())
        await asyncio.sleep(POLL_S)
    return Agreement(False, detail)


async def read_back(
    tablet: Tablet, source: Source, acked: bytearray, progress: Callable[[str, int, int], None]
) -> Verdict:
    """Scan everything and compare it with the source, row by row."""
    verdict = Verdict()
    expected = {source.key_of(row): number for number, row in enumerate(source.rows)}
    seen = bytearray(len(source.rows))
    async for batch in tablet.scan():
        for row in batch.to_rows():
            verdict.read += 1
            number = expected.get(source.key_of(row))
            if number is None or seen[number] or not _same(row, source.rows[number]):
                verdict.wrong += 1
                if len(verdict.examples) < EXAMPLES_MAX:
                    sent = "nothing" if number is None else source.rows[number]
                    verdict.examples.append(f"read {row!r} where {sent!r} was sent")
            if number is not None:
                seen[number] = 1
        progress("comparing every row with the source", verdict.read, len(source.rows))
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
