"""Nothing is left of a connection that has ended: by counting references, not by waiting for the collector of cycles, which
looks at what has grown old only now and then. A TLS connection takes a few hundred kilobytes."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from sandpool.controlplane.apiserver.connection import Connection
from support.api.local_server import LocalServer, local_server

uvloop.new_event_loop().close()  # the first one opens a pipe for the whole process, which would look like a leak

pytestmark = pytest.mark.usefixtures("no_collector")

MANY = 8
MAPS = "/api/v1/namespaces/default/configmaps"
UPGRADE = "Connection: Upgrade\r\nUpgrade: websocket\r\n"


class Ends:
    """Which of a server's connections are still in memory."""

    def __init__(self) -> None:
        self._kept: set[weakref.ref[Connection]] = set()
        self._none = asyncio.Event()

    def follow(self, server: LocalServer) -> int:
        """The connections that it has now, from now on."""
        connections = server.server.state.connections
        self._kept |= {weakref.ref(connection, self._gone) for connection in connections}
        return len(connections)

    def _gone(self, reference: weakref.ref[Connection]) -> None:
        self._kept.remove(reference)
        if not self._kept:
            self._none.set()

    async def all_gone(self) -> None:
        try:
            async with asyncio.timeout(60):
                await self._none.wait()
        except TimeoutError:
            pytest.fail(f"{len(self._kept)} connections are kept, held by {self._holders()}")

    def _holders(self) -> set[str]:
        kept = next(iter(self._kept))()
        return {type(holder).__qualname__ for holder in gc.get_referrers(kept)}


def asked(server: LocalServer, method: str, path: str, more: str = "") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.token}\r\n{more}\r\n".encode()


async def come_and_go(folder: Path, method: str, path: str, more: str, rudely: bool) -> None:
    async with local_server(folder) as server:
        ends, writers = Ends(), []
        for _ in range(MANY):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.server.port, ssl=server.tls())
            writers.append(writer)
            writer.write(asked(server, method, path, more))
            async with asyncio.timeout(60):
                await reader.readuntil(b"\r\n\r\n")
        assert ends.follow(server) == MANY
        for writer in writers:
            if rudely:
                writer.transport.abort()
            else:
                writer.close()
        await ends.all_gone()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
@pytest.mark.parametrize("rudely", [False, True])
@pytest.mark.parametrize(
    ("method", "path", "more"),
    [
        pytest.param("GET", MAPS, "", id="an answer"),
        pytest.param("POST", MAPS, "Content-Length: 100\r\nExpect: 100-continue\r\n", id="half a request"),
        pytest.param("GET", f"{MAPS}?watch=1", "", id="a watch"),
        pytest.param("GET", f"{MAPS}/none/exec", UPGRADE, id="an upgrade"),
    ],
)
def test_nothing_is_left_of_a_connection(
    tmp_path: Path, method: str, path: str, more: str, rudely: bool, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    run(come_and_go(tmp_path, method, path, more, rudely))
