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

    async def read(self, limit: int, deadline: Deadline = None) -> bytes: ...

    async def write(self, data: bytes | memoryview, deadline: Deadline = None, *, heed: bool = False) -> int: ...

    async def sendfile(self, file: BinaryIO, offset: int, count: int, deadline: Deadline = None) -> int: ...

    def close(self) -> None: ...
