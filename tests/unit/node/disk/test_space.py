"""How full is full."""

from __future__ import annotations

import pytest

from sandpool.node.disk.space import Disk, Level, Space, beyond, level, standard_reserve

MIB = 1 << 20
RESERVE = 800 * MIB


@pytest.mark.parametrize(
    ("total", "reserve"),
    [
        (1000 << 30, 256 * MIB),
        (10 << 30, (10 << 30) // 100),
        (5 << 30, 64 * MIB),
        (1 << 30, (1 << 30) // 20),
    ],
)
def test_the_standard_reserve(total: int, reserve: int) -> None:
    assert standard_reserve(total) == reserve


@pytest.mark.parametrize(
    ("free", "before", "now"),
    [
        (RESERVE, Level.OK, Level.OK),
        (RESERVE - 1, Level.OK, Level.PRESSURE),
        (RESERVE, Level.PRESSURE, Level.PRESSURE),
        (RESERVE * 5 // 4, Level.PRESSURE, Level.OK),
        (RESERVE // 8 - 1, Level.OK, Level.FULL),
        (RESERVE // 8, Level.FULL, Level.FULL),
        (RESERVE * 5 // 32, Level.FULL, Level.PRESSURE),
    ],
)
def test_levels_do_not_flap(free: int, before: Level, now: Level) -> None:
    assert level(Space(1 << 40, free), RESERVE, before) is now


def test_inodes_count_too() -> None:
    assert level(Space(1 << 40, 1 << 40, 100_000, 999), RESERVE, Level.OK) is Level.PRESSURE
    assert level(Space(1 << 40, 1 << 40, 100_000, 99), RESERVE, Level.OK) is Level.FULL
    said = Disk(Level.FULL, Space(1 << 40, 1 << 40, 100_000, 99), RESERVE)
    assert "no inodes left" in said.message


def test_without_a_reserve_only_an_end_is_an_end() -> None:
    assert level(Space(1 << 40, 0), 0, Level.OK) is Level.OK


def test_a_reserve_that_is_not_held_is_not_free() -> None:
    assert beyond(Space(1 << 40, 100), 40).free == 60
    assert beyond(Space(1 << 40, 100), 400).free == 0


def test_words() -> None:
    assert Disk(Level.OK, Space(1, 1), 1).message == ""
    assert Disk(Level.PRESSURE, Space(10, 0), 1).message.startswith("disk pressure: ")
    assert Disk(Level.FULL, Space(10, 0), 1).message.startswith("disk full: ")
