"""Port-forward over SPDY, by itself or tunnelled through a WebSocket.

For each connection the client opens two streams with the same request id: one for data, one on which it is told what went
wrong. Each pair has a task of its own; they all end with the client.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from sandpool.base.errors import NodeError
from sandpool.controlplane.apiserver.streams.limits import StreamLimits
from sandpool.controlplane.apiserver.streams.pipe import Gone, Pipe, Wire
from sandpool.controlplane.apiserver.streams.relay import relay
from sandpool.controlplane.apiserver.streams.remote import watch_over
from sandpool.controlplane.apiserver.streams.spdy.connection import Connection, Stream

Dial = Callable[[int], Awaitable[socket.socket]]
"""Connects to a port of the pod. NodeError, with words for the client."""


@dataclass(slots=True)
class Pair:
    port: int
    data: Stream | None = None
    error: Stream | None = None
    complete: asyncio.Event = field(default_factory=asyncio.Event)


class Forward:
    def __init__(self, wire: Wire, dial: Dial, limits: StreamLimits) -> None:
        self._dial = dial
        self._limits = limits
        self._pairs: dict[str, Pair] = {}
        self._connection = Connection(wire, limits, self._opened)
        self._connection.blocked = self._patience
        self._tasks: asyncio.TaskGroup | None = None

    async def serve(self, pipe: Pipe) -> None:
        """Until the client leaves."""
        try:
            async with asyncio.TaskGroup() as tasks:
                pump = tasks.create_task(self._connection.pump())
                watch = tasks.create_task(watch_over(self._connection.sign_of_life, pipe, self._limits))
                pairs = tasks.create_task(self._serve_pairs())
                await asyncio.wait({pump, watch, pairs}, return_when=asyncio.FIRST_COMPLETED)
                for task in (pump, watch, pairs):
                    task.cancel()
        finally:
            pipe.hang_up()

    async def _serve_pairs(self) -> None:
        async with asyncio.TaskGroup() as self._tasks:
            await asyncio.get_running_loop().create_future()

    def _patience(self, stream: Stream) -> float | None:
        """One that nobody reads may hold up the connection for as long as it is the only one."""
        return self._limits.stuck if len(self._pairs) > 1 else None

    def _opened(self, stream: Stream) -> None:
        kind, port = stream.headers.get("streamtype", ""), stream.headers.get("port", "")
        # Clients that name no request open the stream for errors first and the one for data right after it.
        request = stream.headers.get("requestid") or str(stream.number - (2 if kind == "data" else 0))
        usable = port.isascii() and port.isdigit() and len(port) < 6 and 0 < int(port) < 65536
        pair = self._pairs.get(request)
        fits = pair is None or (pair.port == int(port or 0) and getattr(pair, kind, stream) is None)
        if kind not in ("data", "error") or not usable or not fits or self._tasks is None:
            self._connection.refuse(stream)
            return
        if pair is None:
            pair = self._pairs[request] = Pair(int(port))
            self._tasks.create_task(self._serve(request, pair))
        setattr(pair, kind, stream)
        if kind == "error":
            stream.inbox.discard()  # only we write on it
        self._connection.accept(stream)
        if pair.data is not None and pair.error is not None:
            pair.complete.set()

    async def _serve(self, request: str, pair: Pair) -> None:
        try:
            async with asyncio.timeout(self._limits.opening):
                await pair.complete.wait()
            assert pair.data is not None
            assert pair.error is not None
            await self._forward(pair.data, pair.error, pair.port)
        except (TimeoutError, Gone):
            pass
        finally:
            del self._pairs[request]
        for stream in (pair.data, pair.error):
            if stream is not None:
                try:
                    await stream.reset()
                except Gone:
                    return

    async def _forward(self, data: Stream, error: Stream, port: int) -> None:
        try:
            sock = await self._dial(port)
        except NodeError as failure:
            await error.write(failure.message.encode())
        else:
            with sock:
                await _until_dropped(relay(sock, data), data.dropped)
        await data.finish()
        await error.finish()


async def _until_dropped(work: Awaitable[None], dropped: asyncio.Event) -> None:
    """Does the work, unless the client wants nothing more of it."""
    async with asyncio.TaskGroup() as tasks:
        doing = tasks.create_task(_awaited(work))
        leaving = tasks.create_task(dropped.wait())
        await asyncio.wait({doing, leaving}, return_when=asyncio.FIRST_COMPLETED)
        doing.cancel()
        leaving.cancel()


async def _awaited(work: Awaitable[None]) -> None:
    await work
