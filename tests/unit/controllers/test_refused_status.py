"""Objects whose status was lately refused."""

from __future__ import annotations

from sandpool.controllers.refused_status import LASTS, Refusals
from sandpool.model.metadata import Uid

A, B = Uid("a"), Uid("b")


def test_a_refusal_is_news_once() -> None:
    known = Refusals()
    assert known.add("pods", A, 0.0)
    assert not known.add("pods", A, 60.0)
    assert known.add("pods", B, 60.0)
    assert known.add("jobs", A, 60.0)
    assert known.counts(60.0) == {"pods": 2, "jobs": 1}


def test_what_is_not_refused_again_is_over() -> None:
    known = Refusals()
    known.add("pods", A, 0.0)
    known.add("pods", B, LASTS)
    assert known.counts(LASTS) == {"pods": 2}
    assert known.counts(LASTS + 1) == {"pods": 1}
    assert known.add("pods", A, LASTS + 1), "and is news again"


def test_only_so_many_are_remembered() -> None:
    known = Refusals(most=2)
    for number in range(5):
        known.add("pods", Uid(str(number)), float(number))
    assert known.counts(5.0) == {"pods": 2}
    assert not known.add("pods", Uid("4"), 5.0)
