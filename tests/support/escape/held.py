"""Pods that give memory to another one and end. The kernel counts it for those who are gone; it must take from their tenant only."""

from __future__ import annotations

import asyncio
import contextlib
import os
from dataclasses import replace
from pathlib import Path

from sandpool.model.metadata import Key
from sandpool.node.backend import Exit, PodStatus, VolumeMount, Waiting, Workload
from sandpool.node.runtimes.namespaces.cgroup_hierarchy import keyed, number
from sandpool.node.runtimes.namespaces.runtime import NamespacesRuntime
from sandpool.node.volumes.spec import Claim, VolumeSpec
from support.escape.world import FOREVER, World

CLAIM = "claim-that-pods-share"
LIMIT, GIVEN, ROUNDS = 64, 44, 8  # MiB of each pod, MiB of each gift, gifts
SPARE = 32 + 2 * LIMIT // 8  # on top of the limits of two pods that live
MIB = 1 << 20

HOLD = """
import os, socket
listener = socket.socket(socket.AF_UNIX); listener.bind("/mnt/c/made"); listener.listen(); kept = []
os.rename("/mnt/c/made", "/mnt/c/socket")
while True:
    connection, _ = listener.accept(); kept.append(socket.recv_fds(connection, 1, 200)); connection.send(b"x")
"""
GIVE = """
import ctypes, os, socket
connection = socket.socket(socket.AF_UNIX)
while not os.path.exists("/mnt/c/socket"): pass
connection.connect("/mnt/c/socket")
if KIND == "files":
    file = os.memfd_create("x")
    for _ in range(SIZE): os.write(file, bytes(1 << 20))
elif KIND == "terminals":
    try:
        while True:
            file = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY); socket.send_fds(connection, [b"x"], [file]); connection.recv(1)
            os.close(file); connection = socket.socket(socket.AF_UNIX); connection.connect("/mnt/c/socket")
    except OSError: file = 0
elif KIND == "ends":
    try:
        while True:
            master, file = os.openpty(); os.close(master); socket.send_fds(connection, [b"x"], [file]); connection.recv(1)
            os.close(file); connection = socket.socket(socket.AF_UNIX); connection.connect("/mnt/c/socket")
    except OSError: file = 0
elif KIND == "watches":
    while (file := ctypes.CDLL(None).inotify_init()) >= 0:
        socket.send_fds(connection, [b"x"], [file]); connection.recv(1)
        connection = socket.socket(socket.AF_UNIX); connection.connect("/mnt/c/socket")
    file = 0
else:
    libc = ctypes.CDLL(None); libc.shmat.restype = ctypes.c_void_p
    ctypes.memset(libc.shmat(libc.shmget(77, ctypes.c_size_t(SIZE << 20), 0o1666), None, 0), 1, SIZE << 20)
    file = os.open("/proc/self/ns/ipc", os.O_RDONLY)
socket.send_fds(connection, [b"x"], [file]); connection.recv(1)
"""
# A socket that listens and others that are to connect to it, given to a pod that uses them when the giver has ended.
GIVE_LISTENER = """
import os, socket
while not os.path.exists("/mnt/c/socket"): pass
listener = socket.create_server(("127.0.0.1", 0)); early = socket.create_connection(listener.getsockname()); early.send(bytes(1000))
connection = socket.socket(socket.AF_UNIX); connection.connect("/mnt/c/socket")
kept = [listener, socket.socket(), socket.socket(), socket.socket()]
socket.send_fds(connection, [str(listener.getsockname()[1]).encode()], [each.fileno() for each in kept])
connection.recv(1)
"""
HOLD_LISTENER = """
import os, socket, time
sock = socket.socket(socket.AF_UNIX); sock.bind("/mnt/c/made"); sock.listen()
os.rename("/mnt/c/made", "/mnt/c/socket")
connection, _ = sock.accept(); port, files, _, _ = socket.recv_fds(connection, 100, 200); connection.send(b"x")
listener, late, later, latest = (socket.socket(fileno=file) for file in files)
while not os.path.exists("/mnt/c/ended"): time.sleep(0.01)
found = []
listener.setblocking(False); late.settimeout(1); latest.settimeout(1)
try: listener.accept(); found.append("accepted what had waited")
except OSError: pass
try: late.connect(("127.0.0.1", int(port))); found.append("connected")
except OSError: pass
try: later.bind(("127.0.0.1", 0)); later.listen(); latest.connect(later.getsockname()); found.append("listened")
except OSError: pass
open("/mnt/c/writing", "w").write(", ".join(found)); os.rename("/mnt/c/writing", "/mnt/c/found")
time.sleep(1000)
"""
COUNT_ENDS = """
import glob, os
print(sum(136 <= os.major(os.stat(name).st_rdev) < 144 for name in glob.glob("/proc/[0-9]*/fd/*") if os.path.exists(name)))
"""


def _pod(world: World, tenant: str, program: str, *, claim: bool) -> Workload:
    mounts = {"c": VolumeMount(name="c", mount_path="/mnt/c")} if claim else {}
    volumes = [VolumeSpec("c", Claim(tenant, "c", CLAIM))] if claim else []
    command = ("python3", "-S", "-c", program) if program else ("sh", "-c", FOREVER)
    work = world.workload(command, limits={"memory": f"{LIMIT}Mi"}, mounts=mounts, volumes=volumes)
    return replace(work, key=Key(tenant, work.key.name))


async def memory_of_those_who_have_ended(world: World) -> None:
    """However often pods give away what they have and end: with what lives, it is never more than the living may have."""
    group = _group(world)
    if group is None or not isinstance(world.runtime, NamespacesRuntime):
        return
    world.runtime.runtime_host.tenants.linger = 0.1
    before = _in_use(group)
    async with (
        world.pod(_pod(world, "innocent", "", claim=False)) as innocent,
        world.pod(_pod(world, "giving", HOLD, claim=True)),
    ):
        most = 0
        for turn in range(ROUNDS):
            await _given(world, "segments" if turn % 2 else "files")
            most = max(most, _in_use(group) - before)
        assert most > GIVEN * MIB, "nothing was given"
        assert most <= (2 * LIMIT + SPARE + 16) * MIB, f"{most // MIB} MiB"  # and what the innocent one uses
        assert await world.shell(innocent, "echo well") == (0, "well\n")
        async with world.pod(_pod(world, "innocent", "", claim=False)) as another:
            assert await world.shell(another, "echo well") == (0, "well\n")
    async with asyncio.timeout(30):
        while _in_use(group) - before > 4 * MIB or list(group.glob("tenant-[gi]*")):
            await asyncio.sleep(0.05)
    await world.volumes.remove_claim(CLAIM)


async def counts_of_those_who_have_ended(world: World) -> None:
    """The kernel counts some things by id. What is left of an ended pod must not be counted for whoever has its ids next."""
    if os.geteuid() or not isinstance(world.runtime, NamespacesRuntime):
        return
    watch = "python3 -S -c 'import ctypes; print(ctypes.CDLL(None).inotify_init() >= 0)'"
    async with world.pod(_pod(world, "passing", HOLD, claim=True)) as holder:
        work = _pod(world, "passing", f"KIND = 'watches'; SIZE = 0\n{GIVE}", claim=True)
        async with world.pod(work) as giver:
            await world.until(giver, _over)
        assert world.backend.pod_status(holder) is not None
        for _ in range(3):
            async with world.pod(_pod(world, "neighbours", "", claim=False)) as innocent:
                assert await world.shell(innocent, watch) == (0, "True\n")
    await world.volumes.remove_claim(CLAIM)


async def terminals_of_those_who_have_ended(world: World) -> None:
    """The machine has a few thousand for all: one pod may have 128, and so may all that have ended."""
    if not isinstance(world.runtime, NamespacesRuntime):
        return
    async with world.pod(_pod(world, "passing", HOLD, claim=True)) as holder:
        for _ in range(4):
            work = _pod(world, "passing", f"KIND = 'terminals'; SIZE = 0\n{GIVE}", claim=True)
            async with world.pod(work) as giver:
                await world.until(giver, _over)
        code, said = await world.shell(holder, "ls -l /proc/[0-9]*/fd 2>/dev/null | grep -c ptmx")
        assert code == 0
        assert 32 < int(said) < 128, said
    await world.volumes.remove_claim(CLAIM)


async def ends_of_terminals_of_those_who_have_ended(world: World) -> None:
    """Of which nobody has the master, so that no folder lists them."""
    if not isinstance(world.runtime, NamespacesRuntime):
        return
    terminals = world.runtime.machine.terminals
    before, terminals.plenty = terminals.plenty, 0
    try:
        async with world.pod(_pod(world, "passing", HOLD, claim=True)) as holder:
            for _ in range(4):
                work = _pod(world, "passing", f"KIND = 'ends'; SIZE = 0\n{GIVE}", claim=True)
                async with world.pod(work) as giver:
                    await world.until(giver, _over)
            code, said = await world.python(holder, COUNT_ENDS)
            assert code == 0, said
            assert 32 < int(said) < 128, said
    finally:
        terminals.plenty = before
    await world.volumes.remove_claim(CLAIM)


async def listeners_of_those_who_have_ended(world: World) -> None:
    """Connections that nobody accepts are charged to nobody, and of a pod that has ended nobody would see them."""
    if not isinstance(world.runtime, NamespacesRuntime):
        return
    world.runtime.runtime_host.tenants.linger = 0.1
    async with world.pod(_pod(world, "passing", HOLD_LISTENER, claim=True)) as holder:
        async with world.pod(_pod(world, "passing", GIVE_LISTENER, claim=True)) as giver:
            await world.until(giver, _over)
        await world.shell(holder, "touch /mnt/c/ended")
        async with asyncio.timeout(30):
            while (await world.shell(holder, "test -e /mnt/c/found"))[0]:
                await asyncio.sleep(0.02)
        assert await world.shell(holder, "cat /mnt/c/found") == (0, "")
    await world.volumes.remove_claim(CLAIM)


async def _given(world: World, kind: str) -> None:
    """By a pod that then ends, or that could not even begin, as there is nothing left for it."""
    work = _pod(world, "giving", f"KIND = {kind!r}; SIZE = {GIVEN}\n{GIVE}", claim=True)
    await world.backend.start_pod(work)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(5):
            await world.until(work.uid, _over)
    await world.gone(work.uid)


def _over(seen: PodStatus | None) -> bool:
    if seen is None:
        return True
    state = seen.containers[0].state
    return isinstance(state, Exit) or (isinstance(state, Waiting) and state.reason not in ("", "ContainerCreating"))


def _group(world: World) -> Path | None:
    """In which the memory of all sandboxes is counted, where somebody counts."""
    if os.geteuid():
        return None
    found = (Path(top) for top, _, _ in os.walk("/sys/fs/cgroup") if top.endswith(f"/sandpool-{world.installation}"))
    return next((path for path in found if (path / "memory.stat").exists()), None)


def _in_use(group: Path) -> int:
    """Without copies of files, which the kernel gives up when somebody needs the room."""
    stat = (group / "memory.stat").read_text()
    if (group / "memory.usage_in_bytes").exists():
        return sum(keyed(stat, f"total_{name}") for name in ("rss", "shmem", "swap"))
    return number((group / "memory.current").read_text()) - keyed(stat, "file") + keyed(stat, "shmem")


SCENARIOS = (
    memory_of_those_who_have_ended, counts_of_those_who_have_ended, terminals_of_those_who_have_ended,
    ends_of_terminals_of_those_who_have_ended, listeners_of_those_who_have_ended,
)  # fmt: skip
