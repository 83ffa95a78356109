# generated from sdk/_async/line.py by tools/unasync.py; edit that one
# ruff: noqa: C416, SIM110, SIM117, UP028, RUF100
"""What HTTP needs of a connection: a Transport has it, and so has a tunnel."""

from __future__ import annotations

from typing import BinaryIO, Protocol

from sandpool.sdk.deadline import Deadline


class Line(Protocol):
    @property
    def arrived(self) -> bool:
        """Whether something came while nobody read."""
        ...

    def stale(self) -> bool:
        """Whether it can not be used again after a pause."""
        ...

    def read(self, limit: int, deadline: Deadline = None) -> bytes: ...

    def write(self, data: bytes | memoryview, deadline: Deadline = None, *, heed: bool = False) -> int: ...

    def sendfile(self, file: BinaryIO, offset: int, count: int, deadline: Deadline = None) -> int: ...

    def close(self) -> None: ...
