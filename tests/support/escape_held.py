"""Pods that give memory to another one and end: the kernel counts it for those who are gone. Whoever holds it pays, and nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import os

from sandpool.local.backends.base import VolumeMount, Workload
from sandpool.local.volumes.spec import Claim, VolumeSpec
from sandpool.model.metadata import Uid
from support.escape_world import FOREVER, World

CLAIM = "claim-that-pods-share"
HOLD = """
import os, socket, sys, time
listener = socket.socket(socket.AF_UNIX); listener.bind("/mnt/c/socket"); listener.listen()
os.rename("/mnt/c/socket", "/mnt/c/" + sys.argv[1])
connection, _ = listener.accept()
kept = socket.recv_fds(connection, 1, 200)
connection.send(b"x")
time.sleep(1000)
"""
GIVE = """
import ctypes, os, socket, sys
files = []
{take}
connection = socket.socket(socket.AF_UNIX); connection.connect("/mnt/c/" + sys.argv[1])
socket.send_fds(connection, [b"x"], files); connection.recv(1)
{send}
print("given")
"""
SEND = """
for _ in range(90):
    one = socket.socket(socket.AF_UNIX); one.connect("/mnt/c/" + sys.argv[1]); one.setblocking(False); files.append(one)
    try:
        while True: one.send(bytes(65536))
    except BlockingIOError: pass
"""
TAKE = {
    "files": 'files.append(os.memfd_create("x")); os.write(files[0], bytes(30 << 20))',
    "buffers": """
for _ in range(80):
    pair = [each.detach() for each in socket.socketpair()]; files += pair; os.set_blocking(pair[0], False)
    try:
        while True: os.write(pair[0], bytes(65536))
    except BlockingIOError: pass
""",
    "segments": """
libc = ctypes.CDLL(None); libc.shmat.restype = ctypes.c_void_p
ctypes.memset(libc.shmat(libc.shmget(77, ctypes.c_size_t(30 << 20), 0o1666), None, 0), 1, 30 << 20)
files.append(os.open("/proc/self/ns/ipc", os.O_RDONLY))
""",
}


def _work(world: World) -> Workload:
    mounts = {"c": VolumeMount(name="c", mount_path="/mnt/c")}
    volumes = [VolumeSpec("c", Claim("team", "c", CLAIM))]
    return world.workload(("sh", "-c", FOREVER), limits={"memory": "128Mi"}, mounts=mounts, volumes=volumes)


async def memory_of_those_who_have_ended(world: World) -> None:
    """As an ordinary user sandboxes have the same id, and nobody knows whose it is."""
    if os.geteuid() or "memory" not in (await world.runtime.probe()).enforced:
        return
    async with world.pod(_work(world)) as innocent:
        for name, take in TAKE.items():
            await _given(world, name, GIVE.format(take=take, send=""))
        await _given(world, "connections", GIVE.format(take="", send=SEND))
        assert await world.shell(innocent, "echo well") == (0, "well\n")
    await world.volumes.remove_claim(CLAIM)


async def _given(world: World, name: str, give: str) -> None:
    async with world.pod(_work(world)) as holder:
        holding = asyncio.create_task(world.python(holder, HOLD, name))
        try:
            async with world.pod(_work(world)) as giver:
                await _until_there(world, giver, name)
                assert (await world.python(giver, give, name))[1] == "given\n"
            evicted = world.backend.look(holder)
            assert evicted is None or "held memory" in evicted.evicted, name
        finally:
            holding.cancel()
            with contextlib.suppress(Exception, asyncio.CancelledError):
                await holding


async def _until_there(world: World, uid: Uid, name: str) -> None:
    async with asyncio.timeout(30):
        while (await world.shell(uid, f"test -e /mnt/c/{name}"))[0]:
            await asyncio.sleep(0.02)


SCENARIOS = (memory_of_those_who_have_ended,)
