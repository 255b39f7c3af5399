"""A percentile is a measured value, and the one that the nearest rank names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.percentile import percentile


@pytest.mark.parametrize(
    ("count", "fraction", "value"),
    [(10, 0.9, 9), (10, 0.5, 5), (10, 0.1, 1), (10, 0.0, 1), (10, 1.0, 10), (100, 0.99, 99), (100, 0.07, 7),
     (3, 0.5, 2), (1, 0.99, 1), (1000, 0.999, 999)],
)  # fmt: skip
def test_the_nearest_rank_of_the_first_numbers(count: int, fraction: float, value: int) -> None:
    assert percentile([float(number) for number in range(1, count + 1)], fraction) == value


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40).map(sorted), st.floats(0.001, 1.0))
def test_enough_values_and_no_more_are_at_or_below_it(ordered: list[float], fraction: float) -> None:
    value = percentile(ordered, fraction)
    assert sum(each <= value for each in ordered) >= fraction * len(ordered) - 1e-6
    assert sum(each < value for each in ordered) < fraction * len(ordered)
