"""The requests about processes."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any

from sandpool.boxd.http.connection import Request
from sandpool.boxd.http.conversation import Conversation
from sandpool.boxd.http.hangup import until_gone
from sandpool.boxd.http.reply import Answer, Reply, Streamed, Switched, json_reply
from sandpool.boxd.processes.output import Lost
from sandpool.boxd.processes.process import Process
from sandpool.boxd.processes.spawn import signal_number
from sandpool.boxd.processes.spec import read, size
from sandpool.boxd.processes.table import Table
from sandpool.wire import frames, websocket
from sandpool.wire.codes import Code, Refused
from sandpool.wire.frames import CONTENT_TYPE, Kind, pack, pack_value

LONGEST_SPEC = 16 << 20


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
            case ("GET", [id]):
                return json_reply(self._table.get(id).value())
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
        if spec.stdin is not None:
            feeding = asyncio.get_running_loop().create_task(_feed_all(process, spec.stdin))
            feeding.add_done_callback(lambda done: done.cancelled() or done.exception())
        if not streams:
            return json_reply(process.value(), 201)
        return Streamed(_story(process, request.gone, ends=not spec.detach), 200, {"content-type": CONTENT_TYPE})

    def _output(self, request: Request, process: Process) -> Answer:
        position, follow = request.head.number("from", 0), request.head.flag("follow")
        source = _frames(process, position, wait=follow)
        return Streamed(until_gone(source, request.gone), 200, {"content-type": CONTENT_TYPE})

    def _attach(self, request: Request, process: Process) -> Answer:
        accepted = websocket.accept(request.head.headers)
        if isinstance(accepted, str):
            raise Refused(Code.INVALID, accepted)
        position = request.head.number("from", process.output.end if request.head.flag("new") else 0)

        async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await _converse(process, position, Conversation(reader, writer))

        return Switched(run, accepted)

    async def _tell(self, request: Request, process: Process, what: str) -> Answer:
        match what:
            case "stdin":
                async for piece in request.body.pieces():
                    await process.feed(piece)
                if request.head.flag("eof"):
                    await process.end_input()
            case "signal":
                process.signal(signal_number((await request.body.value()).get("signal")))
            case "resize":
                process.resize(size("size", await request.body.value()))
            case _:
                raise Refused(Code.NOT_FOUND, f"a process cannot be told {what!r}")
        return Reply(204)


async def _feed_all(process: Process, data: bytes) -> None:
    with suppress(Refused):  # it does not want all of it
        await process.feed(data)
    await process.end_input()


async def _frames(process: Process, position: int, *, wait: bool = True) -> AsyncGenerator[bytes, None]:
    """Its output from a position, and how it ended if it has."""
    async with aclosing(process.output.follow(position, wait=wait)) as pieces:
        async for piece in pieces:
            if isinstance(piece, Lost):
                yield pack_value(Kind.LOST, {"bytes": piece.size})
            else:
                yield pack(piece.kind, piece.data)
    if process.ended.done():
        yield pack_value(Kind.EXIT, process.ended.result().value())


async def _story(process: Process, gone: asyncio.Event, *, ends: bool) -> AsyncGenerator[bytes, None]:
    """A whole run. If the client hangs up before its end, the process ends with it, unless it was to be left alone."""
    yield pack_value(Kind.STARTED, process.value())
    try:
        async with aclosing(until_gone(_frames(process, 0), gone)) as source:
            async for piece in source:
                yield piece
    finally:
        if ends and not process.ended.done():
            process.signal(signal.SIGKILL)


async def _converse(process: Process, position: int, stream: Conversation) -> None:
    """Both ways, until the process has ended and all was said, or the client goes. The process stays."""

    async def say() -> None:
        await stream.send(frames.message(Kind.STARTED, frames.encode(process.value())))
        async with aclosing(process.output.follow(position)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Lost):
                    await stream.send(frames.message(Kind.LOST, frames.encode({"bytes": piece.size})))
                else:
                    await stream.send(frames.message(piece.kind, piece.data))
        end = await asyncio.shield(process.ended)
        await stream.send(frames.message(Kind.EXIT, frames.encode(end.value())))

    telling = asyncio.ensure_future(say())
    listening = asyncio.ensure_future(_listen(process, stream))
    try:
        await asyncio.wait((telling, listening), return_when=asyncio.FIRST_COMPLETED)
        if telling.done() and telling.exception() is None:
            await stream.close()
    finally:
        for task in (telling, listening):
            task.cancel()
            with suppress(asyncio.CancelledError, ConnectionError):
                await task


async def _listen(process: Process, stream: Conversation) -> None:
    while (data := await stream.receive()) is not None:
        try:
            await _obey(process, frames.read_message(data))
        except (Refused, ValueError) as error:
            words: dict[str, Any] = {"message": str(error)}
            await stream.send(frames.message(Kind.ERROR, frames.encode(words)))


async def _obey(process: Process, frame: frames.Frame) -> None:
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
            raise ValueError(f"a client does not send {frame.kind.name}")
