"""What layers remove: the merged tree of unpacked layers is what a naive reading of the image format gives."""

from __future__ import annotations

import io
import os
import stat
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sandpool.node.images.tar import BadArchive
from sandpool.node.images.unpack import opaque_attributes
from sandpool.node.images.worker import Job, unpack
from support.images.fast_folder import fast_folder
from support.images.files import Entry, file, folder, layer, opaque, removed, symlink
from support.images.merge import merge
from support.images.oracle import Refused, merged_by_oracle

OWNERS = os.geteuid() == 0

NAMES = st.sampled_from(["a", "b", "c"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
ENTRIES = st.one_of(
    st.builds(lambda path, number: file(path, str(number)), PATHS, st.integers(0, 9)),
    st.builds(folder, PATHS),
    st.builds(symlink, PATHS, NAMES),
    st.builds(removed, PATHS),
    st.builds(opaque, PATHS),
    st.just(opaque("")),
)
LAYERS = st.lists(st.lists(ENTRIES, max_size=6), min_size=1, max_size=4)


def unpacked(root: Path, layers: list[list[Entry]]) -> list[Path]:
    folders = []
    for number, entries in enumerate(layers):
        path = root / str(number)
        path.mkdir()
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            unpack(
                io.BytesIO(layer(entries)), fd, Job("", "", "", 1 << 20, 1000, 4095, 200), OWNERS, opaque_attributes(fd)
            )
        finally:
            os.close(fd)
        folders.append(path)
    return folders


@given(LAYERS)
@example([[file("a/x", "1")], [removed("a"), file("a/y", "2")]])
@example([[file("a/x", "1")], [file("a/y", "2"), removed("a")]])
@example([[file("a/x", "1")], [file("a/y", "2"), opaque("a")]])
@example([[file("a/x", "1")], [file("a", "2"), folder("a")]])
@example([[symlink("a", "b"), file("b/x", "1")], [file("a/y", "2")]])
@example([[file("a/b/c", "1")], [removed("a/b")], [folder("a/b")]])
@example([[file("a/b/c", "1")], [removed("a")], [file("a/b/d", "1")]])
@example([[file("a/x", "1")], [opaque("")]])
@example([[file("a", "1")], [removed("a/b")]])
def test_the_merged_tree_is_what_the_format_says(layers: list[list[Entry]]) -> None:
    try:
        expected = merged_by_oracle(layers)
    except Refused:
        expected = None
    with fast_folder() as place:
        try:
            found = merge(unpacked(place, layers))
        except BadArchive:
            found = None
    assert found == expected


def test_how_removals_are_written(tmp_path: Path) -> None:
    (path,) = unpacked(tmp_path, [[removed("gone"), file("d/f", "x"), opaque("d"), Entry(".wh..wh.plnk/1.2"), Entry(".wh..wh.aufs")]])  # fmt: skip
    device = (path / "gone").lstat()
    assert stat.S_ISCHR(device.st_mode)
    assert device.st_rdev == 0
    for attribute in ("trusted.overlay.opaque", "user.overlay.opaque")[0 if OWNERS else 1 :]:
        assert os.getxattr(path / "d", attribute) == b"y"
    assert sorted(entry.name for entry in path.iterdir()) == ["d", "gone"]


def test_the_oracle_can_tell() -> None:
    """The same comparison fails for a reader of layers that forgets opaque folders."""
    layers = [[file("a/x", "1")], [file("a/y", "2"), opaque("a")]]
    assert merged_by_oracle(layers) != merged_by_oracle([layers[0], layers[1][:1]])
    with pytest.raises(Refused):
        merged_by_oracle([[file("a"), file("a/b")]])
