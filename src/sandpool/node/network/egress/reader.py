"""Reads heads from a socket: no more than a head may be, and what comes behind it is kept."""

from __future__ import annotations

import asyncio
import socket
from http import HTTPStatus

from sandpool.node.network.egress.head import END, MAX_HEAD
from sandpool.node.network.egress.refusal import Refusal
from sandpool.node.network.flow import PIECE

_AT_ONCE = 8 * 1024  # what is read before the head is known to be complete


class Reader:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._kept = b""

    async def head(self) -> bytes:
        """Up to the empty line, which is taken off. Empty if the other side sent nothing and ended.
        Refusal if it is too long, EOFError if it ends in the middle."""
        loop = asyncio.get_running_loop()
        data = bytearray(self._kept)
        searched = 0
        while (at := data.find(END, searched)) < 0:
            if len(data) > MAX_HEAD:
                break
            searched = max(0, len(data) - len(END) + 1)
            more = await loop.sock_recv(self._connection, _AT_ONCE)
            if not more:
                if data:
                    raise EOFError
                return b""
            data += more
        if at < 0 or at > MAX_HEAD:
            raise Refusal(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                "Malformed",
                f"the head is longer than {MAX_HEAD // 1024} KiB; send fewer or shorter headers",
            )
        self._kept = bytes(data[at + len(END) :])
        return bytes(data[:at])

    def kept(self) -> bytes:
        """What came behind the head and was not taken yet."""
        kept, self._kept = self._kept, b""
        return kept

    def put_back(self, data: bytes) -> None:
        """What was taken and is to be taken again."""
        self._kept = data + self._kept

    async def some(self) -> bytes:
        """What is there, at least one byte; empty at the end."""
        return self.kept() or await asyncio.get_running_loop().sock_recv(self._connection, PIECE)
