"""Probes as a state machine: answers in, health and next moments out."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandpool.node.kubelet.pods import NodeContainer
from sandpool.node.kubelet.probe_state import Health, ProbeFailure, ProbeState, Result, Which, begin, record

NOBODY: dict[str, Any] = {"exec": {"command": ["true"]}}
S, F, U, X = Result.SUCCESS, Result.FAILURE, Result.UNKNOWN, Result.UNSUPPORTED


def probe_state(now: float = 100.0, *, known: bool = False, **probes: Any) -> ProbeState:
    container = msgspec.convert(
        {"name": "main", **{name: {**NOBODY, **fields} for name, fields in probes.items()}}, NodeContainer
    )
    return begin(container, now, started=known, ready=known)


def after(one: ProbeState, which: Which, *results: Result) -> ProbeState:
    """Each answer comes when the probe's period does; what is asked in between fails."""
    for result in results:
        while not one.probes[which].regular:
            one = record(one, which, Result.FAILURE, one.probes[which].due)
        one = record(one, which, result, one.probes[which].due)
    return one


def test_without_probes_a_container_is_well_and_is_never_asked() -> None:
    one = probe_state()
    assert (one.health, one.moments) == (Health(), {})


READINESS: dict[str, tuple[dict[str, int], list[Result], bool]] = {
    "nobody has been asked": ({}, [], False),
    "one success": ({}, [S], True),
    "two are wanted, one came": ({"successThreshold": 2}, [S], False),
    "two are wanted, two came": ({"successThreshold": 2}, [S, S], True),
    "two are wanted, not in a row": ({"successThreshold": 2}, [S, F, S], False),
    "two failures are forgiven": ({}, [S, F, F], True),
    "three are not": ({}, [S, F, F, F], False),
    "three, not in a row": ({}, [S, F, F, S, F], True),
    "back again": ({}, [S, F, F, F, S], True),
    "an error counts neither way": ({"failureThreshold": 2}, [S, F, U, U, S], True),
    "an error does not break a row": ({"failureThreshold": 2}, [S, F, U, F], False),
    "cannot be asked": ({}, [X], True),
}


@pytest.mark.parametrize("case", READINESS)
def test_readiness(case: str) -> None:
    fields, results, ready = READINESS[case]
    found = after(probe_state(readinessProbe=fields), Which.READINESS, *results).health
    assert found == Health(started=True, ready=ready)


@pytest.mark.parametrize(
    ("fields", "results", "failure"),
    [
        ({}, [], None),
        ({}, [F, F], None),
        ({}, [F, F, S, F, F], None),
        ({}, [F, F, F], ProbeFailure(Which.LIVENESS)),
        ({"failureThreshold": 1}, [S, F], ProbeFailure(Which.LIVENESS)),
        ({"failureThreshold": 1, "terminationGracePeriodSeconds": 5}, [F], ProbeFailure(Which.LIVENESS, 5.0)),
        ({"failureThreshold": 1}, [U, U, U], None),
        ({"failureThreshold": 1}, [X], None),
    ],
)
def test_liveness(fields: dict[str, int], results: list[Result], failure: ProbeFailure | None) -> None:
    found = after(probe_state(livenessProbe=fields), Which.LIVENESS, *results)
    assert found.health == Health(ready=failure is None, failure=failure)
    assert bool(found.moments) == (failure is None and X not in results)


def test_nothing_else_is_asked_before_it_has_started() -> None:
    one = probe_state(startupProbe={"failureThreshold": 5}, livenessProbe={}, readinessProbe={"initialDelaySeconds": 3})
    assert one.moments == {Which.STARTUP: 100.0}
    assert one.health == Health(started=False, ready=False)
    one = after(one, Which.STARTUP, F, F)
    assert one.moments == {Which.STARTUP: 120.0}
    one = record(one, Which.STARTUP, S, 120.0)
    assert one.moments == {Which.LIVENESS: 100.0, Which.READINESS: 103.0}, "at once"
    assert one.health == Health(started=True, ready=False)


def test_a_startup_that_fails_for_good_dooms() -> None:
    one = after(probe_state(startupProbe={"failureThreshold": 2}), Which.STARTUP, F, F)
    assert one.health == Health(started=False, ready=False, failure=ProbeFailure(Which.STARTUP))
    assert one.moments == {}


def test_a_hook_comes_first_once_and_dooms_at_its_first_failure() -> None:
    container = msgspec.convert(
        {"name": "main", "lifecycle": {"postStart": NOBODY}, "readinessProbe": NOBODY}, NodeContainer
    )
    one = begin(container, 100.0)
    assert (one.moments, one.health.started) == ({Which.POST_START: 100.0}, False)
    assert record(one, Which.POST_START, S, 101.0).moments == {Which.READINESS: 100.0}
    assert record(one, Which.POST_START, F, 101.0).health.failure == ProbeFailure(Which.POST_START)
    assert begin(container, 100.0, started=True).moments == {Which.READINESS: 100.0}, (
        "not again after we were restarted"
    )


def test_periods_are_kept_and_late_answers_do_not_pile_up() -> None:
    one = probe_state(readinessProbe={"initialDelaySeconds": 7, "periodSeconds": 5})
    assert one.moments == {Which.READINESS: 107.0}
    one = record(one, Which.READINESS, S, 107.4)
    assert one.moments == {Which.READINESS: 112.0}
    one = record(one, Which.READINESS, S, 131.0)
    assert one.moments == {Which.READINESS: 131.0}


def test_what_was_known_before_we_forgot_counts() -> None:
    assert probe_state(known=True, startupProbe={}, readinessProbe={}).health == Health()


@given(
    results=st.lists(st.sampled_from([S, F, U]), max_size=40),
    successes=st.integers(1, 4),
    failures=st.integers(1, 4),
)
def test_readiness_is_what_the_last_long_enough_row_says(results: list[Result], successes: int, failures: int) -> None:
    found = after(
        probe_state(readinessProbe={"successThreshold": successes, "failureThreshold": failures}),
        Which.READINESS,
        *results,
    )
    known = [result for result in results if result is not U]
    ready = False
    for end in range(1, len(known) + 1):
        if end >= successes and set(known[end - successes : end]) == {S}:
            ready = True
        if end >= failures and set(known[end - failures : end]) == {F}:
            ready = False
    assert found.health.ready is ready
    assert found.health.failure is None


@given(results=st.lists(st.sampled_from([S, F, U]), max_size=40), failures=st.integers(1, 4))
def test_liveness_dooms_at_the_first_long_enough_row_and_for_good(results: list[Result], failures: int) -> None:
    one, doomed, row = probe_state(livenessProbe={"failureThreshold": failures}), False, 0
    for result in results:
        one = record(one, Which.LIVENESS, result, one.probes[Which.LIVENESS].due)
        row = 0 if result is S else row + (result is F)
        doomed = doomed or row >= failures
        assert (one.failure is not None) is doomed
        assert (not one.moments) is doomed


def eager(**probes: Any) -> list[float]:
    """The moments at which a probe that always fails is asked, within a minute."""
    one, asked = probe_state(0.0, **probes), []
    while one.moments and (due := min(one.moments.values())) < 60:
        asked.append(round(due, 2))
        one = record(one, min(one.moments, key=one.moments.__getitem__), F, due)
    return asked


def test_what_starts_is_asked_soon_and_ever_later_and_its_periods_are_kept() -> None:
    asked = eager(readinessProbe={"periodSeconds": 20})
    assert asked == [0, 0.05, 0.15, 0.35, 0.75, 1.55, 3.15, 6.35, 12.75, 20, 40]
    assert eager(livenessProbe={"periodSeconds": 20, "failureThreshold": 9}) == [0, 20, 40]


def test_failures_in_between_do_not_count() -> None:
    assert [moment for moment in eager(startupProbe={"failureThreshold": 3}) if moment % 10 == 0] == [0, 10, 20]


def test_what_has_held_once_is_asked_in_its_periods_only() -> None:
    one = after(probe_state(readinessProbe={"failureThreshold": 1}), Which.READINESS, S, F)
    assert (one.health.ready, one.moments) == (False, {Which.READINESS: 120.0})


def test_the_first_failure_of_what_starts_is_not_told() -> None:
    progress = probe_state(readinessProbe={}).probes[Which.READINESS]
    assert not progress.reports
    one = after(probe_state(readinessProbe={}), Which.READINESS, F)
    assert not one.probes[Which.READINESS].regular
    one = probe_state(livenessProbe={})
    assert one.probes[Which.LIVENESS].reports


@given(results=st.lists(st.sampled_from([S, F, U]), max_size=60), late=st.lists(st.floats(0, 30), max_size=60))
def test_moments_never_go_back_and_never_beyond_the_next_period(results: list[Result], late: list[float]) -> None:
    one = probe_state(readinessProbe={"periodSeconds": 7})
    for result, delay in zip(results, late, strict=False):
        progress = one.probes[Which.READINESS]
        now = progress.due + delay
        one = record(one, Which.READINESS, result, now)
        after_ = one.probes[Which.READINESS]
        assert now <= after_.due or after_.due == after_.tick == progress.tick
        assert after_.due <= after_.tick <= max(now, progress.tick + 7)
