"""Unpacking one layer: nothing leaves its folder, and what is in it is what the archive says."""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandpool.node.images.tar import BadArchive
from sandpool.node.images.tree import Tree, remove_entry
from sandpool.node.images.unpack import Unpacked, opaque_attributes
from sandpool.node.images.worker import Job, unpack
from support.images.fast_folder import fast_folder
from support.images.files import (
    Entry,
    device,
    digest,
    file,
    folder,
    hard_link,
    layer,
    opaque,
    removed,
    symlink,
)

ROOT_USER = os.geteuid() == 0
USER = ("user.overlay.opaque",)


@pytest.fixture
def target() -> Iterator[Path]:
    """A folder to unpack into, beside files that must not change."""
    with fast_folder() as place:
        (place / "outside").mkdir()
        (place / "outside/secret").write_text("untouched")
        (place / "root").mkdir()
        yield place / "root"
        assert (place / "outside/secret").read_text() == "untouched"
        assert sorted(entry.name for entry in place.iterdir()) == ["outside", "root"]
        assert [entry.name for entry in (place / "outside").iterdir()] == ["secret"]
        empty(place)


def put(
    target: Path,
    entries: list[Entry] | bytes,
    *,
    most: int = 1 << 24,
    count: int = 10_000,
    diff_id: str = "",
    owners: bool = ROOT_USER,
) -> Unpacked:
    content = entries if isinstance(entries, bytes) else layer(entries)
    fd = os.open(target, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return unpack(
            io.BytesIO(content),
            fd,
            Job("", "", diff_id, most, count, 4095, 200),
            owners,
            opaque_attributes(fd) if owners else USER,
        )
    finally:
        os.close(fd)


def listing(target: Path) -> dict[str, str]:
    found = {}
    for path in sorted(target.rglob("*")):
        mode = path.lstat().st_mode
        name = str(path.relative_to(target))
        if stat.S_ISLNK(mode):
            found[name] = f"-> {os.readlink(path)}"
        elif stat.S_ISCHR(mode):
            found[name] = f"device {path.lstat().st_rdev}"
        else:
            found[name] = "folder" if stat.S_ISDIR(mode) else path.read_text()
    return found


def test_an_ordinary_layer(target: Path) -> None:
    done = put(
        target,
        [
            folder("./"), folder("etc/"), file("etc/name", "box", mode=0o640, mtime=1_700_000_000), symlink("bin", "usr/bin"),
            file("/usr/bin/sh", "#!", mode=0o755), hard_link("usr/bin/bash", "/usr/bin/sh"), folder("tmp", 0o1777),
        ],
    )  # fmt: skip
    assert listing(target) == {
        "bin": "-> usr/bin", "etc": "folder", "etc/name": "box", "tmp": "folder", "usr": "folder", "usr/bin": "folder",
        "usr/bin/bash": "#!", "usr/bin/sh": "#!",
    }  # fmt: skip
    assert (target / "etc/name").stat().st_mtime == 1_700_000_000
    assert stat.S_IMODE((target / "etc/name").stat().st_mode) == 0o640
    assert stat.S_IMODE((target / "tmp").stat().st_mode) == 0o1777
    assert (target / "usr/bin/bash").samefile(target / "usr/bin/sh")
    assert done.files == 8
    assert done.implied == ["usr", "usr/bin"]
    assert put(target, [file("x")]).implied == [""]


ESCAPES: dict[str, list[Entry]] = {
    "dots": [file("../outside/secret", "x")],
    "dots later": [file("a/../../outside/secret", "x")],
    "dots in a folder": [folder("../evil")],
    "dots at the end": [file("a/..", "x")],
    "dots in a link": [symlink("../outside/link", "x")],
    "dots in a removal": [Entry("../outside/.wh.secret")],
    "a removal of dots": [Entry("a/.wh...")],
    "a removal of this folder": [Entry("a/.wh..")],
    "a removal of nothing": [Entry("a/.wh.")],
    "dots in an opaque mark": [Entry("../outside/.wh..wh..opq")],
    "through a link": [symlink("a", "../outside"), file("a/secret", "x")],
    "through an absolute link": [symlink("a", "/tmp"), file("a/escaped", "x")],
    "through two links": [symlink("a", "b"), symlink("b", "../outside"), file("a/secret", "x")],
    "through a link on the way": [folder("d"), symlink("d/a", "../../outside"), file("d/a/secret", "x")],
    "a folder through a link": [symlink("a", "../outside"), folder("a/evil")],
    "a link through a link": [symlink("a", "../outside"), symlink("a/evil", "x")],
    "a removal through a link": [symlink("a", "../outside"), removed("a/secret")],
    "an opaque mark through a link": [symlink("a", "../outside"), opaque("a")],
    "a hard link outside": [hard_link("a", "../outside/secret")],
    "an absolute hard link outside": [hard_link("a", "/etc/passwd")],
    "a hard link through a link": [symlink("s", "../outside"), hard_link("a", "s/secret")],
    "through a hard linked link": [symlink("s", "../outside"), hard_link("h", "s"), file("h/secret", "x")],
    "a folder that becomes a link": [folder("a"), file("a/x", "1"), symlink("a", "../outside"), file("a/secret", "x")],
    "a file that becomes a link": [file("a", "1"), symlink("a", "../outside"), file("a/secret", "x")],
    "through a file": [file("a", "x"), file("a/b", "x")],
    "a hard link to itself": [file("a", "1"), hard_link("a", "a")],
    "a hard link to a folder": [folder("d"), hard_link("a", "d")],
    "a hard link to nothing": [hard_link("a", "b")],
    "a hard link to a removal": [removed("b"), hard_link("a", "b")],
    "a hard link onto what it needs": [folder("d"), file("d/f", "1"), hard_link("d", "d/f")],
    "a hard link into its own file": [file("a", "1"), hard_link("a/b", "a")],
    "the root as a file": [file("./", "x")],
    "the root as a link": [symlink(".", "../outside")],
    "a name that is too long": [file("a" * 256, "x")],
    "a path that is too long": [file("/".join(["a" * 200] * 21), "x")],
    "a path that is too deep": [file("a/" * 201 + "b", "x")],
    "an empty link": [symlink("a", "")],
    "a link that is too long": [symlink("a", "b" * 4096)],
    "below a removal": [file(".wh.a/b", "x")],
    "a removal below a removal": [Entry(".wh.a/.wh.b")],
    "an impossible owner": [file("a", "x", uid=1 << 33)],
}


@pytest.mark.parametrize("entries", ESCAPES.values(), ids=ESCAPES.keys())
def test_what_leads_out_or_makes_no_sense_is_refused(target: Path, entries: list[Entry]) -> None:
    with pytest.raises(BadArchive):
        put(target, entries)


@pytest.mark.parametrize("entries", ESCAPES.values(), ids=ESCAPES.keys())
def test_these_archives_are_archives(entries: list[Entry]) -> None:
    """Else the test above could pass for the wrong reason."""
    with tarfile.open(fileobj=io.BytesIO(layer(entries))) as archive:
        assert len(archive.getmembers()) == len(entries)


def test_absolute_paths_are_paths_in_the_image(target: Path) -> None:
    put(target, [file("//etc///passwd", "inside")])
    assert listing(target) == {"etc": "folder", "etc/passwd": "inside"}


def test_links_themselves_may_lead_anywhere(target: Path) -> None:
    """They are followed inside a sandbox only."""
    put(target, [symlink("a", "/etc/passwd"), symlink("b", "../../../etc"), hard_link("c", "a")])
    assert listing(target) == {"a": "-> /etc/passwd", "b": "-> ../../../etc", "c": "-> /etc/passwd"}


def test_later_entries_win(target: Path) -> None:
    put(
        target,
        [
            file("a", "1"), file("a", "2"), file("b", "1"), hard_link("c", "b"), file("b", "2"), folder("d"), file("d/x", "1"),
            folder("d/e"), file("d/e/f", "1"), symlink("d", "a"), symlink("s", "a"), file("s", "file"), file("g", "1"), folder("g"),
            file("g/h", "1"),
        ],
    )  # fmt: skip
    assert listing(target) == {
        "a": "2", "b": "2", "c": "1", "d": "-> a", "s": "file", "g": "folder", "g/h": "1",
    }  # fmt: skip


def test_devices_and_pipes_are_left_out_and_counted(target: Path) -> None:
    fifo = Entry("p", tarfile.FIFOTYPE)
    done = put(target, [device("null"), device("disk", 8, 0, tarfile.BLKTYPE), device("w", 0, 0), fifo, file("f", "x")])
    assert listing(target) == {"f": "x"}
    assert done.skipped == {"devices": 3, "fifos": 1}


def test_attributes_of_the_archive_are_left_out(target: Path) -> None:
    """An overlay would believe them, wherever they point."""
    named = {"SCHILY.xattr.user.overlay.redirect": "/etc", "SCHILY.xattr.trusted.overlay.opaque": "y"}
    put(target, [folder("d", pax=named), file("f", "x", pax={"SCHILY.xattr.user.overlay.metacopy": "y"})])
    assert os.listxattr(target / "d") == os.listxattr(target / "f") == []


def test_modes_of_an_ordinary_user(target: Path) -> None:
    done = put(
        target,
        [
            file("su", "x", mode=0o6755, uid=7),
            folder("closed", 0),
            file("closed/f", "x", mode=0),
            folder("sticky", 0o7777),
        ],
        owners=False,
    )
    modes = {name: stat.S_IMODE((target / name).stat().st_mode) for name in ("su", "closed", "sticky")}
    assert modes == {"su": 0o755, "closed": 0, "sticky": 0o1777}
    assert (target / "su").stat().st_uid == os.geteuid()
    assert done.files == 4


@pytest.mark.root
@pytest.mark.skipif(not ROOT_USER, reason="only root can give files away")
def test_owners_and_modes_as_root(target: Path) -> None:
    put(
        target,
        [
            file("su", "x", mode=0o4755, uid=7, gid=8), folder("home", 0o2750, uid=1000, gid=1001), symlink("l", "su", uid=5, gid=6),
            file("home/f", "x", uid=4_000_000_000),
        ],
    )  # fmt: skip
    look = {name: os.lstat(target / name) for name in ("su", "home", "l", "home/f")}
    assert {name: (one.st_uid, one.st_gid) for name, one in look.items()} == {
        "su": (7, 8), "home": (1000, 1001), "l": (5, 6), "home/f": (4_000_000_000, 0),
    }  # fmt: skip
    assert stat.S_IMODE(look["su"].st_mode) == 0o4755
    assert stat.S_IMODE(look["home"].st_mode) == 0o2750


def test_the_root_has_the_mode_that_it_is_given(target: Path) -> None:
    put(target, [folder("./", 0o711, mtime=5)])
    assert stat.S_IMODE(target.stat().st_mode) == 0o711
    assert target.stat().st_mtime == 5


@pytest.mark.parametrize("packed", [False, True])
def test_too_much_content(target: Path, packed: bool) -> None:
    bomb = layer([file("zeros", bytes(8 << 20))])
    with pytest.raises(BadArchive, match="more than"):
        put(target, gzip.compress(bomb) if packed else bomb, most=1 << 20)
    written = sum(path.stat().st_size for path in target.rglob("*"))
    assert written <= 2 << 20


def test_a_bomb_in_what_follows_the_archive(target: Path) -> None:
    with pytest.raises(BadArchive, match="more than"):
        put(target, gzip.compress(layer([file("a", "x")]) + bytes(8 << 20)), most=1 << 20)


def test_too_many_entries(target: Path) -> None:
    with pytest.raises(BadArchive, match="more than 50"):
        put(target, [file(str(number)) for number in range(51)], count=50)


def test_too_many_entries_that_leave_nothing_behind(target: Path) -> None:
    with pytest.raises(BadArchive, match="more than 50"):
        put(target, [device("a")] * 51, count=50)


def test_too_many_implied_folders(target: Path) -> None:
    with pytest.raises(BadArchive, match="more than 50"):
        put(target, [file("a/" * 60 + "b")], count=50)


def test_truncated_and_damaged_streams(target: Path) -> None:
    packed = gzip.compress(layer([file("a", os.urandom(100_000))]))
    with pytest.raises(BadArchive):
        put(target, packed[:50_000])
    damaged = bytearray(packed)
    damaged[60_000] ^= 0xFF
    with pytest.raises(BadArchive):
        put(target, bytes(damaged))


def test_the_digest_of_what_comes_out_is_compared(target: Path) -> None:
    content = layer([file("a", "x")])
    put(target, gzip.compress(content), diff_id=digest(content))
    with pytest.raises(BadArchive, match="digest"):
        put(target, gzip.compress(content + bytes(512)), diff_id=digest(content))


def test_several_members_of_gzip_are_one_stream(target: Path) -> None:
    content = layer([file("a", "hello")])
    put(target, gzip.compress(content[:700]) + gzip.compress(content[700:]), diff_id=digest(content))
    assert listing(target) == {"a": "hello"}


def test_zstd_is_told_where_python_cannot_read_it(target: Path) -> None:
    try:
        import compression.zstd  # noqa: F401
    except ImportError:
        with pytest.raises(BadArchive, match="zstd"):
            put(target, b"\x28\xb5\x2f\xfd" + b"x" * 100)


def test_many_entries(target: Path) -> None:
    """Removals and replacements in the same few places: no step may cost more than the last."""
    entries = [folder("d")]
    for number in range(3_000):
        entries += [file(f"d/{number}", "x"), symlink(f"d/{number}", "y"), file("same", str(number))]
    done = put(target, layer(entries, tarfile.USTAR_FORMAT), most=1 << 28, count=200_000)
    assert done.files == 9_001
    assert len(list((target / "d").iterdir())) == 3_000
    assert (target / "same").read_text() == "2999"


def test_folders_that_are_replaced_over_and_over(target: Path) -> None:
    entries = [folder(f"kept/{number}") for number in range(1_000)]
    for number in range(1_000):
        entries += [folder("a"), file("a/b/c", "x"), file("a", str(number))]
    put(target, layer(entries, tarfile.USTAR_FORMAT), count=30_000)
    assert (target / "a").read_text() == "999"


def empty(target: Path) -> None:
    fd = os.open(target, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in os.listdir(fd):
            remove_entry(fd, os.fsencode(name))
    finally:
        os.close(fd)
    assert list(target.iterdir()) == []


def test_removing_never_follows_links(target: Path) -> None:
    put(
        target,
        [
            symlink("a", "../outside"),
            symlink("b", "../outside/secret"),
            folder("c", 0),
            file("c/d/e", "x"),
            symlink("c/l", "/"),
        ],
    )
    empty(target)


@pytest.mark.long
def test_a_hundred_thousand_entries(target: Path) -> None:
    entries = [file(f"d{number % 100}/{number}", "x") for number in range(100_000)]
    done = put(target, layer(entries, tarfile.USTAR_FORMAT), most=1 << 28, count=200_000)
    assert done.files == 100_100


def test_the_tree_itself_follows_no_link(target: Path) -> None:
    """The second wall, behind the one that knows which folders were made."""
    (target / "d").mkdir()
    (target / "d/out").symlink_to("../../outside")
    (target / "file").write_text("")
    root = os.open(target, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with Tree(root) as tree:
            assert tree.stat((b"d",)) is not None
            assert tree.stat((b"d", b"none")) is None
            found = tree.stat((b"d", b"out"))
            assert found is not None
            assert stat.S_ISLNK(found.st_mode)
            for path in ((b"d", b"out"), (b"d", b"out", b"secret"), (b"file",), (b"missing",)):
                with pytest.raises(BadArchive):
                    tree.directory(path)
            tree.remove((b"d",))
            assert not (target / "d").exists()
    finally:
        os.close(root)
