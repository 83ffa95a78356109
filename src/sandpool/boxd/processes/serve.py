"""The requests about processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from sandpool.boxd.http.connection import Request
from sandpool.boxd.http.conversation import Conversation
from sandpool.boxd.http.hangup import Gone
from sandpool.boxd.http.reply import Answer, Last, Reply, Streamed, Switched, json_reply
from sandpool.boxd.processes.converse import converse, start_and_converse
from sandpool.boxd.processes.output import Lost
from sandpool.boxd.processes.process import Process
from sandpool.boxd.processes.spawn import signal_number
from sandpool.boxd.processes.spec import read, size
from sandpool.boxd.processes.table import Table
from sandpool.wire import websocket
from sandpool.wire.codes import Code, Refused
from sandpool.wire.frames import CONTENT_TYPE, Kind, pack, pack_value

LONGEST_SPEC = 16 << 20
LONGEST_WAIT = 60_000
"""Milliseconds; whoever waits longer asks again."""


class ProcessRequests:
    def __init__(self, table: Table) -> None:
        self._table = table

    async def serve(self, request: Request, rest: list[str]) -> Answer:
        """`rest` is the path below /processes."""
        match (request.head.method, rest):
            case ("GET", []):
                return json_reply({"processes": [process.value() for process in self._table.all()]})
            case ("POST", []):
                return await self._start(request)
            case ("GET", ["start"]):
                return self._start_talking(request)
            case ("GET", [id]):
                return await self._look(request, self._table.get(id))
            case ("DELETE", [id]):
                self._table.remove(id)
                return Reply(204)
            case ("GET", [id, "output"]):
                return self._output(request, self._table.get(id))
            case ("GET", [id, "attach"]):
                return self._attach(request, self._table.get(id))
            case ("POST", [id, what]):
                return await self._tell(request, self._table.get(id), what)
        raise Refused(Code.NOT_FOUND, "no such request about processes")

    async def _start(self, request: Request) -> Answer:
        spec = read(await request.body.value(LONGEST_SPEC))
        streams = request.head.headers.get("accept", "") == CONTENT_TYPE
        if not streams and not spec.detach:
            raise Refused(
                Code.INVALID, f"ask for its output with Accept: {CONTENT_TYPE}, or let it run with detach: true"
            )
        process = self._table.start(spec)
        if not streams:
            return json_reply(process.value(), 201)
        source = _story(process, request.gone, ends=not spec.detach)
        return Streamed(source, 200, {"content-type": CONTENT_TYPE}, prompt=True)

    async def _look(self, request: Request, process: Process) -> Answer:
        """With `wait`, as soon as it has ended or so many milliseconds have passed."""
        wait = min(request.head.number("wait", 0), LONGEST_WAIT) / 1000
        if wait and not process.ended.done():
            await asyncio.wait((process.ended,), timeout=wait)
        return json_reply(process.value())

    def _output(self, request: Request, process: Process) -> Answer:
        position, follow = request.head.number("from", 0), request.head.flag("follow")
        source = _frames(process, position, request.gone, wait=follow)
        return Streamed(source, 200, {"content-type": CONTENT_TYPE})

    def _attach(self, request: Request, process: Process) -> Answer:
        accepted = websocket.accept(request.head.headers)
        if isinstance(accepted, str):
            raise Refused(Code.INVALID, accepted)
        position = request.head.number("from", process.output.end if request.head.flag("new") else 0)

        async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await converse(process, position, Conversation(reader, writer), request.gone)

        return Switched(run, accepted)

    def _start_talking(self, request: Request) -> Answer:
        accepted = websocket.accept(request.head.headers)
        if isinstance(accepted, str):
            raise Refused(Code.INVALID, accepted)

        async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await start_and_converse(self._table, Conversation(reader, writer), request.gone)

        return Switched(run, accepted)

    async def _tell(self, request: Request, process: Process, what: str) -> Answer:
        match what:
            case "stdin":
                writer, at = request.head.query.get("writer", ""), request.head.number("at", 0)
                async for piece in request.body.pieces():
                    await process.feed(piece, writer, at)
                    at += len(piece)
                if request.head.flag("eof"):
                    await process.end_input()
            case "signal":
                process.signal(signal_number((await request.body.value()).get("signal")))
            case "resize":
                process.resize(size("size", await request.body.value()))
            case _:
                raise Refused(Code.NOT_FOUND, f"a process cannot be told {what!r}")
        return Reply(204)


async def _frames(process: Process, position: int, gone: Gone, *, wait: bool = True) -> AsyncGenerator[bytes, None]:
    """Its output from a position, and how it ended if it has. Cut off when the client hangs up, also while nothing is said."""
    output = process.output
    gone.call(output.wake)
    try:
        async with aclosing(output.follow(position, wait=wait, gone=gone)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Lost):
                    yield pack_value(Kind.LOST, {"bytes": piece.size})
                else:
                    yield pack(piece.kind, piece.data)
    finally:
        gone.forget(output.wake)
    if process.ended.done():
        yield Last(pack_value(Kind.EXIT, process.ended.result().value()))


async def _story(process: Process, gone: Gone, *, ends: bool) -> AsyncGenerator[bytes, None]:
    """A whole run. If the client hangs up before its end, the process ends with it, unless it was to be left alone."""
    try:
        yield pack_value(Kind.STARTED, process.value())
        async with aclosing(_frames(process, 0, gone)) as source:
            async for piece in source:
                yield piece
    finally:
        if ends and not process.ended.done():
            process.end()
