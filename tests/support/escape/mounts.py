"""What is mounted is exchanged for a link: between two containers of a pod, and in races against those who mount it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import stat
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from sandpool.base.errors import NodeError
from sandpool.model.metadata import Uid
from sandpool.node.backend import (
    BackendError,
    ContainerSpec,
    Exit,
    PodSecurityContext,
    PodStatus,
    SecurityContext,
    Started,
    VolumeMount,
    Waiting,
    Workload,
)
from sandpool.node.images.image import RootFs
from sandpool.node.runtimes.contract import Mount
from sandpool.node.volumes.spec import Claim, EmptyDir, HostPath, VolumeSpec
from support.escape.box import a_box
from support.escape.talk import Conversation
from support.escape.volumes import SWAP, data_of, settled
from support.escape.world import FOREVER, World

NAMES = 8
MODE = 0o600
FOREIGN = 70000  # an id of the machine that no sandbox has
LOOT = "cat /mnt/part /mnt/part/secret; ls -lR /mnt/part; touch /mnt/part/new; mkdir /mnt/part/new-folder; echo more >> /mnt/part/secret"
# Waits for each name to appear, and in the same moment puts a link in its place; a little later back, so that whoever makes them goes
# on to the next. One call in a loop is all there is between the two: whoever makes a folder, and then does something to its name, is
# beaten.
AMBUSH = """
import ctypes, os, platform, sys, time
folder, away, prefix, count = sys.argv[1:]
number = {"x86_64": 316, "aarch64": 276}[platform.machine()]
call = ctypes.CDLL(None).syscall
pairs = [(f"{folder}/link-{prefix}{index}".encode(), f"{folder}/{prefix}{index}".encode()) for index in range(int(count))]
for link, _ in pairs: os.symlink(away, link)
print("waiting", flush=True)
taken = []
def give_back(until):
    while taken and taken[0][0] < until:
        link, name = taken.pop(0)[1]
        if call(number, -100, link, -100, name, 2): sys.exit("cannot exchange")
for pair in pairs:
    link, name = pair
    while call(number, -100, link, -100, name, 2):
        if taken and time.monotonic() > taken[0][0]: give_back(time.monotonic())
    taken.append((time.monotonic() + 0.2, pair))
give_back(time.monotonic() + 60)
print("done", flush=True)
"""


@contextlib.contextmanager
def closed(world: World) -> Iterator[Path]:
    """A folder of the machine with a secret in it, for its owner alone."""
    folder = world.folder / "closed"
    folder.mkdir(mode=0o700)
    (folder / "secret").write_text(world.token)
    (folder / "secret").chmod(MODE)
    try:
        yield folder
        assert [path.name for path in folder.iterdir()] == ["secret"]
        assert (folder / "secret").read_text() == world.token
        assert stat.S_IMODE((folder / "secret").stat().st_mode) == MODE
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    finally:
        shutil.rmtree(folder)


def in_turn(world: World, first: str, volumes: Sequence[VolumeSpec], part: VolumeMount, script: str = LOOT) -> Workload:
    """A pod whose first container changes what its second one mounts, when both have been judged."""
    work = world.workload(("sh", "-c", script), mounts={"part": part}, volumes=volumes)
    whole = VolumeMount(name="whole", mount_path="/mnt/whole")
    before = ContainerSpec(name="first", image="host", command=("sh", "-ec", first), volume_mounts=(whole,))
    return replace(work, spec=msgspec.structs.replace(work.spec, init_containers=(before,)))


def first_is_over(seen: PodStatus | None) -> bool:
    """And of the second one it is known what became of it."""
    return seen is not None and settled(seen) and isinstance(seen.init[0].state, Exit)


async def finds_nothing(world: World, work: Workload) -> None:
    await world.backend.start_pod(work)
    try:
        seen = await world.until(work.uid, first_is_over)
        assert seen is not None
        end = seen.init[0].state
        assert isinstance(end, Exit)
        assert end.code == 0, "the trap was not laid"
        if not isinstance(seen.containers[0].state, Waiting):
            await world.until(work.uid, lambda seen: not _runs(seen))
            said = b"".join([part async for part in world.backend.logs(work.uid, "main")])
            assert world.token.encode() not in said
    finally:
        await world.gone(work.uid)


def _runs(seen: PodStatus | None) -> bool:
    return seen is not None and isinstance(seen.containers[0].state, Started)


async def a_host_path_exchanged_between_two_containers(world: World) -> None:
    """The operator allowed a folder. A pod mounts all of it, and a part: and then the part is a link to the machine."""
    place = world.files.folder / "shared" / "place"
    whole = VolumeSpec("whole", HostPath(str(place.parent)))
    with closed(world) as away:
        for at, kind, target, sub in (
            ("part", "Directory", away, ""),
            ("part", "DirectoryOrCreate", f"{'../' * 30}{away}", ""),
            ("deep/closed", "Directory", away.parent, ""),
            ("file", "File", away / "secret", ""),
            ("part", "Directory", away, "secret"),
            ("part", "", away, "new"),
        ):
            (place / at).parent.mkdir(parents=True)
            place.chmod(0o777)
            (place / at).touch() if kind == "File" else (place / at).mkdir()
            first = Path(at).parts[0]
            trap = f"cd /mnt/whole/place; mv {first} kept; ln -s {target} {first}"
            part = VolumeSpec("part", HostPath(str(place / at), kind))
            mount = VolumeMount(name="part", mount_path="/mnt/part", sub_path=sub)
            try:
                await finds_nothing(world, in_turn(world, trap, (whole, part), mount))
                # The proof: the trap was laid, and whoever walks into it, without care, arrives.
                assert (place / at / sub if sub != "new" else place / at).resolve().is_relative_to(away)
            finally:
                shutil.rmtree(place)


async def a_sub_path_exchanged_between_two_containers(world: World) -> None:
    with closed(world) as away:
        for sub, trap in (
            ("part", f"mkdir part; rmdir part; ln -s {away} part"),
            ("part/secret", f"ln -s {away} part"),
            ("part/new", f"ln -s {away} part"),
            ("a/part", f"mkdir a; ln -s ../../../../../../../../../..{away} a/part"),
            ("part", f"ln -s /proc/1/root{away} part"),
            ("part/er", f"ln -s /proc/self/cwd/../..{away} part"),
        ):
            mount = VolumeMount(name="whole", mount_path="/mnt/part", sub_path=sub)
            volumes = (VolumeSpec("whole", EmptyDir()),)
            await finds_nothing(world, in_turn(world, f"cd /mnt/whole; {trap}", volumes, mount))


async def said_by(world: World, uid: Uid) -> bytes:
    """Nothing, if the container was refused and has not run: it is tried again, and may be about to start."""
    try:
        return b"".join([part async for part in world.backend.logs(uid, "main")])
    except BackendError as error:
        if error.reason != "BadRequest":
            raise
        return b""


async def a_race_for_a_host_path(world: World) -> None:
    """It is there whenever it is judged, and a link whenever it is not."""
    shared = world.files.folder / "shared"
    whole = VolumeMount(name="whole", mount_path="/mnt/v")
    try:
        with closed(world) as away:
            work = world.workload(
                ("sh", "-c", FOREVER), mounts={"v": whole}, volumes=[VolumeSpec("whole", HostPath(str(shared)))]
            )
            async with world.pod(work) as uid:
                await world.shell(uid, "mkdir /mnt/v/sub")
                swapping = asyncio.create_task(world.python(uid, SWAP, "/mnt/v", str(away)))
                part = VolumeMount(name="part", mount_path="/mnt/part")
                specs = [VolumeSpec("part", HostPath(str(shared / "sub")))]
                works = [world.workload(("sh", "-c", LOOT), mounts={"p": part}, volumes=specs) for _ in range(12)]
                try:
                    async with started(world, works):
                        for each in works:
                            await world.until(each.uid, lambda seen: settled(seen) and not _runs(seen))
                            assert world.token.encode() not in await said_by(world, each.uid)
                finally:
                    await world.shell(uid, "touch /mnt/v/stop")
                    assert await swapping == (0, "swapping\n")
    finally:
        for name in ("sub", "link"):
            with contextlib.suppress(FileNotFoundError):
                path = shared / name
                path.unlink() if path.is_symlink() else shutil.rmtree(path)
        (shared / "stop").unlink(missing_ok=True)


@contextlib.asynccontextmanager
async def started(world: World, works: Sequence[Workload]) -> AsyncIterator[None]:
    for work in works:
        await world.backend.start_pod(work)
    try:
        yield
    finally:
        for work in works:
            await world.gone(work.uid)


class Late:
    """The main process is late whenever it is about to do something to one of these names: it goes on when somebody has put a link there,
    if somebody does. A race that one can lose on a busy machine is lost each time."""

    EVENTS = frozenset({"os.chmod", "os.chown", "os.rename", "os.setxattr", "os.utime", "os.truncate", "open"})
    MOST = 2.0

    def __init__(self) -> None:
        self.folder, self.prefix = Path("/"), ""

    def __call__(self, event: str, given: tuple[object, ...]) -> None:
        if self.prefix and event in self.EVENTS and isinstance(given[0], str | bytes):
            name = Path(os.fsdecode(given[0])).name
            if name.startswith(self.prefix):
                self._wait(self.folder / name)

    def _wait(self, path: Path) -> None:
        until = time.monotonic() + self.MOST
        while not path.is_symlink() and time.monotonic() < until:
            time.sleep(0.0005)

    @contextlib.contextmanager
    def for_names(self, folder: Path, prefix: str) -> Iterator[None]:
        if not self.prefix:
            sys.addaudithook(self)  # for the rest of this process: there is no way to take it away
        self.folder, self.prefix = folder, prefix
        try:
            yield
        finally:
            self.prefix = "/"  # no name begins with it


LATE = Late()


async def a_race_for_a_sub_path_that_is_made(world: World) -> None:
    """What is missing is made by the machine, for everybody: and nothing else becomes everybody's, whatever takes its place."""
    claim = "ambush-claim"
    specs = [VolumeSpec("v", Claim("team", "links", claim))]
    whole = VolumeMount(name="v", mount_path="/mnt/v")
    with closed(world) as away:
        attacker = world.workload(("sh", "-c", FOREVER), mounts={"v": whole}, volumes=specs)
        async with world.pod(attacker) as uid:
            for prefix, target in (("file-", away / "secret"), ("folder-", away)):
                parts = {
                    str(index): VolumeMount(name="v", mount_path=f"/mnt/p{index}", sub_path=f"{prefix}{index}")
                    for index in range(NAMES)
                }
                victim = world.workload(("sh", "-c", FOREVER), mounts=parts, volumes=specs)
                ambush = Conversation(world, uid, ("python3", "-c", AMBUSH, "/mnt/v", str(target), prefix, str(NAMES)))
                assert await ambush.said() == "waiting"
                with LATE.for_names(data_of(world, claim), prefix):
                    async with started(world, [victim]):
                        await world.until(victim.uid, _runs)
                assert await ambush.said() == "done"  # the proof: each of them was exchanged when it had been made
                await ambush.close()
    await world.volumes.remove_claim(claim)


async def links_in_a_volume_where_another_one_is_mounted(world: World) -> None:
    """Mounted one below the other: the place of the inner one is the sandbox's to change."""
    shared = world.files.folder / "shared"
    for target in (str(shared), f"{'../' * 30}{shared}".replace("//", "/"), "/proc/1/root", "nowhere"):
        work = world.workload(("sh", "-c", "touch /mnt/whole/inner/new"), volumes=[
            VolumeSpec("whole", EmptyDir()), VolumeSpec("inner", EmptyDir()),
        ])  # fmt: skip
        whole = VolumeMount(name="whole", mount_path="/mnt/whole")
        inner = VolumeMount(name="inner", mount_path="/mnt/whole/inner")
        first = ContainerSpec(
            name="first", image="host", command=("ln", "-s", target, "/mnt/whole/inner"), volume_mounts=(whole,)
        )
        main = msgspec.structs.replace(work.spec.containers[0], volume_mounts=(whole, inner))
        spec = msgspec.structs.replace(work.spec, init_containers=(first,), containers=(main,))
        await finds_nothing(world, replace(work, spec=spec))
        assert {path.name for path in shared.iterdir()} == {"absolute", "relative"}


async def a_folder_of_an_image_exchanged(world: World) -> None:
    """An image that is a folder of the machine was judged, and then there is a link in its place."""
    layer = world.folder / "layer"
    with closed(world) as away:
        layer.symlink_to(away)
        try:
            with contextlib.suppress(NodeError):
                async with a_box(world, rootfs=RootFs((layer,), host=True)) as box:
                    _, said = await box.python("import os; os.system('cat /secret; ls -l /')")
                    assert world.token not in said
        finally:
            layer.unlink()


HOSTILE_PROC = """
cd /mnt/whole; mkdir -p self/fd 1 2 p/self/fd p/1 p/2
for f in self/uid_map self/gid_map self/setgroups self/stat self/fd/0 1/stat 2/stat; do mkfifo $f p/$f; done
"""


async def a_proc_of_its_own_making(world: World) -> None:
    """A volume full of pipes is mounted where those who look after the container ask the kernel: nobody waits for them."""
    volumes = (VolumeSpec("whole", EmptyDir()),)
    for at in ("/proc", "/proc/1"):
        for user in (0, 1000):
            mount = VolumeMount(name="whole", mount_path=at, sub_path="1" if at != "/proc" else "")
            work = in_turn(world, HOSTILE_PROC, volumes, mount, FOREVER)
            main = msgspec.structs.replace(work.spec.containers[0], security_context=SecurityContext(run_as_user=user))
            await world.backend.start_pod(replace(work, spec=msgspec.structs.replace(work.spec, containers=(main,))))
            try:
                seen = await world.until(work.uid, first_is_over)
                assert seen is not None
                laid = seen.init[0].state
                assert isinstance(laid, Exit)
                assert laid.code == 0, "the trap was not laid"
                await world.backend.stats(work.uid)
                if _runs(seen):
                    assert await world.shell(work.uid, "echo well") == (0, "well\n")
            finally:
                await world.gone(work.uid)


async def a_proc_behind_a_link(world: World) -> None:
    """The image has a link instead of the folder, and a volume is mounted where it leads."""
    layer, own = world.folder / "layer", world.folder / "own"
    layer.mkdir(mode=0o755)
    own.mkdir(mode=0o777)
    own.chmod(0o777)
    for folder in ("p/self", "p/1"):
        (own / folder).mkdir(parents=True)
        for name in ("uid_map", "gid_map", "setgroups", "stat"):
            os.mkfifo(own / folder / name)
    (layer / "proc").symlink_to("/data/p")
    try:
        for target in ("/data", "/data/p"):
            with contextlib.suppress(NodeError):
                mounts = (Mount(target, own),)
                async with a_box(world, rootfs=RootFs((layer,), host=True), user="1000", mounts=mounts) as box:
                    assert (await box.python("print('well')"))[1] == "well\n"
    finally:
        shutil.rmtree(layer)
        shutil.rmtree(own)


async def owners_of_a_host_path_stay(world: World) -> None:
    """What the machine has in an allowed folder belongs to somebody: whoever mounts it does not become its owner."""
    file = world.files.folder / "shared" / "somebody's"
    file.write_text(f"0:x:0:0::/{world.token}\n")
    file.chmod(MODE)
    if os.geteuid() == 0:
        os.chown(file, FOREIGN, FOREIGN)
    before = file.stat()
    try:
        for sub in ("", file.name):
            volumes = (VolumeSpec("v", HostPath(str(file.parent if sub else file))),)
            for security in ({}, {"run_as_user": 1000}, {"fs_group": 5}):
                # As the list of users it is read by the machine, which must not know more than the sandbox.
                for at in ("/mnt/v", "/etc/passwd"):
                    mounts = {"v": VolumeMount(name="v", mount_path=at, sub_path=sub)}
                    work = world.workload(("sh", "-c", f"cat {at}; echo $HOME"), mounts=mounts, volumes=volumes)
                    spec = msgspec.structs.replace(work.spec, security_context=PodSecurityContext(**security))  # type: ignore[arg-type]
                    async with world.pod(replace(work, spec=spec)) as uid:
                        await world.until(uid, lambda seen: not _runs(seen))
                        said = b"".join([part async for part in world.backend.logs(uid, "main")])
                        after = file.stat()
                        assert (after.st_uid, after.st_gid, after.st_mode) == (
                            before.st_uid,
                            before.st_gid,
                            before.st_mode,
                        )
                        assert (
                            os.geteuid() != 0 or world.token.encode() not in said
                        )  # an ordinary user's files are all his own
    finally:
        file.unlink()


SCENARIOS = (
    a_proc_of_its_own_making, a_proc_behind_a_link, owners_of_a_host_path_stay,
    a_host_path_exchanged_between_two_containers, a_sub_path_exchanged_between_two_containers, a_race_for_a_host_path,
    a_race_for_a_sub_path_that_is_made, links_in_a_volume_where_another_one_is_mounted, a_folder_of_an_image_exchanged,
)  # fmt: skip
