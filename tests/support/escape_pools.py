"""Programs that empty what the kernel has for everybody, or for everybody who is the same user: the others must not notice."""

from __future__ import annotations

import asyncio
from pathlib import Path

from support.escape_box import Box, a_box
from support.escape_limits import last
from support.escape_world import FOREVER, World

# All hold what they took until a file is there, which somebody from outside makes by a command of its own.
WAIT = """
def wait():
    open("/tmp/taken", "w").close(); print(taken, flush=True)
    while not os.path.exists("/tmp/enough"): time.sleep(0.01)
"""
SEND = f"""
import array, os, socket, time{WAIT}
taken, kept = 0, []
files = array.array("i", [0] * 250)
try:
    while taken < 100_000:
        pair = socket.socketpair(); kept.append(pair)
        for _ in range(100):
            pair[0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)]); taken += 250
except OSError: pass
wait()
"""
PIPES = f"""
import fcntl, os, time{WAIT}
taken, kept = 0, []
try:
    while taken < 200:
        kept.append(os.pipe()); fcntl.fcntl(kept[-1][0], 1031, 1 << 20); taken += 1
except OSError: pass
wait()
"""
TAKE = f"""
import ctypes, os, platform, time{WAIT}
taken, kept, libc = 0, [], ctypes.CDLL(None)
number = 0 if platform.machine() == "aarch64" else 206
for _ in range(300):
    context = ctypes.c_ulong(0)
    try: kept.append(os.openpty()); taken += 1
    except OSError: pass
    taken += libc.syscall(number, 100, ctypes.byref(context)) == 0
    taken += libc.inotify_init() >= 0
wait()
"""
# Connections to itself that nobody reads from. What the kernel takes for them is counted in bytes that were sent.
BUFFERS = """
import socket, sys
listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
kept, sent, part = [], 0, bytes(65536)
while sent < int(sys.argv[1]) << 20 and len(kept) < 1000:
    one = socket.create_connection(listener.getsockname()); other = listener.accept()[0]
    kept += [one, other]; one.setblocking(False); before = sent
    try:
        while sent < int(sys.argv[1]) << 20: sent += one.send(part)
    except OSError: pass
    if sent - before < 4096: break
print(sent >> 20)
"""


async def files_on_their_way(world: World) -> None:
    """The kernel counts them by person, and refuses whoever of that person sends one more: so do we, with every command."""
    async with a_box(world) as box:
        hog = asyncio.create_task(box.python(SEND))
        await _until_taken(box)
        async with a_box(world) as other:
            assert (await other.python("print(7)"))[1] == "7\n"
        await box.python("open('/tmp/enough', 'w')")
        assert last((await hog)[1]) > 100


async def _until_taken(box: Box) -> None:
    async with asyncio.timeout(30):
        while (await box.python("import os; print(int(os.path.exists('/tmp/taken')))"))[1] != "1\n":
            await asyncio.sleep(0.02)


async def all_pipes_of_a_user(world: World) -> None:
    """Past the quota of a user pipes are small, and still carry everything."""
    async with a_box(world) as box:
        hog = asyncio.create_task(box.python(PIPES))
        await _until_taken(box)
        async with a_box(world) as other:
            assert len((await other.python("print('x' * 300_000)"))[1]) == 300_001
        await box.python("open('/tmp/enough', 'w')")
        assert last((await hog)[1]) > 10


async def buffers_of_sockets(world: World) -> None:
    """They are memory, also where the kernel does not count them as such."""
    if "memory" not in (await world.runtime.probe()).enforced:
        return
    async with world.pod(world.workload(("sh", "-c", FOREVER), limits={"memory": "64Mi"})) as uid:
        _, said = await world.python(uid, BUFFERS, "200")
        assert last(said) <= 64 + 16, last(said)
    async with world.pod(world.workload(("sh", "-c", FOREVER), limits={"memory": "1Gi"})) as uid:
        assert last((await world.python(uid, BUFFERS, "20"))[1]) == 20


async def what_it_takes_of_its_own_kernel(world: World) -> None:
    """Terminals, watches and contexts of asynchronous I/O are all to be had, and none of them is the machine's."""
    before = _in_use()
    async with a_box(world) as box:
        hog = asyncio.create_task(box.python(TAKE))
        await _until_taken(box)
        more = {name: count - before[name] for name, count in _in_use().items()}
        await box.python("open('/tmp/enough', 'w')")
        assert last((await hog)[1]) > 300
        assert all(count < 150 for count in more.values()), more


def _in_use() -> dict[str, int]:
    """Of the machine's."""
    return {name: int(Path("/proc/sys", name).read_text()) for name in ("fs/aio-nr", "kernel/pty/nr")}


SCENARIOS = (files_on_their_way, all_pipes_of_a_user, buffers_of_sockets, what_it_takes_of_its_own_kernel)
