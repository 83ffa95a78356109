"""Serves boxd in a process that was forked for it, and never returns.

It may be forked long before it is needed. A page of memory is copied when the process first writes to it, and Python writes to every object
that it touches (reference counts); so until its first connection arrives, the process does nothing at all.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread  # noqa: F401  # asyncio loads it when it is first needed: too late, see serve_forked
import os
import socket
import sys
import traceback
from collections.abc import Mapping

from sandpool.boxd.app import App, Settings
from sandpool.boxd.server import Server
from sandpool.wire.frames import CONTENT_TYPE, encode
from sandpool.wire.paths import BASE

ROUNDS = 10
"""The interpreter specialises bytecode after a few runs, which writes to it; done before the fork, these pages stay shared."""


def serve_forked(channel: socket.socket, environment: Mapping[str, str], cwd: str, memory: int | None = None) -> None:
    """Serves the connections received over the channel, and exits when the channel closes. Everybody who reaches the channel is
    trusted: its other end is outside of the sandbox. Nothing may be imported from here on: modules would be found in the sandbox's
    files. No signal has a handler here."""
    code = 0
    try:
        if channel.recv(1, socket.MSG_PEEK):
            serving = _serve(App(Settings(home=cwd, environment=environment, memory=memory)), channel)
            asyncio.SelectorEventLoop().run_until_complete(serving)
    except BaseException:
        traceback.print_exc(file=sys.stderr)
        code = 1
    os._exit(code)


def rehearse() -> None:
    """Runs a command that does nothing, in the process from which others are forked. What the interpreter computes when code first
    runs is then shared memory, instead of being computed and copied in each child. Leaves no file open."""
    for _ in range(ROUNDS):
        loop = asyncio.SelectorEventLoop()
        loop.run_until_complete(_rehearse())
        loop.close()


async def _rehearse() -> None:
    channel, its_channel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    client, its_end = socket.socketpair()
    app = App(Settings(home="/", environment={}))
    with channel, its_channel, client:
        client.setblocking(False)
        with its_end:
            socket.send_fds(channel, [b"+"], [its_end.fileno()])
        serving = asyncio.create_task(_serve(app, its_channel))
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(client, _request({"argv": ["/bin/sh", "-c", ":"]}))
        while await loop.sock_recv(client, 4096):
            pass
        channel.close()
        await serving
    app.release()


def _request(spec: dict[str, object]) -> bytes:
    body = encode(spec)
    lines = (f"POST {BASE}/processes HTTP/1.1", f"accept: {CONTENT_TYPE}", f"content-length: {len(body)}")
    return "\r\n".join((*lines, "connection: close", "", "")).encode() + body


async def _serve(app: App, channel: socket.socket) -> None:
    server = Server(app, "")
    try:
        await server.take_from(channel)
    finally:
        await server.close()
