"""Serves requests about processes: over plain HTTP, or both ways over a WebSocket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any

from sandpool.boxd.http.connection import HangUp, Request
from sandpool.boxd.http.reply import Answer, Last, Reply, Streamed, Switched, json_reply
from sandpool.boxd.http.websocket import WebSocket
from sandpool.boxd.processes.output import Lost
from sandpool.boxd.processes.process import Process
from sandpool.boxd.processes.spawn import signal_number
from sandpool.boxd.processes.spec import read, size
from sandpool.boxd.processes.table import Table
from sandpool.wire import frames, websocket
from sandpool.wire.codes import Code, Refused
from sandpool.wire.frames import CONTENT_TYPE, Kind, pack, pack_value

LONGEST_SPEC = 16 << 20
LONGEST_WAIT = 60_000
"""Milliseconds; a client that wants to wait longer asks again."""


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
                return self._start_over_websocket(request)
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
                return await self._control(request, self._table.get(id), what)
        raise Refused(Code.NOT_FOUND, "there is no such request about processes")

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
        source = _run_frames(process, request.gone, ends=not spec.detach)
        return Streamed(source, 200, {"content-type": CONTENT_TYPE}, prompt=True)

    async def _look(self, request: Request, process: Process) -> Answer:
        """The state of a process. With `wait`, once it has ended or after so many milliseconds."""
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
            await attach_over_websocket(process, position, WebSocket(reader, writer), request.gone)

        return Switched(run, accepted)

    def _start_over_websocket(self, request: Request) -> Answer:
        accepted = websocket.accept(request.head.headers)
        if isinstance(accepted, str):
            raise Refused(Code.INVALID, accepted)

        async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await start_over_websocket(self._table, WebSocket(reader, writer), request.gone)

        return Switched(run, accepted)

    async def _control(self, request: Request, process: Process, what: str) -> Answer:
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
                raise Refused(Code.NOT_FOUND, f"a process has no operation {what!r}")
        return Reply(204)


async def _frames(process: Process, position: int, gone: HangUp, *, wait: bool = True) -> AsyncGenerator[bytes, None]:
    """Yields its output from a position on, then its exit if it has ended. Stops when the client hangs up, also while there is no output."""
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


async def _run_frames(process: Process, gone: HangUp, *, ends: bool) -> AsyncGenerator[bytes, None]:
    """Yields a whole run. If the client hangs up first, the process is killed if `ends`."""
    try:
        yield pack_value(Kind.STARTED, process.value())
        async with aclosing(_frames(process, 0, gone)) as source:
            async for piece in source:
                yield piece
    finally:
        if ends and not process.ended.done():
            process.end()


FIRST = 30.0
"""Seconds until the client must have sent what to start."""
LINGER = 5.0
"""Seconds to deliver input that the client sent before it hung up, if the process does not read it."""


async def start_over_websocket(table: Table, stream: WebSocket, gone: asyncio.Event) -> None:
    """Starts what the first message describes. Each piece of stdin is acknowledged once it is in the process's pipe, so that a client
    can take turns with the process. If the client hangs up first, the process is killed, unless it is detached."""
    async with asyncio.timeout(FIRST):
        data = await stream.receive()
    if data is None:
        return
    try:
        frame = frames.read_message(data)
        if frame.kind is not Kind.START:
            raise ValueError("the first message must describe the process to start")
        spec = read(frame.value)
        process = table.start(spec)
    except (Refused, ValueError) as error:
        await stream.send(_error(error))
        await stream.close()
        return
    try:
        await attach_over_websocket(process, 0, stream, gone, acknowledge=True)
    finally:
        if not spec.detach and not process.ended.done():
            process.end()


async def attach_over_websocket(
    process: Process, position: int, stream: WebSocket, gone: asyncio.Event, *, acknowledge: bool = False
) -> None:
    """Connects client and process until the process has ended and its output was sent, or the client goes; the process continues."""

    async def send_output() -> None:
        await stream.send(frames.message(Kind.STARTED, frames.encode(process.value())))
        async with aclosing(process.output.follow(position)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Lost):
                    await stream.send(frames.message(Kind.LOST, frames.encode({"bytes": piece.size})))
                else:
                    await stream.send(frames.message(piece.kind, piece.data))
        end = await asyncio.shield(process.ended)
        await stream.send(frames.message(Kind.EXIT, frames.encode(end.value())))

    sending = asyncio.ensure_future(send_output())
    listening = asyncio.ensure_future(_listen(process, stream, acknowledge=acknowledge))
    hung_up = asyncio.ensure_future(gone.wait())  # noticed even while there is neither input nor output
    try:
        await asyncio.wait((sending, listening, hung_up), return_when=asyncio.FIRST_COMPLETED)
        if hung_up.done() and not sending.done() and not acknowledge:
            await asyncio.wait((sending, listening), timeout=LINGER, return_when=asyncio.FIRST_COMPLETED)
        if sending.done() and sending.exception() is None:
            await _cancelled(listening)
            await stream.finish()
    finally:
        for task in (sending, listening, hung_up):
            await _cancelled(task)


async def _cancelled(task: asyncio.Future[Any]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError, ConnectionError):
        await task


async def _listen(process: Process, stream: WebSocket, *, acknowledge: bool) -> None:
    while (data := await stream.receive()) is not None:
        try:
            frame = frames.read_message(data)
            await _apply(process, frame)
            if acknowledge and frame.kind is Kind.STDIN:
                await stream.send(frames.message(Kind.TAKEN, frames.encode({"stdin": process.taken})))
        except (Refused, ValueError) as error:
            await stream.send(_error(error))


def _error(error: Refused | ValueError) -> bytes:
    code = error.code if isinstance(error, Refused) else Code.INVALID
    words: dict[str, Any] = {"code": code.word, "status": code.status, "message": str(error)}
    return frames.message(Kind.ERROR, frames.encode(words))


async def _apply(process: Process, frame: frames.Frame) -> None:
    match frame.kind:
        case Kind.STDIN:
            await process.feed(frame.data)
        case Kind.STDIN_END:
            await process.end_input()
        case Kind.RESIZE:
            process.resize(size("size", frame.value))
        case Kind.SIGNAL:
            process.signal(signal_number(frame.value.get("signal")))
        case _:
            raise ValueError(f"clients do not send {frame.kind.name} frames")
