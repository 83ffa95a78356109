"""Numbers out of samples: known answers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandpool.load.distribution import blocks, ecdf, histogram, levels, log_edges, peak, percentile, rate, thinned


@pytest.mark.parametrize(
    ("percent", "expected"), [(0, 1), (1, 1), (50, 50), (90, 90), (99, 99), (99.9, 100), (100, 100)]
)
def test_percentiles_of_one_to_a_hundred(percent: float, expected: int) -> None:
    assert percentile(range(1, 101), percent) == expected


def test_percentiles_of_a_thousand_are_not_off_by_one() -> None:
    thousand = range(1, 1001)
    assert percentile(thousand, 99.9) == 999
    assert percentile(thousand, 99) == 990


def test_a_percentile_of_one_sample_is_that_sample_and_of_none_is_nothing() -> None:
    assert percentile([7.0], 99.9) == 7.0
    assert percentile([], 50) is None


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 100))
def test_a_percentile_was_measured_and_enough_samples_do_not_exceed_it(samples: list[float], percent: float) -> None:
    ordered = sorted(samples)
    found = percentile(ordered, percent)
    assert found in ordered
    assert sum(sample <= found for sample in ordered) >= percent / 100 * len(ordered) - 1e-6


def test_log_edges_have_one_ratio() -> None:
    edges = log_edges(1, 16, 4)
    assert edges == pytest.approx([1, 2, 4, 8, 16])
    assert log_edges(5, 5, 3)[-1] > 5


def test_a_histogram_counts_everything_also_beyond_its_edges() -> None:
    assert histogram([0.5, 1, 1.9, 2, 7.9, 8, 100], [1, 2, 4, 8]) == [3, 1, 3]


def test_blocks_show_the_highest_and_hide_nothing() -> None:
    assert blocks([0, 1, 1000, 500]) == " ▁█▄"
    assert blocks([]) == ""
    assert blocks([0, 0]) == "  "


def test_an_ecdf_ends_at_one_and_keeps_the_tail() -> None:
    points = ecdf(range(1, 1001), 50)
    assert points[-1] == (1000, 1.0)
    assert points[-2] == (999, 0.999)
    assert len(points) < 90
    assert all(part == pytest.approx(value / 1000) for value, part in points)
    assert ecdf([], 10) == []


def test_levels_go_up_and_down_and_moments_count_once() -> None:
    assert levels([(2, -1), (0, 1), (0, 1), (1, 1)]) == [(0, 2), (1, 3), (2, 2)]
    assert peak(levels([(0, 1), (1, 1), (2, -1)])) == 2
    assert peak([]) == 0


def test_thinning_keeps_every_peak_and_the_end() -> None:
    points = [(float(number), number % 7) for number in range(1000)]
    points[500] = (500.0, 99)
    points[700] = (700.0, -5)
    kept = thinned(points, 60)
    assert len(kept) <= 63
    assert (500.0, 99) in kept
    assert (700.0, -5) in kept
    assert kept[-1] == points[-1]
    assert kept == sorted(kept)


def test_a_rate_needs_a_span() -> None:
    assert rate([0.0, 1.0, 2.0]) == 1.0
    assert rate([1.0]) is None
    assert rate([1.0, 1.0]) is None
    assert not math.isnan(rate([0.0, 1e-9]) or 0)
