"""Compares the rows of a tablet's replicas, all read at one time, also while the tablet is written to.

One replica says up to which time it has applied entries, with its checksum of then; the others are asked for theirs of
the same time, once they have come so far."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from stelae.client.client import Client
from stelae.client.health import ReplicaHealth, TabletHealth
from stelae.client.messages import Checksum
from stelae.spi.errors import RetryableError, StelaeError

ROUNDS = 20
"""How often a replica that has not come so far is asked again,"""

PAUSE_S = 0.1
"""and after which pause: followers lag by a heartbeat, not by more."""


async def compare(connection: Client, tablet: TabletHealth) -> str | list[str]:
    """Return the checksum on which all running replicas of a tablet agree; else what each of them said."""
    running = sorted((r for r in tablet.replicas if r.state == "RUNNING"), key=lambda replica: replica.role != "LEADER")
    if not running:
        return ["no replica runs"]
    try:
        first = await connection.checksum(running[0].node_id, tablet.tablet_id)
    except StelaeError as error:
        return [f"{running[0].address}: {error}"]
    others = await asyncio.gather(*(_at(connection, tablet, replica, first) for replica in running[1:]))
    if all(isinstance(said, Checksum) and said.checksum == first.checksum for said in others):
        return first.checksum
    return _said(running, (first, *others))


async def _at(
    connection: Client, tablet: TabletHealth, replica: ReplicaHealth, first: Checksum
) -> Checksum | StelaeError:
    """The checksum of a replica at the time of the first one; an error if it does not come so far."""
    problem: StelaeError | None = None
    for _ in range(ROUNDS):
        try:
            # One that has applied nothing since its start cannot say of when its rows are, and has them all the same.
            said = await connection.checksum(replica.node_id, tablet.tablet_id, at=first.at or None)
            if first.at or said.applied >= first.applied:
                return said
        except RetryableError as error:
            problem = error
        except StelaeError as error:
            return error
        await asyncio.sleep(PAUSE_S)
    return problem or RetryableError(f"the replica does not come as far as {first.applied}")


def _said(replicas: Sequence[ReplicaHealth], said: Sequence[Checksum | StelaeError]) -> list[str]:
    return [
        f"{replica.address}: {one.checksum if isinstance(one, Checksum) else one}"
        for replica, one in zip(replicas, said, strict=True)
    ]
