"""Volumes on a real disk: made, kept, swapped, measured and taken away."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandpool.base.errors import NodeError
from sandpool.node.openat import disk_usage
from sandpool.node.volumes.spec import Claim, Content, EmptyDir, HostPath, Volume, VolumeOptions, VolumeSpec
from sandpool.node.volumes.store import VolumeStore

CLAIM = VolumeSpec("home", Claim("team", "home", "claim-1", size=1 << 20))


@pytest.fixture
def options(tmp_path: Path) -> VolumeOptions:
    return VolumeOptions(memory=(), host_paths=(tmp_path / "shared",))


@pytest.fixture
async def store(tmp_path: Path, options: VolumeOptions) -> AsyncIterator[VolumeStore]:
    made = VolumeStore(tmp_path / "volumes", options)
    yield made
    await made.close()


async def one(store: VolumeStore, source: EmptyDir | Content | Claim | HostPath, group: int | None = None) -> Volume:
    return (await store.make("pod-1", [VolumeSpec("v", source)], group=group))["v"]


def path_of(volume: Volume) -> Path:
    assert volume.path is not None
    return volume.path


def tree(folder: Path) -> dict[str, bytes]:
    """As a program in the sandbox reads it, through the links."""
    return {
        os.path.relpath(os.path.join(at, name), folder): Path(at, name).read_bytes()
        for at, _, names in os.walk(folder, followlinks=True)
        for name in names
        if ".." not in os.path.relpath(at, folder)
    }


async def test_an_empty_folder_is_open_inside_and_closed_outside(store: VolumeStore, tmp_path: Path) -> None:
    volume = await one(store, EmptyDir())
    path = path_of(volume)
    assert stat.S_IMODE(path.stat().st_mode) == 0o777
    assert list(path.iterdir()) == []
    assert volume.enforced
    assert not volume.read_only
    for above in (path.parent, path.parent.parent, tmp_path / "volumes", tmp_path / "volumes" / "pods"):
        assert stat.S_IMODE(above.stat().st_mode) == 0o700


async def test_in_memory_is_left_to_the_backend(store: VolumeStore) -> None:
    assert await one(store, EmptyDir(memory=True, size=1000)) == Volume("v", tmpfs_size=1000)
    unsized = await one(store, EmptyDir(memory=True))
    assert unsized.tmpfs_size == VolumeOptions().memory_size
    assert unsized.path is None


async def test_a_size_that_is_not_held_is_measured(store: VolumeStore) -> None:
    volume = await one(store, EmptyDir(size=4096))
    assert not volume.enforced
    assert volume.note == ""  # a pod whose emptyDir is too large is evicted
    (path_of(volume) / "file").write_bytes(b"x" * 100_000)
    os.link(path_of(volume) / "file", path_of(volume) / "same")
    (path_of(volume) / "out").symlink_to("/usr")
    assert 100_000 <= disk_usage([str(path_of(volume))])[0][0] < 200_000


async def test_a_claims_size_that_is_not_held_is_told(store: VolumeStore) -> None:
    volume = await one(store, Claim("default", "c", "claim-1", size=4096))
    assert not volume.enforced
    assert "4096 bytes is not held" in volume.note


async def test_making_again_keeps_what_is_there(store: VolumeStore, tmp_path: Path, options: VolumeOptions) -> None:
    path = path_of(await one(store, EmptyDir()))
    (path / "kept").write_text("here")
    path.chmod(0o700)
    again = VolumeStore(tmp_path / "volumes", options)
    assert path_of(await one(again, EmptyDir())) == path
    assert (path / "kept").read_text() == "here"
    assert stat.S_IMODE(path.stat().st_mode) == 0o700, "the sandbox's own choice stays"
    await again.close()


async def test_content_is_there_as_kubernetes_writes_it(store: VolumeStore) -> None:
    files = {"a.conf": b"1", "sub/b": b"2", "sub/deep/c": b"\x00\xff"}
    volume = await one(store, Content(files, mode=0o640, modes={"sub/b": 0o400}))
    path = path_of(volume)
    assert volume.read_only
    assert tree(path) == files
    assert os.readlink(path / "a.conf") == "..data/a.conf"
    assert (path / "..data").is_symlink()
    assert stat.S_IMODE((path / "a.conf").stat().st_mode) == 0o640
    assert stat.S_IMODE((path / "sub" / "b").stat().st_mode) == 0o400


async def test_content_is_swapped_at_once_and_leaves_nothing(store: VolumeStore) -> None:
    path = path_of(await one(store, Content({"a": b"1", "old/x": b"2"})))
    before = os.readlink(path / "..data")
    held = os.open(path / "..data", os.O_RDONLY | os.O_DIRECTORY)
    await store.refresh("pod-1", [VolumeSpec("v", Content({"a": b"new", "b": b"3"}))])
    os.close(held)
    assert tree(path) == {"a": b"new", "b": b"3"}
    assert os.readlink(path / "..data") != before
    assert sorted(os.listdir(path)) == sorted(["..data", os.readlink(path / "..data"), "a", "b"])


async def test_the_same_content_is_not_written_again(store: VolumeStore) -> None:
    content = Content({"a": b"1"}, mode=0o600)
    path = path_of(await one(store, content, group=os.getgid()))
    before = os.readlink(path / "..data")
    await store.refresh("pod-1", [VolumeSpec("v", content)])
    assert os.readlink(path / "..data") == before
    (path / "a").unlink()
    await store.refresh("pod-1", [VolumeSpec("v", content)])
    assert tree(path) == {"a": b"1"}


async def test_readers_see_all_of_one_version_while_it_changes(store: VolumeStore) -> None:
    path = path_of(await one(store, Content({"a": b"0", "b": b"0"})))
    changing = asyncio.ensure_future(_change(store, 30))
    seen = 0
    while not changing.done():
        with contextlib.ExitStack() as opened, contextlib.suppress(FileNotFoundError):  # gone while we looked
            current = os.open(path / "..data", os.O_RDONLY | os.O_DIRECTORY)
            opened.callback(os.close, current)
            found = set()
            for name in ("a", "b"):
                file = os.open(name, os.O_RDONLY, dir_fd=current)
                opened.callback(os.close, file)
                found.add(os.read(file, 10))
            assert len(found) == 1
            seen += 1
        await asyncio.sleep(0)
    await changing
    assert seen > 5


async def _change(store: VolumeStore, times: int) -> None:
    for index in range(1, times):
        text = str(index).encode()
        await store.refresh("pod-1", [VolumeSpec("v", Content({"a": text, "b": text}))])


async def test_refreshing_what_is_not_there_does_nothing(store: VolumeStore, tmp_path: Path) -> None:
    await store.refresh("nobody", [VolumeSpec("v", Content({"a": b"1"}))])
    assert not (tmp_path / "volumes").exists()


async def test_what_is_being_removed_is_not_refreshed_into_being(store: VolumeStore, tmp_path: Path) -> None:
    path = path_of(await one(store, Content({"a": b"1"})))
    removing = asyncio.ensure_future(store.remove("pod-1"))
    await asyncio.sleep(0)
    await store.refresh("pod-1", [VolumeSpec("v", Content({"a": b"2"}))])
    await removing
    assert not path.parent.exists()


@pytest.mark.parametrize(
    "path", ["../a", "/a", "a/../b", "", "a//b", "./a", "..a", "a/", "a\0b", "x" * 256, "a/" * 40 + "a"]
)
async def test_paths_that_lead_out_are_refused(store: VolumeStore, tmp_path: Path, path: str) -> None:
    with pytest.raises(NodeError, match="InvalidVolume"):
        await one(store, Content({"fine": b"1", path: b"2"}))
    await store.remove("pod-1")
    assert list((tmp_path / "volumes" / "pods").iterdir()) == [tmp_path / "volumes" / "pods" / ".trash"]


async def test_a_file_cannot_be_a_folder_too(store: VolumeStore) -> None:
    with pytest.raises(NodeError, match="a is a file and also the folder of a/b"):
        await one(store, Content({"a": b"1", "a/b": b"2"}))


@pytest.mark.parametrize("name", ["..", ".", "a/b", "", "/etc", "a\0", "x" * 200, "..x", ".hidden"])
async def test_names_that_are_no_names(store: VolumeStore, name: str) -> None:
    for call in (
        store.make(name, [VolumeSpec("v", EmptyDir())]),
        store.make("pod-1", [VolumeSpec(name, EmptyDir())]),
        store.make("pod-1", [VolumeSpec("v", Claim("n", "c", name))]),
        store.remove(name),
        store.remove_claim(name),
    ):
        with pytest.raises(NodeError, match="InvalidVolume"):
            await call


async def test_secrets_stay_in_memory_where_there_is_some(tmp_path: Path) -> None:
    store = VolumeStore(tmp_path / "volumes")
    volume = await one(store, Content({"password": b"hunter2"}, secret=True))
    path = path_of(volume)
    if volume.note:
        pytest.skip("this machine has no folder in memory")
    assert not path.is_relative_to(tmp_path)
    assert tree(path) == {"password": b"hunter2"}
    memory = path.parent.parent.parent
    assert stat.S_IMODE(memory.stat().st_mode) == 0o700
    await store.remove("pod-1")
    assert not path.parent.parent.exists()
    await one(store, Content({"password": b"hunter2"}, secret=True))
    await store.close()
    assert not memory.exists()


async def test_secrets_without_memory_are_told(store: VolumeStore, tmp_path: Path) -> None:
    volume = await one(store, Content({"password": b"x"}, secret=True))
    assert "on disk" in volume.note
    assert path_of(volume).is_relative_to(tmp_path)


async def test_a_memory_folder_that_somebody_else_prepared_is_not_taken(tmp_path: Path) -> None:
    """In a folder that everybody may write to, a link under our name leads to a place that is not ours."""
    probe = VolumeStore(tmp_path / "volumes")
    volume = await one(probe, Content({"a": b"1"}, secret=True))
    await probe.remove("pod-1")
    await probe.close()
    if volume.note:
        pytest.skip("this machine has no folder in memory")
    memory = path_of(volume).parent.parent.parent
    (tmp_path / "trap").mkdir()
    memory.symlink_to(tmp_path / "trap")
    try:
        wary = VolumeStore(tmp_path / "volumes", VolumeOptions(memory=(memory.parent,)))
        assert "on disk" in (await one(wary, Content({"a": b"1"}, secret=True))).note
        assert list((tmp_path / "trap").iterdir()) == []
        await wary.close()
    finally:
        memory.unlink()


async def test_claims_are_kept_until_they_are_gone(store: VolumeStore, tmp_path: Path, options: VolumeOptions) -> None:
    first = (await store.make("pod-1", [CLAIM]))["home"]
    (path_of(first) / "data.txt").write_text("precious")
    assert not first.enforced
    await store.remove("pod-1")
    again = VolumeStore(tmp_path / "volumes", options)
    second = (await again.make("pod-2", [CLAIM]))["home"]
    assert (path_of(second) / "data.txt").read_text() == "precious"
    other = (await again.make("pod-3", [VolumeSpec("home", Claim("team", "home", "claim-2", read_only=True))]))["home"]
    assert list(path_of(other).iterdir()) == [], "re-created under the same name, it is another one"
    assert other.read_only
    await again.remove("pod-2")
    await again.remove_claim("claim-1")
    await again.remove_claim("claim-1")
    assert not path_of(first).exists()
    third = (await again.make("pod-4", [CLAIM]))["home"]
    assert list(path_of(third).iterdir()) == []
    await again.close()


async def test_reaping_takes_what_belongs_to_nobody(store: VolumeStore, tmp_path: Path, options: VolumeOptions) -> None:
    for pod in ("alive", "dead"):
        await store.make(pod, [VolumeSpec("v", EmptyDir()), VolumeSpec("home", Claim("t", "c", f"claim-{pod}"))])
    trash = tmp_path / "volumes" / "pods" / ".trash" / "left" / "0"
    trash.mkdir(parents=True)
    later = VolumeStore(tmp_path / "volumes", options)
    await later.reap({"alive"})
    root = tmp_path / "volumes"
    assert sorted(os.listdir(root / "pods")) == [".trash", "alive"]
    assert os.listdir(root / "pods" / ".trash") != [], "they were waited for"
    async with asyncio.timeout(30):
        while os.listdir(root / "pods" / ".trash"):
            await asyncio.sleep(0.01)
    assert sorted(os.listdir(root / "claims")) == ["claim-alive", "claim-dead"], "claims are not asked about"
    await later.reap({"alive"}, {"claim-alive"})
    assert sorted(set(os.listdir(root / "claims")) - {".trash"}) == ["claim-alive"]
    await later.close()


async def test_host_paths_only_where_the_operator_allows_them(store: VolumeStore, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    (shared / "in").mkdir(parents=True)
    (shared / "in" / "file").write_text("x")
    assert (await one(store, HostPath(str(shared / "in"), "Directory"))).path == shared / "in"
    assert (await one(store, HostPath(str(shared)))).path == shared
    assert (await one(store, HostPath(str(shared / "in" / "file"), "File"))).path == shared / "in" / "file"
    for path in ("/etc", str(tmp_path), f"{shared}/../x", f"{shared}x", "relative", "", "/", f"{shared}/in/../../x"):
        with pytest.raises(NodeError, match="HostPathNotAllowed") as refused:
            await one(store, HostPath(path))
        assert "does not allow" in refused.value.message


async def test_host_paths_follow_no_links(store: VolumeStore, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (tmp_path / "secret").mkdir()
    (shared / "link").symlink_to(tmp_path / "secret")
    (shared / "file").write_text("x")
    for path in ("link", "link/deeper"):
        with pytest.raises(NodeError, match="HostPathNotThere"):
            await one(store, HostPath(str(shared / path), "DirectoryOrCreate"))
    assert list((tmp_path / "secret").iterdir()) == []
    with pytest.raises(NodeError, match="HostPathNotThere"):
        await one(store, HostPath(str(shared / "missing")))
    with pytest.raises(NodeError, match="HostPathWrongType"):
        await one(store, HostPath(str(shared / "file"), "Socket"))
    with pytest.raises(NodeError, match="no type"):
        await one(store, HostPath(str(shared / "file"), "Elsewhere"))


async def test_a_folder_that_pods_changed_allows_nothing(tmp_path: Path) -> None:
    """Folders that lie in each other are allowed, in whichever order: in the outer one a pod can put a link where the inner one was."""
    outer, secret = tmp_path / "outer", tmp_path / "secret"
    (outer / "inner").mkdir(parents=True)
    secret.mkdir()
    (tmp_path / "way").symlink_to(outer / "inner")
    allowed = (tmp_path / "way", outer / "inner", outer)
    for paths in (allowed, allowed[::-1]):
        store = VolumeStore(tmp_path / "volumes", VolumeOptions(memory=(), host_paths=paths))
        for path in (outer / "inner", tmp_path / "way"):
            volume = await one(store, HostPath(str(path)))
            assert (volume.path, volume.within) == (outer / "inner", Path("/"))
        (outer / "inner").rmdir()
        (outer / "inner").symlink_to(secret)
        for path in (outer / "inner", tmp_path / "way"):
            with pytest.raises(NodeError, match="HostPathNot"):
                await one(store, HostPath(str(path)))
        (outer / "inner").unlink()
        (outer / "inner").mkdir()
        await store.close()


async def test_the_operators_own_links_lead_to_what_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "disk" / "real" / "in").mkdir(parents=True)
    (tmp_path / "disk" / "shared").symlink_to("./real/../real")
    (tmp_path / "way").symlink_to(tmp_path / "disk")
    (tmp_path / "circle").symlink_to("circle")
    paths = (tmp_path / "way" / "shared", tmp_path / "circle")
    store = VolumeStore(tmp_path / "volumes", VolumeOptions(memory=(), host_paths=paths))
    volume = await one(store, HostPath(str(tmp_path / "way" / "shared" / "in")))
    assert volume.path == tmp_path / "disk" / "real" / "in"
    with pytest.raises(NodeError, match="HostPathNot"):
        await one(store, HostPath(str(tmp_path / "circle" / "in")))
    await store.close()


async def test_host_paths_that_may_be_created_are(store: VolumeStore, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    assert (await one(store, HostPath(str(shared / "a" / "b"), "DirectoryOrCreate"))).path == shared / "a" / "b"
    assert (shared / "a" / "b").is_dir()
    await one(store, HostPath(str(shared / "a" / "f"), "FileOrCreate"))
    assert (shared / "a" / "f").read_bytes() == b""


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
async def test_the_pods_group_gets_what_we_make(store: VolumeStore) -> None:
    specs = [VolumeSpec("e", EmptyDir()), VolumeSpec("c", Content({"a": b"1"}, mode=0o600)), CLAIM]
    made = await store.make("pod-1", specs, group=4711)
    empty = path_of(made["e"]).stat()
    assert (empty.st_gid, stat.S_IMODE(empty.st_mode)) == (4711, 0o2777)
    content = (path_of(made["c"]) / "a").stat()
    assert (content.st_gid, stat.S_IMODE(content.st_mode)) == (4711, 0o640)
    claim = path_of(made["home"])
    claim.chmod(0o755)
    await store.make("pod-2", [CLAIM], group=4712)
    assert (claim.stat().st_gid, stat.S_IMODE(claim.stat().st_mode)) == (4712, 0o2775)
    await store.remove("pod-1")


async def test_whoever_asks_may_go_away(store: VolumeStore, tmp_path: Path) -> None:
    """A cancelled order is carried out, and the next one for the same pod waits for it."""
    large = Content({f"file-{index}": b"x" for index in range(500)})
    making = asyncio.ensure_future(store.make("pod-1", [VolumeSpec("v", large)]))
    data = tmp_path / "volumes" / "pods" / "pod-1" / "v" / "data"
    while not data.exists():
        await asyncio.sleep(0)
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await making
    await store.remove("pod-1")
    assert os.listdir(tmp_path / "volumes" / "pods") == [".trash"]
    assert os.listdir(tmp_path / "volumes" / "pods" / ".trash") == []


async def test_a_full_disk_is_told(tmp_path: Path) -> None:
    store = VolumeStore(Path("/proc/nowhere"), VolumeOptions(memory=()))
    with pytest.raises(NodeError, match="VolumeFailed"):
        await one(store, EmptyDir())
    await store.close()


async def test_folders_too_deep_to_be_measured_count_as_too_much(store: VolumeStore) -> None:
    volume = await one(store, EmptyDir(size=4096))
    at = path_of(volume)
    for _ in range(120):
        at = at / "d"
        at.mkdir()
    (at / "hidden").write_bytes(b"x")
    assert disk_usage([str(path_of(volume))], 100)[0][0] >= 1 << 62


async def test_content_recovers_from_a_writer_that_died(store: VolumeStore) -> None:
    """In whichever step: what it left is replaced, and in the end nothing but the new files is there."""
    path = path_of(await one(store, Content({"a": b"1"})))
    (path / "..data_next").symlink_to("..dead")
    (path / "..dead").mkdir()
    (path / "..dead" / "a").write_bytes(b"half")
    (path / "stray").symlink_to("..data/stray")
    await store.refresh("pod-1", [VolumeSpec("v", Content({"a": b"2", "b": b"3"}))])
    assert tree(path) == {"a": b"2", "b": b"3"}
    assert sorted(os.listdir(path)) == sorted(["..data", os.readlink(path / "..data"), "a", "b"])


async def test_what_is_not_ours_in_our_folders_is_left_alone(store: VolumeStore, tmp_path: Path) -> None:
    await one(store, EmptyDir())
    (tmp_path / "volumes" / "pods" / "lost+found").mkdir()
    await store.reap(())
    assert sorted(os.listdir(tmp_path / "volumes" / "pods")) == [".trash", "lost+found"]


async def test_many_pods_at_once(store: VolumeStore, tmp_path: Path) -> None:
    specs = [VolumeSpec("e", EmptyDir()), VolumeSpec("c", Content({"a": b"1"})), CLAIM]
    await asyncio.gather(*(store.make(f"pod-{index}", specs) for index in range(50)))
    assert len(os.listdir(tmp_path / "volumes" / "pods")) == 50
    await asyncio.gather(*(store.remove(f"pod-{index}") for index in range(50)))
    assert os.listdir(tmp_path / "volumes" / "pods") == [".trash"]
    assert sorted(os.listdir(tmp_path / "volumes" / "claims")) == ["claim-1"]


async def test_pods_that_share_a_claim_get_the_same_folder(store: VolumeStore) -> None:
    """Whoever comes first makes it; nobody's is replaced by another one while it may be mounted already."""
    for round_ in range(30):
        spec = VolumeSpec("home", Claim("team", "home", f"claim-{round_}"))
        made = await asyncio.gather(*(_inode(store, f"pod-{round_}-{index}", spec) for index in range(4)))
        assert len(set(made)) == 1


async def _inode(store: VolumeStore, pod: str, spec: VolumeSpec) -> int:
    return path_of((await store.make(pod, [spec]))["home"]).stat().st_ino


async def test_a_link_in_place_of_a_volume_is_not_followed(store: VolumeStore, tmp_path: Path) -> None:
    path = path_of(await one(store, Content({"a": b"1"})))
    (tmp_path / "outside").mkdir()
    path.rename(path.with_name("moved"))
    path.symlink_to(tmp_path / "outside")
    with pytest.raises(NodeError, match="VolumeFailed"):
        await store.refresh("pod-1", [VolumeSpec("v", Content({"a": b"2"}))])
    assert list((tmp_path / "outside").iterdir()) == []
