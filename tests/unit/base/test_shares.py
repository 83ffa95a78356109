"""The two rules of shares, at their edges."""

from __future__ import annotations

import pytest

from sandpool.base.shares import ALPHA, OPERATOR, Decision, Revoke, Shares


def filled(total: int, **held: int) -> Shares:
    shares = Shares(total)
    for tenant, amount in held.items():
        shares.take(tenant, amount)
    return shares


def test_one_alone_may_have_everything() -> None:
    shares = Shares(5)
    for _ in range(5):
        assert shares.ask("a") is Decision.ADMIT
        shares.take("a")
    assert shares.ask("a") is Decision.REFUSE


@pytest.mark.parametrize(
    ("held", "who", "verdict"),
    [
        ({"a": 6}, "b", Revoke("a")),
        ({"a": 4, "b": 2}, "b", Revoke("a")),
        ({"a": 3, "b": 3}, "b", Decision.REFUSE),
        ({"a": 4, "b": 2}, "a", Decision.REFUSE),
        ({"a": 3, "b": 3}, "c", Revoke("a")),
        ({"a": 2, "b": 2, "c": 2}, "c", Decision.REFUSE),
        ({"a": 2, "b": 3}, "a", Decision.ADMIT),
    ],
)
def test_when_all_is_in_use(held: dict[str, int], who: str, verdict: Decision | Revoke) -> None:
    assert filled(6, **held).ask(who) == verdict


def test_more_tenants_than_units() -> None:
    assert (
        filled(2, a=1, b=1).ask("c") is Decision.REFUSE
    )  # taking from one that has one would only go round in circles


def test_the_operator_has_its_own() -> None:
    shares = filled(3, a=3)
    for _ in range(3):
        assert shares.ask(OPERATOR) is Decision.ADMIT
        assert shares.fits(OPERATOR)
        shares.take(OPERATOR)
    assert (shares.ask(OPERATOR), shares.fits(OPERATOR), shares.used) == (Decision.REFUSE, False, 3)


def test_of_what_stays_one_alone_leaves_a_ninth() -> None:
    shares = Shares(900)
    while shares.fits("a"):
        shares.take("a")
    assert (shares.holds("a"), shares.limit("a")) == (800, 800)
    assert shares.room("b") == ALPHA * 100 // (ALPHA + 1)


@pytest.mark.parametrize("total", range(1, 12))
def test_the_last_unit_is_for_somebody_who_has_none(total: int) -> None:
    shares = Shares(total)
    while shares.fits("a"):
        shares.take("a")
    assert shares.holds("a") == max(1, total * ALPHA // (ALPHA + 1))
    assert shares.fits("b") is (total > 1)


def test_what_is_given_back_is_forgotten() -> None:
    shares = filled(6, a=6)
    shares.take("a", -6)
    assert (shares.held, shares.used, shares.fair("b")) == ({}, 0, 6)


def test_refusals_and_revocations_are_counted() -> None:
    shares = filled(6, a=6)
    shares.ask("a")
    shares.ask("b")
    shares.fits("a")
    assert (shares.refused, shares.revoked) == (2, 1)


@pytest.mark.parametrize("total", [1, 2, 9, 100])
def test_as_long_as_it_is_easy_one_more_fits_for_anybody(total: int) -> None:
    for used in range(Shares(total).easy):
        assert filled(total, a=used).fits("a") if used else Shares(total).fits("a")
