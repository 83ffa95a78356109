"""The folder of a pod: what is left in it of a container that has ended."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandpool.base.clock import SystemClock
from sandpool.model.metadata import Uid
from sandpool.node.pods.directories import LeftoverPods, PodDirectories, termination_message
from sandpool.node.pods.storage import log_sizes
from sandpool.node.pods.threads import Threads
from sandpool.node.volumes.trash import empty
from support.node.pod_parts import FolderVolumes


def test_the_message_of_an_earlier_run_takes_no_disk_for_whoever_still_holds_it(tmp_path: Path) -> None:
    folder = PodDirectories(tmp_path).of(Uid("uid"))
    folder.make()
    with open(folder.message("main", 0), "wb") as held:
        held.write(bytes(1 << 20))
        held.flush()
        folder.message("main", 1)
        assert not folder.message_path("main", 0).exists()
        assert held.seek(0, 2) == 0


@contextmanager
def leased(path: Path) -> Iterator[str]:
    """Somebody has a lease on a file, and gives nothing for whoever waits. As the kernel lists it."""
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    file = os.open(path, os.O_RDONLY)
    try:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        yield f":{os.fstat(file).st_ino} "
    finally:
        os.close(file)
        signal.signal(signal.SIGIO, before)


def test_nobody_waits_for_whoever_has_a_lease_on_a_message(tmp_path: Path) -> None:
    """The kernel takes it away from one who does not give it up in time: if it is still there, nobody has waited so long."""
    folder = PodDirectories(tmp_path).of(Uid("uid"))
    folder.make()
    folder.message("main", 0).write_bytes(b"said")
    with leased(folder.message_path("main", 0)) as lease:
        assert termination_message(folder.message_path("main", 0), 100) == ""
        folder.forget_message("main", 0)
        assert not folder.message_path("main", 0).exists()
        held = [line for line in Path("/proc/locks").read_text().splitlines() if lease in line]
        assert [line.split()[1:3] for line in held] == [["LEASE", "BREAKING"]]


def test_of_a_pod_that_is_over_only_the_logs_are_kept(tmp_path: Path) -> None:
    folder = PodDirectories(tmp_path).of(Uid("uid"))
    folder.make()
    (folder.sandbox / "layer").mkdir()
    (folder.sandbox / "layer" / "file").write_bytes(bytes(1000))
    folder.log("main").mkdir(parents=True)
    (folder.log("main") / "0-1.log").write_bytes(b"said")
    with open(folder.message("main", 0), "wb") as held:
        held.write(bytes(1 << 20))
        held.flush()
        for _ in range(2):  # it may be repeated
            for moved in folder.keep_logs():
                assert empty(moved, lambda: False)
            assert [path for path in tmp_path.rglob("*") if path.is_file()] == [folder.log("main") / "0-1.log"]
        assert held.seek(0, 2) == 0
    assert log_sizes(folder.path / "logs", ("main", "other")) == {"main": (4096, 2)}


def test_a_pod_that_left_nothing_is_over_all_the_same(tmp_path: Path) -> None:
    folder = PodDirectories(tmp_path).of(Uid("uid"))
    assert folder.keep_logs() == []
    assert not folder.path.exists()
    assert log_sizes(folder.path / "logs", ("main",)) == {}


def test_a_message_that_is_not_there_is_no_reason_not_to_start(tmp_path: Path) -> None:
    folder = PodDirectories(tmp_path).of(Uid("uid"))
    folder.make()
    assert folder.message("main", 3).read_bytes() == b""


async def test_nobody_waits_for_the_files_that_sandboxes_left(tmp_path: Path) -> None:
    """However many there are: a tenant who makes millions does not keep the machine from starting."""
    pods = tmp_path / "pods"
    for name in ("uid-1/sandbox/main-0/root-upper", "uid-2/sandbox", ".trash/begun/0"):
        (pods / name).mkdir(parents=True)
        for number in range(20):
            (pods / name / str(number)).touch()
    (pods / "uid-1" / "logs").mkdir()
    threads = Threads("test", 1)
    left = LeftoverPods(PodDirectories(pods), FolderVolumes(tmp_path / "volumes"), SystemClock(), threads)
    try:
        await left.find(kept=1000)
        assert sorted(path.name for path in pods.iterdir()) == [".trash", "uid-1", "uid-2"]
        assert [path.name for path in (pods / "uid-1").iterdir()] == ["logs"]
        assert len(list((pods / ".trash").rglob("19"))) == 3, "they were waited for"
        async with asyncio.timeout(30):
            while list((pods / ".trash").iterdir()):
                await asyncio.sleep(0.01)
    finally:
        await left.close()
        threads.close()
