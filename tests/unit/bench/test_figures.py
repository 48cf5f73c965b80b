"""Figures: medians with their spread, percentiles that are values that occurred."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stelae_bench.figures import percentile, spread


def test_a_figure_is_the_median_with_least_and_most_beside_it() -> None:
    assert spread([30.0, 10.0, 20.0]).fields("ops_per_s") == {
        "ops_per_s": 20.0,
        "ops_per_s_min": 10.0,
        "ops_per_s_max": 30.0,
    }


@pytest.mark.parametrize(
    ("value", "shown"), [(12345.678, 12346), (1.23456, 1.235), (0.0123456, 0.01235), (0.0, 0.0), (9.99996, 10.0)]
)
def test_figures_keep_four_digits_and_never_lose_whole_ones(value: float, shown: float) -> None:
    assert spread([value]).fields("x")["x"] == shown


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1.0), (0.5, 50.0), (0.99, 99.0), (0.991, 100.0), (1.0, 100.0)])
def test_a_percentile_of_1_to_100_is_the_value_that_it_names(share: float, expected: float) -> None:
    assert percentile([float(n) for n in range(1, 101)], share) == expected


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 1))
def test_a_percentile_is_a_value_that_at_least_that_share_does_not_exceed(values: list[float], share: float) -> None:
    values.sort()
    found = percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-6
