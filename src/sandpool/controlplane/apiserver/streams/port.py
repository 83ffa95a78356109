"""What runs pods, as far as streams need it: the shapes of `node/backend.py`, which the control plane may not import.

`C` is the backend's own type of a command; whoever puts the parts together hands in how to make one:
`PodStreams(backend, Command, clock.now)`.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Protocol, TypeVar

from sandpool.model.metadata import Uid

C = TypeVar("C")
Made = TypeVar("Made", covariant=True)
Taken = TypeVar("Taken", contravariant=True)


class Exit(Protocol):
    @property
    def code(self) -> int: ...


class Streams(Protocol):
    """The client's end of a command."""

    async def read(self) -> bytes: ...

    async def write(self, stream: int, data: bytes) -> None: ...

    async def resized(self) -> tuple[int, int]: ...


class MakeCommand(Protocol[Made]):
    def __call__(self, argv: tuple[str, ...], *, tty: bool) -> Made: ...


class Node(Protocol[Taken]):
    """All of it raises NodeError and nothing else; a backend says what each method does."""

    async def exec(self, uid: Uid, container: str, command: Taken, streams: Streams) -> Exit: ...

    async def attach(self, uid: Uid, container: str, streams: Streams) -> Exit: ...

    async def dial(self, uid: Uid, port: int) -> socket.socket: ...

    def logs(
        self,
        uid: Uid,
        container: str,
        *,
        previous: bool,
        follow: bool,
        tail: int | None,
        since: datetime | None,
        timestamps: bool,
        limit: int | None,
    ) -> AsyncIterator[bytes]: ...
