"""One sandbox of a world's runtime, without a pod around it: for limits that no pod can ask for, hostile images, and boxd."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import itertools
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from sandpool.node.images.image import RootFs
from sandpool.node.runtimes.contract import Container, ContainerPlan, ExecPlan, Limits, Mount, SandboxPlan, Stdio, Task
from support.escape.world import FOREVER, PATIENCE, World

_numbers = itertools.count(1)


@dataclass
class Box:
    container: Container

    async def python(self, program: str, *arguments: str) -> tuple[int, str]:
        return await captured(
            lambda out: self.container.exec(ExecPlan(("python3", "-c", program, *arguments)), Stdio(None, out, out))
        )

    async def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """One request to boxd inside, over the way that leads there from outside."""
        sock = await self.container.connect()
        sock.setblocking(True)
        return await asyncio.to_thread(_asked, sock, method, path, body)


def _asked(sock: socket.socket, method: str, path: str, body: bytes) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("box", timeout=PATIENCE)
    connection.sock = sock
    try:
        try:
            connection.request(method, path, body or None)
        except BrokenPipeError:
            pass  # it was refused before the body was read; the answer is there
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (http.client.HTTPException, ConnectionError) as error:
        return 0, repr(error).encode()
    finally:
        connection.close()


async def captured(begin: Callable[[int], Awaitable[Task]]) -> tuple[int, str]:
    reader, writer = os.pipe()
    try:
        try:
            task = await begin(writer)
        finally:
            os.close(writer)
        async with asyncio.timeout(PATIENCE):
            said = await asyncio.to_thread(_read_all, reader)
            return (await asyncio.shield(task.ended)).code, said
    finally:
        os.close(reader)


def _read_all(file: int) -> str:
    parts = []
    while part := os.read(file, 65536):
        parts.append(part)
    return b"".join(parts).decode(errors="replace")


@contextlib.asynccontextmanager
async def a_box(
    world: World,
    limits: Limits = Limits(),
    rootfs: RootFs = RootFs(host=True),
    mounts: tuple[Mount, ...] = (),
    user: str = "",
) -> AsyncIterator[Box]:
    name = f"box-{next(_numbers)}"
    folder = world.folder / "data" / name
    folder.mkdir()
    sandbox = await world.runtime.create(SandboxPlan(name, "box", folder, limits))
    try:
        plan = ContainerPlan("main", ("sh", "-c", FOREVER), rootfs, user=user, mounts=mounts)
        yield Box(await sandbox.start(plan, Stdio()))
    finally:
        await sandbox.destroy()
        folder.rmdir()  # nothing may be left in it
