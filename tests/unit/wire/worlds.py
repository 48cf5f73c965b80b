"""What the tests of messaging share: clocks, counters, and pairs of messengers on loopback."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from stelae.local.chaos.network_rules import Faults
from stelae.spi.errors import ClockError
from stelae.spi.ids import ClusterId, IncarnationId, NodeId
from stelae.wire.context import MessengerContext
from stelae.wire.deadlines import Deadlines
from stelae.wire.envelope import Identity
from stelae.wire.messenger import Messenger
from stelae.wire.settings import WireSettings

CLUSTER = ClusterId("demo")
TEST_TIMEOUT_S = 30
_open: list[Messenger] = []
CLOCK_LIMIT = 1 << 61


class Metrics(Counter[str]):
    """Counters that a test can read."""

    def count(self, name: str, amount: int = 1) -> None:
        self[name] += amount

    def gauge(self, name: str, value: float) -> None:
        self[name] = int(value)

    def histogram(self, name: str) -> Callable[[int], None]:
        return lambda _value: None


class RealClock:
    def monotonic_us(self) -> int:
        return time.monotonic_ns() // 1000

    def wall_us(self) -> int:
        return time.time_ns() // 1000


class ManualClock:
    """Time that moves when the test says so."""

    def __init__(self) -> None:
        self.now_us = 1_000_000

    def monotonic_us(self) -> int:
        return self.now_us

    def wall_us(self) -> int:
        return self.now_us


class HybridTime:
    """A hybrid clock without physics: refuses what is beyond ``CLOCK_LIMIT``."""

    def __init__(self) -> None:
        self.last = 1

    def now(self) -> int:
        self.last += 1
        return self.last

    def observe(self, timestamp: int) -> None:
        if timestamp > CLOCK_LIMIT:
            raise ClockError("a timestamp of the far future")
        self.last = max(self.last, timestamp)


class Timers:
    """``call_later`` that keeps what it was given until the test runs it."""

    def __init__(self) -> None:
        self.pending: list[tuple[float, Callable[[], object]]] = []

    def __call__(self, delay_s: float, call: Callable[[], object]) -> Any:
        self.pending.append((delay_s, call))
        return self

    def cancel(self) -> None:
        self.pending.clear()

    def fire(self) -> None:
        pending, self.pending = self.pending, []
        for _, call in sorted(pending, key=lambda one: one[0]):
            call()


class SocketLoop:
    """An socket_loop without a loop: hands out ``port`` and remembers what it was asked."""

    def __init__(self, port: Any) -> None:
        self.port = port
        self.owners: dict[Any, None] = {}
        self.flushes = 0
        self.woken: list[int] = []
        self.deadlines = Deadlines(self.woken.append)

    def join(self, owner: Any) -> None:
        self.owners[owner] = None

    def leave(self, owner: Any) -> None:
        self.owners.pop(owner)
        self.deadlines.drop(owner)

    def open(self, owner: Any, kind: Any, lane: Any) -> Any:
        return self.port

    def close_socket(self, port: Any) -> None:
        port.close()

    def flush_later(self, owner: Any) -> None:
        self.flushes += 1


def identity(number: int, run: int = 1, cluster: str = CLUSTER) -> Identity:
    return Identity(
        cluster_id=ClusterId(cluster), node_id=NodeId(f"{number:032x}"), incarnation_id=IncarnationId(f"{run:016x}")
    )


def context(
    number: int,
    *,
    run: int = 1,
    cluster: str = CLUSTER,
    faults: Faults | None = None,
    settings: WireSettings | None = None,
) -> MessengerContext:
    """The shared part of a messenger on manual time, without sockets."""
    return MessengerContext(
        identity=identity(number, run, cluster),
        settings=settings or WireSettings(),
        clock=ManualClock(),
        time=HybridTime(),
        metrics=Metrics(),
        faults=faults,
        rng=random.Random(number),
        call_later=Timers(),
    )


def messenger(
    number: int, *, run: int = 1, cluster: str = CLUSTER, faults: Faults | None = None, **settings: Any
) -> tuple[Messenger, Metrics]:
    """A messenger on the running loop, and its counters."""
    metrics = Metrics()
    made = Messenger(
        identity(number, run, cluster),
        clock=RealClock(),
        time=HybridTime(),
        defer=asyncio.get_running_loop().call_soon,
        settings=WireSettings(**{"connect_timeout_ms": 2000, **settings}),
        metrics=metrics,
        faults=faults,
        rng=random.Random(number),
    )
    _open.append(made)
    return made, metrics


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Run a test's coroutine function, bounded in time; close the messengers that it made."""

    async def bounded() -> None:
        try:
            async with asyncio.timeout(TEST_TIMEOUT_S):
                await main()
        finally:
            while _open:
                _open.pop().close()

    asyncio.run(bounded())


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until a condition holds; the test's own bound ends a wait in vain."""
    while not condition():
        await asyncio.sleep(0.001)


async def joined(first: Messenger, second: Messenger, address: str) -> None:
    """Make ``second``, listening at ``address``, a peer of ``first``, and wait for both lanes."""
    node_id = second.identity.node_id
    first.add_peer(node_id, address)
    await until(lambda: all(first.connected(node_id, lane) for lane in (0, 1)))
