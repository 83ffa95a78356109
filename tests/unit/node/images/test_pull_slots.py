"""When what holds a place is too slow to keep it."""

from __future__ import annotations

from sandpool.node.images.pull_slots import GRACE, GROWTH, SILENCE, PullSlot, slowest
from support.clocks.manual_clock import ManualClock


def test_at_first_a_place_is_nobody_elses() -> None:
    clock = ManualClock()
    places = {"a": PullSlot(clock.monotonic)}
    clock.advance(GRACE - 1)
    assert slowest(places) is None
    clock.advance(1)
    assert slowest(places) == "a"
    assert slowest({}) is None


def test_whoever_has_the_least_of_what_is_due_is_the_slowest() -> None:
    clock = ManualClock()
    places = {name: PullSlot(clock.monotonic) for name in "abc"}
    clock.advance(30)
    due = GROWTH * 30 * 30
    for name, size in (("a", due // 2), ("b", due // 3), ("c", due)):
        places[name].got(size)
    assert slowest(places) == "b"
    assert slowest({"c": places["c"]}) is None


def test_a_burst_does_not_buy_silence() -> None:
    clock = ManualClock()
    place = PullSlot(clock.monotonic)
    place.got(1 << 40)
    clock.advance(GRACE)
    assert slowest({"a": place}) == "a"
    place.got(1)
    clock.advance(SILENCE - 1)
    assert slowest({"a": place}) is None


def test_just_enough_of_the_largest_image_is_over_within_two_hours() -> None:
    clock, image = ManualClock(), 20 << 30
    place, sent = PullSlot(clock.monotonic), 0
    while sent < image:
        clock.advance(10)
        now = int(GROWTH * clock.monotonic() ** 2) + 1
        place.got(now - sent)
        sent = now
        assert slowest({"a": place}) is None
    assert clock.monotonic() < 2 * 3600


def test_what_takes_time_on_this_machine_is_not_counted() -> None:
    clock = ManualClock()
    place = PullSlot(clock.monotonic)
    clock.advance(10)
    with place.at_work():
        clock.advance(1000)
        with place.at_work():
            clock.advance(1000)
            assert slowest({"a": place}) is None
        assert slowest({"a": place}) is None
    clock.advance(9)
    assert slowest({"a": place}) is None
    clock.advance(1)
    assert slowest({"a": place}) == "a"
