"""The limit of a side of the transport: the configured one, and the one beside clients."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from stelae_copy_streaming.shared_limit import SharedLimit

CHUNK = 1_000_000


def bytes_in(limit: SharedLimit, clock: Any, seconds: int) -> int:
    """How many bytes a copy gets in a time if it asks as soon as it may."""
    end_us, got = clock.now_us + seconds * 1_000_000, 0
    while clock.now_us < end_us:
        if wait_us := limit.take(CHUNK):
            clock.now_us += wait_us
        else:
            got += CHUNK
            if got > 100 * CHUNK * seconds:
                break
    return got


def limited(bytes_per_s: int, busy: int) -> tuple[SharedLimit, Any]:
    clock: Any = SimpleNamespace(now_us=0)
    clock.monotonic_us = lambda: clock.now_us
    return SharedLimit(bytes_per_s, busy, clock), clock


def test_copies_are_limited_while_clients_are_busy_and_only_then() -> None:
    limit, clock = limited(0, 4 * CHUNK)
    assert bytes_in(limit, clock, 10) > 1_000 * CHUNK
    limit.set_busy(True)
    assert 39 * CHUNK <= bytes_in(limit, clock, 10) <= 42 * CHUNK
    assert limit.configured == 0, "no operator has set it"
    limit.set_busy(False)
    assert bytes_in(limit, clock, 10) > 1_000 * CHUNK


def test_a_configured_limit_holds_whatever_clients_do() -> None:
    limit, clock = limited(20 * CHUNK, 4 * CHUNK)
    for busy in (False, True):
        limit.set_busy(busy)
        assert 199 * CHUNK <= bytes_in(limit, clock, 10) <= 204 * CHUNK
    limit.configure(2 * CHUNK)
    assert 19 * CHUNK <= bytes_in(limit, clock, 10) <= 22 * CHUNK
    limit.configure(0)
    assert 39 * CHUNK <= bytes_in(limit, clock, 10) <= 42 * CHUNK, "it has none now, and clients are busy"


def test_zero_is_no_limit_beside_clients() -> None:
    limit, clock = limited(0, 0)
    limit.set_busy(True)
    assert bytes_in(limit, clock, 10) > 1_000 * CHUNK


def test_what_is_owed_stays_owed_while_nothing_changes() -> None:
    limit, clock = limited(0, CHUNK)
    limit.set_busy(True)
    assert bytes_in(limit, clock, 1) <= 2 * CHUNK
    got = 0
    for _ in range(100):
        limit.set_busy(True)
        got += not limit.take(CHUNK)
    assert got <= 1, "each repetition would admit a burst"
