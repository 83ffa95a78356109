"""A command whose output is streamed, and which ends when its reader leaves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from sandpool.kube.errors import Unreachable
from sandpool.sdk._async.frame_streams import FrameStream
from sandpool.sdk.answers import printable, understood
from sandpool.sdk.command import shown
from sandpool.sdk.deadline import after, left
from sandpool.sdk.errors import CommandError, CommandLost, SandboxError
from sandpool.sdk.interruptions import UNKNOWN_RUN, LostRun
from sandpool.sdk.outcome import refused
from sandpool.sdk.values import Exit, Output
from sandpool.wire.frames import Kind

GRACE = 15.0
"""Seconds beyond a command's time limit within which its end must be reported."""


class AsyncStream:
    """The output of a command, piece by piece: `async for output in box.stream(...)`.

    After the iteration, `exit` says how the command ended. Leaving it early, or the `async with` around it, kills the command with
    everything it has started. With a `timeout`, the command is killed when the time is up, and `exit.timed_out` is set.
    """

    def __init__(
        self,
        command: str | tuple[str, ...],
        sandbox: str,
        opening: Callable[[], Awaitable[FrameStream]],
        explain: Callable[[SandboxError, LostRun], Awaitable[SandboxError]],
        timeout: float | None = None,
    ) -> None:
        self.command = command
        self.exit: Exit | None = None
        self.process_id = ""
        self._sandbox = sandbox
        self._opening = opening
        self._explained = explain
        self._ran = UNKNOWN_RUN
        self._deadline = after(None if timeout is None else timeout + GRACE)
        self._link: FrameStream | None = None
        self._closed = False
        self._position = 0

    async def __aenter__(self) -> Self:
        await self._opened()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Output:
        output = await self.read()
        if output is None:
            raise StopAsyncIteration
        return output

    async def read(self) -> Output | None:
        """The next piece; None when the command has ended and everything was read."""
        while self.exit is None:
            if self._closed:
                return None
            try:
                link = await self._opened()
                frame = await link.next(
                    left(self._deadline, f"{self._sandbox}: no exit code of {shown(self.command)!r}")
                )
            except CommandError:  # it was never started, and this says why
                await self.close()
                raise
            except Unreachable as error:
                await self.close()
                raise await self._lost(str(error)) from error
            except BaseException:  # a half-read frame cannot be resumed
                await self.close()
                raise
            if frame is None:
                await self.close()
                raise await self._lost("the connection ended early")
            if frame.kind in (Kind.STDOUT, Kind.STDERR):
                output = Output("stdout" if frame.kind is Kind.STDOUT else "stderr", frame.data, self._position)
                self._position += len(frame.data)
                return output
            if frame.kind is Kind.STARTED:
                self.process_id = str(frame.value.get("id", ""))
                with understood():
                    self._ran = LostRun(self.process_id, float(frame.value.get("started", UNKNOWN_RUN.started)))
            elif frame.kind is Kind.ERROR:
                await self.close()
                said = printable(str(frame.value.get("message", "refused")))
                raise refused(str(frame.value.get("code", "")), f"{self._sandbox}: {shown(self.command)!r}: {said}")
            elif frame.kind is Kind.EXIT:
                self.exit = Exit.of(frame.value)
                await self._finish(link)
        return None

    async def _finish(self, link: FrameStream) -> None:
        """Reads the answer to its end, so that the connection can be reused."""
        try:
            await link.next(GRACE)
        except Unreachable:
            pass  # how the command ended is known
        await self.close()

    async def close(self) -> None:
        """Kills the command, if it has not ended. Safe to call again."""
        self._closed = True
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    async def _opened(self) -> FrameStream:
        if self._link is None:
            self._link = await self._opening()
        return self._link

    async def _lost(self, why: str) -> SandboxError:
        error = CommandLost(
            f"{self._sandbox}: the connection was lost while {shown(self.command)!r} ran, which ended it ({why}); "
            "start it with `start` to let it survive that"
        )
        return await self._explained(error, self._ran)
