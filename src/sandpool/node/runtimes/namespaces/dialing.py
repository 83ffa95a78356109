"""Connects to ports of a sandbox with sockets that were created inside its network namespace, so that connecting needs no process there."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Awaitable, Callable

from sandpool.base.errors import NodeError

AT_ONCE = 8


class DialSockets:
    """Unconnected sockets of one sandbox, in pairs of IPv4 and IPv6. `more` makes some."""

    def __init__(self, more: Callable[[int], Awaitable[list[socket.socket]]]) -> None:
        self._more = more
        self._pairs: deque[tuple[socket.socket, socket.socket]] = deque()

    async def dial(self, port: int) -> socket.socket:
        if not self._pairs:
            made = await self._more(AT_ONCE)
            self._pairs.extend(zip(made[::2], made[1::2], strict=True))
        four, six = self._pairs.popleft()
        loop = asyncio.get_running_loop()
        try:
            for sock, address in ((four, "127.0.0.1"), (six, "::1")):
                with contextlib.suppress(OSError):
                    await loop.sock_connect(sock, (address, port))
                    (six if sock is four else four).close()
                    return sock
        except BaseException:
            four.close()
            six.close()
            raise
        four.close()
        six.close()
        raise NodeError("ConnectionRefused", f"nobody listens on port {port} of the sandbox")

    def close(self) -> None:
        for pair in self._pairs:
            for sock in pair:
                sock.close()
        self._pairs.clear()
