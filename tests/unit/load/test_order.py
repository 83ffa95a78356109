"""Who was served before whom, against who came first."""

from __future__ import annotations

from sandpool.load.record import ClaimRecord
from sandpool.load.summary import Inversions, inversions


def claim(name: str, created: int, served: int = 0, ready: float | None = None, pool: str = "p") -> ClaimRecord:
    return ClaimRecord(name=name, pool=pool, created=created, served=served, ready=ready)


def test_in_order_is_no_inversion_whatever_was_heard_first() -> None:
    assert inversions([claim("b", 2, 12, 0.9), claim("a", 1, 11, 1.0)]) == Inversions(0, 0.0)


def test_a_claim_that_overtakes_is_counted_once_and_by_the_time_of_the_slowest() -> None:
    records = [claim("a", 1, 20, 9.0), claim("b", 2, 19, 8.0), claim("c", 3, 10, 2.0), claim("d", 4, 21, 9.5)]
    assert inversions(records) == Inversions(2, 7.0), "b before a, c before both"


def test_one_that_was_never_served_is_overtaken_by_all() -> None:
    records = [claim("a", 1), claim("b", 2, 10, 2.0), claim("c", 3, 11, 5.0)]
    assert inversions(records) == Inversions(2, 3.0)


def test_pools_do_not_wait_for_each_other() -> None:
    assert inversions([claim("a", 1, 20, 9.0), claim("b", 2, 10, 1.0, pool="q")]) == Inversions(0, 0.0)


def test_who_was_never_taken_in_overtakes_nobody_and_is_not_overtaken() -> None:
    away = ClaimRecord(name="x", pool="p", turned_away=True)
    assert inversions([away, claim("a", 1, 10, 1.0)]) == Inversions(0, 0.0)
    assert inversions([away]) is None, "a server whose revisions are not known"
