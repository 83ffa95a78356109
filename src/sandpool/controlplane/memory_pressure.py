"""Handles lack of memory: requests are refused while the process still works; otherwise it exits, so that it can be restarted.

The process never keeps running while every request fails. Where the address space is limited (`ulimit -v`), requests are refused before it is
used up, because not all C libraries survive that. Some memory is reserved at the start and released at the first failure, for responses and,
if necessary, for an orderly exit. The process exits if its own API no longer answers, or if its store lost a commit for lack of memory: only a
restart shows what is on disk.

`SelfCheck` calls the API from outside, over TLS, like any client. A process without memory may be alive and not answer: connections break
before any error is noticed. Slowness and failures with another cause do not end the process: a restart only cures lack of memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import resource
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from sandpool.base.errors import SandpoolError
from sandpool.base.interpreter import give_back
from sandpool.telemetry.log import logger

log = logger(__name__)

RESERVE: Final = 8 << 20  # bytes
HEADROOM: Final = 32 << 20  # bytes of address space left for work in progress: below this, requests are refused
ENOUGH: Final = HEADROOM + 2 * RESERVE  # with this much free, requests are accepted and the reserve is allocated again
SHORT, OFTEN, SELDOM = 0.1, 0.02, 1.0  # seconds between checks: while refusing, near the limit, otherwise
EXIT_TIMEOUT: Final = 15.0  # seconds for an orderly exit
EXIT_CODE: Final = 75  # EX_TEMPFAIL of sysexits.h: a restart may help
_NO_THREAD: Final = "can't start new thread"
EVERY: Final = 5.0  # seconds between two self-checks
PATIENCE: Final = 10.0  # seconds to wait for an answer
FAILED_CHECKS: Final = 3
"""The process exits after this many self-checks in a row that failed for lack of memory."""
PROBED_PATH: Final = "/api/v1/namespaces/default"
"""An object that always exists. A GET of it takes the path of every request."""


class OutOfMemory(SandpoolError):
    """The process had to exit because it could not allocate memory."""


def caused_by_memory(error: BaseException | None) -> bool:
    """Whether an error, or one of its causes, says that the system refused memory or (which needs memory) a new thread."""
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
    """Bytes of address space left below the limit; None without a limit. `pages` is the content of /proc/self/statm."""
    if limit == resource.RLIM_INFINITY:
        return None
    return max(0, limit - int(pages.partition(" ")[0]) * page)


class MemoryGuard:
    """Refuses requests, or ends the process, when memory runs out. Create it first: its thread and its reserve must exist before they are needed."""

    def __init__(self, leave: Callable[[int], object] = os._exit, exit_timeout: float = EXIT_TIMEOUT) -> None:
        self._exit_timeout = exit_timeout
        self._held: bytearray | None = bytearray(RESERVE)
        self._leave = leave
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._sizes = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._page = os.sysconf("SC_PAGE_SIZE")
        self._ending = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._exit_if_overdue, name="sandpool-memory", daemon=True)
        self._thread.start()
        self.short = False
        """Whether memory is too short to start new work."""
        self.failures = 0
        """How often the system refused memory so far."""
        self.why = ""

    def watch(self, loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
        """Starts checking how much memory is left, and handles errors in callbacks of this loop. `end` sets `stop` to shut the cluster down."""
        self._loop, self._stop = loop, stop
        loop.set_exception_handler(self._handle_loop_exception)
        self.look()

    def look(self) -> None:
        """Checks the memory and schedules the next check: soon if little is left, because not every library survives running out."""
        near = True
        try:
            near = self._check()
        except MemoryError:
            self.failures, self.short, self._held = self.failures + 1, True, None
        if self._loop is not None:
            self._timer = self._loop.call_later(SHORT if self.short else OFTEN if near else SELDOM, self.look)

    def _check(self) -> bool:
        """Checks the memory. Returns whether little is left."""
        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        room = room_left(limit, os.pread(self._sizes, 64, 0).decode(), self._page)
        if self.short:
            release_memory()
        if room is not None and room < HEADROOM and not self.short:
            self._relieve(f"{room >> 20} MiB are left of the {limit >> 20} MiB of address space that it may have")
        elif self.short and not self.why and (room is None or room >= ENOUGH) and self._regained():
            self.short = False
            log.info("there is memory again")
        return room is not None and room < 8 * HEADROOM

    def refused(self) -> None:
        """Call this when memory was refused and the caller handled it. On the loop's thread."""
        self.failures += 1
        if not self.short:
            self._relieve("the system refused some")

    def _relieve(self, why: str) -> None:
        self.short, self._held = True, None
        release_memory()
        log.warning("out of memory: requests are refused until there is some again", why=why)

    def _regained(self) -> bool:
        try:
            self._held = self._held or bytearray(RESERVE)
        except MemoryError:
            return False
        return True

    def noticed(self, error: BaseException) -> bool:
        """Whether lack of memory caused this error; if so, requests are refused from now on. The caller still has to report the error."""
        if not caused_by_memory(error):
            return False
        self.refused()
        return True

    def end(self, why: str) -> None:
        """Ends this process, because it can no longer be trusted: an orderly stop, or an exit after a timeout. From any thread."""
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

    def _handle_loop_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if caused_by_memory(context.get("exception")):
            self.refused()
        else:
            loop.default_exception_handler(context)

    def _exit_if_overdue(self) -> None:
        self._ending.wait()
        if not self._over.wait(self._exit_timeout):
            os.write(2, f"sandpool: {exit_message(self.why)}\n".encode())
            self._leave(EXIT_CODE)


def release_memory() -> None:
    """Collects garbage now, because closed connections leave reference cycles with large buffers, and returns memory to the system."""
    gc.collect()
    give_back()


def exit_message(why: str) -> str:
    return (
        f"out of memory: {why}. Nothing that was acknowledged is lost: start it again, with a higher limit (`ulimit -v`, "
        "MemoryMax= of its unit) or fewer pools if it happens again"
    )


@dataclass(frozen=True, slots=True)
class ApiQuestion:
    """A GET to the API, over TLS. Calling it returns whether the answer was 200, or raises the error."""

    url: str
    token: str
    tls: ssl.SSLContext

    def __call__(self) -> bool:
        where = urlsplit(self.url)
        assert where.hostname is not None
        with (
            socket.create_connection((where.hostname, where.port or 443), PATIENCE) as plain,
            self.tls.wrap_socket(plain, server_hostname=where.hostname) as connection,
        ):
            head = f"GET {PROBED_PATH} HTTP/1.1\r\nhost: {where.netloc}\r\nauthorization: Bearer {self.token}\r\n"
            connection.sendall(f"{head}connection: close\r\n\r\n".encode())
            return connection.recv(1024).startswith(b"HTTP/1.1 200 ")


def failed_checks(before: int, *, good: bool, memory: bool) -> int:
    """The new number of checks in a row that failed for lack of memory. A failure with another cause does not change it."""
    return 0 if good else before + memory


class SelfCheck:
    """A thread that calls the API every few seconds. It is started early, because without memory no thread can be started."""

    def __init__(self, ask: Callable[[], bool], guard: MemoryGuard, every: float = EVERY) -> None:
        self._ask = ask
        self._guard = guard
        self._every = every
        self._refused = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sandpool-self-check", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        failed = 0
        while not self._over.wait(self._every):
            failed = failed_checks(failed, **self._checked())
            if failed >= FAILED_CHECKS:
                self._guard.end(f"its own API refused or did not answer {FAILED_CHECKS} times in a row")
                return

    def _checked(self) -> dict[str, bool]:
        """One check. A refusal of memory since the last correct answer counts as the cause of a failure: what it broke may still be broken."""
        cause = False
        try:
            good = self._ask()
        except Exception as error:
            good, cause = False, caused_by_memory(error)
        memory = cause or self._guard.short or self._guard.failures > self._refused
        if good:
            self._refused = self._guard.failures
        return {"good": good, "memory": memory}
