"""Terminals that ended containers have left with others, on real folders of terminals."""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

import pytest

from sandpool.base.errors import NodeError
from sandpool.node.runtimes.namespaces.spawn_requests import TERMINALS
from sandpool.node.runtimes.namespaces.terminals import Terminals

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]
HALF = TERMINALS // 2
MASTER = os.O_RDWR | os.O_NOCTTY
UNLOCK_AND_OPEN_OTHER_END = (0x40045431, 0x5441)  # TIOCSPTLCK, TIOCGPTPEER


def folder(path: Path, most: int) -> int:
    """As an ended container's is, which nobody has mounted any more."""
    path.mkdir()
    subprocess.run(
        ["mount", "-t", "devpts", "-o", f"newinstance,ptmxmode=0666,max={most}", "devpts", str(path)], check=True
    )
    try:
        return os.open(path, os.O_PATH | os.O_DIRECTORY)
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def master(within: int) -> int:
    return os.open("ptmx", MASTER, dir_fd=within)


def other_end(within: int) -> int:
    """Of a terminal whose master nobody has: its folder does not list it."""
    file = master(within)
    try:
        unlock, peer = UNLOCK_AND_OPEN_OTHER_END
        fcntl.ioctl(file, unlock, bytes(4))
        return fcntl.ioctl(file, peer, MASTER)
    finally:
        os.close(file)


def closed(file: int) -> bool:
    return not os.path.lexists(f"/proc/self/fd/{file}")


async def test_of_most_containers_nothing_is_left(tmp_path: Path) -> None:
    terminals = Terminals()
    terminals.ended("team", None, 4)  # it never began
    file = folder(tmp_path / "one", 4)
    terminals.ended("team", file, 4)
    assert closed(file)
    assert await terminals.check("team") == 0
    await terminals.close()


async def test_what_is_left_counts_for_the_tenant_until_it_is_closed(tmp_path: Path) -> None:
    terminals = Terminals()
    folders = [folder(tmp_path / name, HALF) for name in ("one", "two")]
    held = [[master(file) for _ in range(HALF)] for file in folders]
    for file in folders:
        terminals.ended("team", file, HALF)
    with pytest.raises(NodeError, match=f"namespace team hold {TERMINALS} terminals"):
        await terminals.check("team")
    assert await terminals.check("else") == 0
    for file in (*held[0][3:], *held[1]):
        os.close(file)
    assert await terminals.check("team") == 3
    assert [closed(file) for file in folders] == [False, True]
    await terminals.close()
    assert closed(folders[0])
    assert await terminals.check("team") == 0
    for file in held[0][:3]:
        os.close(file)


async def test_so_does_what_no_folder_lists_where_many_are_in_use(tmp_path: Path) -> None:
    terminals = Terminals(plenty=0)
    file, none = folder(tmp_path / "one", HALF), folder(tmp_path / "two", HALF)
    ends = [other_end(file) for _ in range(5)]
    for each in (file, none):
        terminals.ended("team", each, HALF)
    assert await terminals.check("team") == 5
    assert closed(none)
    for end in ends:
        os.close(end)
    assert await terminals.check("team") == 0
    assert closed(file)
    await terminals.close()
