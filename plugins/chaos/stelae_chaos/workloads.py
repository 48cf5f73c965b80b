"""What a client process does: registers, appends, counters and snapshot sums, by the public client alone.

Each workload is a loop that does one operation after the other and records it with its answer. Errors of the cluster
are answers: the outcome is then unknown. Any other error ends the process, and with it the run."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from stelae.client import WriteResult
from stelae.client.failures import UNKNOWN_OUTCOME
from stelae.sim.draw import below, between, pick
from stelae.sim.history import ClientAction
from stelae.spi.errors import StelaeError
from stelae.spi.write import OpKind
from stelae_chaos.append_check import text_of
from stelae_chaos.batch_check import ACCOUNTS, SUM
from stelae_chaos.operations import (
    REFUSED_ROWS,
    AnyOperation,
    AppendCall,
    BatchWrite,
    ChaosOutcome,
    CounterRead,
    Increment,
    RegisterCall,
    SnapshotRead,
    SnapshotRow,
)
from stelae_chaos.tables import ChaosTables

TIMEOUT_S: Final = 3.0
"""Of an operation: so short that some get no answer."""

PAUSE_S: Final = 0.1
"""The longest pause of a loop between two operations."""

KEYS: Final = 6
EPOCH_US: Final = 1_000_000
"""Registers in use at a time, and how long they are. Then others follow, so that no history is too long to check."""

COUNTERS: Final = 2
COUNTER_EPOCH_US: Final = 8_000_000
"""The same for counters, so that reads stay short."""

GROUPS: Final = 2
REPEATED_SHARE: Final = 0.3
"""The share of the snapshots that are read a second time at the same timestamp."""

REMEMBERED: Final = 20
"""The number of the last snapshots that may be read again."""

REGISTER_ACTIONS: Final = (
    ClientAction.INSERT,
    ClientAction.UPSERT,
    ClientAction.UPSERT,
    ClientAction.UPDATE,
    ClientAction.DELETE,
    ClientAction.READ,
    ClientAction.READ,
)
KINDS: Final = {
    ClientAction.INSERT: OpKind.INSERT,
    ClientAction.UPSERT: OpKind.UPSERT,
    ClientAction.UPDATE: OpKind.UPDATE,
    ClientAction.DELETE: OpKind.DELETE,
}


class WriteAnswer(NamedTuple):
    """What a client learned about a write: outcome, code of the error, and hybrid timestamp."""

    outcome: ChaosOutcome
    error: str = ""
    timestamp: int = 0


def answer_of(result: WriteResult) -> WriteAnswer:
    """Return what the result of a write in one tablet says. Its rows fail together, or only one was written."""
    if not result.failed:
        return WriteAnswer(ChaosOutcome.DONE, timestamp=result.timestamp)
    (code, *others) = result.counts
    if code in REFUSED_ROWS and not others:
        return WriteAnswer(ChaosOutcome.DONE, code, result.timestamp)
    if UNKNOWN_OUTCOME in result.counts:
        return WriteAnswer(ChaosOutcome.UNKNOWN, UNKNOWN_OUTCOME)
    return WriteAnswer(ChaosOutcome.REFUSED, code)


def unknown(error: StelaeError) -> WriteAnswer:
    """Return the answer of an operation that ended with an error: its outcome is not known."""
    return WriteAnswer(ChaosOutcome.UNKNOWN, str(getattr(error, "remote_code", error.code)))


def register_value(key: int, row: Mapping[str, Any]) -> str:
    """Return what a read of a register says. A value that no client writes says that the row is not of this key."""
    text = row["text"]
    if row["id"] != key:
        return f"row of key {row['id']}: {text}"
    return "a null" if text is None else str(text)


class Workloads:
    """The loops of one client process.

    Args:
        client: number of the client.
        tables: the opened tables.
        rng: draws what the loops do.
        now_us: returns the microseconds since the start of the run.
        record: takes each operation when it has ended.
    """

    def __init__(
        self,
        client: int,
        tables: ChaosTables,
        rng: random.Random,
        now_us: Callable[[], int],
        record: Callable[[AnyOperation], None],
    ) -> None:
        self._client = client
        self._tables = tables
        self._rng = rng
        self._now_us = now_us
        self._record = record
        self._count = 0
        self._snapshots: deque[tuple[int, int]] = deque(maxlen=REMEMBERED)
        self._newest = 0
        self.stopping = False

    async def run(self) -> None:
        """Run all loops until ``stopping``; every operation that has begun is recorded."""
        loops = (self._register, self._register, self._register, self._append, self._counter, self._sums)
        async with asyncio.TaskGroup() as group:
            for one in loops:
                group.create_task(self._repeat(one))

    async def _repeat(self, one: Callable[[], Any]) -> None:
        while not self.stopping:
            await one()
            await asyncio.sleep(self._rng.random() * PAUSE_S)

    async def _register(self) -> None:
        number, begun_us = self._begin()
        key = begun_us // EPOCH_US * KEYS + below(self._rng, KEYS)
        action = pick(self._rng, REGISTER_ACTIONS)
        call = partial(RegisterCall, action=action, key=key)
        if action is ClientAction.READ:
            try:
                row = await self._tables.registers.get(key, timeout_s=TIMEOUT_S)
            except StelaeError as error:
                return self._end(call, number, begun_us, unknown(error))
            value = None if row is None else register_value(key, row)
            return self._end(partial(call, value=value), number, begun_us, WriteAnswer(ChaosOutcome.DONE))
        value = None if action is ClientAction.DELETE else f"{self._client}/{number}"
        rows = [(key,) if value is None else (key, value)]
        answer = await self._written(self._tables.registers, KINDS[action], rows)
        return self._end(partial(call, value=value, timestamp=answer.timestamp), number, begun_us, answer)

    async def _append(self) -> None:
        number, begun_us = self._begin()
        rows = [(self._client, number, text_of(self._client, number))]
        answer = await self._written(self._tables.appends, OpKind.INSERT, rows)
        self._end(AppendCall, number, begun_us, answer)

    async def _counter(self) -> None:
        number, begun_us = self._begin()
        counter = begun_us // COUNTER_EPOCH_US * COUNTERS + below(self._rng, COUNTERS)
        if self._rng.random() < 0.5:
            rows = [(counter, self._client, number)]
            answer = await self._written(self._tables.counters, OpKind.INSERT, rows)
            return self._end(partial(Increment, counter=counter), number, begun_us, answer)
        try:
            count = await count_of(self._tables, counter, TIMEOUT_S)
        except StelaeError as error:
            return self._end(partial(CounterRead, counter=counter), number, begun_us, unknown(error))
        read = partial(CounterRead, counter=counter, count=count)
        return self._end(read, number, begun_us, WriteAnswer(ChaosOutcome.DONE))

    async def _sums(self) -> None:
        number, begun_us = self._begin()
        group = below(self._rng, GROUPS)
        if self._rng.random() < 0.5:
            name = f"{self._client}/{number}"
            rows = [(group, account, name, balance) for account, balance in enumerate(self._balances())]
            answer = await self._written(self._tables.sums, OpKind.UPSERT, rows)
            self._newest = max(self._newest, answer.timestamp)
            write = partial(BatchWrite, group=group, timestamp=answer.timestamp)
            return self._end(write, number, begun_us, answer)
        group, at = self._snapshot_to_read(group)
        try:
            rows_read = await snapshot_of(self._tables, group, at, TIMEOUT_S)
        except StelaeError as error:
            return self._end(partial(SnapshotRead, group=group, at=at), number, begun_us, unknown(error))
        read = partial(SnapshotRead, group=group, at=at, rows=rows_read)
        return self._end(read, number, begun_us, WriteAnswer(ChaosOutcome.DONE))

    def _snapshot_to_read(self, group: int) -> tuple[int, int]:
        """Return a group and a time: one that was read before, that of the last write, or now."""
        if self._snapshots and self._rng.random() < REPEATED_SHARE:
            return pick(self._rng, self._snapshots)
        at = self._newest if self._newest and self._rng.random() < 0.5 else self._tables.sums.now()
        self._snapshots.append((group, at))
        return group, at

    def _balances(self) -> list[int]:
        """Return balances that have the sum ``SUM``."""
        balances = [SUM // ACCOUNTS] * ACCOUNTS
        for _ in range(ACCOUNTS):
            moved = between(self._rng, 1, 100)
            balances[below(self._rng, ACCOUNTS)] -= moved
            balances[below(self._rng, ACCOUNTS)] += moved
        return balances

    async def _written(self, table: Any, kind: OpKind, rows: list[tuple[Any, ...]]) -> WriteAnswer:
        try:
            return answer_of(await table.write(kind, rows, errors="return", timeout_s=TIMEOUT_S))
        except StelaeError as error:
            return unknown(error)

    def _begin(self) -> tuple[int, int]:
        self._count += 1
        return self._count, self._now_us()

    def _end(self, kind: Callable[..., AnyOperation], number: int, begun_us: int, answer: WriteAnswer) -> None:
        self._record(
            kind(
                client=self._client,
                number=number,
                begun_us=begun_us,
                ended_us=self._now_us(),
                outcome=answer.outcome,
                error=answer.error,
            )
        )


async def count_of(tables: ChaosTables, counter: int, timeout_s: float) -> int:
    """Return the number of rows of a counter, read linearizably."""
    return await tables.counters.scan(["number"], ("counter", "=", counter), timeout_s=timeout_s).count()


async def snapshot_of(tables: ChaosTables, group: int, at: int, timeout_s: float) -> tuple[SnapshotRow, ...]:
    """Return the rows of a group as of a hybrid timestamp, by account."""
    scan = tables.sums.scan(start=(group,), end=(group + 1,), at=at, timeout_s=timeout_s)
    rows = [SnapshotRow(row["account"], row["batch"], row["balance"]) for row in await scan.to_pylist()]
    return tuple(sorted(rows, key=lambda row: row.account))
