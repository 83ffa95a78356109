"""Who belongs to a command, by what /proc says of everybody."""

from __future__ import annotations

from sandpool.boxd.processes.process_tree import ProcessInfo, belonging

COMMAND = 100


def seen(**processes: tuple[int, int] | tuple[int, int, bool]) -> dict[int, ProcessInfo]:
    """By number: parent, session, and whether it carries the mark."""
    return {int(pid[1:]): ProcessInfo(*(*about, False)[:3]) for pid, about in processes.items()}


WORLD = seen(
    p1=(0, 1),
    p2=(1, 1),  # boxd
    p100=(2, 100, True),
    p101=(100, 100, True),  # in the background
    p102=(101, 102, True),  # setsid
    p103=(102, 102),  # and without its variables
    p104=(1, 104, True),  # an orphan in a session of its own
    p105=(1, 100),  # an orphan that has stayed in the session
    p106=(104, 106),  # the orphan's own
    p200=(2, 200),  # another command
    p201=(200, 201),
    p202=(1, 202),
)


def test_descendants_the_session_and_the_marked() -> None:
    assert belonging(WORLD, COMMAND) == {100, 101, 102, 103, 104, 105, 106}


def test_of_a_command_that_has_ended_only_the_mark_is_left() -> None:
    """Its number may be that of another process by now."""
    assert belonging(seen(p100=(2, 100), p104=(1, 104, True), p106=(104, 106)), 0) == {104, 106}


def test_children_of_those_that_were_found_before() -> None:
    """They may have been started between two looks, and have lost everything that tells whose they are."""
    later = seen(p103=(1, 102), p107=(103, 107), p200=(2, 200))
    assert belonging(later, COMMAND) == set()
    assert belonging(later, COMMAND, {102, 103}) == {103, 107}
