"""The limit of bytes per second, and the rate and expected end of a copy."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stelae_copy_streaming.token_bucket import BURST_US, TokenBucket
from stelae_copy_streaming.transfer_rate import TransferRate


@given(
    st.integers(1, 10**10),
    st.lists(st.tuples(st.integers(1, 16 << 20), st.integers(0, 3_000_000)), min_size=1, max_size=50),
)
def test_whatever_is_asked_no_more_than_the_rate_and_one_burst_and_chunk_is_admitted(
    rate: int, asked: list[tuple[int, int]]
) -> None:
    bucket, now_us, admitted, largest = TokenBucket(rate, 0), 0, 0, 0
    for size_bytes, passed_us in asked:
        now_us += passed_us
        wait_us = bucket.take(size_bytes, now_us)
        if wait_us:
            assert bucket.take(size_bytes, now_us + wait_us - 1) or wait_us == 1, "the wait is longer than needed"
            now_us += wait_us
            assert bucket.take(size_bytes, now_us) == 0, "after the wait the bytes are admitted"
        admitted, largest = admitted + size_bytes, max(largest, size_bytes)
        assert admitted - largest <= rate * (now_us + BURST_US) / 1_000_000 + 1


def test_without_a_limit_everything_is_admitted() -> None:
    bucket = TokenBucket(0, 0)
    assert [bucket.take(1 << 40, now) for now in (0, 0, 1)] == [0, 0, 0]


def test_a_clock_that_stands_still_admits_one_burst() -> None:
    bucket = TokenBucket(1_000_000, 5)
    assert bucket.take(100_000, 5) == 0
    assert bucket.take(1, 5) > 0


def test_the_expected_end_follows_from_the_rate_of_the_last_seconds() -> None:
    rate = TransferRate(0)
    assert rate.eta_ms(1000, 0) is None
    now_us = 0
    for _ in range(100):
        now_us += 100_000
        rate.add(1000, now_us)
    assert rate.eta_ms(50_000, now_us) == 5000
    assert rate.eta_ms(0, now_us) == 0
    now_us += 3_600_000_000  # A pause of an hour.
    for _ in range(200):
        now_us += 100_000
        rate.add(500, now_us)
    eta_ms = rate.eta_ms(50_000, now_us)
    assert eta_ms is not None
    assert 9_000 < eta_ms < 11_500, "the pause is forgotten"
    assert rate.bytes_total == 200_000
