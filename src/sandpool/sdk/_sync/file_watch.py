# generated from sdk/_async/file_watch.py by tools/unasync.py; edit that one
# ruff: noqa: C416, SIM110, SIM117, UP028, RUF100
"""Watches a directory of a sandbox for changes."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from sandpool.kube.errors import Unreachable
from sandpool.sdk._sync.data_plane import DataPlane
from sandpool.sdk._sync.frame_streams import HEAD, ResponseFrames
from sandpool.sdk.deadline import after, left
from sandpool.sdk.errors import RouterError
from sandpool.sdk.remote_files import file_error
from sandpool.sdk.values import Change
from sandpool.wire.frames import Kind


class Watch:
    """Changes of files as they happen. From the beginning of `with` on, no change is missed.

    If the connection is lost, Unreachable is raised: list the directory and watch again, because changes may have been missed.
    """

    def __init__(self, plane: DataPlane, url: str, path: str) -> None:
        self._plane = plane
        self._url = url
        self._path = path
        self._link: ResponseFrames | None = None
        self._closed = False

    def __enter__(self) -> Self:
        self._opened()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Change:
        change = self.read()
        if change is None:
            raise StopIteration
        return change

    def read(self, timeout: float | None = None) -> Change | None:
        """The next change; None after `close`. Raises TimedOut if none happens in time."""
        deadline = after(timeout)
        while not self._closed:
            link = self._opened()
            frame = link.next(left(deadline))
            if frame is None:
                self.close()
                raise Unreachable(
                    f"{self._plane}: the watch of {self._path!r} ended; list the directory and watch again"
                )
            if frame.kind is Kind.EVENT:
                return Change.of(frame.value)
        return None

    def close(self) -> None:
        self._closed = True
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def _opened(self) -> ResponseFrames:
        if self._link is None:
            try:
                self._link = ResponseFrames.open(self._plane, "GET", self._url)
            except RouterError as error:
                raise file_error(error, self._path) from None
            self._link.next(HEAD)  # the daemon confirms that it watches
        return self._link
