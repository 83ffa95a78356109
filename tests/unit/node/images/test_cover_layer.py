"""Folders that a layer does not describe look as the layers below say."""

from __future__ import annotations

import io
import os
import stat
from pathlib import Path

import pytest

from sandpool.node.images.cover_layer import UnpackedLayer, covering_layer
from sandpool.node.images.unpack import opaque_attributes
from sandpool.node.images.worker import Job, unpack
from support.images.fast_folder import fast_folder
from support.images.files import Entry, file, folder, layer, opaque, removed, symlink

OWNERS = os.geteuid() == 0
ROOT = folder("./", 0o755)


def put(place: Path, content: bytes) -> UnpackedLayer:
    place.mkdir()
    fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        job = Job("", "", "", 1 << 20, 1000, 4095, 200)
        done = unpack(io.BytesIO(content), fd, job, OWNERS, opaque_attributes(fd))
    finally:
        os.close(fd)
    return UnpackedLayer(place, frozenset(done.implied))


def looks(*layers: list[Entry]) -> dict[str, int]:
    """Modes of the folders in the layer that goes on top."""
    with fast_folder() as place:
        content = covering_layer([put(place / str(number), layer(one)) for number, one in enumerate(layers)])
        if not content:
            return {}
        top = put(place / "top", content)
        assert top.implied == frozenset()
        found = {"": top.root, **{str(path.relative_to(top.root)): path for path in top.root.rglob("*")}}
        return {name: stat.S_IMODE(path.stat().st_mode) for name, path in found.items()}


def test_layers_that_describe_everything_need_nothing() -> None:
    assert looks([ROOT, folder("tmp", 0o1777)], [ROOT, folder("tmp", 0o1777), file("tmp/a")]) == {}
    assert looks([ROOT, folder("tmp", 0o1777)], [ROOT, folder("tmp", 0o700), file("tmp/a")]) == {}
    assert looks([file("a/b")]) == {}
    assert looks([ROOT, folder("a", 0o755, mtime=7)], [file("a/b")]) == {}


def test_what_a_lower_layer_says_is_shown() -> None:
    base = [ROOT, folder("tmp", 0o1777), folder("home", 0o711), folder("home/me", 0o700)]
    assert looks(base, [ROOT, file("tmp/a"), file("home/me/app/x")]) == {
        "": 0o755, "tmp": 0o1777, "home": 0o711, "home/me": 0o700,
    }  # fmt: skip


def test_the_root_too() -> None:
    assert looks([folder("./", 0o711)], [file("a")]) == {"": 0o711}


def test_the_highest_that_describes_it_decides() -> None:
    assert looks([ROOT, folder("a", 0o711)], [ROOT, folder("a", 0o722)], [ROOT, file("a/b")]) == {"": 0o755, "a": 0o722}
    assert looks([ROOT, folder("a", 0o711)], [ROOT, file("a/b")], [ROOT, folder("a", 0o722)]) == {}


@pytest.mark.parametrize(
    "between",
    [[removed("a")], [file("a", "x")], [symlink("a", "b")], [opaque("a")], [opaque("")], [removed("a"), file("a/x")]],
    ids=["removed", "file", "link", "opaque", "opaque root", "made anew"],
)
def test_what_is_hidden_does_not_decide(between: list[Entry]) -> None:
    assert looks([ROOT, folder("a", 0o711)], [ROOT, *between], [ROOT, file("a/b")]) == {}


def test_what_is_gone_stays_gone() -> None:
    base, middle = [ROOT, folder("a", 0o711), folder("a/b", 0o722)], [ROOT, file("a/b/c")]
    assert looks(base, middle) == {"": 0o755, "a": 0o711, "a/b": 0o722}
    assert looks(base, middle, [ROOT, removed("a")]) == {}
    assert looks(base, middle, [ROOT, file("a", "x")]) == {}
    assert looks(base, middle, [ROOT, removed("a/b")]) == {"": 0o755, "a": 0o711}


@pytest.mark.root
@pytest.mark.skipif(not OWNERS, reason="only root can give files away")
def test_owners() -> None:
    with fast_folder() as place:
        below = put(place / "0", layer([ROOT, folder("home", 0o755), folder("home/me", 0o700, uid=1000, gid=1001)]))
        above = put(place / "1", layer([ROOT, file("home/me/x")]))
        put(place / "top", covering_layer([below, above]))
        found = (place / "top/home/me").stat()
        assert (found.st_uid, found.st_gid) == (1000, 1001)
