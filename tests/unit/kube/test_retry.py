from __future__ import annotations

import pytest

from sandpool.base.errors import SandpoolError
from sandpool.kube.errors import (
    Conflict,
    Refused,
    ServerTimeout,
    TooManyRequests,
    Unavailable,
    Unreachable,
    Unreadable,
    Untrusted,
)
from sandpool.kube.retry import RetryPolicy, pause

POLICY = RetryPolicy(attempts=4, budget=10, first=0.1, longest=0.3)


@pytest.mark.parametrize(
    "error",
    [
        Unreachable("lost"),
        Unreadable("cut"),
        Untrusted("tls"),
        Unavailable("503"),
        ServerTimeout("504"),
        Conflict("409"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_may_have_been_processed_or_cannot_get_better_is_never_asked_again(error: SandpoolError) -> None:
    assert pause(POLICY, error, 1, 0, 0.5) is None


def test_a_refused_connection_waits_longer_each_time() -> None:
    waits = [pause(POLICY, Refused("no"), attempt, 0, 0.999999) for attempt in (1, 2, 3, 4)]
    assert waits == [pytest.approx(0.1, rel=1e-3), pytest.approx(0.2, rel=1e-3), pytest.approx(0.3, rel=1e-3), None]


def test_jitter_takes_away_at_most_half() -> None:
    assert pause(POLICY, Refused("no"), 2, 0, 0.0) == pytest.approx(0.1)


@pytest.mark.parametrize("draw", [0.0, 0.5, 0.99])
def test_a_busy_server_is_not_asked_before_it_said(draw: float) -> None:
    wait = pause(POLICY, TooManyRequests("busy", retry_after=3), 1, 0, draw)
    assert wait is not None
    assert 3 <= wait < 3.1


def test_a_busy_server_that_says_nothing_is_given_a_moment() -> None:
    assert pause(POLICY, TooManyRequests("busy"), 1, 0, 0.0) == pytest.approx(0.05)


def test_an_end_to_patience() -> None:
    assert pause(POLICY, TooManyRequests("busy", retry_after=11), 1, 0, 0) is None
    assert pause(POLICY, TooManyRequests("busy", retry_after=3), 1, 7.5, 0) is None
    assert pause(POLICY, TooManyRequests("busy", retry_after=3), 1, 6.5, 0) == 3


def test_who_has_a_place_in_line_to_lose_is_more_patient_with_a_busy_server() -> None:
    patient = RetryPolicy(attempts=4, budget=10, throttled=45)
    assert pause(patient, TooManyRequests("busy", retry_after=3), 40, 41.5, 0) == 3
    assert pause(patient, TooManyRequests("busy", retry_after=3), 1, 42.5, 0) is None
    assert pause(patient, Refused("no"), 4, 0, 0.5) is None, "one that is not there is told of"
    assert pause(patient, Refused("no"), 1, 10, 0.5) is None
