from __future__ import annotations

import pytest

from sandpool.base.fairness import RoundRobin


def test_one_of_each_in_turn() -> None:
    rotation: RoundRobin[int] = RoundRobin()
    for number in range(5):
        rotation.push("many", number)
    rotation.push("few", 10)
    assert [rotation.pop() for _ in range(3)] == [("many", 0), ("few", 10), ("many", 1)]
    rotation.push("few", 11)
    assert [rotation.pop()[1] for _ in range(len(rotation))] == [2, 11, 3, 4]
    with pytest.raises(KeyError):
        rotation.pop()


def test_what_is_taken_out_of_the_middle() -> None:
    rotation: RoundRobin[str] = RoundRobin()
    for item in "xyz":
        rotation.push("a", item)
    rotation.push("b", "w")
    rotation.remove("a", "y")
    rotation.remove("b", "w")
    assert (len(rotation), rotation.waiting("a"), rotation.keys()) == (2, 2, {"a"})
    assert [rotation.pop()[1] for _ in range(2)] == ["x", "z"]
