"""A real boxd behind the line: programs end with their clients, terminals talk, files of any size pass."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandpool.router.values import Admitted
from sandpool.wire.frames import CONTENT_TYPE, Frame, Frames, Kind, message
from support.network.boxd_daemon import TOKEN, Daemon, boxd
from support.network.router_server import TARGET, Client, OpenGate, client, router


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with boxd(tmp_path) as running:
        yield running


@pytest.fixture
def gate(daemon: Daemon) -> OpenGate:
    made = OpenGate(daemon.port)
    made.decide = Admitted(
        TARGET, "me", b"", made.connect, "boxd", add=((b"authorization", f"Bearer {TOKEN}".encode()),)
    )
    return made


async def frames(caller: Client, until: Kind) -> list[Frame]:
    found: list[Frame] = []
    decoder = Frames()
    while not found or found[-1].kind is not until:
        found += decoder.feed(await caller.chunk())
    return found


async def test_a_program_and_its_output(gate: OpenGate) -> None:
    async with router(gate) as (_, at), client(at) as caller:
        for word in (b"one", b"two"):
            spec = {"argv": ["/bin/echo", word.decode()]}
            caller.ask("POST", "/box/v1/processes", f"Accept: {CONTENT_TYPE}", body=json.dumps(spec).encode())
            assert (await caller.head())[0] == 200
            said = await frames(caller, Kind.EXIT)
            assert b"".join(frame.data for frame in said if frame.kind is Kind.STDOUT) == word + b"\n"
            assert await caller.chunk() == b""
        assert gate.connections == 1


async def test_a_program_ends_with_its_client(gate: OpenGate, daemon: Daemon) -> None:
    async with router(gate) as (_, at):
        async with client(at) as caller:
            spec = json.dumps({"argv": ["/bin/sleep", "600"]}).encode()
            caller.ask("POST", "/box/v1/processes", f"Accept: {CONTENT_TYPE}", body=spec)
            await caller.head()
            (started,) = await frames(caller, Kind.STARTED)
        async with asyncio.timeout(20):
            while (await asyncio.to_thread(daemon.state, started.value["id"])).get("exit") is None:
                await asyncio.sleep(0.02)
        assert (await gate.outcomes(1))[0].error == "client"


async def test_a_big_file_there_and_back(gate: OpenGate, tmp_path: Path) -> None:
    data = os.urandom(1 << 20) * 8
    async with router(gate) as (_, at), client(at) as caller:
        caller.ask("PUT", "/box/v1/files/big", body=data)
        assert (await caller.answer())[0] in (200, 201, 204)
        assert hashlib.sha256((tmp_path / "big").read_bytes()).digest() == hashlib.sha256(data).digest()
        caller.ask("GET", "/box/v1/files/big")
        assert (await caller.answer())[2] == data


async def test_a_terminal(gate: OpenGate, daemon: Daemon) -> None:
    started = await asyncio.to_thread(daemon.start, argv=["/bin/cat"], stdin=True)
    async with router(gate) as (_, at), client(at) as caller:
        key = base64.b64encode(os.urandom(16)).decode()
        upgrade = (
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {key}",
        )
        caller.ask("GET", f"/box/v1/processes/{started['id']}/attach", *upgrade)
        status, headers = await caller.head()
        assert (status, headers["upgrade"]) == (101, "websocket")
        payload = message(Kind.STDIN, b"hello\n")
        caller.send(bytes([0x82, 0x80 | len(payload)]) + bytes(4) + payload)  # masked with zeroes
        said = b""
        async with asyncio.timeout(20):
            while b"hello" not in said:
                said += await caller.reader.read(1000)
    assert (await gate.outcomes(1))[0].status == 101
    await asyncio.to_thread(daemon.ask, "DELETE", f"/box/v1/processes/{started['id']}")
