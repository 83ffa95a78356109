"""Changes below a folder of a sandbox."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from sandpool.kube.errors import Unreachable
from sandpool.sdk._async.data_plane import DataPlane
from sandpool.sdk._async.links import HEAD, AnswerLink
from sandpool.sdk.deadline import after, left
from sandpool.sdk.errors import RouterError
from sandpool.sdk.file_errors import file_error
from sandpool.sdk.values import Change
from sandpool.wire.frames import Kind


class AsyncWatch:
    """Changes as they happen. After `async with` has begun, nothing that happens is missed.

    If the connection is lost, Unreachable is raised: look at the folder and watch again, for what happened meanwhile is not known.
    """

    def __init__(self, plane: DataPlane, url: str, path: str) -> None:
        self._plane = plane
        self._url = url
        self._path = path
        self._link: AnswerLink | None = None
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
        """The next change; None once it was closed. TimedOut if none happens in time."""
        deadline = after(timeout)
        while not self._closed:
            link = await self._opened()
            frame = await link.next(left(deadline))
            if frame is None:
                await self.close()
                raise Unreachable(
                    f"{self._plane}: the watch of {self._path!r} ended; look at the folder and watch again"
                )
            if frame.kind is Kind.EVENT:
                return Change.of(frame.value)
        return None

    async def close(self) -> None:
        self._closed = True
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    async def _opened(self) -> AnswerLink:
        if self._link is None:
            try:
                self._link = await AnswerLink.open(self._plane, "GET", self._url)
            except RouterError as error:
                raise file_error(error, self._path) from None
            await self._link.next(HEAD)  # it says that it watches
        return self._link
