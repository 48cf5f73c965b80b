"""The harness of the copy checks: it makes both sides of the transport under test in a virtual world."""

from __future__ import annotations

from typing import Any, cast

import pytest

from stelae.spi.copy import CopySource, CopyTarget, CopyTransport
from stelae.spi.copy_plan import CopyOffer
from stelae.spi.errors import Unsupported
from stelae.spi.ids import NodeId
from stelae.spi.services import EngineServices, Files, Workers
from stelae.testing.copy_world import CopyWorld, ManualClock, MemoryContent

LEADER = NodeId("a" * 32)
FOLLOWER = NodeId("b" * 32)
CHUNK_BYTES = 4096

DEFAULTS: dict[str, Any] = {
    "source_slots": 4,
    "target_slots": 4,
    "session_ttl_ms": 10_000,
    "chunk_bytes": CHUNK_BYTES,
    "fetch_bytes_per_s_max": 0,
    "serve_bytes_per_s_max": 0,
}
"""The settings that the checks use. ``CopyHarness.config`` translates them for another transport."""


class NoMetrics:
    """Takes figures and forgets them."""

    def count(self, name: str, amount: int = 1) -> None: ...

    def gauge(self, name: str, value: float) -> None: ...

    def histogram(self, name: str) -> Any:
        return lambda value: None


class _NoService:
    """A service that a transport has no use for."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a copy transport does not use {name}: the kernel owns disk and threads")


class CopyHarness:
    """Makes worlds with the transport under test.

    Args:
        transport: the transport.
        chunks_in_memory_max: how many chunks a run may keep in memory with the settings ``DEFAULTS``."""

    def __init__(self, transport: type[CopyTransport], *, chunks_in_memory_max: int = 8) -> None:
        self.transport = transport
        self.chunks_in_memory_max = chunks_in_memory_max

    def config(self, **settings: Any) -> Any:
        """Return the transport's configuration. Override it if the settings have other names (``DEFAULTS``)."""
        return self.transport.Config(**{**DEFAULTS, **settings})

    def world(self, **settings: Any) -> CopyWorld:
        """Return a new world whose target has these settings."""
        clock = ManualClock()
        return CopyWorld(clock, self.transport.target(self.config(**settings), _services(clock)))

    def source(self, world: CopyWorld, incarnation: str = "run-1", **settings: Any) -> CopySource:
        """Return a new source in a world."""
        return self.transport.source(self.config(**settings), _services(world.clock), incarnation)

    def offer(
        self, world: CopyWorld, content: MemoryContent, node: NodeId = LEADER, **settings: Any
    ) -> tuple[CopySource, CopyOffer]:
        """Return a new source with a session for a snapshot."""
        source = self.source(world, **settings)
        return source, world.offer(node, source, content)


def needs_limit(side: CopySource | CopyTarget) -> None:
    """Skip the check if this side of the transport has no limit of bytes per second."""
    if side.bytes_per_s_max() is None:
        pytest.skip("the transport has no limit of bytes per second: copies run as fast as the disk and network allow")


def change_limit(side: CopySource | CopyTarget, bytes_per_s: int) -> None:
    """Change the limit of this side, and check that it has it. Skip the check if it cannot be changed."""
    try:
        side.set_bytes_per_s_max(bytes_per_s)
    except Unsupported:
        pytest.skip("the transport has no limit that can be changed while a node runs")
    assert side.bytes_per_s_max() == bytes_per_s


def _services(clock: ManualClock) -> EngineServices:
    nothing = _NoService()
    return EngineServices(cast(Files, nothing), clock, NoMetrics(), cast(Workers, nothing))


def data_of(size_bytes: int, seed: int = 1) -> bytes:
    """Return bytes that differ everywhere, so that a wrong offset is found."""
    return b"".join((number * 2654435761 + seed).to_bytes(8, "little") for number in range(size_bytes // 8 + 1))[
        :size_bytes
    ]


def three_items(seed: int = 1) -> dict[str, bytes]:
    """Return items of several chunks, with an empty one and one that ends within a chunk."""
    return {
        "rows/a": data_of(10 * CHUNK_BYTES, seed),
        "rows/empty": b"",
        "log/21-30": data_of(5 * CHUNK_BYTES + 17, seed + 1),
    }
