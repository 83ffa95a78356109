"""boxd in a process that was forked for it: it never returns."""

from __future__ import annotations

import asyncio
import concurrent.futures.thread  # noqa: F401  # asyncio loads it when it is first needed: too late, see serve_forked
import os
import signal
import socket
import sys
import traceback
from collections.abc import Mapping

from sandpool.boxd.app import App
from sandpool.boxd.http.connection import Request
from sandpool.boxd.http.reply import Answer, json_reply
from sandpool.boxd.server import Server
from sandpool.boxd.settings import Settings


def serve_forked(channel: socket.socket, environment: Mapping[str, str], cwd: str) -> None:
    """Serves the connections that come over the channel, and ends with it. Whoever can reach the channel is trusted: it leads
    out of the sandbox. Nothing is imported from here on: what would be found now belongs to the sandbox."""
    code = 0
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        asyncio.run(_serve(channel, Settings(home=cwd, environment=environment)))
    except BaseException:
        traceback.print_exc(file=sys.stderr)
        code = 1
    os._exit(code)


def rehearse() -> None:
    """Serves one request to itself, in the process from which others are forked. What Python works out when code first runs is
    then there already, and is shared instead of worked out, and copied, in each of them. Leaves no file open."""
    asyncio.run(_rehearse())


class _Nobody:
    """An App that has nothing: no folder is opened for it."""

    async def handle(self, request: Request) -> Answer:
        return json_reply({"path": request.head.path})

    async def close(self) -> None:
        pass


async def _rehearse() -> None:
    channel, its_channel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    client, its_end = socket.socketpair()
    with channel, its_channel, client:
        client.setblocking(False)
        with its_end:
            socket.send_fds(channel, [b"+"], [its_end.fileno()])
        server = Server(_Nobody(), "")
        serving = asyncio.create_task(server.take_from(its_channel))
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(client, b"GET /rehearsal HTTP/1.1\r\nhost: boxd\r\n\r\n")
        await loop.sock_recv(client, 4096)
        channel.close()
        await serving
        await server.close()


async def _serve(channel: socket.socket, settings: Settings) -> None:
    server = Server(App(settings), settings.token)
    try:
        await server.take_from(channel)
    finally:
        await server.close()
