"""A remote command over SPDY: the client opens one stream for each of stdin, stdout, stderr, its terminal's size and errors."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from sandpool.base.errors import NodeError
from sandpool.controlplane.apiserver.streams.limits import StreamLimits
from sandpool.controlplane.apiserver.streams.options import CommandOptions
from sandpool.controlplane.apiserver.streams.pipe import Gone, Wire
from sandpool.controlplane.apiserver.streams.remote import ERROR, RESIZE, STDERR, STDIN, STDOUT
from sandpool.controlplane.apiserver.streams.spdy.connection import Connection, Stream
from sandpool.controlplane.apiserver.streams.status import encoded

_TYPES: Final = {"stdin": STDIN, "stdout": STDOUT, "stderr": STDERR, "error": ERROR, "resize": RESIZE}


def expected(options: CommandOptions, version: int) -> frozenset[int]:
    """Which streams a client of this version opens."""
    asked = {STDIN: options.stdin, STDOUT: options.stdout, STDERR: options.stderr, ERROR: True}
    asked[RESIZE] = options.tty and version >= 3
    return frozenset(stream for stream, needed in asked.items() if needed)


class SpdyLine:
    def __init__(self, wire: Wire, version: int, options: CommandOptions, limits: StreamLimits) -> None:
        self._version = version
        self._limits = limits
        self._expected = expected(options, version)
        self._streams: dict[int, Stream] = {}
        self._complete = asyncio.Event()
        self._connection = Connection(wire, limits, self._opened)

    def _opened(self, stream: Stream) -> None:
        kind = _TYPES.get(stream.headers.get("streamtype", ""))
        self._connection.accept(stream)
        if kind is None or kind in self._streams:
            stream.inbox.discard()
            return
        self._streams[kind] = stream
        if self._expected <= self._streams.keys():
            self._complete.set()

    async def pump(self) -> None:
        await self._connection.pump()

    async def ready(self) -> None:
        try:
            async with asyncio.timeout(self._limits.opening):
                await self._complete.wait()
        except TimeoutError:
            raise NodeError("Timeout", "timed out waiting for client to create streams") from None

    async def stdin(self) -> bytes:
        return await self._streams[STDIN].read()

    async def resize(self) -> bytes:
        return await self._streams[RESIZE].read() if RESIZE in self._streams else b""

    async def write(self, stream: int, data: bytes) -> None:
        await self._streams[stream].write(data)

    async def finish(self, outcome: Mapping[str, Any]) -> None:
        if STDIN in self._streams:
            self._streams[STDIN].inbox.discard()
        if ERROR in self._streams:
            try:
                await self._streams[ERROR].write(encoded(outcome, self._version))
            except Gone:
                pass
        for stream in self._streams.values():
            await stream.finish()
        await self._connection.close()

    async def sign_of_life(self) -> None:
        await self._connection.sign_of_life()
