"""What a hostile sandbox leaves in its volumes goes away, and nothing else does."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from sandpool.base.errors import NodeError
from sandpool.node.volumes import loop_image
from sandpool.node.volumes.spec import Claim, EmptyDir, VolumeOptions, VolumeSpec
from sandpool.node.volumes.store import VolumeStore
from sandpool.node.volumes.trash import Steps, Trash, empty
from support.product.as_nobody import NOBODY, as_nobody

root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def deep(folder: Path, depth: int) -> None:
    """Deeper than Python's stack, and than most tables of open files."""
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    for index in range(depth):
        os.mkdir("d", dir_fd=at)
        following = os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=at)
        os.close(at)
        at = following
        if index % 100 == 0:
            os.close(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=at))
    os.close(at)


def removed(path: Path, trash: Path, steps: int = 50) -> int:
    """In how many turns."""
    moved = Trash(trash).take(path)
    assert moved is not None
    turns = 1
    while not empty(moved, Steps(steps)):
        turns += 1
        assert turns < 100_000
    return turns


def hostile(folder: Path, outside: Path) -> None:
    (folder / "link").symlink_to(outside)
    (folder / "dangling").symlink_to("/nowhere/at/all")
    (folder / "loop").symlink_to("loop")
    (folder / "sub").mkdir()
    (folder / "sub" / "up").symlink_to("../../..")
    os.link(outside / "precious", folder / "hard")
    os.mkfifo(folder / "pipe")
    (folder / "-rf").touch()
    (folder / "new\nline").touch()
    with contextlib.suppress(OSError):
        os.mkdir(os.fsencode(folder) + b"/\xff\xfe")


def test_links_are_taken_and_what_they_point_to_is_not(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "kept").mkdir(parents=True)
    (outside / "precious").write_text("here")
    (tmp_path / "volume").mkdir()
    hostile(tmp_path / "volume", outside)
    removed(tmp_path / "volume", tmp_path / "trash")
    assert not (tmp_path / "volume").exists()
    assert os.listdir(tmp_path / "trash") == []
    assert (outside / "precious").read_text() == "here"
    assert (outside / "kept").is_dir()


def test_a_link_in_place_of_a_folder_is_only_a_link(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "precious").touch()
    (tmp_path / "volume").symlink_to(tmp_path / "outside")
    removed(tmp_path / "volume", tmp_path / "trash")
    assert (tmp_path / "outside" / "precious").exists()
    assert not (tmp_path / "volume").is_symlink()


def test_depth_and_width_are_taken_in_turns(tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    deep(volume, 1200)
    for index in range(100):
        (volume / f"w{index}").mkdir()
        (volume / f"w{index}" / "f").touch()
    assert removed(volume, tmp_path / "trash") > 10
    assert os.listdir(tmp_path / "trash") == []


def test_what_is_not_there_is_none(tmp_path: Path) -> None:
    assert Trash(tmp_path / "trash").take(tmp_path / "nothing") is None
    assert Trash(tmp_path / "trash").leftovers() == []
    assert not (tmp_path / "trash").exists()


def test_another_process_may_finish_it(tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    deep(volume, 100)
    moved = Trash(tmp_path / "trash").take(volume)
    assert moved is not None
    assert not empty(moved, Steps(20))
    left = Trash(tmp_path / "trash").leftovers()
    assert left == [moved]
    while not empty(left[0], Steps(20)):
        pass
    assert Trash(tmp_path / "trash").leftovers() == []


@contextlib.contextmanager
def home_of_nobody() -> Iterator[Path]:
    home = Path(tempfile.mkdtemp(dir="/tmp"))
    os.chown(home, NOBODY, NOBODY)
    try:
        yield home
    finally:
        shutil.rmtree(home)


@pytest.mark.ordinary_user
@root
def test_an_ordinary_user_removes_what_was_closed_to_him() -> None:
    with home_of_nobody() as home:

        def work() -> str:
            volume = home / "volume"
            for path in (volume, volume / "a", volume / "a" / "b", volume / "c"):
                path.mkdir()
                (path / "file").touch(0o000)
            for path in (volume / "a" / "b", volume / "a", volume / "c", volume):
                path.chmod(0o000)
            removed(volume, home / "trash")
            return "done"

        assert as_nobody(work) == "done"
        assert not (home / "volume").exists()
        assert os.listdir(home / "trash") == []


async def test_a_removed_pod_leaves_nothing_and_its_claim_stays(tmp_path: Path) -> None:
    store = VolumeStore(tmp_path / "volumes", VolumeOptions(memory=()))
    made = await store.make("pod", [VolumeSpec("e", EmptyDir()), VolumeSpec("c", Claim("t", "c", "claim"))])
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "precious").touch()
    for volume in made.values():
        assert volume.path is not None
        hostile(volume.path, tmp_path / "outside")
    await store.remove("pod")
    await store.remove("pod")
    assert os.listdir(tmp_path / "volumes" / "pods") == [".trash"]
    assert os.listdir(tmp_path / "volumes" / "pods" / ".trash") == []
    assert (tmp_path / "volumes" / "claims" / "claim" / "data" / "hard").exists()
    assert (tmp_path / "outside" / "precious").exists()
    await store.close()


@pytest.fixture
async def held(tmp_path: Path) -> AsyncIterator[VolumeStore]:
    if not loop_image.supported():
        pytest.skip("this machine mounts no images")
    store = VolumeStore(tmp_path / "volumes", VolumeOptions(memory=(), images=True))
    yield store
    await store.reap((), ())
    await store.close()
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()


@pytest.mark.root
@root
async def test_an_image_holds_the_size(held: VolumeStore) -> None:
    size = 4 << 20
    made = await held.make(
        "pod", [VolumeSpec("e", EmptyDir(size=size)), VolumeSpec("c", Claim("t", "c", "claim", size))]
    )
    for volume in made.values():
        assert volume.path is not None
        assert volume.enforced
        assert os.listdir(volume.path) == []
        assert volume.path.stat().st_mode & 0o777 == 0o777
        (volume.path / "fits").write_bytes(b"x" * (size // 4))
        with pytest.raises(OSError, match="No space left"):
            (volume.path / "large").write_bytes(b"x" * size)


@pytest.mark.root
@root
async def test_a_claim_in_an_image_is_kept(held: VolumeStore, tmp_path: Path) -> None:
    spec = VolumeSpec("c", Claim("t", "c", "claim", 4 << 20))
    path = (await held.make("pod", [spec]))["c"].path
    assert path is not None
    (path / "kept").write_text("here")
    path.chmod(0o750)
    await held.remove("pod")
    loop_image.detach(path)
    assert not list(path.iterdir()), "the machine was restarted"
    again = VolumeStore(tmp_path / "volumes", VolumeOptions(memory=()))
    volume = (await again.make("pod-2", [spec]))["c"]
    assert volume.enforced, "what was made held stays so"
    assert (path / "kept").read_text() == "here"
    assert path.stat().st_mode & 0o777 == 0o750
    await again.remove_claim("claim")
    assert not path.exists()
    await again.close()


@pytest.mark.root
@root
async def test_nothing_stays_mounted(tmp_path: Path) -> None:
    if not loop_image.supported():
        pytest.skip("this machine mounts no images")
    store = VolumeStore(tmp_path / "volumes", VolumeOptions(memory=(), images=True))
    size = 4 << 20
    made = await store.make(
        "pod", [VolumeSpec("e", EmptyDir(size=size)), VolumeSpec("c", Claim("t", "c", "claim", size))]
    )
    await store.close()
    for volume in made.values():
        assert volume.path is not None
        assert not loop_image.mounted(volume.path)


@pytest.mark.root
@root
async def test_who_was_given_a_file_of_a_removed_image_cannot_write_to_it(held: VolumeStore, tmp_path: Path) -> None:
    """A pod has its own copy of the mount, which an open file keeps wherever it is sent."""
    path = (await held.make("pod", [VolumeSpec("e", EmptyDir(size=4 << 20))]))["e"].path
    assert path is not None
    copy = tmp_path / "copy"
    copy.mkdir()
    subprocess.run(["mount", "--bind", path, copy], check=True)
    try:
        with open(copy / "given", "wb", buffering=0) as given:
            subprocess.run(["umount", "--lazy", copy], check=True)
            given.write(b"x")
            await held.remove("pod")
            with pytest.raises(OSError, match="Input/output error"):
                given.write(b"x")
    finally:
        subprocess.run(["umount", "--quiet", copy], check=False)


@pytest.mark.root
@root
async def test_an_image_in_use_is_not_removed(held: VolumeStore) -> None:
    path = (await held.make("pod", [VolumeSpec("e", EmptyDir(size=4 << 20))]))["e"].path
    assert path is not None
    with open(path / "busy", "w"), pytest.raises(NodeError, match="VolumeFailed"):
        await held.remove("pod")
    await held.remove("pod")
    assert not path.exists()
