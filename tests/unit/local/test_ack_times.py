"""Gaps between acknowledgements, as the demo measures them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from stelae.local.ack_times import AckTimes


def noted(times: Sequence[float], *, complete: bool = False) -> AckTimes:
    clock = iter(times)
    acks = AckTimes(lambda: next(clock))
    for place in range(len(times)):
        acks.note(last=complete and place == len(times) - 1)
    return acks


@pytest.mark.parametrize(
    ("times", "since", "until", "gap_ms"),
    [
        ([1.0, 1.5, 4.0, 4.1], 2.0, 5.0, 2500),  # the one before the kill begins the first gap
        ([1.0, 1.5, 1.6, 4.1], 1.4, 4.2, 2500),
        ([1.0, 9.0], 2.0, 5.0, 4000),  # one that is still open at the end counts up to there
        ([], 2.0, 5.0, 3000),
        ([1.0, 2.0, 2.1], 1.9, 2.15, 1000),
    ],
)
def test_the_longest_gap_is_between_two_acknowledgements_around_the_kill(
    times: Sequence[float], since: float, until: float, gap_ms: float
) -> None:
    assert noted(times).longest_gap_ms(since, until) == pytest.approx(gap_ms)


def test_nothing_is_waited_for_behind_the_last_row() -> None:
    assert noted([1.0, 1.5, 2.0], complete=True).longest_gap_ms(1.2, 60.0) == pytest.approx(500)
    assert noted([1.0, 1.5, 70.0], complete=True).longest_gap_ms(1.2, 60.0) == pytest.approx(58_500)
