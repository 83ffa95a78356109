"""What happens when the system gives this process no more memory: requests are refused while it stays sound, else it ends, so that
whoever started it can start it again. It never stays and fails at everything.

Where the address space is limited (`ulimit -v`), requests are refused before it is used up, because libraries written in C do not all
survive that. And some memory is held back from the start: it is let go of at the first failure, so that answers, and if need be an
orderly end, have some to work with. A process that its own API does not answer any more ends; so does one whose store has lost a commit this way,
because what is on disk then is known only after a start.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import resource
import threading
from collections.abc import Callable
from typing import Any, Final

from sandpool.base.errors import SandpoolError
from sandpool.base.interpreter import give_back
from sandpool.telemetry.log import logger

log = logger(__name__)

HELD_BACK: Final = 8 << 20  # bytes
HEADROOM: Final = 32 << 20  # bytes of address space that requests leave to what is already under way
ENOUGH: Final = HEADROOM + 2 * HELD_BACK  # to take on requests again: some is held back anew then
SHORT, OFTEN, SELDOM = 0.1, 0.02, 1.0  # seconds between looks at how much there is; short of it each one costs some
LONGEST_END: Final = 15.0  # seconds for an orderly end
EXIT_CODE: Final = 75  # as EX_TEMPFAIL of sysexits.h: it may well work when it is started again
_NO_THREAD: Final = "can't start new thread"


class OutOfMemory(SandpoolError):
    """The process had to end because it got no more memory."""


def caused_by_memory(error: BaseException | None) -> bool:
    """Whether the system refused memory, or a thread, which needs some; also if that is what an error came from."""
    while error is not None:
        if isinstance(error, BaseExceptionGroup):
            return any(map(caused_by_memory, error.exceptions))
        if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _NO_THREAD in str(error)):
            return True
        if isinstance(error, OSError) and error.errno == errno.ENOMEM:
            return True
        error = error.__cause__
    return False


def room_left(limit: int, pages: str, page: int) -> int | None:
    """Bytes of address space up to the limit, by what /proc/self/statm says; None without a limit."""
    if limit == resource.RLIM_INFINITY:
        return None
    return max(0, limit - int(pages.partition(" ")[0]) * page)


class MemoryGuard:
    """Made before anything else, and watched over by a thread that is there before it is needed: `end` can be called anywhere."""

    def __init__(self, leave: Callable[[int], object] = os._exit, longest_end: float = LONGEST_END) -> None:
        self._longest_end = longest_end
        self._held: bytearray | None = bytearray(HELD_BACK)
        self._leave = leave
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._sizes = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._page = os.sysconf("SC_PAGE_SIZE")
        self._ending = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._see_to_the_end, name="sandpool-memory", daemon=True)
        self._thread.start()
        self.short = False
        """Whether there is too little to begin anything with."""
        self.failures = 0
        """How often memory was refused so far."""
        self.why = ""

    def watch(self, loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
        """From now on it looks how much there is, hears of errors in callbacks of this loop, and ends the cluster by `stop`."""
        self._loop, self._stop = loop, stop
        loop.set_exception_handler(self._heard)
        self.look()

    def look(self) -> None:
        """Again and again: often where there is not much left, because not every library survives that there is nothing."""
        near = True
        try:
            near = self._judge()
        except MemoryError:
            self.failures, self.short, self._held = self.failures + 1, True, None
        if self._loop is not None:
            self._timer = self._loop.call_later(SHORT if self.short else OFTEN if near else SELDOM, self.look)

    def _judge(self) -> bool:
        """Whether there is not much left."""
        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        room = room_left(limit, os.pread(self._sizes, 64, 0).decode(), self._page)
        if self.short:
            give_all_back()
        if room is not None and room < HEADROOM and not self.short:
            self._relieve(f"{room >> 20} MiB are left of the {limit >> 20} MiB of address space that it may have")
        elif self.short and not self.why and (room is None or room >= ENOUGH) and self._regained():
            self.short = False
            log.info("there is memory again")
        return room is not None and room < 8 * HEADROOM

    def refused(self) -> None:
        """Memory was refused, and whoever asked for it can do without. On the loop's thread."""
        self.failures += 1
        if not self.short:
            self._relieve("the system refused some")

    def _relieve(self, why: str) -> None:
        self.short, self._held = True, None
        give_all_back()
        log.warning("out of memory: requests are refused until there is some again", why=why)

    def _regained(self) -> bool:
        try:
            self._held = self._held or bytearray(HELD_BACK)
        except MemoryError:
            return False
        return True

    def noticed(self, error: BaseException) -> bool:
        """Whether lack of memory made this fail, of which somebody hears in words."""
        if not caused_by_memory(error):
            return False
        self.refused()
        return True

    def end(self, why: str) -> None:
        """This process cannot be sound any more. From any thread."""
        if self.why:
            return
        self.why, self.short, self._held = why, True, None
        self._ending.set()
        if self._loop is not None and self._stop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended already
                self._loop.call_soon_threadsafe(self._stop.set)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        os.close(self._sizes)
        self._over.set()
        self._ending.set()
        self._thread.join()

    def _heard(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if caused_by_memory(context.get("exception")):
            self.refused()
        else:
            loop.default_exception_handler(context)

    def _see_to_the_end(self) -> None:
        self._ending.wait()
        if not self._over.wait(self._longest_end):
            os.write(2, f"sandpool: {ended(self.why)}\n".encode())
            self._leave(EXIT_CODE)


def give_all_back() -> None:
    """Connections that are over leave cycles with large buffers in them: those are not waited for here."""
    gc.collect()
    give_back()


def ended(why: str) -> str:
    return (
        f"out of memory: {why}. Nothing that was acknowledged is lost: start it again, with a higher limit (`ulimit -v`, "
        "MemoryMax= of its unit) or fewer pools if it happens again"
    )
