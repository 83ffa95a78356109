"""The output of a process from a position on, across lost connections: nothing is lost, and nothing is delivered twice.

It counts the bytes that it received; when a connection is lost, the next one begins at that position. It gives up after some time
without progress.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from sandpool.kube.errors import Unreachable
from sandpool.sdk._async.frame_streams import FrameStream
from sandpool.sdk._async.transport import Lock, sleep
from sandpool.sdk.answers import understood
from sandpool.sdk.deadline import after, left
from sandpool.sdk.errors import SandboxRestarted, TimedOut
from sandpool.sdk.values import Exit, Output, StreamName
from sandpool.wire.frames import Frame, Kind

PATIENCE = 30.0
"""Seconds without progress after which it gives up."""
LONGEST_PAUSE = 2.0


class Patience:
    """Pauses between attempts, each twice as long as the one before; progress resets them."""

    def __init__(self, seconds: float = PATIENCE) -> None:
        self._seconds = seconds
        self._since: float | None = None
        self._pause = 0.02

    def progressed(self) -> None:
        self._since = None
        self._pause = 0.02

    async def after(self, error: Unreachable) -> None:
        """Waits for the next attempt; raises the error if there should be none."""
        now = time.monotonic()
        self._since = self._since or now
        if now - self._since > self._seconds:
            raise error
        await sleep(self._pause)
        self._pause = min(2 * self._pause, LONGEST_PAUSE)


class Follower:
    def __init__(self, name: str, opening: Callable[[int], Awaitable[FrameStream]], position: int) -> None:
        """`name` is for messages; `opening` opens a stream from a position on."""
        self.position = position
        self.exit: Exit | None = None
        self._name = name
        self._opening = opening
        self._link: FrameStream | None = None
        self._lock = Lock()  # never two connections at once: one that nobody reads would block the process
        self._lost = 0
        self._patience = Patience()

    async def next(self, timeout: float | None = None) -> Output | None:
        """The next piece; None after the end. TimedOut if none comes in time; nothing is lost then."""
        deadline = after(timeout)
        while self.exit is None:
            frame = await self._frame(left(deadline))
            if frame is None:
                continue
            self._patience.progressed()
            if frame.kind is Kind.EXIT:
                self.exit = Exit.of(frame.value)
                await self.close()
            elif frame.kind is Kind.LOST:
                with understood():
                    gone = max(0, int(frame.value.get("bytes", 0)))
                self.position += gone
                self._lost += gone
            elif frame.kind in (Kind.STDOUT, Kind.STDERR):
                return self._output(frame)
        return None

    def _output(self, frame: Frame) -> Output:
        stream: StreamName = "stdout" if frame.kind is Kind.STDOUT else "stderr"
        output = Output(stream, frame.data, self.position, self._lost)
        self.position += len(frame.data)
        self._lost = 0
        return output

    async def _frame(self, timeout: float | None) -> Frame | None:
        """The next frame; None if the connection was lost, and another one is to be tried."""
        try:
            link = await self.link()
        except SandboxRestarted:  # there is nothing to reconnect to
            raise
        except Unreachable as error:
            await self._patience.after(error)
            return None
        try:
            frame = await link.next(timeout)
        except TimedOut:
            raise
        except Unreachable as error:
            await self.drop(link)
            await self._patience.after(error)
            return None
        if frame is None:
            await self.drop(link)
            await self._patience.after(Unreachable(f"{self._name}: its output ended without an exit code"))
        return frame

    async def link(self) -> FrameStream:
        """The connection, opened if there is none. Reader and writer share it."""
        async with self._lock:
            if self._link is None:
                self._link = await self._opening(self.position)
            return self._link

    async def drop(self, link: FrameStream | None) -> None:
        """Closes a connection that is lost, unless another one has replaced it."""
        if link is not None and link is self._link:
            await self.close()

    async def close(self) -> None:
        """Closes the connection. `next` opens another one."""
        link, self._link = self._link, None
        if link is not None:
            await link.close()
