"""Terminals that ended containers have left with others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandpool.local.backends.namespaces.orders import TERMINALS
from sandpool.local.backends.namespaces.terminals import Terminals
from sandpool.local.errors import NodeError


def folder(path: Path, count: int) -> int:
    """As a container's is, of which so many terminals are left."""
    path.mkdir()
    for name in ("ptmx", *map(str, range(count))):
        (path / name).touch()
    return os.open(path, os.O_PATH | os.O_DIRECTORY)


def closed(file: int) -> bool:
    return not os.path.lexists(f"/proc/self/fd/{file}")


def test_of_most_containers_nothing_is_left(tmp_path: Path) -> None:
    terminals = Terminals()
    terminals.ended("team", None)  # it never began
    file = folder(tmp_path / "one", 0)
    terminals.ended("team", file)
    assert closed(file)
    assert terminals.check("team") == 0


def test_what_is_left_counts_for_the_tenant_until_it_is_closed(tmp_path: Path) -> None:
    terminals = Terminals()
    files = [folder(tmp_path / "one", 3), folder(tmp_path / "two", TERMINALS - 3)]
    for file in files:
        terminals.ended("team", file)
    with pytest.raises(NodeError, match=f"namespace team hold {TERMINALS} terminals"):
        terminals.check("team")
    assert terminals.check("else") == 0
    for each in (tmp_path / "two").iterdir():
        each.unlink()
    assert terminals.check("team") == 3
    assert [closed(file) for file in files] == [False, True]
    terminals.close()
    assert closed(files[0])
    assert terminals.check("team") == 0
