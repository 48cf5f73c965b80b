"""What a healed cluster holds at the end of a run: waits until it is whole, compares replicas, reads every row."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

from stelae.client import AsyncClient
from stelae.client.catalog import CatalogClient
from stelae.local.demo_verification import Agreement, replicas_of, wait_for_agreement
from stelae.local.whole_tables import wait_until_whole
from stelae.protocol.tablet_messages import NoSuchTablet
from stelae.spi.errors import StelaeError
from stelae_chaos.append_check import AppendedRow
from stelae_chaos.counter_check import CountedRow
from stelae_chaos.history import ChaosHistory, LastRows
from stelae_chaos.operations import FINAL_CLIENT, ChaosFinding, ChaosOutcome, CounterRead, SnapshotRead
from stelae_chaos.register_check import last_reads
from stelae_chaos.tables import ChaosTables, TableNames
from stelae_chaos.workloads import GROUPS, count_of, register_value, snapshot_of

_FINAL: Final[dict[str, Any]] = {"client": FINAL_CLIENT, "number": 0, "outcome": ChaosOutcome.DONE}

HEAL_TIMEOUT_S: Final = 180.0
"""How long a healed cluster may take to become healthy with equal replicas. A run loads the machine; so may others."""

AGREE_TIMEOUT_S_MIN: Final = 10.0
"""The shortest wait for equal replicas of one table, after a wait for health that took all the time."""

READ_TIMEOUT_S: Final = 60.0

POLL_S: Final = 0.2


async def settle(
    client: AsyncClient, names: TableNames, check_nodes: Callable[[], None], *, spares_allowed: bool
) -> list[ChaosFinding]:
    """Wait until the cluster is whole and all replicas of all tablets are equal; return what does not hold.

    Args:
        check_nodes: raises an error if a node has ended.
        spares_allowed: whether a tablet may have more voters than wanted.
    """
    catalog = client.catalog
    assert catalog is not None, "the cluster has masters"
    deadline = time.monotonic() + HEAL_TIMEOUT_S
    problems = await wait_until_whole(
        client.connection, catalog, check_nodes, spares_allowed=spares_allowed, timeout_s=HEAL_TIMEOUT_S
    )
    found = [ChaosFinding(check="health", key="", fact=problem) for problem in problems]
    for name in names.all():
        try:
            agreement = await _agreement(client, catalog, name, check_nodes, deadline)
        except StelaeError as error:
            found.append(ChaosFinding(check="replicas", key=name, fact=f"the replicas cannot be compared: {error}"))
            continue
        if not agreement.agree:
            found.append(ChaosFinding(check="replicas", key=name, fact=f"the replicas differ: {agreement.detail}"))
    return found


async def _agreement(
    client: AsyncClient, catalog: CatalogClient, name: str, check_nodes: Callable[[], None], deadline: float
) -> Agreement:
    """Wait until all replicas of the tablets of a table are equal.

    The masters may move a replica meanwhile: a whole cluster is balanced. Then the members are looked up again."""
    while True:
        left_s = max(AGREE_TIMEOUT_S_MIN, deadline - time.monotonic())
        try:
            replicas = await replicas_of(catalog, name)
            return await wait_for_agreement(client.connection, replicas, check_nodes, timeout_s=left_s)
        except NoSuchTablet:
            if time.monotonic() >= deadline:
                raise
        await asyncio.sleep(POLL_S)


async def read_everything(tables: ChaosTables, history: ChaosHistory, now_us: Callable[[], int]) -> LastRows:
    """Add a last read of every register, counter and group to a history; return the rows of the tables.

    Raises:
        StelaeError: a table cannot be read in time.
    """
    begun_us = now_us()
    registers = await tables.registers.scan(timeout_s=READ_TIMEOUT_S).to_pylist()
    values = {row["id"]: register_value(row["id"], row) for row in registers}
    history.add(last_reads(history.registers, values, begun_us, now_us()))
    await _read_counters(tables, history, now_us)
    # The clock of the node that led may have been ahead of this machine's.
    at = max([tables.sums.now(), *(batch.timestamp for batch in history.batches)])
    for group in range(GROUPS):
        begun_us = now_us()
        rows = await snapshot_of(tables, group, at, READ_TIMEOUT_S)
        read = SnapshotRead(group=group, at=at, rows=rows, begun_us=begun_us, ended_us=now_us(), **_FINAL)
        history.add([read])
    appended = await tables.appends.scan(timeout_s=READ_TIMEOUT_S).to_pylist()
    counted = await tables.counters.scan(timeout_s=READ_TIMEOUT_S).to_pylist()
    return LastRows(
        registers=[row["id"] for row in registers],
        appends=[AppendedRow(row["client"], row["number"], row["text"]) for row in appended],
        counters=[CountedRow(row["counter"], row["client"], row["number"]) for row in counted],
    )


async def _read_counters(tables: ChaosTables, history: ChaosHistory, now_us: Callable[[], int]) -> None:
    for counter in sorted({one.counter for one in history.increments}):
        begun_us = now_us()
        count = await count_of(tables, counter, READ_TIMEOUT_S)
        read = CounterRead(counter=counter, count=count, begun_us=begun_us, ended_us=now_us(), **_FINAL)
        history.add([read])
