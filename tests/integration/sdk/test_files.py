"""Files through a real boxd: contents of any size, names of any bytes, trees both ways, changes. Both halves of the SDK."""

from __future__ import annotations

import asyncio
import io
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandpool.kube.errors import Unreachable
from sandpool.sdk.errors import FileDenied, FileError, FileExists, FileNotFound, FileTooLarge, TooLarge
from support.network.boxd_daemon import Daemon
from support.network.cutting_proxy import a_cutting_proxy
from support.network.sdk_box import a_box


async def test_contents_of_every_shape(box: Any, home: Path, tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.write_bytes(b"0123456789")

    def pieces() -> Iterator[bytes]:
        yield from (b"a", b"", b"bc", b"d" * 600_000)

    with local.open("rb") as file:
        file.seek(4)
        shapes = {
            "bytes": (b"\x00\xff", b"\x00\xff"), "text": ("grün", "grün".encode()), "nothing": (b"", b""),
            "array": (bytearray(b"xy"), b"xy"), "file": (file, b"456789"), "memory": (io.BytesIO(b"m" * 100), b"m" * 100),
            "text file": (io.StringIO("ü"), b"\xc3\xbc"), "pieces": (pieces(), b"abc" + b"d" * 600_000),
            "large": (b"L" * 5_000_000, b"L" * 5_000_000),
        }  # fmt: skip
        for name, (given, expected) in shapes.items():
            await box.files.write(f"{home.name}/new/{name}", given)
            assert (home / "new" / name).read_bytes() == expected, name
            assert await box.files.read(f"{home}/new/{name}") == expected, name
    assert not [name for name in os.listdir(home / "new") if name not in shapes], "nothing temporary stays"


async def test_names_of_any_bytes(box: Any, home: Path) -> None:
    for name in ("a b", "ünï", "100%25", "a+b&c=d?e#f", "-x", os.fsdecode(b"\xff\xfe"), "new\nline", "n" * 255, "…"):
        await box.files.write(f"{home.name}/{name}", name.encode("utf-8", "surrogateescape"))
        assert await box.files.read(f"{home.name}/{name}") == os.fsencode(name)
        assert (await box.files.stat(f"{home.name}/{name}")).name == name
        await box.files.move(f"{home.name}/{name}", f"{home.name}/moved")
        await box.files.move(f"{home.name}/moved", f"{home.name}/{name}")
    assert sorted(entry.name for entry in await box.files.list(home.name)) == sorted(os.listdir(home))


async def test_parts_of_a_file(box: Any, home: Path) -> None:
    (home / "f").write_bytes(bytes(range(100)))
    path = f"{home.name}/f"
    assert await box.files.read(path, offset=10, length=5) == bytes(range(10, 15))
    assert await box.files.read(path, offset=95, length=50) == bytes(range(95, 100))
    assert await box.files.read(path, offset=98) == bytes((98, 99))
    assert await box.files.read(path, offset=5, length=0) == b""
    assert await box.files.read(path, offset=100) == b""
    assert await box.files.read(path, offset=500, length=1) == b""
    with pytest.raises(ValueError, match="negative"):
        await box.files.read(path, offset=-1)


async def test_reading_piece_by_piece(box: Any, home: Path) -> None:
    (home / "f").write_bytes(b"x" * 1_000_000)
    async with box.files.open(f"{home.name}/f") as file:
        assert file.size == 1_000_000
        assert await file.read(10) == b"x" * 10
        assert sum([len(data) async for data in file]) == 999_990
    into = io.BytesIO()
    assert await box.files.read_into(f"{home.name}/f", into) == 1_000_000
    assert into.getvalue() == b"x" * 1_000_000


async def test_text(box: Any, home: Path) -> None:
    (home / "f").write_bytes(b"gr\xfcn")
    assert await box.files.read_text(f"{home.name}/f", "latin-1") == "grün"
    assert await box.files.read_text(f"{home.name}/f", errors="replace") == "gr\ufffdn"


async def test_what_is_there(box: Any, home: Path) -> None:
    (home / "file").write_bytes(b"12345")
    (home / "file").chmod(0o640)
    (home / "link").symlink_to("file")
    (home / "nowhere").symlink_to("absent")
    info = await box.files.stat(f"{home.name}/file")
    assert (info.name, info.type, info.size, info.mode, info.is_file) == ("file", "file", 5, 0o640, True)
    assert info.modified == pytest.approx((home / "file").stat().st_mtime)
    assert (await box.files.stat(f"{home.name}/link")).is_file
    link = await box.files.stat(f"{home.name}/link", follow=False)
    assert (link.is_symlink, link.target) == (True, "file")
    assert [(entry.name, entry.type) for entry in await box.files.list(home.name)] == [
        ("file", "file"), ("link", "symlink"), ("nowhere", "symlink"),
    ]  # fmt: skip
    assert (await box.files.list(home.name))[0].path == f"{home.name}/file"
    assert [await box.files.exists(f"{home.name}/{name}") for name in ("file", "link", "nowhere", "absent")] == [
        True, True, False, False,
    ]  # fmt: skip


async def test_making_moving_removing(box: Any, home: Path) -> None:
    top = home.name
    await box.files.mkdir(f"{top}/a/b/c")
    await box.files.mkdir(f"{top}/a/b/c")
    with pytest.raises(FileExists, match="already exists"):
        await box.files.mkdir(f"{top}/a", parents=False)
    with pytest.raises(FileNotFound):
        await box.files.mkdir(f"{top}/x/y", parents=False)
    await box.files.mkdir(f"{top}/private", mode=0o700)
    assert stat.S_IMODE((home / "private").stat().st_mode) == 0o700
    await box.files.write(f"{top}/a/file", "x", mode=0o755)
    assert stat.S_IMODE((home / "a/file").stat().st_mode) == 0o755
    await box.files.write(f"{top}/a/file", "y")
    assert stat.S_IMODE((home / "a/file").stat().st_mode) == 0o755, "an old file keeps its mode"
    await box.files.move(f"{top}/a/file", f"{home}/moved")
    assert (home / "moved").read_text() == "y"
    with pytest.raises(FileExists, match="recursive"):
        await box.files.remove(f"{top}/a")
    await box.files.remove(f"{top}/a", recursive=True)
    await box.files.remove(f"{top}/moved")
    assert os.listdir(home) == ["private"]


async def test_refusals_name_the_sandbox_the_path_and_the_next_step(box: Any, home: Path) -> None:
    with pytest.raises(FileNotFound, match=r"sandbox default/box: '.*absent' does not exist; a relative path") as error:
        await box.files.read(f"{home.name}/absent")
    assert isinstance(error.value, FileNotFoundError)
    assert error.value.path == f"{home.name}/absent"
    for what in (5, {"a": 1}, None):
        with pytest.raises(TypeError, match=f"{type(what).__name__} cannot be sent; give bytes, text"):
            await box.files.write(f"{home.name}/absent", what)
    with pytest.raises(FileDenied, match=r"leads out of .*; choose a path"):
        await box.files.read("../../etc/passwd")
    with pytest.raises(FileError, match="is a directory"):
        await box.files.read(home.name)
    with pytest.raises(FileError, match="is a directory"):
        await box.files.write(home.name, b"x" * 3_000_000)
    with pytest.raises(FileError, match="not a directory"):
        await box.files.write(f"{home.name}/f", "x") or await box.files.list(f"{home.name}/f")
    with pytest.raises(ValueError, match="0o644"):
        await box.files.write(f"{home.name}/f", "x", mode=0o10644)
    with pytest.raises(ValueError, match="null"):
        await box.files.read("a\0b")


async def test_a_write_that_breaks_leaves_the_old_file(kind: str, daemon: Daemon, home: Path) -> None:
    (home / "f").write_text("old")
    async with a_cutting_proxy(daemon.port, 1, 100_000, 200_000) as proxy, a_box(kind, proxy.port) as box:
        for data in (b"x" * 5_000_000, iter([b"y" * 1000] * 5000)):
            with pytest.raises(Unreachable, match=r"sandbox default/box: '.*/f': "):
                await box.files.write(f"{home.name}/f", data)
    async with a_box("async", daemon.port) as box:  # the daemon has noticed when the next one is served
        while len(await box.files.list(home.name)) > 1:
            await asyncio.sleep(0.01)
    assert (home / "f").read_text() == "old"


async def test_a_source_that_fails_leaves_nothing(box: Any, home: Path) -> None:
    def broken() -> Iterator[bytes]:
        yield b"x" * 100_000
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="the source broke"):
        await box.files.write(f"{home.name}/f", broken())
    while await box.files.list(home.name):
        await asyncio.sleep(0.01)


def a_tree(top: Path) -> Path:
    (top / "sub" / "deep").mkdir(parents=True)
    (top / "empty").mkdir()
    (top / "locked").mkdir()
    (top / "locked" / "in").write_text("in")
    (top / "locked").chmod(0o555)
    (top / "run.sh").write_text("#!/bin/sh\necho hi\n")
    (top / "run.sh").chmod(0o755)
    (top / "sub" / "big").write_bytes(os.urandom(1_300_001))
    (top / "sub" / "ünïcode \n…").write_text("u")
    (top / "sub" / "deep" / ("long" * 60)).write_text("l")
    (top / "sub" / "zero").touch()
    (top / "link").symlink_to("sub/big")
    (top / "sub" / "up").symlink_to("../run.sh")
    (top / "sub" / os.fsdecode(b"\xfe")).write_text("bytes")
    os.utime(top / "run.sh", (1_000_000_000, 1_000_000_000))
    return top


def seen(top: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in sorted(top.rglob("*")):
        name = os.fsencode(path.relative_to(top))
        if path.is_symlink():
            found[str(name)] = ("link", os.readlink(path))
        elif path.is_dir():
            found[str(name)] = "folder"
        else:
            found[str(name)] = (stat.S_IMODE(path.stat().st_mode), path.read_bytes())
    return found


async def test_trees_travel_both_ways(box: Any, home: Path, tmp_path: Path) -> None:
    local = a_tree(tmp_path / "local")
    done: list[tuple[int, int]] = []
    up = await box.files.upload(local, f"{home.name}/there", progress=lambda size, total: done.append((size, total)))
    assert seen(home / "there") == seen(local)
    total = sum(path.stat().st_size for path in local.rglob("*") if path.is_file() and not path.is_symlink())
    assert (up.files, up.size, up.skipped) == (7, total, ())
    assert done[-1] == (total, total)
    down = await box.files.download(f"{home.name}/there", tmp_path / "back" / "deeper")
    assert seen(tmp_path / "back" / "deeper") == seen(local)
    assert (down.files, down.size) == (7, total)
    assert (tmp_path / "back/deeper/run.sh").stat().st_mtime == 1_000_000_000
    assert stat.S_IMODE((tmp_path / "back/deeper/locked").stat().st_mode) == 0o555
    again = await box.files.download(f"{home.name}/there", tmp_path / "back" / "deeper")
    assert again.files == 7, "over what is there"


async def test_single_files_travel_both_ways(box: Any, home: Path, tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.write_bytes(os.urandom(3_000_000))
    local.chmod(0o750)
    done: list[tuple[int, int]] = []
    up = await box.files.upload(local, f"{home.name}/f", progress=lambda size, total: done.append((size, total)))
    assert (up.files, up.size, done[-1]) == (1, 3_000_000, (3_000_000, 3_000_000))
    assert len(done) > 5
    assert (home / "f").read_bytes() == local.read_bytes()
    assert stat.S_IMODE((home / "f").stat().st_mode) == 0o750
    done.clear()
    await box.files.download(f"{home.name}/f", tmp_path / "new" / "f", progress=lambda *now: done.append(now))
    assert (tmp_path / "new" / "f").read_bytes() == local.read_bytes()
    assert done[-1] == (3_000_000, 3_000_000)
    assert os.listdir(tmp_path / "new") == ["f"]


def resident(pid: int) -> int:
    """The most memory that a process ever had, in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) // 1024


async def test_large_files_and_trees_pass_in_constant_memory(
    box: Any, home: Path, tmp_path: Path, daemon: Daemon
) -> None:
    size = 100 << 20
    (tmp_path / "tree").mkdir()
    with (tmp_path / "tree" / "large").open("wb") as file:
        file.truncate(size)
    before, ours = resident(daemon.process.pid), resident(os.getpid())
    await box.files.upload(tmp_path / "tree" / "large", f"{home.name}/f")
    await box.files.write(f"{home.name}/g", (bytes(1 << 18) for _ in range(size >> 18)))
    await box.files.upload(tmp_path / "tree", f"{home.name}/t")
    await box.files.download(f"{home.name}/f", tmp_path / "f")
    await box.files.download(f"{home.name}/t", tmp_path / "t")
    assert (tmp_path / "f").stat().st_size == (tmp_path / "t" / "large").stat().st_size == size
    assert (home / "g").stat().st_size == size
    assert resident(daemon.process.pid) - before < 40
    assert resident(os.getpid()) - ours < 40


async def test_a_file_does_not_take_the_place_of_a_folder(box: Any, home: Path, tmp_path: Path) -> None:
    (home / "f").touch()
    with pytest.raises(IsADirectoryError, match="name the file in it"):
        await box.files.download(f"{home.name}/f", tmp_path)


async def test_a_download_that_breaks_leaves_no_half_file(
    kind: str, daemon: Daemon, home: Path, tmp_path: Path
) -> None:
    (home / "f").write_bytes(b"x" * 5_000_000)
    async with a_cutting_proxy(daemon.port, 3, 1_000_000, 2_000_000) as proxy, a_box(kind, proxy.port) as box:
        with pytest.raises(Unreachable, match=r"sandbox default/box: '.*/f': "):
            await box.files.download(f"{home.name}/f", tmp_path / "f")
        (home / "d").mkdir()
        (home / "f").rename(home / "d" / "f")
        with pytest.raises((Unreachable, FileError)):
            await box.files.download(f"{home.name}/d", tmp_path / "d")
    assert not (tmp_path / "f").exists()
    assert [name for name in os.listdir(tmp_path) if name != "d"] == []


async def test_what_is_no_file_is_left_out_and_named(box: Any, home: Path, tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.mkdir()
    (local / "f").write_text("x")
    os.mkfifo(local / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(local / "socket"))
        up = await box.files.upload(local, f"{home.name}/t")
    assert (up.files, sorted(up.skipped)) == (1, ["pipe", "socket"])
    os.symlink("/etc/passwd", home / "t" / "absolute")
    os.symlink("../../..", home / "t" / "out")
    down = await box.files.download(f"{home.name}/t", tmp_path / "back")
    assert (sorted(down.skipped), os.listdir(tmp_path / "back")) == (["absolute", "out"], ["f"])


async def test_a_local_symlink_is_not_written_through(box: Any, home: Path, tmp_path: Path) -> None:
    (home / "t" / "sub").mkdir(parents=True)
    (home / "t" / "sub" / "f").write_text("new")
    (home / "t" / "g").write_text("new")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "g").write_text("mine")
    back = tmp_path / "back"
    back.mkdir()
    (back / "g").symlink_to(outside / "g")
    (back / "sub").symlink_to(outside)
    with pytest.raises(FileError, match="'sub' is not a directory at the destination"):
        await box.files.download(f"{home.name}/t", back)
    (back / "sub").unlink()
    await box.files.download(f"{home.name}/t", back)
    assert ((back / "g").read_text(), (outside / "g").read_text()) == ("new", "mine")
    assert os.listdir(outside) == ["g"]


async def test_uploading_what_is_not_there(box: Any, home: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await box.files.upload(tmp_path / "absent", f"{home.name}/x")
    with pytest.raises(FileNotFound):
        await box.files.download(f"{home.name}/absent", tmp_path / "x")
    (home / "file").touch()
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_bytes(b"x" * 3_000_000)
    with pytest.raises(FileError):
        await box.files.upload(tmp_path / "d", f"{home.name}/file")


async def test_changes_are_told(box: Any, home: Path) -> None:
    (home / "sub").mkdir()
    async with box.files.watch(home.name, recursive=True) as watch:
        (home / "f").write_text("x")
        (home / "sub" / "g").touch()
        (home / "f").rename(home / "h")
        (home / "h").unlink()
        told = []
        async for change in watch:
            told.append((change.change, change.path))
            if change.change == "removed":
                break
    assert told[0] == ("created", "f")
    assert ("created", "sub/g") in told
    assert told[-3:] == [("moved-from", "f"), ("moved-to", "h"), ("removed", "h")]
    with pytest.raises(FileNotFound):
        await box.files.watch(f"{home.name}/absent").read()


@pytest.fixture(params=["async", "sync"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_a_huge_file_is_refused_and_not_held(box: Any, home: Path, tmp_path: Path) -> None:
    """A sparse one costs the sandbox nothing, and would cost the program that reads it everything."""
    path, size = f"{home.name}/huge", 1 << 40
    with (home / "huge").open("wb") as file:
        file.truncate(size)
    for read in (box.files.read, box.files.read_text):
        with pytest.raises(FileTooLarge, match="max_bytes") as raised:
            await read(path)
        assert (raised.value.path, raised.value.limit) == (path, 64 << 20)
        assert isinstance(raised.value, TooLarge)
    for target in ("file", "folder/tree"):
        with pytest.raises(FileTooLarge):
            await box.files.download(path if target == "file" else home.name, tmp_path / target, max_bytes=1000)
    with pytest.raises(FileTooLarge):
        await box.files.read_into(path, io.BytesIO(), max_bytes=1000)
    assert sum(found.stat().st_size for found in tmp_path.rglob("*") if found.is_file()) == 0
    # Parts of it, and all of it piece by piece, can be had.
    assert await box.files.read(path, offset=size - 3, length=100) == b"\0\0\0"
    async with box.files.open(path) as file:
        assert file.size == size
        assert await file.read(5) == b"\0" * 5


async def test_limits_of_ones_own(box: Any, home: Path, tmp_path: Path) -> None:
    (home / "ten").write_bytes(b"0123456789")
    path = f"{home.name}/ten"
    assert await box.files.read(path, max_bytes=10) == b"0123456789"
    assert await box.files.read(path, max_bytes=None) == b"0123456789"
    assert await box.files.read_text(path, max_bytes=10) == "0123456789"
    with pytest.raises(FileTooLarge):
        await box.files.read(path, max_bytes=9)
    assert (await box.files.download(path, tmp_path / "ten", max_bytes=10)).size == 10
    assert (await box.files.download(home.name, tmp_path / "tree", max_bytes=10)).size == 10
    with pytest.raises(FileTooLarge):
        await box.files.download(home.name, tmp_path / "other", max_bytes=9)
