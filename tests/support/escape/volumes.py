"""Links and races in volumes, images and messages: everywhere the machine touches what a sandbox has written."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sandpool.base.errors import NodeError
from sandpool.node.backend import Exit, PodStatus, Started, VolumeMount, Waiting, Workload
from sandpool.node.images.image import RootFs
from sandpool.node.runtimes.contract import Mount
from sandpool.node.volumes.spec import Claim, EmptyDir, HostPath, VolumeSpec
from support.escape.box import a_box
from support.escape.lifetime import over
from support.escape.talk import Conversation
from support.escape.world import FOREVER, World

CLAIM = "links-claim"
# Two names change places in one step, so that whoever looks sees one or the other and never neither.
SWAP = """
import ctypes, os, platform, sys
folder, away = sys.argv[1:]
exchange = {"x86_64": 316, "aarch64": 276}[platform.machine()]
os.symlink(away, f"{folder}/link")
print("swapping", flush=True)
while not os.path.exists(f"{folder}/stop"):
    for _ in range(50):
        if ctypes.CDLL(None).syscall(exchange, -100, f"{folder}/link".encode(), -100, f"{folder}/sub".encode(), 2):
            sys.exit("cannot exchange")
"""
CLIMB = """
import os, sys
os.chdir("/mnt/v/inner"); print("inside", flush=True)
sys.stdin.readline()
folder = os.open(".", os.O_RDONLY)
for _ in range(40):
    try: folder = os.open("..", os.O_RDONLY, dir_fd=folder)
    except OSError as error: print(error); break
    try:
        with os.fdopen(os.open(sys.argv[1].lstrip("/"), os.O_RDONLY, dir_fd=folder)) as file: print(file.read())
    except OSError: pass
"""


def with_claim(world: World, sub_path: str = "", script: str = FOREVER, claim: str = CLAIM) -> Workload:
    mounts = {"v": VolumeMount(name="v", mount_path="/mnt/v", sub_path=sub_path)}
    return world.workload(("sh", "-c", script), mounts=mounts, volumes=[VolumeSpec("v", Claim("team", "links", claim))])


def settled(seen: PodStatus | None) -> bool:
    """Started, ended, or refused for a reason."""
    state = seen.containers[0].state if seen is not None else None
    return isinstance(state, Started | Exit) or (
        isinstance(state, Waiting) and state.reason not in ("ContainerCreating", "PodInitializing")
    )


def data_of(world: World, claim: str = CLAIM) -> Path:
    return world.folder / "data" / "volumes" / "claims" / claim / "data"


async def links_at_a_sub_path(world: World) -> None:
    targets = world.files.folder
    async with world.pod(with_claim(world)) as uid:
        await world.shell(
            uid, f"cd /mnt/v; ln -s {targets} out; ln -s ../../../../../..{targets} up; mkdir in; ln -s ../out in/on"
        )
        # The proof: whoever follows them on the machine, without care, arrives.
        assert (data_of(world) / "out" / "secret").read_text() == world.token
        for sub in ("out", "out/shared", "up", "in/on", "out/secret"):
            await _mounts_nothing_outside(world, with_claim(world, sub))
    await world.volumes.remove_claim(CLAIM)


async def _mounts_nothing_outside(world: World, work: Workload) -> None:
    await world.backend.start_pod(work)
    try:
        seen = await world.until(work.uid, settled)
        assert seen is not None
        if isinstance(seen.containers[0].state, Started):
            _, said = await world.shell(work.uid, "cat /mnt/v /mnt/v/secret; ls -R /mnt/v; touch /mnt/v/new")
            assert world.token not in said
    finally:
        await world.gone(work.uid)


async def a_race_for_a_sub_path(world: World) -> None:
    claim = "race-claim"
    async with world.pod(with_claim(world, claim=claim)) as uid:
        await world.shell(uid, "mkdir /mnt/v/sub")
        swapping = asyncio.create_task(world.python(uid, SWAP, "/mnt/v", str(world.files.folder)))
        works = [with_claim(world, "sub", "cat /mnt/v/secret; ls /mnt/v; touch /mnt/v/new", claim) for _ in range(12)]
        try:
            for work in works:
                await world.backend.start_pod(work)
            for work in works:
                seen = await world.until(work.uid, lambda seen: settled(seen) and not _running(seen))
                assert seen is not None
                if isinstance(seen.containers[0].state, Exit):
                    said = b"".join([part async for part in world.backend.logs(work.uid, "main")])
                    assert world.token.encode() not in said
        finally:
            await world.shell(uid, "touch /mnt/v/stop")
            assert await swapping == (0, "swapping\n")
            for work in works:
                await world.gone(work.uid)
    await world.volumes.remove_claim(claim)


def _running(seen: PodStatus | None) -> bool:
    return seen is not None and isinstance(seen.containers[0].state, Started)


async def a_folder_moved_from_under_its_mount(world: World) -> None:
    """One sandbox stands in a folder of a sub path; another moves that folder out of it, where `..` leads to the machine."""
    claim = "moved-claim"
    async with world.pod(with_claim(world, claim=claim)) as mover:
        await world.shell(mover, "mkdir -p /mnt/v/sub/inner")
        async with world.pod(with_claim(world, "sub", claim=claim)) as climber:
            talk = Conversation(world, climber, ("python3", "-c", CLIMB, str(world.files.secret)))
            assert await talk.said() == "inside"
            assert await world.shell(mover, "mv /mnt/v/sub/inner /mnt/v/outer") == (0, "")
            talk.feed("go")
            assert world.token not in await talk.close()
    await world.volumes.remove_claim(claim)


async def links_where_something_is_mounted(world: World) -> None:
    """A hostile image has links where volumes and the kernel's file systems go."""
    layer, own = world.folder / "layer", world.folder / "own"
    shared = world.files.folder / "shared"
    for folder in (layer, own):
        folder.mkdir(mode=0o755)
    own.chmod(0o777)
    for name in ("data", "opt", "srv"):
        (layer / name).symlink_to(shared if name != "srv" else "../" * 20 + str(shared).lstrip("/"))
    (layer / "loop").symlink_to("loop")
    (layer / "dangling").symlink_to("/nowhere/at/all")
    try:
        for target in ("/data", "/opt/deep/er", "/srv/x", "/loop", "/dangling"):
            try:
                async with a_box(world, rootfs=RootFs((layer,), host=True), mounts=(Mount(target, own),)) as box:
                    await box.python(f"open({target!r} + '/new', 'w').close()")
            except NodeError as error:
                if error.reason != "InvalidPath":
                    raise
            assert {path.name for path in shared.iterdir()} == {"absolute", "relative"}
        # The proof: on the machine they lead there.
        assert (layer / "data").resolve() == (layer / "srv").resolve() == shared.resolve()
        for path in own.iterdir():
            path.unlink()
    finally:
        for folder in (layer, own):
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()


async def links_where_the_kernel_is_mounted(world: World) -> None:
    """The same for /proc, /dev and /tmp, on which the image itself decides."""
    layer, shared = world.folder / "layer", world.files.folder / "shared"
    layer.mkdir(mode=0o755)
    (layer / "tmp").symlink_to(shared)
    try:
        try:
            async with a_box(world, rootfs=RootFs((layer,), host=True)) as box:
                await box.python("open('/tmp/new', 'w').close()")
        except NodeError:
            pass
        assert {path.name for path in shared.iterdir()} == {"absolute", "relative"}
    finally:
        (layer / "tmp").unlink()
        layer.rmdir()


async def folders_of_the_machine_that_nobody_allowed(world: World) -> None:
    folder = world.files.folder
    for path in (
        folder,
        folder / "shared" / "absolute",
        folder / "shared" / ".." / "secret",
        "/",
        folder / "shared/../programs",
    ):
        mounts = {"v": VolumeMount(name="v", mount_path="/mnt/v")}
        work = world.workload(("sh", "-c", FOREVER), mounts=mounts, volumes=[VolumeSpec("v", HostPath(str(path)))])
        await world.backend.start_pod(work)
        try:
            seen = await world.until(work.uid, settled)
            assert seen is not None
            assert isinstance(seen.containers[0].state, Waiting), path
        finally:
            await world.gone(work.uid)
    mounts = {"v": VolumeMount(name="v", mount_path="/mnt/v")}
    allowed = [VolumeSpec("v", HostPath(str(folder / "shared")))]
    async with world.pod(world.workload(("sh", "-c", FOREVER), mounts=mounts, volumes=allowed)) as uid:
        assert await world.shell(uid, "ls /mnt/v") == (0, "absolute\nrelative\n")  # the proof


async def links_as_last_words(world: World) -> None:
    """What a container says at its end is read by the machine, from a file that the container had."""
    secret = world.files.secret
    for path in ("/dev/termination-log", "/tmp/words"):
        for script in (f"rm -f {path}; ln -s {secret} {path}", f"mv {path} {path}-2; ln -s {secret} {path}", f"ln -sf {secret} {path}",
                       f"rm {path}; mkfifo {path}", f"head -c 3000000 /dev/zero > {path}"):  # fmt: skip
            async with world.pod(world.workload(("sh", "-c", script), message=path)) as uid:
                seen = await world.until(uid, over)
                state = seen.containers[0].state if seen is not None else None
                assert isinstance(state, Exit)
                assert world.token not in state.message
                assert len(state.message) < 20000
        async with world.pod(world.workload(("sh", "-c", f"echo farewell > {path}"), message=path)) as uid:
            seen = await world.until(uid, lambda seen: over(seen) and bool(seen and seen.containers[0].state.message))  # type: ignore[union-attr]
            assert seen is not None  # the proof


async def removal_follows_no_links(world: World) -> None:
    """What is left of a sandbox is taken away; what its links point to is not."""
    folder = world.files.folder / "programs"
    mounts = {"v": VolumeMount(name="v", mount_path="/mnt/v")}
    work = world.workload(("sh", "-c", FOREVER), mounts=mounts, volumes=[VolumeSpec("v", EmptyDir())])
    async with world.pod(work) as uid:
        script = f"for f in /mnt/v /tmp /var /usr/share; do ln -s {folder} $f/a; mkdir -p $f/b/c; ln -s {folder}/env $f/b/c/d; done"
        assert (await world.shell(uid, f"{script}; chmod 0 /tmp/b /mnt/v/b"))[0] == 0
    assert sorted(path.name for path in folder.iterdir()) == ["absolute", "env", "relative", "sh"]


SCENARIOS = (
    links_at_a_sub_path, a_race_for_a_sub_path, a_folder_moved_from_under_its_mount, links_where_something_is_mounted,
    links_where_the_kernel_is_mounted, folders_of_the_machine_that_nobody_allowed, links_as_last_words, removal_follows_no_links,
)  # fmt: skip
