"""Streams of one tenant, cut as finely as their protocol allows, leave the event loop to others between their portions."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sandpool.controlplane.apiserver.connection import Connection
from support.api.unread import Unread
from support.node.streaming import Stage, stage

PODS = "/api/v1/namespaces/default/pods"
KEY = base64.b64encode(bytes(16)).decode()
FRAMES = 9000


def ping(payload: bytes = b"") -> bytes:
    return bytes((0x89, 0x80 | len(payload), 0, 0, 0, 0)) + payload


def spdy_ping(number: int) -> bytes:
    return b"\x80\x03\x00\x06\x00\x00\x00\x04" + number.to_bytes(4, "big")


def in_messages(data: bytes) -> bytes:
    """In WebSocket messages that are as large as they may be without a wider length."""
    size = 60_000
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    return b"".join(b"\x82\xfe" + len(piece).to_bytes(2, "big") + bytes(4) + piece for piece in pieces)


@asynccontextmanager
async def clients(box: Stage, number: int, asked: str, headers: str) -> AsyncIterator[list[tuple[Connection, Unread]]]:
    await box.server.request("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "user"}})
    made = await box.server.request("POST", "/api/v1/namespaces/default/serviceaccounts/user/token", {"spec": {}})
    token = made.json["status"]["token"]
    head = f"GET {PODS}/box/{asked} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n{headers}\r\n"
    lines = [(Connection(box.server.server.state), Unread()) for _ in range(number)]
    try:
        for connection, transport in lines:
            connection.connection_made(transport)
            connection.data_received(head.encode())
        async with asyncio.timeout(60):
            while not all(transport.written.startswith(b"HTTP/1.1 101") for _, transport in lines):
                await asyncio.sleep(0.01)
        yield lines
    finally:
        for connection, _ in lines:
            connection.connection_lost(None)
        async with asyncio.timeout(60):
            while box.node.execs:
                await asyncio.sleep(0.01)


WEBSOCKET = f"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n"
SPDY = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: portforward.k8s.io\r\n"
TUNNEL = "Sec-WebSocket-Protocol: SPDY/3.1+portforward.k8s.io\r\n"
COMMAND = "exec?stdin=true&stdout=true&command=sleep&command=600"


@pytest.mark.parametrize(
    ("asked", "headers", "flood", "answer"),
    [
        (COMMAND, WEBSOCKET + "Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n", ping() * FRAMES, 2),
        ("portforward", SPDY, spdy_ping(1) * FRAMES, 12),
        ("portforward", WEBSOCKET + TUNNEL, in_messages(spdy_ping(1) * FRAMES), 12),
    ],
    ids=["websocket", "spdy", "spdy in a websocket"],
)
async def test_frames_that_come_in_the_same_moment(
    tmp_path: Path, asked: str, headers: str, flood: bytes, answer: int
) -> None:
    """Each is answered, and between the answers to a few of them everybody else has a turn."""
    async with stage(tmp_path) as box:
        await box.pod()
        async with clients(box, 10, asked, headers) as lines:
            begun = sum(len(transport.written) for _, transport in lines)
            for connection, _ in lines:
                connection.data_received(flood)
            most = last = 0
            async with asyncio.timeout(120):
                while last < 10 * FRAMES * answer:
                    await asyncio.sleep(0)
                    sent = sum(len(transport.written) for _, transport in lines) - begun
                    most, last = max(most, sent - last), sent
            assert most < FRAMES * answer


def _held(box: Stage) -> int:
    return box.server.server.state.sending.unsent.holds("default")


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.01)


async def test_what_a_command_does_not_read_counts_for_its_tenant(tmp_path: Path) -> None:
    """In pieces of two bytes, each of which took twenty times its size, and for nobody."""
    headers = WEBSOCKET + "Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n"
    async with stage(tmp_path) as box:
        await box.pod()
        async with clients(box, 1, COMMAND, headers) as lines:
            ((connection, _),) = lines
            connection.data_received(bytes((0x82, 0x83, 0, 0, 0, 0, 0)) + b"xx")
            for _ in range(40):
                connection.data_received(bytes((0x82, 0xFE)) + (8192).to_bytes(2, "big") + bytes(5) + b"x" * 8191)
            await _until(lambda: _held(box) > 100_000)
        await _until(lambda: _held(box) == 0)
