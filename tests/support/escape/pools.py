"""Programs that empty what the kernel has for everybody, or for everybody who is the same user: the others must not notice."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sandpool.node.backend import Exit
from sandpool.node.runtimes.namespaces.runtime import NamespacesRuntime
from sandpool.node.runtimes.namespaces.tcp_pressure import machine_use
from sandpool.node.runtimes.namespaces.uncharged_memory import Growth
from support.escape.box import Box, a_box
from support.escape.limits import last
from support.escape.world import FOREVER, World

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
# The same with so many connections that what each is given in any case is more than the limit.
CONNECTIONS = """
import socket, time
listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
kept, part = [], bytes(65536)
while len(kept) < 6000:
    one = socket.create_connection(listener.getsockname()); kept += [one, listener.accept()[0]]
    one.setblocking(False)
    try: one.send(part)
    except OSError: pass
time.sleep(5)
"""
# Connections that nobody accepts, each with something in it, and whose other end is closed.
UNACCEPTED = """
import socket, time
listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
for _ in range(3000):
    one = socket.create_connection(listener.getsockname()); one.send(bytes(60000)); one.close()
time.sleep(5)
"""
# Questions to the kernel whose answers nobody reads.
REPLIES = """
import socket, struct, time
question = struct.pack("=IHHIIBBHiII", 32, 18, 1, 1, 0, 0, 0, 0, 1, 0, 0)
kept = []
for _ in range(400):
    one = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW); kept.append(one); one.setblocking(False)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    try:
        for _ in range(400): one.send(question)
    except OSError: pass
time.sleep(5)
"""

# Locks of bytes that do not touch each other, in files of which each has few, so that taking one is quick.
LOCKS = """
import fcntl, os, time
kept = []
for number in range(400):
    file = os.open(f"/tmp/lock-{number}", os.O_RDWR | os.O_CREAT); kept.append(file)
    for at in range(300): fcntl.lockf(file, fcntl.LOCK_EX, 1, 2 * at)
time.sleep(20)
"""
# Names in a directory that the image has, too; and each time that it is listed, it has changed.
LISTINGS = """
import os, time
open("/etc/name", "w").close()
for number in range(3000): os.link("/etc/name", "/etc/" + f"{number:06}".ljust(250, "x"))
kept = []
for _ in range(30):
    kept.append(os.scandir("/etc")); next(kept[-1])
    open("/etc/changed", "w").close(); os.unlink("/etc/changed")
time.sleep(20)
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


async def first_segments_of_many_connections(world: World) -> None:
    """Each is taken in spite of the limit: 3,000 connections of a pod of 64 MiB held 200 MiB. Whoever does that runs out of memory."""
    if "memory" not in (await world.runtime.probe()).enforced:
        return
    async with world.pod(world.workload(("sh", "-c", FOREVER), limits={"memory": "64Mi"})) as uid:
        assert (await world.python(uid, CONNECTIONS))[0] == 137
        if Path("/sys/fs/cgroup/memory").is_dir():  # version 1: we end the whole container, and the kernel nobody
            seen = await world.until(uid, lambda seen: seen is not None and isinstance(seen.containers[0].state, Exit))
            assert seen is not None
            assert isinstance(seen.containers[0].state, Exit)
            assert seen.containers[0].state.reason == "OOMKilled"


async def connections_that_nobody_accepts(world: World) -> None:
    """Charged to nobody, and part of what TCP may take on the whole machine: the sandbox goes before all others get less. Here, by a bound
    that does not hurt the machine on which this runs."""
    runtime = world.runtime
    assert isinstance(runtime, NamespacesRuntime)
    bound, runtime.socket_memory.tcp_bound = runtime.socket_memory.tcp_bound, machine_use() + (64 << 20)
    try:
        async with (
            world.pod(world.workload(("sh", "-c", FOREVER))) as uid,
            world.pod(world.workload(("sh", "-c", FOREVER))) as other,
        ):
            assert (await world.python(uid, UNACCEPTED))[0] == 137
            assert (await world.shell(other, "echo well")) == (0, "well\n")
    finally:
        runtime.socket_memory.tcp_bound = bound


async def replies_that_nobody_reads(world: World) -> None:
    """Charged to nobody, and without a bound but that of each socket."""
    async with world.pod(world.workload(("sh", "-c", FOREVER), limits={"memory": "64Mi"})) as uid:
        assert (await world.python(uid, REPLIES))[0] == 137


async def locks_without_number(world: World) -> None:
    """Charged to nobody: a process takes 600,000 in a second, 200 bytes each. Here, by a bound that does not hurt the machine."""
    await _killed_for_what_nobody_is_charged_for(world, LOCKS)


async def listings_without_number(world: World) -> None:
    """An overlay keeps the names of a directory for each open file of it, charged to nobody."""
    await _killed_for_what_nobody_is_charged_for(world, LISTINGS)


async def _killed_for_what_nobody_is_charged_for(world: World, program: str) -> None:
    runtime = world.runtime
    assert isinstance(runtime, NamespacesRuntime)
    guard = runtime.uncharged_memory
    await (
        guard.close()
    )  # it may pause after a search of an earlier scenario; the next pod starts it again, before anything has grown
    growth, most, guard.growth, guard.most = guard.growth, guard.most, Growth(4 << 20), 8 << 20
    try:
        async with (
            world.pod(world.workload(("sh", "-c", FOREVER), limits={"memory": "64Mi"})) as uid,
            world.pod(world.workload(("sh", "-c", FOREVER))) as other,
        ):
            found = await world.python(uid, program)
            assert found[0] == 137, found
            assert (await world.shell(other, "echo well")) == (0, "well\n")
    finally:
        guard.growth, guard.most = growth, most


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


SCENARIOS = (
    files_on_their_way,
    all_pipes_of_a_user,
    buffers_of_sockets,
    first_segments_of_many_connections,
    connections_that_nobody_accepts,
    replies_that_nobody_reads,
    locks_without_number,
    listings_without_number,
    what_it_takes_of_its_own_kernel,
)
