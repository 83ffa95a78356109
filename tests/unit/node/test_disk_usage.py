"""How much is in folders, whatever somebody has put there."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from sandpool.node.openat import DEEPEST, TOO_DEEP, disk_usage

KIB = 1024


def size(*folders: Path) -> list[int]:
    return [used for used, _ in disk_usage([str(folder) for folder in folders])]


def test_blocks_count_and_names_do_not(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    (first / "in").mkdir(parents=True)
    second.mkdir()
    (first / "in" / "file").write_bytes(b"x" * 100 * KIB)
    os.link(first / "in" / "file", first / "same")
    os.link(first / "in" / "file", second / "same")
    with open(first / "hole", "wb") as file:
        file.truncate(1 << 40)
    (first / "out").symlink_to("/usr")
    used, other = size(first, second)
    assert 100 * KIB <= used < 200 * KIB
    assert other < 50 * KIB


def test_inodes(tmp_path: Path) -> None:
    for number in range(10):
        (tmp_path / str(number)).touch()
    os.link(tmp_path / "1", tmp_path / "same")
    assert disk_usage([str(tmp_path)])[0][1] == 11  # the folder, too


def test_what_is_not_there_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * KIB)
    (tmp_path / "link").symlink_to("/usr")
    assert size(tmp_path / "none", tmp_path / "file", tmp_path / "link") == [0, 0, 0]


def test_nobody_hides_in_depth(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(DEEPEST + 2):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    before = len(os.listdir("/proc/self/fd"))
    assert size(tmp_path) == [TOO_DEEP]
    assert len(os.listdir("/proc/self/fd")) == before


def test_without_files_to_open_it_is_too_deep(tmp_path: Path) -> None:
    """What cannot be looked into must not count as nothing."""
    here = tmp_path
    for _ in range(60):
        here /= "d"
    here.mkdir(parents=True)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 40, hard))
    try:
        assert size(tmp_path) == [TOO_DEEP]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
