"""How much a registry may send for what is made of it.

HTTP lets a server send as much as it likes that is no content: heads that only announce another one, chunks of one byte, words behind
the size of a chunk. All of that is parsed in the process that serves everybody. So each answer allows for some of it, content that was taken
for a little more, and whoever sends beyond that is cut off.
"""

from __future__ import annotations

import asyncio

AT_ONCE = 3 << 19  # bytes that may be there before anybody looks at them: three quarters of a megabyte were seen
BESIDE = 8  # with so many bytes of content comes one that is none


class Meter:
    """Of one pull, over all its connections."""

    def __init__(self) -> None:
        self._left = 0

    def expects(self) -> None:
        """The head of an answer, or a body of which nothing was taken yet."""
        self._left += AT_ONCE

    def taken(self, content: int) -> None:
        self._left += content + content // BESIDE

    def received(self, size: int) -> bool:
        """Whether that was still allowed."""
        self._left -= size
        return self._left >= 0


class MeteredLine(asyncio.Protocol):
    """Stands between a connection and who reads it. Nothing of what is too much is parsed."""

    def __init__(self, meter: Meter, transport: asyncio.Transport, reader: asyncio.Protocol) -> None:
        self._meter = meter
        self._transport = transport
        self._reader = reader

    def data_received(self, data: bytes) -> None:
        if self._meter.received(len(data)):
            self._reader.data_received(data)
        else:
            self._transport.abort()

    def eof_received(self) -> bool | None:
        return self._reader.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._reader.connection_lost(exc)

    def pause_writing(self) -> None:
        self._reader.pause_writing()

    def resume_writing(self) -> None:
        self._reader.resume_writing()


def measure(meter: Meter, transport: asyncio.Transport) -> None:
    """From now on all that comes over the connection passes the meter; one that does already is left alone."""
    reader = transport.get_protocol()
    if not isinstance(reader, MeteredLine):
        assert isinstance(reader, asyncio.Protocol)
        transport.set_protocol(MeteredLine(meter, transport, reader))
