"""Clients of a tablet of real processes: each does one operation after the other, and notes what it was told."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from stelae.client.connection import ConnectedTablet, Connection
from stelae.client.page_rows import PageRows
from stelae.protocol.codec import decode, encode
from stelae.protocol.tablet_messages import SCAN, ScanPage, ScanRequest
from stelae.rows.keys import encode_key
from stelae.sim.draw import below, pick
from stelae.sim.history import ClientAction
from stelae.spi.errors import StelaeError
from stelae.spi.ids import NodeId, TabletId
from stelae.spi.scan import Order, ScanSpec
from stelae.wire.messenger import Lane
from stelae_chaos.operations import ChaosOutcome, RegisterCall
from stelae_chaos.register_check import check_doubled, last_reads
from stelae_chaos.workloads import KINDS, REGISTER_ACTIONS
from tests.tablet_rows import write_to

KEYS = 6
"""Keys in use at a time."""

EPOCH_S = 1.0
"""How long they are: then others come, so that no history is too long for the checker."""

PAUSE_S = 0.04
"""Longest pause of a client between two operations."""

TIMEOUT_S = 3.0
"""Of an operation: short, so that some have an outcome that nobody knows."""

FINAL_TIMEOUT_S = 60.0
STRAY_SHARE = 0.6
"""Of the reads that ask any node, and not the leader that the client knows."""

STRAY_MS = 4_000
"""Their deadline: longer than a node stands still, so that it answers what it was asked before."""


class Recorder:
    """The operations of all clients of a run. ``calls`` is in the order of their ends."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self.calls: list[RegisterCall] = []

    def now_us(self) -> int:
        """Microseconds since the run began."""
        return int((time.monotonic() - self._started) * 1e6)

    def begin(self, client: int, number: int, action: ClientAction, key: int) -> Asked:
        """An operation begins now."""
        return Asked(self, partial(RegisterCall, client=client, number=number, action=action, key=key))

    @property
    def acknowledged(self) -> int:
        """How many writes were acknowledged."""
        return sum(call.took_effect and call.action is not ClientAction.READ for call in self.calls)


class Asked:
    """An operation that has begun."""

    def __init__(self, recorder: Recorder, call: Callable[..., RegisterCall]) -> None:
        self._recorder = recorder
        self._call = partial(call, begun_us=recorder.now_us())

    def end(
        self, value: str | None, outcome: ChaosOutcome = ChaosOutcome.DONE, error: str = "", timestamp: int = 0
    ) -> None:
        """Record the operation with its answer."""
        answer = {"outcome": outcome, "error": error, "timestamp": timestamp}
        self._recorder.calls.append(self._call(value=value, ended_us=self._recorder.now_us(), **answer))


class ChaosClient:
    """One client, with a connection of its own."""

    def __init__(self, number: int, recorder: Recorder, rng: random.Random) -> None:
        self._number = number
        self._recorder = recorder
        self._rng = rng
        self._count = 0
        self.stopping = False

    async def run(self, addresses: list[str], tablet_id: TabletId, nodes: Sequence[NodeId]) -> None:
        """Ask until ``stopping``. ``nodes``: the members of the tablet."""
        async with await Connection.connect(addresses, timeout_s=FINAL_TIMEOUT_S) as client:
            tablet = await client.tablet(tablet_id)
            self._client, self._nodes = client, nodes
            while not self.stopping:
                await self._one(tablet)
                await asyncio.sleep(self._rng.random() * PAUSE_S)

    async def _one(self, tablet: ConnectedTablet) -> None:
        epoch = int(self._recorder.now_us() / 1e6 / EPOCH_S)
        key, action = epoch * KEYS + below(self._rng, KEYS), pick(self._rng, REGISTER_ACTIONS)
        self._count += 1
        asked = self._recorder.begin(self._number, self._count, action, key)
        if action is ClientAction.READ and self._rng.random() < STRAY_SHARE:
            await self._read_of(pick(self._rng, self._nodes), tablet, asked, key)
        elif action is ClientAction.READ:
            await self._read(tablet, asked, key)
        else:
            await self._write(tablet, asked, action, key)

    async def _read(self, tablet: ConnectedTablet, asked: Asked, key: int) -> None:
        """Read one key, linearizably."""
        found: list[tuple[int, str]] = []
        try:
            async for batch in tablet.scan(only(tablet, key), timeout_s=TIMEOUT_S):
                found += batch.to_rows()
        except StelaeError as error:
            return asked.end(None, ChaosOutcome.UNKNOWN, error.code)
        assert len(found) <= 1, found
        asked.end(found[0][1] if found else None)

    async def _read_of(self, node: NodeId, tablet: ConnectedTablet, asked: Asked, key: int) -> None:
        """Ask one node for a linearizable read, leader or not: a deposed leader that does not know it must refuse."""
        spec = only(tablet, key)
        reader = PageRows(spec)
        request = encode(ScanRequest(tablet.tablet_id, spec))
        try:
            messenger = self._client._messenger
            answer = await messenger.call(node, SCAN, [request], deadline_ms=STRAY_MS, lane=Lane.BULK)
            page = decode(answer.body[0], ScanPage)
            rows = await reader.read(page, reader.layout(tablet.schema, spec.columns), answer.body[1:])
        except StelaeError as error:
            return asked.end(None, ChaosOutcome.UNKNOWN, error.code)
        asked.end(rows.to_rows()[0][1] if rows is not None and len(rows) else None)

    async def _write(self, tablet: ConnectedTablet, asked: Asked, action: ClientAction, key: int) -> None:
        value = None if action is ClientAction.DELETE else f"{self._number}/{self._count}"
        row = (key,) if action is ClientAction.DELETE else (key, value)
        try:
            result = await write_to(tablet, KINDS[action], [row], timeout_s=TIMEOUT_S)
        except StelaeError as error:
            return asked.end(value, ChaosOutcome.UNKNOWN, error.code)
        assert not result.refusal, result
        asked.end(value, error=result.errors[0].code.name if result.errors else "", timestamp=result.timestamp)


def only(tablet: ConnectedTablet, key: int) -> ScanSpec:
    """A scan of one key."""
    low, high = (encode_key(tablet.schema, (one,)) for one in (key, key + 1))
    return ScanSpec(key_from=low, key_until=high, order=Order.KEY)


async def read_all(tablet: ConnectedTablet, recorder: Recorder) -> None:
    """Read the whole tablet at once, as a last read of every key that was ever used."""
    begun_us = recorder.now_us()
    rows: list[tuple[int, str]] = []
    async for batch in tablet.scan(timeout_s=FINAL_TIMEOUT_S):
        rows += batch.to_rows()
    assert check_doubled(key for key, _ in rows) == []
    recorder.calls += last_reads(recorder.calls, dict(rows), begun_us, recorder.now_us())


async def stop_all(clients: list[ChaosClient], tasks: list[asyncio.Task[None]]) -> None:
    """Let every client end its operation, and raise what one of them raised."""
    for client in clients:
        client.stopping = True
    for task in tasks:
        await task


def cancel_all(tasks: list[asyncio.Task[None]]) -> None:
    """End what is left of a run that failed."""
    for task in tasks:
        with suppress(RuntimeError):
            task.cancel()
