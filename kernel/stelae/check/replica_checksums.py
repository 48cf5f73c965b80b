"""Compares the rows of a tablet's replicas as of one time, also while clients write to the tablet.

The first replica returns its checksum and the time up to which it has applied entries. The others are asked for their
checksum as of the same time, as soon as they have applied that much. A replica without a checksum as of that time is
*not compared*: its rows are not known, so the report never says that they differ.

A replica reads its rows, also those of an earlier time, with the columns of its newest schema version. If the table is
altered between two answers, replicas that gave an older version are asked again as of the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from stelae.check.health import ReplicaHealth, TabletHealth
from stelae.client.connection import Connection
from stelae.protocol.tablet_messages import Checksum
from stelae.spi.errors import NoRows, RetryableError, StelaeError

PATIENCE_S = 2.0
"""Seconds after which a replica that has not applied enough is not asked again. A follower lags by a heartbeat at most.

A node that hangs costs one request, which has a deadline of its own."""

PAUSE_S = 0.1
"""Seconds between two of these requests."""

ALTERED_MAX = 3
"""How often replicas are asked again because the table was altered. Each time they may read all of their rows."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one tablet. Replicas are named by address, in the order of the tablet's members."""

    checksum: str = ""  #: The checksum of all replicas; empty unless all were compared and are equal.
    differ: tuple[str, ...] = ()  #: The checksum of each compared replica, if they are not equal.
    not_compared: tuple[str, ...] = ()  #: Each replica that was not compared, with the reason.


async def compare(connection: Connection, tablet: TabletHealth) -> Comparison:
    """Compare all replicas of a tablet."""
    running = [replica for replica in tablet.replicas if replica.state == "RUNNING"]
    running.sort(key=lambda replica: replica.role != "LEADER")
    found: dict[str, Checksum | str | None] = {r.address: f"it does not run: {r.state}" for r in tablet.replicas}
    if running:
        found.update(await _all_at_one_time(connection, tablet, running))
    answers = {address: answer for address, answer in found.items() if answer is not None}
    sums = {address: answer.checksum for address, answer in answers.items() if isinstance(answer, Checksum)}
    equal = len(set(sums.values())) == 1
    return Comparison(
        checksum=next(iter(sums.values())) if equal and len(sums) == len(answers) else "",
        differ=() if equal else tuple(f"{address}: {checksum}" for address, checksum in sums.items()),
        not_compared=tuple(f"{address}: {one}" for address, one in answers.items() if isinstance(one, str)),
    )


async def _all_at_one_time(
    connection: Connection, tablet: TabletHealth, replicas: Sequence[ReplicaHealth]
) -> dict[str, Checksum | str | None]:
    """Return the checksums as of the time up to which the first replica that answers has applied entries."""
    answers: dict[str, Checksum | str | None] = {}
    for place, replica in enumerate(replicas):
        first = answers[replica.address] = await _ask(connection, tablet, replica, None)
        if isinstance(first, Checksum):
            answers |= await _ask_all(connection, tablet, replicas[place + 1 :], first.at)
            return await _of_one_version(connection, tablet, replicas, answers, first.at)
    return answers


async def _of_one_version(
    connection: Connection,
    tablet: TabletHealth,
    replicas: Sequence[ReplicaHealth],
    answers: dict[str, Checksum | str | None],
    at: int,
) -> dict[str, Checksum | str | None]:
    """Ask the replicas with an older schema version than others again. Return the checksums of one version."""
    for _ in range(ALTERED_MAX):
        older = _of_older_versions(answers)
        if not older:
            return answers
        answers = {**answers, **await _ask_all(connection, tablet, [r for r in replicas if r.address in older], at)}
    return {**answers, **dict.fromkeys(_of_older_versions(answers), "the table was altered meanwhile")}


def _of_older_versions(answers: Mapping[str, Checksum | str | None]) -> list[str]:
    versions = {address: one.schema_version for address, one in answers.items() if isinstance(one, Checksum)}
    return [address for address, version in versions.items() if version < max(versions.values())]


async def _ask_all(
    connection: Connection, tablet: TabletHealth, replicas: Sequence[ReplicaHealth], at: int
) -> dict[str, Checksum | str | None]:
    found = await asyncio.gather(*(_ask(connection, tablet, replica, at) for replica in replicas))
    return {replica.address: one for replica, one in zip(replicas, found, strict=True)}


async def _ask(
    connection: Connection, tablet: TabletHealth, replica: ReplicaHealth, at: int | None
) -> Checksum | str | None:
    """Return the checksum of a replica as of a time, or the reason why it returned none within ``PATIENCE_S``.

    ``None``: it has no rows to compare, because it is a witness."""
    clock = asyncio.get_running_loop().time
    patience_until_s = clock() + PATIENCE_S
    while True:
        try:
            return await connection.checksum(replica.node_id, tablet.tablet_id, at=at)
        except NoRows:
            return None
        except RetryableError as error:
            if clock() >= patience_until_s:
                return str(error)
        except StelaeError as error:
            return str(error)
        await asyncio.sleep(PAUSE_S)
