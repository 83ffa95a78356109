"""A client's end of a connection to the local server, without the socket."""

from __future__ import annotations

import asyncio

from sandpool.controlplane.apiserver.connection import Connection


class Unread(asyncio.Transport):
    """The end of a client that is only there to take up room."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.gone = self.paused = False
        self.connection: Connection | None = None  # to be told when too much is unread

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data
        if self.connection is not None and len(self.written) > 64 * 1024 and not self.paused:
            self.paused = True
            self.connection.pause_writing()

    def get_write_buffer_size(self) -> int:
        return len(self.written)

    def close(self) -> None:
        self.gone = True

    def abort(self) -> None:
        self.gone = True

    def is_closing(self) -> bool:
        return self.gone

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...
