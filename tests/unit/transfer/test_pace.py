"""Rate and time left, from what is told."""

from __future__ import annotations

import pytest

from stelae.cli.kit.pace import Pace, clock


def test_nothing_is_known_before_anything_was_done() -> None:
    pace = Pace(100.0)
    assert pace.left_s is None and pace.rows_per_s == 0
    assert str(pace) == "0 rows, 0%, 0 rows/s"


def test_the_time_left_is_what_the_rest_takes_at_the_pace_of_this_run() -> None:
    pace = Pace(100.0)
    pace.note(110.0, 1000, 0.25)
    assert pace.rows_per_s == 100 and pace.left_s == pytest.approx(30)
    assert str(pace) == "1,000 rows, 25%, 100 rows/s, about 30 s left"


def test_what_an_earlier_run_did_took_no_time_of_this_one() -> None:
    pace = Pace(0.0, before=500)
    pace.note(10.0, 250, 0.75)
    assert pace.left_s == pytest.approx(10)


def test_the_rate_is_the_one_of_late() -> None:
    pace = Pace(0.0)
    for second in range(1, 101):
        pace.note(float(second), 1000 if second < 50 else 1000 + (second - 49) * 10, second / 200)
    assert pace.rows_per_s == pytest.approx(10)


def test_work_whose_end_nobody_knows_has_a_rate_alone() -> None:
    pace = Pace(0.0)
    pace.note(2.0, 3000, 0.0)
    assert pace.left_s is None and pace.without_end() == "3,000 rows, 1,500 rows/s"


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0 s"), (59.4, "59 s"), (187, "3:07"), (3723, "1:02:03")])
def test_spans_are_short_to_read(seconds: float, text: str) -> None:
    assert clock(seconds) == text
