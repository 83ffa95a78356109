"""The real kubectl: over WebSockets, as it prefers, and over SPDY, to which it falls back."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import pty
import re
import socket
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from support.kube.kubectl import Kubectl, kubectl_path
from support.node.streaming import Stage, eventually, stage

pytestmark = pytest.mark.kubectl

OFF = {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "false", "KUBECTL_PORT_FORWARD_WEBSOCKETS": "false"}


@dataclass(slots=True)
class Said:
    code: int | None
    out: bytes
    err: bytes


@dataclass(slots=True)
class Client:
    """kubectl beside a server in this process: nothing here blocks."""

    kubectl: Kubectl
    environment: dict[str, str] = field(default_factory=dict)

    async def start(self, *arguments: str, stdin: int | None = None, stdout: int | None = PIPE) -> Process:
        return await asyncio.create_subprocess_exec(
            *self.kubectl.command(*arguments),
            stdin=stdin,
            stdout=stdout,
            stderr=PIPE,
            env=self.kubectl.environment() | self.environment,
        )

    async def __call__(self, *arguments: str, stdin: bytes | None = None) -> Said:
        process = await self.start(*arguments, stdin=None if stdin is None else PIPE)
        out, err = await process.communicate(stdin)
        return Said(process.returncode, out, err)


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[Stage]:
    kubectl_path()
    async with stage(tmp_path) as made:
        yield made


@pytest.fixture(params=["websocket", "spdy"])
def kubectl(request: pytest.FixtureRequest, box: Stage, tmp_path: Path) -> Client:
    return Client(Kubectl(box.server.kubeconfig, tmp_path), OFF if request.param == "spdy" else {})


async def test_exec(box: Stage, kubectl: Client) -> None:
    await box.pod()
    said = await kubectl("exec", "box", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (said.code, said.out) == (7, b"out\n")
    assert said.err.startswith(b"err\n")
    said = await kubectl("exec", "box", "--", "/no/such/command")
    assert said.code != 0
    assert b"/no/such/command" in said.err
    said = await kubectl("exec", "box", "-c", "other", "--", "true")
    assert b"container other is not valid for pod box" in said.err


async def test_large_input_comes_back_unchanged(box: Stage, kubectl: Client) -> None:
    await box.pod()
    data = os.urandom(1 << 20) * 50
    said = await kubectl("exec", "-i", "box", "--", "sha256sum", stdin=data)
    assert said.out.split()[0].decode() == hashlib.sha256(data).hexdigest()
    said = await kubectl("exec", "-i", "box", "--", "cat", stdin=data)
    assert said.out == data


async def test_a_command_that_does_not_want_all_of_its_input(box: Stage, kubectl: Client) -> None:
    await box.pod()
    said = await kubectl("exec", "-i", "box", "--", "head", "-c", "3", stdin=b"abc" + b"x" * 20_000_000)
    assert (said.code, said.out) == (0, b"abc")


async def test_a_terminal(box: Stage, kubectl: Client) -> None:
    await box.pod()
    master, slave = pty.openpty()
    os.set_blocking(master, False)
    try:
        os.system(f"stty rows 33 cols 99 < {os.ttyname(slave)}")
        process = await kubectl.start("exec", "-it", "box", "--", "sh", stdin=slave, stdout=slave)
        seen = bytearray()

        def read() -> None:
            with contextlib.suppress(BlockingIOError, OSError):
                seen.extend(os.read(master, 65536))

        asyncio.get_running_loop().add_reader(master, read)
        os.write(master, b"until stty size | grep 33; do sleep 0.05; done; exit 5\n")
        await process.communicate()
        asyncio.get_running_loop().remove_reader(master)
        read()
        assert process.returncode == 5
        assert b"33 99" in seen
    finally:
        os.close(master)
        os.close(slave)


async def test_an_interrupted_client_ends_its_command(box: Stage, kubectl: Client) -> None:
    await box.pod()
    process = await kubectl.start("exec", "box", "--", "sleep", "600")
    await eventually(lambda: box.node.execs == 1)
    process.kill()
    await process.communicate()
    await eventually(lambda: box.node.execs == 0)


async def test_attach(box: Stage, kubectl: Client) -> None:
    await box.pod(script="while read line; do echo got $line; done; echo bye")
    process = await kubectl.start("attach", "-i", "box", stdin=PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"hello\n")
    assert await process.stdout.readline() == b"got hello\n"
    process.stdin.close()
    out, _ = await process.communicate()
    assert out == b"bye\n"
    assert process.returncode == 0


async def test_cp(box: Stage, kubectl: Client, tmp_path: Path) -> None:
    await box.pod()
    tree = tmp_path / "tree"
    (tree / "deep").mkdir(parents=True)
    (tree / "deep" / "data").write_bytes(os.urandom(3_000_000))
    (tree / "empty").touch()
    inside = tmp_path / "inside"  # the pod sees the same files: it is not isolated
    inside.mkdir()
    said = await kubectl("cp", str(tree), f"box:{inside}")
    assert said.code == 0, said.err
    assert (inside / "tree" / "deep" / "data").read_bytes() == (tree / "deep" / "data").read_bytes()
    said = await kubectl("cp", f"box:{inside}/tree", str(tmp_path / "back"))
    assert said.code == 0, said.err
    assert (tmp_path / "back" / "deep" / "data").read_bytes() == (tree / "deep" / "data").read_bytes()


@asynccontextmanager
async def forwarded(kubectl: Client, port: int) -> AsyncIterator[tuple[Process, int]]:
    process = await kubectl.start("port-forward", "pod/box", f":{port}")
    try:
        assert process.stdout is not None
        found = re.search(rb"127\.0\.0\.1:(\d+) ->", await process.stdout.readline())
        assert found, (await process.communicate())[1]
        yield process, int(found[1])
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def test_port_forward_many_at_once(box: Stage, kubectl: Client) -> None:
    await box.pod()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def one(port: int, number: int) -> None:
        data = os.urandom(200_000 + number)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        assert await reader.readexactly(len(data)) == data
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with forwarded(kubectl, server.sockets[0].getsockname()[1]) as (_, local):
        for _ in range(2):
            await asyncio.gather(*(one(local, number) for number in range(25)))
    server.close()


async def test_port_forward_to_a_port_where_nobody_listens(box: Stage, kubectl: Client) -> None:
    await box.pod()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    async with forwarded(kubectl, port) as (process, local):
        reader, writer = await asyncio.open_connection("127.0.0.1", local)
        assert await reader.read() == b""
        writer.close()
        assert process.stderr is not None
        told = await process.stderr.readuntil(b"uid ")
        assert (
            f"an error occurred forwarding {local} -> {port}: error forwarding port {port} to pod box".encode() in told
        )


async def test_logs(box: Stage, kubectl: Client) -> None:
    uid = await box.pod(script="echo one; echo two; read line; echo $line")
    process = await kubectl.start("logs", "-f", "box")
    assert process.stdout is not None
    assert await process.stdout.readline() == b"one\n"
    said = await kubectl("attach", "-i", "box", stdin=b"three\n")
    assert said.code == 0
    out, _ = await process.communicate()
    assert out == b"two\nthree\n"
    await box.node.ended(uid)
    assert (await kubectl("logs", "box", "--tail=1")).out == b"three\n"
    stamped = (await kubectl("logs", "box", "--timestamps", "--tail=1")).out
    assert re.fullmatch(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z three\n", stamped)
    await box.pod("new", states={"main": {"waiting": {"reason": "ContainerCreating"}}}, phase="Pending")
    said = await kubectl("logs", "new")
    assert b'container "main" in pod "new" is waiting to start: ContainerCreating' in said.err
