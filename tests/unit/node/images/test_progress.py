"""What people read while they wait."""

from __future__ import annotations

import pytest

from sandpool.node.images.pull import Progress, amount
from sandpool.node.images.source import LayerSource


def test_lines_and_how_often() -> None:
    time, said = [0.0], list[str]()
    layers = (LayerSource("a", size=50 * 10**6), LayerSource("b", size=30 * 10**6))
    progress = Progress(layers, said.append, lambda: time[0])
    progress.fetched(layers[0], 10**6)
    progress.fetched(layers[0], 2 * 10**6)
    assert said == ["pulling layer 1 of 2, 1 of 80 MB"]
    time[0] = 0.5
    progress.layer_done()
    progress.fetched(layers[1], 30 * 10**6)
    time[0] = 1.0
    progress.unpacked(5 * 10**6, 30 * 10**6)
    assert said[1:] == ["pulling layer 2 of 2, 32 of 80 MB", "unpacking layer 2 of 2, 5 of 30 MB"]


def test_a_thousand_calls_in_a_second_are_a_few_lines() -> None:
    time, said = [0.0], list[str]()
    layer = LayerSource("a", size=10**6)
    progress = Progress((layer,), said.append, lambda: time[0])
    for number in range(1000):
        time[0] = number / 1000
        progress.fetched(layer, number)
    assert 1 < len(said) <= 3


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [(0, 0, "0 of 0 kB"), (500, 2000, "0 of 2 kB"), (31_200_000, 80_000_000, "31 of 80 MB"), (10**9, 25 * 10**8, "1.0 of 2.5 GB")],
)  # fmt: skip
def test_amounts(part: int, whole: int, text: str) -> None:
    assert amount(part, whole) == text
