"""How much a registry may send for what is made of it.

HTTP lets a server send as much as it likes that is no content: heads that only announce another one, chunks of one byte, words behind
the size of a chunk. All of that is parsed in the process that serves everybody. So each answer allows for some of it, content that was taken
for a little more, and whoever sends beyond that is cut off.
"""

from __future__ import annotations

import asyncio

from aiohttp.client_proto import ResponseHandler

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


class MeteredLine(ResponseHandler):
    """One connection. Nothing of what is too much is parsed."""

    def __init__(self, meter: Meter, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._meter = meter

    def data_received(self, data: bytes) -> None:
        if self._meter.received(len(data)):
            super().data_received(data)
        elif self.transport is not None:
            self.transport.abort()
