"""What counts as lack of memory, and what follows from it."""

from __future__ import annotations

import asyncio
import errno
import resource
import threading

import pytest

from sandpool.base.errors import SandpoolError
from sandpool.cli.restart import FIRST_PAUSE, MOST, RESPITE, VARIABLE, next_start
from sandpool.controlplane.memory_pressure import (
    FAILED_CHECKS,
    HEADROOM,
    MemoryGuard,
    SelfCheck,
    caused_by_memory,
    failed_checks,
    room_left,
)


def chained(cause: BaseException) -> BaseException:
    error = SandpoolError("something else")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "memory"),
    [
        (MemoryError(), True),
        (RuntimeError("can't start new thread"), True),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), True),
        (chained(MemoryError()), True),
        (ExceptionGroup("", [ValueError(), chained(MemoryError())]), True),  # type: ignore[type-var]
        (RuntimeError("another"), False),
        (OSError(errno.EMFILE, "Too many open files"), False),
        (ExceptionGroup("", [ValueError()]), False),
        (None, False),
    ],
)
def test_what_lack_of_memory_looks_like(error: BaseException | None, memory: bool) -> None:
    assert caused_by_memory(error) is memory


def test_room_is_what_the_limit_leaves() -> None:
    assert room_left(resource.RLIM_INFINITY, "100 50 1", 4096) is None
    assert room_left(1_000_000, "100 50 1", 4096) == 1_000_000 - 409_600
    assert room_left(1, "100 50 1", 4096) == 0


def test_only_checks_that_failed_for_memory_count() -> None:
    assert failed_checks(2, good=True, memory=True) == 0
    assert failed_checks(2, good=False, memory=True) == 3
    assert failed_checks(2, good=False, memory=False) == 2


@pytest.fixture
def left() -> list[int]:
    return []


def test_one_that_does_not_come_to_its_end_is_ended(left: list[int], capfd: pytest.CaptureFixture[str]) -> None:
    gone = threading.Event()

    def leave(code: int) -> None:
        left.append(code)
        gone.set()

    guard = MemoryGuard(leave, exit_timeout=0.0)
    guard.end("nothing works")
    guard.end("and nothing else either")
    assert gone.wait(30)
    guard.close()
    assert left == [75]
    assert guard.why == "nothing works"
    assert "sandpool: out of memory: nothing works. " in capfd.readouterr().err


async def test_it_is_short_until_what_was_held_back_is_there_again(left: list[int]) -> None:
    guard = MemoryGuard(left.append)
    stop = asyncio.Event()
    guard.watch(asyncio.get_running_loop(), stop)
    try:
        assert not guard.short
        assert not guard.noticed(ValueError())
        assert guard.noticed(MemoryError())
        assert (guard.short, guard.failures) == (True, 1)
        guard.look()
        assert not guard.short
        asyncio.get_running_loop().call_exception_handler({"message": "", "exception": MemoryError()})
        assert (guard.short, guard.failures, stop.is_set()) == (True, 2, False)
    finally:
        guard.close()
        asyncio.get_running_loop().set_exception_handler(None)
    assert left == []


async def test_requests_are_refused_before_the_address_space_is_used_up(
    left: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = MemoryGuard(left.append)
    try:
        monkeypatch.setattr(resource, "getrlimit", lambda which: (HEADROOM, HEADROOM))  # less than this process has
        guard.look()
        assert guard.short
        monkeypatch.undo()
        guard.look()
        assert not guard.short
    finally:
        guard.close()


def test_an_end_after_the_loop_has_ended_is_told_all_the_same(left: list[int]) -> None:
    guard = MemoryGuard(left.append)

    async def main() -> None:
        guard.watch(asyncio.get_running_loop(), asyncio.Event())

    asyncio.run(main())
    guard.end("a part of it has failed")
    guard.close()
    assert guard.why == "a part of it has failed"
    assert left == []


@pytest.mark.parametrize("short", [True, False])
async def test_a_process_that_does_not_hear_itself_ends_for_lack_of_memory_only(left: list[int], short: bool) -> None:
    guard, asked, enough = MemoryGuard(left.append), [0], threading.Event()
    guard.watch(asyncio.get_running_loop(), stop := asyncio.Event())

    def ask() -> bool:
        asked[0] += 1
        if asked[0] > FAILED_CHECKS:
            enough.set()
        raise TimeoutError("no answer")

    if short:
        guard.failures += 1  # since the last good answer
    check = SelfCheck(ask, guard, every=0.001)
    try:
        if short:
            async with asyncio.timeout(30):
                await stop.wait()
            assert (asked[0], guard.why[:11]) == (FAILED_CHECKS, "its own API")
        else:
            assert await asyncio.to_thread(enough.wait, 30)
            assert not stop.is_set()
    finally:
        check.close()
        guard.close()
        asyncio.get_running_loop().set_exception_handler(None)
    assert left == []


def test_a_detached_one_starts_again_a_few_times() -> None:
    assert next_start({}, 0.0) is None, "one in the foreground never"
    assert next_start({VARIABLE: "x"}, 0.0) is None
    assert next_start({VARIABLE: "0"}, 0.0) == (1, FIRST_PAUSE)
    assert next_start({VARIABLE: "3"}, 0.0) == (4, FIRST_PAUSE * 8)
    assert next_start({VARIABLE: str(MOST)}, 0.0) is None
    assert next_start({VARIABLE: str(MOST)}, RESPITE) == (1, FIRST_PAUSE)
