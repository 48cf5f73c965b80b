"""Operations per second, as a server reports them."""

from __future__ import annotations

from stelae.server.tserver.load_meter import WINDOW_US, LoadMeter


def test_a_server_that_nobody_asks_has_no_load() -> None:
    meter = LoadMeter()
    assert [meter.per_s(at) for at in (0, 0, 500_000)] == [0.0, 0.0, 0.0]


def test_it_is_what_was_asked_for_over_the_window() -> None:
    meter = LoadMeter()
    for at in range(0, 5 * WINDOW_US, 500_000):
        found = meter.per_s(at)
        meter.add(100)
    assert 199 <= found <= 201


def test_load_of_long_ago_is_forgotten() -> None:
    meter = LoadMeter()
    meter.per_s(0)
    meter.add(1_000_000)
    assert meter.per_s(500_000) > 0
    assert [meter.per_s(at) for at in range(WINDOW_US, 3 * WINDOW_US, 500_000)][-1] == 0
