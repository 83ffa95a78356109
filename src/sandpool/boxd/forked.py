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


async def _serve(channel: socket.socket, settings: Settings) -> None:
    server = Server(App(settings), settings.token)
    try:
        await server.take_from(channel)
    finally:
        await server.close()
