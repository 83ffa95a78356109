"""Programs that want to live on, or to take others with them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys

from sandpool.base.errors import NodeError
from sandpool.model.metadata import Uid
from sandpool.node.backend import Exit, PodStatus, Started, VolumeMount
from sandpool.node.volumes.spec import Claim, EmptyDir, VolumeSpec
from support.escape.census import marked
from support.escape.world import FOREVER, World

# Ways to be overlooked. The mark stands in the arguments of each, so that it is found on the machine.
OUTLIVE = """
import os, signal, subprocess, sys, time
mark, ways = sys.argv[1], sys.argv[2:]
QUIET = "import signal, sys, time\\nfor n in range(1, 65):\\n  try: signal.signal(n, signal.SIG_IGN)\\n  except (OSError, ValueError): pass\\n"
LOOP = "import os, sys\\nwhile True:\\n  if os.fork() == 0: os.setsid(); continue\\n  os._exit(0)"
def start(code, **more):
    return subprocess.Popen([sys.executable, "-S", "-c", code, mark], stdin=-3, stdout=-3, stderr=-3, **more)
if "deaf" in ways: start(QUIET + "time.sleep(1000)")
if "session" in ways: start(QUIET + "time.sleep(1000)", start_new_session=True)
if "group" in ways: start(QUIET + "time.sleep(1000)", process_group=0)
if "stopped" in ways: start("import os, signal; os.kill(os.getpid(), signal.SIGSTOP)", start_new_session=True)
if "orphan" in ways and os.fork() == 0:
    os.setsid()
    if os.fork() == 0: start(QUIET + "time.sleep(1000)", start_new_session=True)
    os._exit(0)
if "restless" in ways: start(LOOP)
time.sleep(0.3)
print("begun", flush=True)
"""
OVER_SIZE = 8_000_000
SAFE_WAYS = ("deaf", "session", "group", "stopped", "orphan")
SIGNALS = """
import os
for number in range(1, 65):
    if number not in (32, 33):
        os.kill(1, number)
print("sent")
"""


def runs(seen: PodStatus | None) -> bool:
    return seen is not None and isinstance(seen.containers[0].state, Started)


def over(seen: PodStatus | None) -> bool:
    return seen is not None and isinstance(seen.containers[0].state, Exit)


async def nobody_outlives_the_sandbox(world: World) -> None:
    async with world.pod(world.workload(("sh", "-c", FOREVER))) as uid:
        mark = f"{world.mark}-alive"
        _, said = await world.python(uid, OUTLIVE, mark, *SAFE_WAYS, "restless")
        assert said == "begun\n"
        assert world.kind.own_kernel or len(marked(mark)) >= len(SAFE_WAYS)
    assert not marked(mark)


async def nobody_outlives_the_command(world: World) -> None:
    """When the container's own command ends, so does everything in it."""
    mark = f"{world.mark}-ended"
    work = world.workload(("python3", "-c", OUTLIVE, mark, *SAFE_WAYS, "restless"))
    async with world.pod(work) as uid:
        await world.until(uid, over)
        assert not marked(mark)


async def without_a_sandbox_they_do(world: World) -> None:
    """The proof: the same program, started plainly; its group is ended as a shell would."""
    mark = f"{world.mark}-plain"
    process = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", OUTLIVE, mark, *SAFE_WAYS],
        process_group=0,
        capture_output=True,
        check=True,
    )
    assert process.stdout == b"begun\n"
    left = marked(mark)
    try:
        assert len(left) == len(SAFE_WAYS)
    finally:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(10):
        while marked(mark):
            await asyncio.sleep(0.01)


async def signals_to_everybody(world: World) -> None:
    """The victim says whether it heard any; what happened to the sandbox itself is its own affair."""
    for number in (signal.SIGSTOP, signal.SIGUSR1, signal.SIGKILL):
        async with world.pod(world.workload(("sh", "-c", FOREVER))) as uid:
            await world.python(uid, f"import os; os.kill(-1, {int(number)})")
    assert world.victim.hits() == ""


async def signals_to_init(world: World) -> None:
    async with world.pod(world.workload(("sh", "-c", FOREVER))) as uid:
        assert (await world.python(uid, SIGNALS))[1] == "sent\n"
        assert await world.shell(uid, "echo well") == (0, "well\n")
        assert runs(world.backend.pod_status(uid))
        # The proof: a process that is not shielded, the container's own command, does end.
        await world.shell(uid, "kill -9 $(cat /proc/[0-9]*/stat | awk '$2 == \"(sleep)\" {print $1}')")
        await world.until(uid, over)


async def orphans_are_reaped(world: World) -> None:
    """Thousands that nobody waits for: none is left to fill the table of processes."""
    program = "import os\nfor n in range(500):\n  p = os.fork()\n  if p == 0:\n    if os.fork() == 0: os._exit(0)\n    os._exit(0)\n  os.waitpid(p, 0)\nprint('done')"
    async with world.pod(world.workload(("sh", "-c", FOREVER))) as uid:
        assert (await world.python(uid, program))[1] == "done\n"
        async with asyncio.timeout(10):
            while (await world.shell(uid, "cat /proc/[0-9]*/stat 2>/dev/null | grep -c ' Z '"))[1].strip() != "0":
                await asyncio.sleep(0.02)


async def the_bomb_is_ended_with_its_sandbox(world: World) -> None:
    """Processes that are born and die all the time, up to the limit: ending the sandbox ends them all."""
    mark = f"{world.mark}-bomb"
    program = "import os, sys\nwhile True:\n  try: os.fork()\n  except OSError: pass\n"
    async with world.pod(world.workload(("sh", "-c", FOREVER), limits={"memory": "256Mi"})) as uid:
        bomb = asyncio.create_task(
            world.say(
                uid,
                "python3",
                "-S",
                "-c",
                f"import resource; resource.setrlimit(resource.RLIMIT_NPROC, (60, 60))\n{program}",
                mark,
            )
        )
        async with asyncio.timeout(20):
            while len(marked(mark)) < 20:
                await asyncio.sleep(0.02)
    await bomb
    assert not marked(mark)


async def a_pod_that_is_over_keeps_only_its_logs(world: World) -> None:
    """No quota counts it: whatever it filled, and whoever it left behind, is gone. What it said is still there to be read."""
    mark, claim = f"{world.mark}-over", "claim-of-one-that-is-over"
    sources = {"memory": EmptyDir(memory=True, size=32 << 20), "disk": EmptyDir(), "claim": Claim("team", "c", claim)}
    mounts = {name: VolumeMount(name=name, mount_path=f"/mnt/{name}") for name in sources}
    volumes = [VolumeSpec(name, source) for name, source in sources.items()]  # type: ignore[arg-type]
    program = f"""
import os, subprocess, sys
for place in ("/mnt/memory/x", "/mnt/disk/x", "/var/x", "/dev/termination-log"):
    with open(place, "wb") as file: file.write(bytes({OVER_SIZE}))
os.makedirs("/mnt/disk/closed/inner"); os.chmod("/mnt/disk/closed", 0)
os.symlink("/", "/mnt/disk/link")
with open("/mnt/claim/kept", "wb") as file: file.write(b"kept")
subprocess.Popen(["sh", "-c", "trap '' TERM; sleep 1000; :", {mark!r}], start_new_session=True)
print("said", flush=True)
"""
    work = world.workload(("python3", "-c", program), mounts=mounts, volumes=volumes, message="/dev/termination-log")
    async with world.pod(work) as uid:
        ended = await world.until(uid, over)
        assert ended is not None
        assert isinstance(ended.containers[0].state, Exit)
        assert ended.containers[0].state.code == 0
        await world.backend.reclaim(work)
        await world.until(uid, lambda seen: seen is not None and seen.reclaimed)
        assert not (await world.backend.stats(uid)).memory_bytes
        assert not marked(mark)
        assert _on_disk(world, uid) < OVER_SIZE // 4
        assert b"".join([text async for text in world.backend.logs(uid, "main")]) == b"said\n"
        assert await _why_not_reached(world, uid) == "NotRunning"
    assert claim in await world.volumes.claims()
    await world.volumes.remove_claim(claim)


async def _why_not_reached(world: World, uid: Uid) -> str:
    try:
        (await world.backend.dial(uid, 1)).close()
    except NodeError as error:
        return error.reason
    return ""


def _on_disk(world: World, uid: Uid) -> int:
    """Bytes of everything that is named after the pod."""
    total = 0
    for folder, _, names in os.walk(world.folder / "data"):
        for name in names if uid in folder else ():
            with contextlib.suppress(FileNotFoundError):
                total += os.lstat(os.path.join(folder, name)).st_size
    return total


SCENARIOS = (
    nobody_outlives_the_sandbox, nobody_outlives_the_command, without_a_sandbox_they_do, signals_to_everybody, signals_to_init,
    orphans_are_reaped, the_bomb_is_ended_with_its_sandbox, a_pod_that_is_over_keeps_only_its_logs,
)  # fmt: skip
