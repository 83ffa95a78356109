"""The folder of a pod: what is left in it of a container that has ended."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandpool.model.metadata import Uid
from sandpool.node.pods.folders import Folders, last_words
from sandpool.node.pods.storage import log_sizes


def test_the_message_of_an_earlier_run_takes_no_disk_for_whoever_still_holds_it(tmp_path: Path) -> None:
    folder = Folders(tmp_path).of(Uid("uid"))
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
    folder = Folders(tmp_path).of(Uid("uid"))
    folder.make()
    folder.message("main", 0).write_bytes(b"said")
    with leased(folder.message_path("main", 0)) as lease:
        assert last_words(folder.message_path("main", 0), 100) == ""
        folder.forget_message("main", 0)
        assert not folder.message_path("main", 0).exists()
        held = [line for line in Path("/proc/locks").read_text().splitlines() if lease in line]
        assert [line.split()[1:3] for line in held] == [["LEASE", "BREAKING"]]


def test_of_a_pod_that_is_over_only_the_logs_are_kept(tmp_path: Path) -> None:
    folder = Folders(tmp_path).of(Uid("uid"))
    folder.make()
    (folder.sandbox / "layer").mkdir()
    (folder.sandbox / "layer" / "file").write_bytes(bytes(1000))
    folder.log("main").mkdir(parents=True)
    (folder.log("main") / "0-1.log").write_bytes(b"said")
    with open(folder.message("main", 0), "wb") as held:
        held.write(bytes(1 << 20))
        held.flush()
        for _ in range(2):  # it may be repeated
            folder.keep_logs()
            assert [path for path in tmp_path.rglob("*") if path.is_file()] == [folder.log("main") / "0-1.log"]
        assert held.seek(0, 2) == 0
    assert log_sizes(folder.path / "logs", ("main", "other")) == {"main": (4096, 2)}


def test_a_pod_that_left_nothing_is_over_all_the_same(tmp_path: Path) -> None:
    folder = Folders(tmp_path).of(Uid("uid"))
    folder.keep_logs()
    assert not folder.path.exists()
    assert log_sizes(folder.path / "logs", ("main",)) == {}


def test_a_message_that_is_not_there_is_no_reason_not_to_start(tmp_path: Path) -> None:
    folder = Folders(tmp_path).of(Uid("uid"))
    folder.make()
    assert folder.message("main", 3).read_bytes() == b""
