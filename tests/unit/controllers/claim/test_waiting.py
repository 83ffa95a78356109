"""What a claim that waits says, and how many are told in a second."""

from __future__ import annotations

import pytest

from sandpool.controllers.claim.publish import TimeSlots, waiting_text


@pytest.mark.parametrize(
    ("place", "expected", "said"),
    [
        (None, None, ""),
        (0, None, ": first in line; when its turn comes cannot be said yet"),
        (0, 0.2, ": first in line; its turn is expected in about 1 s"),
        (1, 1.4, ": 1 claim is before it; its turn is expected in about 2 s"),
        (412, 31.0, ": 412 claims are before it; its turn is expected in about 31 s"),
    ],
)
def test_a_wait_names_its_place_and_its_turn(place: int | None, expected: float | None, said: str) -> None:
    assert waiting_text("python", place, expected) == f"Waiting for a sandbox of pool python to become ready{said}"


def test_a_wait_for_members_that_do_not_start_names_why() -> None:
    said = waiting_text("python", 0, 3.0, "Sandbox python-1: The pod is held up: container main waits: ErrImagePull")
    assert "first in line" in said
    assert said.endswith("cannot be said yet. Sandbox python-1: The pod is held up: container main waits: ErrImagePull")


def test_so_many_moments_a_second_and_none_in_advance() -> None:
    slots = TimeSlots(10.0)
    assert [round(slots.take(100.0), 3) for _ in range(4)] == [100.0, 100.1, 100.2, 100.3]
    assert slots.take(200.0) == 200.0, "what was not used is not saved up"
    assert round(slots.take(200.0), 3) == 200.1
