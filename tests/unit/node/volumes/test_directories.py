"""Names that become files: what stays inside its folder, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandpool.base.errors import NodeError
from sandpool.node.volumes.directories import candidates, checked, directory_name, memory_directory, parts, usable


@given(st.text(alphabet="ab./\0é\ud800", max_size=12))
def test_an_accepted_path_stays_inside_and_is_one_that_a_disk_takes(path: str) -> None:
    try:
        found = parts("v", path)
    except NodeError:
        return
    assert "/".join(found) == path
    assert os.path.normpath("/root/" + path) == "/root/" + path
    assert PurePosixPath("/root", *found).is_relative_to("/root")
    os.fsencode(path)


@given(st.text(max_size=20))
def test_an_accepted_name_is_one_plain_step(name: str) -> None:
    if usable(name):
        assert directory_name(name, "a name") == name
        assert os.path.basename(name) == name
        assert name not in (".", "..")
        assert name.isascii()


@pytest.mark.parametrize("name", ["pod-1", "0f8fad5b-d9cb-469f-a165-70867728950e", "a", "A_b.c", "x" * 128])
def test_ordinary_names(name: str) -> None:
    assert usable(name)


def test_files_and_folders_of_one_name() -> None:
    checked("v", ["a", "b/c", "b/d"])
    with pytest.raises(NodeError, match="b is a file and also the folder of b/c"):
        checked("v", ["b", "b/c"])
    with pytest.raises(NodeError, match="a/b is a file"):
        checked("v", ["a/b", "a/b/c/d"])


def test_where_memory_is_looked_for() -> None:
    assert candidates({"XDG_RUNTIME_DIR": "/run/user/5"}) == (Path("/run/user/5"), Path("/dev/shm"))
    assert candidates({"XDG_RUNTIME_DIR": "relative"}) == (Path("/dev/shm"),)
    assert candidates({}) == (Path("/dev/shm"),)


def test_a_disk_is_no_memory(tmp_path: Path) -> None:
    assert memory_directory((tmp_path / "missing", Path("/proc")), tmp_path) is None
