"""Compares the rows of a tablet's replicas, all read at one time, also while the tablet is written to.

One replica says up to which time it has applied entries, with its checksum of then. The others are asked for theirs of
the same time, once they have applied that much. A replica that gives no checksum of that time is *not compared*: its
rows are unknown, so the report never says that they differ."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from stelae.check.health import ReplicaHealth, TabletHealth
from stelae.client.connection import Client
from stelae.protocol.tablet_messages import Checksum
from stelae.spi.errors import RetryableError, StelaeError

ROUNDS = 20
"""How often a replica that has not applied enough is asked again,"""

PAUSE_S = 0.1
"""and after which pause: followers lag by a heartbeat, not by more."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What comparing the replicas of one tablet gave. Replicas are named by address, in the order of the tablet."""

    checksum: str = ""  #: On which all replicas agree; empty unless all were compared and are equal.
    differ: tuple[str, ...] = ()  #: The checksum of each replica that was compared, if they are not equal.
    not_compared: tuple[str, ...] = ()  #: Each replica that was not compared, and why.


async def compare(connection: Client, tablet: TabletHealth) -> Comparison:
    """Compare all replicas of a tablet."""
    running = [replica for replica in tablet.replicas if replica.state == "RUNNING"]
    running.sort(key=lambda replica: replica.role != "LEADER")
    said: dict[str, Checksum | str] = {r.address: f"it does not run: {r.state}" for r in tablet.replicas}
    if running:
        said.update(await _all_at_one_time(connection, tablet, running))
    sums = {address: one.checksum for address, one in said.items() if isinstance(one, Checksum)}
    equal = len(set(sums.values())) == 1
    return Comparison(
        checksum=next(iter(sums.values())) if equal and len(sums) == len(said) else "",
        differ=() if equal else tuple(f"{address}: {checksum}" for address, checksum in sums.items()),
        not_compared=tuple(f"{address}: {one}" for address, one in said.items() if isinstance(one, str)),
    )


async def _all_at_one_time(
    connection: Client, tablet: TabletHealth, replicas: Sequence[ReplicaHealth]
) -> dict[str, Checksum | str]:
    """What replicas say of the time up to which the first of them that answers has applied entries."""
    said: dict[str, Checksum | str] = {}
    for place, replica in enumerate(replicas):
        first = said[replica.address] = await _ask(connection, tablet, replica, None)
        if isinstance(first, Checksum):
            others = replicas[place + 1 :]
            found = await asyncio.gather(*(_ask(connection, tablet, other, first.at) for other in others))
            return {**said, **{other.address: one for other, one in zip(others, found, strict=True)}}
    return said


async def _ask(connection: Client, tablet: TabletHealth, replica: ReplicaHealth, at: int | None) -> Checksum | str:
    """The checksum of a replica at a time; why it gives none, even after it was asked ``ROUNDS`` times."""
    problem: StelaeError | None = None
    for _ in range(ROUNDS):
        try:
            return await connection.checksum(replica.node_id, tablet.tablet_id, at=at)
        except RetryableError as error:
            problem = error
        except StelaeError as error:
            return str(error)
        await asyncio.sleep(PAUSE_S)
    return str(problem)
