"""All that a pull receives passes its meter, on both event loops, with and without TLS, on first and on reused connections; by public
means of aiohttp only, so that no other version of it loses the meter without a word."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest
import uvloop
from aiohttp import web

from sandpool.node.images.http_client import HEAD_BYTES, ReceiveBudget, RegistryConnections
from sandpool.node.images.options import ImageOptions
from support.images.store import any_place
from support.kube.certificates import Authority

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


async def _nothing() -> None: ...


@pytest.fixture(scope="module", autouse=True)
def _used_before() -> None:
    """The first loop of uvloop in a process opens a pipe that stays: no test of ours leaves it behind."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_nothing())


class Counting(ReceiveBudget):
    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def received(self, size: int) -> bool:
        self.seen += size
        return super().received(size)


async def two_requests(serving: ssl.SSLContext | None, trusting: ssl.SSLContext | None) -> tuple[int, int, int]:
    """How often a client connected, what passed the meter, and what became of a body that was too much."""
    peers: set[object] = set()

    async def answer(request: web.Request) -> web.Response:
        peers.add(request.transport)
        return web.Response(body=bytes(int(request.query["size"])))

    app = web.Application()
    app.router.add_get("/", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=serving)
        await site.start()
        address = runner.addresses[0]
        url = f"{'http' if serving is None else 'https'}://127.0.0.1:{address[1]}/"
        async with RegistryConnections(ImageOptions(tls=trusting), any_place()) as lines:
            lines.meter = meter = Counting()
            client = lines.to(None, proxied=True)  # type: ignore[arg-type]
            for _ in range(2):
                meter.expects()
                async with client.get(url, params={"size": 1000}) as response:
                    assert len(await response.read()) == 1000
            seen, connections = meter.seen, len(peers)
            taken = 0
            try:
                async with client.get(url, params={"size": 3 * HEAD_BYTES}) as response:
                    async for piece in response.content.iter_any():
                        taken += len(piece)
            except aiohttp.ClientError:
                return connections, seen, taken
            raise AssertionError("nobody cut it off")
    finally:
        await runner.cleanup()


def contexts(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """For a server on loopback, and for a client that trusts it."""
    authority = Authority("test")
    authority.write_ca(folder / "ca")
    authority.write_server(folder / "server", names=(), addresses=("127.0.0.1",))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "server.crt", folder / "server.key")
    return server, ssl.create_default_context(cafile=str(folder / "ca.crt"))


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("loop", LOOPS)
def test_everything_passes_the_meter(loop: str, secure: bool, tmp_path: Path) -> None:
    serving = trusting = None
    if secure:
        serving, trusting = contexts(tmp_path)
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        connections, seen, taken = runner.run(two_requests(serving, trusting))
    assert connections == 1, "the second request came over the same connection"
    assert seen > 2000
    assert taken < 3 * HEAD_BYTES


async def test_nothing_private_of_aiohttp_is_touched() -> None:
    async with RegistryConnections(ImageOptions(), any_place()) as lines:
        connector = lines.to(None, proxied=True).connector  # type: ignore[arg-type]
        plain = aiohttp.TCPConnector()
        ours = [kind for kind in type(connector).__mro__ if kind.__module__.startswith("sandpool.")]
        names = {name for kind in ours for name in vars(kind)} & set(dir(plain))
        assert {name for name in names if name.startswith("_") and not name.startswith("__")} == set()
        assert vars(connector)["_factory"].func is vars(plain)["_factory"].func
        await plain.close()
