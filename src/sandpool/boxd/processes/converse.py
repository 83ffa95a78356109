"""A process and its client, both ways over a WebSocket."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from typing import Any

from sandpool.boxd.http.conversation import Conversation
from sandpool.boxd.processes.output import Lost
from sandpool.boxd.processes.process import Process
from sandpool.boxd.processes.spawn import signal_number
from sandpool.boxd.processes.spec import read, size
from sandpool.boxd.processes.table import Table
from sandpool.wire import frames
from sandpool.wire.codes import Code, Refused
from sandpool.wire.frames import Kind

FIRST = 30.0
"""Seconds until a client has to say what to start."""
LINGER = 5.0
"""Seconds for what a client said before it hung up, where the process does not take it."""


async def start_and_converse(table: Table, stream: Conversation, gone: asyncio.Event) -> None:
    """The first message says what to start. Each piece of stdin is acknowledged once it is in the process's pipe, so that a client
    can send and hear by turns. If the client hangs up before the end, the process ends with it, unless it was to be left alone."""
    async with asyncio.timeout(FIRST):
        data = await stream.receive()
    if data is None:
        return
    try:
        frame = frames.read_message(data)
        if frame.kind is not Kind.START:
            raise ValueError("the first message must say what to start")
        spec = read(frame.value)
        process = table.start(spec)
    except (Refused, ValueError) as error:
        await stream.send(_error(error))
        await stream.close()
        return
    try:
        await converse(process, 0, stream, gone, acknowledge=True)
    finally:
        if not spec.detach and not process.ended.done():
            process.end()


async def converse(
    process: Process, position: int, stream: Conversation, gone: asyncio.Event, *, acknowledge: bool = False
) -> None:
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
    listening = asyncio.ensure_future(_listen(process, stream, acknowledge=acknowledge))
    hung_up = asyncio.ensure_future(gone.wait())  # heard even while neither the process nor its input moves
    try:
        await asyncio.wait((telling, listening, hung_up), return_when=asyncio.FIRST_COMPLETED)
        if hung_up.done() and not telling.done() and not acknowledge:
            await asyncio.wait((telling, listening), timeout=LINGER, return_when=asyncio.FIRST_COMPLETED)
        if telling.done() and telling.exception() is None:
            await stream.close()
    finally:
        for task in (telling, listening, hung_up):
            task.cancel()
            with suppress(asyncio.CancelledError, ConnectionError):
                await task


async def _listen(process: Process, stream: Conversation, *, acknowledge: bool) -> None:
    while (data := await stream.receive()) is not None:
        try:
            frame = frames.read_message(data)
            await _obey(process, frame)
            if acknowledge and frame.kind is Kind.STDIN:
                await stream.send(frames.message(Kind.TAKEN, frames.encode({"stdin": process.taken})))
        except (Refused, ValueError) as error:
            await stream.send(_error(error))


def _error(error: Refused | ValueError) -> bytes:
    code = error.code if isinstance(error, Refused) else Code.INVALID
    words: dict[str, Any] = {"code": code.word, "status": code.status, "message": str(error)}
    return frames.message(Kind.ERROR, frames.encode(words))


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
