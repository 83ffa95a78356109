"""Watches a directory of a sandbox for changes."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from sandpool.kube.errors import Unreachable
from sandpool.sdk._async.data_plane import DataPlane
from sandpool.sdk._async.frame_streams import HEAD, ResponseFrames
from sandpool.sdk.deadline import after, left
from sandpool.sdk.errors import RouterError
from sandpool.sdk.remote_files import file_error
from sandpool.sdk.values import Change
from sandpool.wire.frames import Kind


class AsyncWatch:
    """Changes of files as they happen. From the beginning of `async with` on, no change is missed.

    If the connection is lost, Unreachable is raised: list the directory and watch again, because changes may have been missed.
    """

    def __init__(self, plane: DataPlane, url: str, path: str) -> None:
        self._plane = plane
        self._url = url
        self._path = path
        self._link: ResponseFrames | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        await self._opened()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change:
        change = await self.read()
        if change is None:
            raise StopAsyncIteration
        return change

    async def read(self, timeout: float | None = None) -> Change | None:
        """The next change; None after `close`. Raises TimedOut if none happens in time."""
        deadline = after(timeout)
        while not self._closed:
            link = await self._opened()
            frame = await link.next(left(deadline))
            if frame is None:
                await self.close()
                raise Unreachable(
                    f"{self._plane}: the watch of {self._path!r} ended; list the directory and watch again"
                )
            if frame.kind is Kind.EVENT:
                return Change.of(frame.value)
        return None

    async def close(self) -> None:
        self._closed = True
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    async def _opened(self) -> ResponseFrames:
        if self._link is None:
            try:
                self._link = await ResponseFrames.open(self._plane, "GET", self._url)
            except RouterError as error:
                raise file_error(error, self._path) from None
            await self._link.next(HEAD)  # the daemon confirms that it watches
        return self._link
