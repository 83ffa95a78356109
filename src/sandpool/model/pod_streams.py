"""The streaming part of the runtime contract: exec, attach, port-forward and logs of a pod.

The node implements it (`node/backend.py`) and the API server serves it (`controlplane/apiserver/streams`). Neither may import the
other, so the types that both use are here. Every method raises NodeError and nothing else.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from sandpool.model.metadata import Uid


@dataclass(frozen=True, slots=True)
class Command:
    """A command to run in a container."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict, repr=False)  # added to the container's
    cwd: str = ""  # empty: the container's
    tty: bool = False


@dataclass(frozen=True, slots=True)
class Exit:
    """How a container, or a command in it, ended."""

    code: int
    at: datetime
    started_at: datetime | None = None
    signal: int = 0
    reason: str = ""  # OOMKilled and the like; empty: the reason follows from the code
    message: str = ""


class Streams(Protocol):
    """The client's end of a command's streams. They apply back pressure: the runtime waits for each read and write."""

    async def read(self) -> bytes:
        """The next bytes of stdin; empty at its end."""
        ...

    async def write(self, stream: int, data: bytes) -> None:
        """Writes output to stream 1 (stdout) or 2 (stderr)."""
        ...

    async def resized(self) -> tuple[int, int]:
        """Waits for the terminal's next size: columns, rows. Never returns if there is no terminal."""
        ...


class StreamingRuntime(Protocol):
    async def exec(self, uid: Uid, container: str, command: Command, streams: Streams) -> Exit:
        """Runs a command in a started container until it exits. If cancelled, ends the command and all its children first.
        UnknownPod if the container is not there, BackendError if the command cannot be started."""
        ...

    async def attach(self, uid: Uid, container: str, streams: Streams) -> Exit:
        """Connects to the streams of a started container's main process until it exits. If cancelled, only detaches. Errors
        as in `exec`."""
        ...

    async def dial(self, uid: Uid, port: int) -> socket.socket:
        """Connects to a TCP port inside the pod (port-forward). The socket is non-blocking and the caller's. BackendError
        "ConnectionRefused" if nothing listens there, UnknownPod if the pod is not here."""
        ...

    def logs(
        self,
        uid: Uid,
        container: str,
        *,
        previous: bool = False,
        follow: bool = False,
        tail: int | None = None,
        since: datetime | None = None,
        timestamps: bool = False,
        limit: int | None = None,
    ) -> AsyncIterator[bytes]:
        """The output of a container, optionally with a timestamp before each line. Available also after the container has exited, until
        `pod_status` is None. `tail` is in lines, `limit` in bytes. The first iteration raises UnknownPod, or BackendError "BadRequest" if
        the requested run has not begun."""
        ...
