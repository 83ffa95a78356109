"""Port-forward: over SPDY, through a WebSocket and over channels, to real listeners."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from sandpool.controlplane.apiserver.limits import StreamLimits
from sandpool.controlplane.apiserver.streams.spdy.frames import Kind, Reset, control, number
from support.network.spdy_client import ClientStream, SpdyClient
from support.node.streaming import Stage, eventually, settled, spdy, stage, tunnelled, websocket

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Open = Callable[[Stage], "AsyncIterator[SpdyClient]"]


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[Stage]:
    async with stage(tmp_path) as made:
        await made.pod()
        yield made


@pytest.fixture(params=["spdy", "tunnel"])
async def client(request: pytest.FixtureRequest, box: Stage) -> AsyncIterator[SpdyClient]:
    opening = spdy(box, "box/portforward", "portforward.k8s.io")
    async with opening if request.param == "spdy" else tunnelled(box, "box/portforward") as client:
        yield client


@asynccontextmanager
async def listening(talk: Talk) -> AsyncIterator[int]:
    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def echo_after_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers only when the other side has said everything: needs a half-close to pass."""
    writer.write(await reader.read())
    writer.write_eof()
    writer.close()


def nobody_listens() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


async def pair(client: SpdyClient, port: int, request: str) -> tuple[ClientStream, ClientStream]:
    error = await client.open(streamType="error", port=str(port), requestID=request, fin=True)
    data = await client.open(streamType="data", port=str(port), requestID=request)
    return error, data


async def test_many_connections_at_once(client: SpdyClient) -> None:
    async def one(port: int, request: int) -> None:
        sent = os.urandom(100_000 + request)
        error, data = await pair(client, port, str(request))
        for start in range(0, len(sent), 30_000):
            await client.send(data, sent[start : start + 30_000])
        await client.send(data, b"", fin=True)
        await data.ended.wait()
        await error.ended.wait()
        assert (bytes(data.data), bytes(error.data), data.reset) == (sent, b"", None)

    async with listening(echo_after_the_end) as port:
        await asyncio.gather(*(one(port, request) for request in range(40)))


async def test_nobody_listens(client: SpdyClient) -> None:
    port = nobody_listens()
    error, data = await pair(client, port, "0")
    await error.ended.wait()
    await data.ended.wait()
    assert error.data.startswith(b"error forwarding port %d to pod box, uid " % port)


async def test_the_client_gives_a_connection_up(client: SpdyClient) -> None:
    left = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        await reader.read()
        left.set()
        writer.close()

    async with listening(wait) as port:
        error, data = await pair(client, port, "0")
        await eventually(lambda: bytes(data.data) == b"hello")
        await client.raw(control(Kind.RST_STREAM, number(data.number) + number(Reset.CANCEL)))
        await left.wait()
        await error.ended.wait()


async def test_the_sandbox_ends_a_connection(client: SpdyClient) -> None:
    async def bye(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"bye")
        writer.close()

    async with listening(bye) as port:
        error, data = await pair(client, port, "0")
        await data.ended.wait()
        await client.send(data, b"", fin=True)
        await error.ended.wait()
        assert (bytes(data.data), bytes(error.data)) == (b"bye", b"")


SENSELESS: list[dict[str, str]] = [
    {"streamType": "data", "port": "0"},
    {"streamType": "data", "port": "http"},
    {"streamType": "data", "port": "70000"},
    {"streamType": "data"},
    {"streamType": "sideways", "port": "80"},
    {"port": "80"},
]


async def test_streams_that_make_no_sense(client: SpdyClient) -> None:
    for headers in SENSELESS:
        stream = await client.open(requestID="1", **headers)  # type: ignore[arg-type]
        await stream.ended.wait()
        assert stream.reset == Reset.REFUSED_STREAM, headers


async def test_a_second_stream_of_the_same_kind(client: SpdyClient) -> None:
    await client.open(streamType="data", port="80", requestID="1")
    second = await client.open(streamType="data", port="80", requestID="1")
    await second.ended.wait()
    other = await client.open(streamType="error", port="81", requestID="1")
    await other.ended.wait()
    assert (second.reset, other.reset) == (Reset.REFUSED_STREAM, Reset.REFUSED_STREAM)


async def test_clients_that_name_no_request(client: SpdyClient) -> None:
    async with listening(echo_after_the_end) as port:
        for _ in range(2):
            error = await client.open(streamType="error", port=str(port))
            data = await client.open(streamType="data", port=str(port))
            await client.send(data, b"x", fin=True)
            await data.ended.wait()
            await error.ended.wait()
            assert bytes(data.data) == b"x"


async def test_limits(tmp_path: Path) -> None:
    async with stage(tmp_path, StreamLimits(streams=4, opening=0.1)) as box:
        await box.pod()
        async with tunnelled(box, "box/portforward") as client:
            for request in range(2):
                await pair(client, 80, str(request))
            refused = await client.open(streamType="error", port="80", requestID="9")
            await refused.ended.wait()
            assert refused.reset == Reset.REFUSED_STREAM
        async with tunnelled(box, "box/portforward") as client:
            alone = await client.open(streamType="error", port="80", requestID="9")
            await alone.ended.wait()
            assert alone.reset == Reset.CANCEL


async def test_what_is_not_read_is_not_sent_on(box: Stage) -> None:
    taken = 0

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal taken
        try:
            while True:
                writer.write(b"x" * 65536)
                await writer.drain()
                taken += 65536
        except ConnectionError:
            writer.close()

    async with listening(pour) as port, websocket(box, "box/portforward", "SPDY/3.1+portforward.k8s.io") as raw:

        async def read() -> bytes:
            return b""

        client = SpdyClient(read, raw.send_bytes)
        await pair(client, port, "0")
        assert 0 < await settled(lambda: taken) < 32 * 1024 * 1024


async def test_one_that_nobody_reads_does_not_hold_up_the_others_for_ever(tmp_path: Path) -> None:
    never = asyncio.Event()

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = writer.transport
        assert isinstance(line, asyncio.Transport)
        line.pause_reading()
        await never.wait()
        writer.close()

    async with stage(tmp_path, StreamLimits(stuck=0.2)) as box, listening(deaf) as stuck:
        await box.pod()
        async with listening(echo_after_the_end) as port, tunnelled(box, "box/portforward") as client:
            _, blocked = await pair(client, stuck, "0")
            _, data = await pair(client, port, "1")

            async def flood() -> None:
                while blocked.reset is None:
                    await client.send(blocked, b"x" * 60_000)

            flooding = asyncio.create_task(flood())
            await blocked.ended.wait()
            await flooding
            assert blocked.reset == Reset.FLOW_CONTROL_ERROR
            await client.send(data, b"through", fin=True)
            await data.ended.wait()
            assert bytes(data.data) == b"through"
        never.set()


async def test_everything_ends_with_the_client(box: Stage) -> None:
    open_ = 0

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal open_
        open_ += 1
        await reader.read()
        open_ -= 1
        writer.close()

    async with listening(hold) as port:
        async with tunnelled(box, "box/portforward") as client:
            for request in range(5):
                await pair(client, port, str(request))
            await eventually(lambda: open_ == 5)
        await eventually(lambda: open_ == 0)


@pytest.mark.parametrize("protocol", ["v4.channel.k8s.io", "v4.base64.channel.k8s.io"])
async def test_channels(box: Stage, protocol: str) -> None:
    async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.readexactly(5)).upper())
        writer.close()

    deaf = nobody_listens()
    async with (
        listening(shout) as port,
        websocket(box, f"box/portforward?ports={port}&ports={deaf}", protocol) as raw,
    ):
        text = "base64" in protocol
        if text:
            await raw.send_str("0" + base64.b64encode(b"hello").decode())
        else:
            await raw.send_bytes(b"\0hello")
        got: dict[int, bytes] = {}
        async for message in raw:
            data = message.data
            channel, data = (int(data[0]), base64.b64decode(data[1:])) if text else (data[0], data[1:])
            got[channel] = got.get(channel, b"") + data
    ports = [number_.to_bytes(2, "little") for number_ in (port, deaf)]
    assert (got[0], got[1], got[2]) == (ports[0] + b"HELLO", ports[0], ports[1])
    assert got[3].startswith(ports[1] + b"error forwarding port")
    assert raw.close_code == 1000


async def test_channels_need_ports(box: Stage) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        async with websocket(box, "box/portforward", "v4.channel.k8s.io"):
            pass
    assert refused.value.status == 400
