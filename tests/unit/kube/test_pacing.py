"""What the limit does, against servers that are a few lines long: no sockets, no clock."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandpool.kube.pacing import (
    LEAST_FLOOR,
    LONGEST_HOLD,
    RISE,
    Answer,
    Bounds,
    Floor,
    Outcome,
    Pacer,
    View,
    first_view,
    next_floor,
    next_view,
)

BOUNDS = Bounds(most=50, start=20)


def served(sent: float, slowness: float = 1.0, *, busy: bool = True) -> Answer:
    return Answer(Outcome.SERVED, sent, slowness, busy)


def after(view: View, *answers: Answer, now: float = 1.0, bounds: Bounds = BOUNDS) -> View:
    for answer in answers:
        view = next_view(view, answer, bounds, now)
    return view


class Server:
    """Does `at_once` writes at once, each for `seconds`; the rest waits in line. It refuses beyond `line` (429)."""

    def __init__(self, at_once: int, seconds: float, line: int = 10_000) -> None:
        self.at_once, self.seconds, self.line = at_once, seconds, line

    def run(self, pacer: Pacer, until: float, start: float = 0.0) -> int:
        """A client that always has something to write. How many were served in the last half."""
        now, flying, working, done = start, 0, 0, 0
        waiting: deque[float] = deque()  # when each was sent
        ends: list[tuple[float, float, bool]] = []  # when, when it was sent, whether it was served
        while now < until:
            while flying < pacer.view.allowed(now):
                flying += 1
                if len(waiting) >= self.line:
                    heapq.heappush(ends, (now + 0.001, now, False))
                else:
                    waiting.append(now)
            while waiting and working < self.at_once:
                working += 1
                heapq.heappush(ends, (now + self.seconds, waiting.popleft(), True))
            if not ends:  # held
                now = pacer.view.held_until
                continue
            now, sent, served = heapq.heappop(ends)
            busy = 2 * flying >= pacer.view.allowed(now)
            outcome = Outcome.SERVED if served else Outcome.THROTTLED
            pacer.record("patch x", outcome, sent=sent, now=now, busy=busy, retry_after=1)
            flying -= 1
            if served:
                working -= 1
                done += now >= (start + until) / 2
        return done


@pytest.mark.parametrize("at_once", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("seconds", [0.02, 0.1])
def test_it_finds_what_the_server_can_do_at_once(at_once: int, seconds: float) -> None:
    pacer = Pacer(BOUNDS)
    done = Server(at_once, seconds).run(pacer, 60.0)
    assert done >= 0.9 * 30 * at_once / seconds, "nothing of the server is left unused, but for the probes"
    assert pacer.view.limit <= 4 * at_once + 4, "and little waits there rather than here"


def test_a_server_with_room_gets_all_that_is_allowed() -> None:
    pacer = Pacer(BOUNDS)
    Server(1000, 0.01).run(pacer, 14.0)
    assert pacer.view.limit == 50


def test_minutes_of_overload_do_not_wear_it_out() -> None:
    """A floor that only rose would call any latency normal in the end."""
    pacer = Pacer(BOUNDS)
    Server(2, 0.02).run(pacer, 1200.0)
    assert pacer.view.limit <= 12


def test_a_server_that_becomes_slower_for_good_is_used_fully_after_some_minutes() -> None:
    pacer, server = Pacer(BOUNDS), Server(8, 0.005)
    server.run(pacer, 30.0)
    server.seconds = 0.1
    assert server.run(pacer, 630.0, 30.0) >= 0.9 * 300 * 8 / 0.1


def test_a_server_that_recovers_is_used_fully_within_seconds() -> None:
    pacer, server = Pacer(BOUNDS), Server(16, 0.005)
    server.run(pacer, 30.0)
    server.at_once = 1
    server.run(pacer, 60.0, 30.0)
    assert pacer.view.limit <= 8
    server.at_once = 16
    assert server.run(pacer, 64.0, 60.0) >= 0.9 * 2 * 16 / 0.005


def test_a_server_that_throttles_is_throttled_seldom() -> None:
    pacer, server = Pacer(BOUNDS), Server(4, 0.01, line=3)
    done = server.run(pacer, 60.0)
    assert done >= 0.9 * 30 * 4 / 0.01
    assert pacer.throttled <= 0.02 * 2 * done


@pytest.mark.parametrize("seed", range(5))
def test_what_does_not_get_better_with_fewer_writes_is_no_reason_to_send_fewer(seed: int) -> None:
    """A busy machine, a far network, a webhook: some answers are fast and most take twenty times as long, whatever we do."""
    random, pacer, now = Random(seed), Pacer(BOUNDS), 0.0
    flying: list[tuple[float, float]] = []  # when it ends, when it was sent
    while now < 60:
        while len(flying) < pacer.view.allowed(now):
            heapq.heappush(flying, (now + (0.005 if random.random() < 0.1 else random.expovariate(10)), now))
        now, sent = heapq.heappop(flying)
        pacer.record("patch x", Outcome.SERVED, sent=sent, now=now, busy=True)
    assert pacer.view.limit > 40


def test_what_was_under_way_lowers_the_limit_once() -> None:
    view = after(first_view(BOUNDS), *(Answer(Outcome.FAILED, sent) for sent in (0.1, 0.2, 0.3)))
    assert view.limit == pytest.approx(20 * 2 / 3)
    assert after(view, Answer(Outcome.FAILED, 1.5), now=2.0).limit == pytest.approx(20 * 4 / 9)


def test_a_429_halves_it() -> None:
    view = after(first_view(BOUNDS), Answer(Outcome.THROTTLED, 0.5))
    assert (view.limit, view.allowed(1.0)) == (10, 10), "one refusal among others is no reason to stop"


def test_a_write_that_is_refused_while_others_are_served_is_counted_and_teaches_nothing() -> None:
    pacer = Pacer(BOUNDS)
    before = pacer.view
    pacer.record("patch x", Outcome.THROTTLED, sent=0.0, now=1.0, busy=True, retry_after=1, own=True)
    assert (pacer.throttled, pacer.view) == (1, before)


def test_a_round_of_refusals_is_followed_by_silence() -> None:
    refusal = Answer(Outcome.THROTTLED, 0.5, retry_after=4)
    view = after(first_view(BOUNDS), *[refusal] * 10)
    assert (view.allowed(1.0), view.allowed(4.9), view.allowed(5.0)) == (0, 0, 10)
    with_one_served = after(first_view(BOUNDS), *[refusal] * 9, served(0.5), *[refusal] * 9)
    assert with_one_served.allowed(1.0) == 10


@pytest.mark.parametrize(("asked", "held"), [(0, 1), (2, 2), (86_400, LONGEST_HOLD)])
def test_silence_has_bounds(asked: float, held: float) -> None:
    view = after(View(1.0), Answer(Outcome.THROTTLED, 0.5, retry_after=asked))
    assert view.held_until == 1.0 + held


def test_what_was_not_tried_proves_nothing() -> None:
    view = first_view(BOUNDS)
    assert after(view, *[served(0.5, busy=False)] * 100).limit == view.limit
    assert after(view, *[served(0.5, 9.0, busy=False)] * 100).limit == view.limit, "others make it slow"


def test_one_slow_answer_among_many_changes_nothing() -> None:
    view = replace(first_view(BOUNDS), limit=50.0)
    assert after(view, *[served(0.5)] * 49, served(0.5, 1e6)).limit == 50


def test_a_probe_measures_what_was_sent_during_it() -> None:
    view = replace(first_view(BOUNDS), limit=16.0)
    view = after(view, *[served(0.5)] * 16, now=1.0)
    assert view.probing
    assert view.allowed(1.0) == 2
    view = after(view, *[served(0.9, 9.0)] * 40, now=1.1)
    assert view.probing, "those were under way already"
    view = after(view, *[served(1.2, 3.0)] * 12, now=1.3)
    assert (view.probing, view.base, view.probed) == (False, 2.0, 1.3)
    assert view.allowed(1.3) == 20


def test_a_slow_server_is_not_kept_idle_by_a_probe() -> None:
    view = after(replace(first_view(BOUNDS), limit=16.0), *[served(0.5)] * 16, now=1.0)
    view = after(view, served(1.1, 5.0), served(1.1, 5.0), now=1.9)
    assert (view.probing, view.base) == (False, 3.0)


def test_no_probe_at_the_beginning_of_a_burst_but_the_first() -> None:
    view, now = first_view(BOUNDS), 0.0
    probes = []
    for number in range(4000):
        now += 120.0 if number % 1000 == 0 else 0.01
        before = view
        view = next_view(view, served(now), BOUNDS, now)
        if view.probing and not before.probing:
            probes.append(number)
    assert probes == [19], "ten seconds of much to do every two minutes"


def test_latency_alone_leaves_some_writes_side_by_side() -> None:
    view, now = first_view(BOUNDS), 1.0
    for _ in range(1000):
        now += 0.001
        view = next_view(view, served(now, 1.0 if view.probing else 10.0), BOUNDS, now)
    assert 3 <= view.limit <= 5


def test_a_floor_falls_at_once_and_rises_slowly() -> None:
    floor = next_floor(None, 0.1, 0.0)
    assert floor == Floor(0.1, 0.0)
    floor = next_floor(floor, 0.04, 1.0)
    assert floor.seconds == 0.04
    assert next_floor(floor, 5.0, 1.0 + RISE).seconds == pytest.approx(0.08)
    assert next_floor(floor, 0.0, 2.0).seconds == LEAST_FLOOR
    assert next_floor(floor, 5.0, 1e9).seconds == 5.0
    assert next_floor(floor, 5.0, -1e9).seconds == 0.04, "a clock that goes back does not matter"


def test_kinds_have_floors_of_their_own() -> None:
    """A POST of a pod that always takes ten times as long as a PATCH does not look like a slow server."""
    pacer, now = Pacer(BOUNDS), 0.0
    for _ in range(250):
        for kind, seconds in (("create pods", 0.1), ("patch sandboxes", 0.01)):
            now += seconds
            pacer.record(kind, Outcome.SERVED, sent=now - seconds, now=now, busy=True)
    assert pacer.view.limit == 50


ANSWERS = st.builds(
    Answer,
    outcome=st.sampled_from(Outcome),
    sent=st.floats(0, 100),
    slowness=st.floats(0, 1e9),
    busy=st.booleans(),
    retry_after=st.floats(-5, 1e6),
)


@given(
    st.lists(st.tuples(ANSWERS, st.floats(0, 30)), max_size=60),
    st.builds(Bounds, most=st.integers(1, 60), start=st.integers(1, 60)),
)
def test_whatever_is_answered_the_limit_stays_within_its_bounds(
    answers: list[tuple[Answer, float]], bounds: Bounds
) -> None:
    view, now = first_view(bounds), 0.0
    for answer, later in answers:
        now += later
        before = view
        view = next_view(view, answer, bounds, now)
        assert bounds.least <= view.limit <= bounds.most
        assert 0 <= view.allowed(now) <= bounds.most
        assert view.allowed(now + LONGEST_HOLD) >= 1, "it is never shut for good"
        if answer.outcome is not Outcome.SERVED:
            assert view.limit <= before.limit
