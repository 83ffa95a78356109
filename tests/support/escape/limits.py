"""Programs that take all they can get. Each is stopped by a limit, and gets further with a higher one that is still safe."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os

from sandpool.base.errors import NodeError
from sandpool.model.metadata import Uid
from sandpool.node.backend import Started, VolumeMount
from sandpool.node.runtimes.contract import Limits
from sandpool.node.volumes.spec import EmptyDir, VolumeSpec
from support.escape.box import Box, a_box
from support.escape.world import FOREVER, World

# Every process of the bomb forks as long as it can; all wait for a byte that never comes, and end when the first one does.
BOMB = """
import mmap, os, sys, time
most = int(sys.argv[1]); reader, writer = os.pipe(); top = os.getpid(); over = mmap.mmap(-1, 1)
def count(): return sum(name.isdigit() for name in os.listdir("/proc"))
while over[0] == 0 and count() < most:
    try: pid = os.fork()
    except OSError:
        if len(sys.argv) == 2: break
        time.sleep(0.001); continue
    if pid == 0 and writer >= 0: os.close(writer); writer = -1
if os.getpid() != top:
    os.read(reader, 1); os._exit(0)
over[0] = 1
print(count(), flush=True)
"""
EAT = """
import sys
kept = []
try:
    for number in range(int(sys.argv[1])):
        kept.append(bytearray(b"x" * (1 << 20))); print(number + 1, flush=True)
except MemoryError: pass
"""
FILL = """
import sys
try:
    with open(sys.argv[1], "wb") as file:
        for number in range(int(sys.argv[2])):
            file.write(b"x" * (1 << 20)); file.flush(); print(number + 1, flush=True)
except OSError as error: pass
"""
OPEN = """
import os, sys
kept = 0
try:
    for number in range(int(sys.argv[1])):
        os.open("/dev/null", os.O_RDONLY); kept += 1
except OSError: pass
print(kept)
"""
WATCH = """
import ctypes, time
libc, count = ctypes.CDLL(None), 0
while count < 100_000 and libc.inotify_init() >= 0: count += 1
print(count, flush=True); time.sleep(0.2)
"""
LARGEST_BLOCK = 40 << 16  # one read of empty lines, each with its time before it


def last(text: str) -> int:
    """How far it got, as it said itself."""
    lines = [line for line in text.split() if line.isdigit()]
    return int(lines[-1]) if lines else 0


async def a_fork_bomb(world: World) -> None:
    async with a_box(world, Limits(pids=40)) as box:
        assert 20 < last((await box.python(BOMB, "100"))[1]) <= 41  # pid 1 is the runtime's and is not counted
    async with a_box(world, Limits(pids=40)) as box:
        await _while_it_burns(box)
    async with a_box(world, Limits(pids=200)) as box:
        assert last((await box.python(BOMB, "100"))[1]) > 40


async def _while_it_burns(box: Box) -> None:
    """Commands from outside are refused in words; pid 1 still answers."""
    bomb = asyncio.create_task(box.python(BOMB, "100", "stay"))
    refused: NodeError | None = None
    while not bomb.done():
        try:
            await box.python("print(1)")
        except NodeError as error:
            refused = error
            break
    assert refused is not None
    assert refused.reason == "ResourceExhausted"
    bomb.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await bomb


async def too_much_memory(world: World) -> None:
    for limit, least, most in (("64Mi", 5, 64), ("256Mi", 120, 120)):
        async with world.pod(world.workload(("sh", "-c", FOREVER), limits={"memory": limit})) as uid:
            _, said = await world.python(uid, EAT, "120")
            assert least <= last(said) <= most, (limit, last(said))


async def too_much_on_disk(world: World) -> None:
    for limit, least, most in (("16Mi", 5, 16), ("64Mi", 32, 32)):
        async with world.pod(world.workload(("sh", "-c", FOREVER), limits={"ephemeral-storage": limit})) as uid:
            for path in ("/tmp/big", "/usr/big", "/var/big"):
                _, said = await world.python(uid, FILL, path, "32")
                assert least <= last(said) <= most, (limit, path, last(said))
                await world.shell(uid, f"rm -f {path}")


async def too_much_in_a_volume_in_memory(world: World) -> None:
    for size, least, most in ((4 << 20, 2, 4), (64 << 20, 16, 16)):
        mounts = {"v": VolumeMount(name="v", mount_path="/mnt/v")}
        work = world.workload(
            ("sh", "-c", FOREVER), mounts=mounts, volumes=[VolumeSpec("v", EmptyDir(memory=True, size=size))]
        )
        async with world.pod(work) as uid:
            assert least <= last((await world.python(uid, FILL, "/mnt/v/big", "16"))[1]) <= most


async def too_much_shared_memory(world: World) -> None:
    async with world.pod(world.workload(("sh", "-c", FOREVER))) as uid:
        assert last((await world.python(uid, FILL, "/dev/shm/big", "100"))[1]) <= 64
        await world.shell(uid, "rm /dev/shm/big")
        assert last((await world.python(uid, FILL, "/dev/shm/big", "32"))[1]) == 32


async def too_many_open_files(world: World) -> None:
    async with a_box(world, Limits(files=128)) as box:
        assert 100 < last((await box.python(OPEN, "500"))[1]) < 128
    async with a_box(world, Limits(files=1024)) as box:
        assert last((await box.python(OPEN, "500"))[1]) == 500


async def the_machines_share_of_watches(world: World) -> None:
    """The kernel counts them by person, and for the owner of a user namespace, too. An ordinary user gives each sandbox a part."""
    async with a_box(world) as box:
        held = asyncio.create_task(box.python(WATCH))
        libc, refused, tried = ctypes.CDLL(None), 0, 0
        while not held.done():
            file = libc.inotify_init()
            tried, refused = tried + 1, refused + (file < 0)
            if file >= 0:
                os.close(file)
            await asyncio.sleep(0.01)
        assert 10 < last((await held)[1]) < 100_000
        assert tried > 5
        assert refused == 0


async def _log_bytes(world: World, uid: Uid) -> int:
    return sum(
        path.stat().st_size
        for path in (world.folder / "data" / "pods").rglob("*")
        if path.is_file() and uid in str(path)
    )


async def _output(world: World, program: str) -> tuple[int, bytes]:
    """What is kept of a program's output, on disk and for whoever asks."""
    async with world.pod(world.workload(("sh", "-c", f"{program}; {FOREVER}"))) as uid:
        async with asyncio.timeout(60):
            while b"the end" not in (text := b"".join([part async for part in world.backend.logs(uid, "main")]))[-100:]:
                await asyncio.sleep(0.02)
        return await _log_bytes(world, uid), text


async def a_flood_of_output(world: World) -> None:
    bound = world.options.log_files * (world.options.log_size + LARGEST_BLOCK)
    size, _ = await _output(world, "seq 1 400000; echo the end")
    assert size < bound, size
    size, _ = await _output(world, "head -c 12000000 /dev/zero; echo the end")  # one line
    assert size < bound, size
    size, text = await _output(world, "seq 1 10000; echo the end")
    assert text.startswith(b"1\n2\n")  # less than the limit is kept whole
    assert len(text) > 40000


async def a_flood_for_one_who_listens(world: World) -> None:
    """The command writes no faster than it is read, and nobody else waits for that."""
    async with (
        world.pod(world.workload(("sh", "-c", FOREVER))) as one,
        world.pod(world.workload(("sh", "-c", FOREVER))) as two,
    ):
        flood = asyncio.create_task(world.shell(one, "head -c 30000000 /dev/zero"))
        answers = [await world.shell(two, f"echo {number}") for number in range(10)]
        assert [text for _, text in answers] == [f"{number}\n" for number in range(10)]
        assert len((await flood)[1]) == 30000000


async def a_processor_hog(world: World) -> None:
    """Many that never rest; a neighbour's commands all run, and so does this process."""
    async with (
        world.pod(world.workload(("sh", "-c", FOREVER))) as hog,
        world.pod(world.workload(("sh", "-c", FOREVER))) as quiet,
    ):
        await world.shell(hog, "for i in 1 2 3 4 5 6; do (while :; do :; done) > /dev/null 2>&1 & done")
        turns = 0

        async def turning() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0.001)
                turns += 1

        task = asyncio.create_task(turning())
        before = (await world.backend.stats(hog)).cpu_seconds
        answers = [await world.shell(quiet, f"echo {number}") for number in range(10)]
        while (await world.backend.stats(hog)).cpu_seconds < before + 0.05:
            await asyncio.sleep(0.01)
        task.cancel()
        assert [text for _, text in answers] == [f"{number}\n" for number in range(10)]
        assert turns > 10
        seen = world.backend.pod_status(hog)
        assert seen is not None
        assert isinstance(seen.containers[0].state, Started)


SCENARIOS = (
    a_fork_bomb, too_much_memory, too_much_on_disk, too_much_in_a_volume_in_memory, too_much_shared_memory,
    too_many_open_files, the_machines_share_of_watches, a_flood_of_output, a_flood_for_one_who_listens, a_processor_hog,
)  # fmt: skip
