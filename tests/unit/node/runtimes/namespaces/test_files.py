"""Folders that somebody hostile has filled, and what of the machine's own files a sandbox may see."""

from __future__ import annotations

import os
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from sandpool.node.openat import remove_file
from sandpool.node.runtimes.namespaces.forked import owners, removal, targets
from sandpool.node.runtimes.namespaces.forked.frames import Refused
from sandpool.node.runtimes.namespaces.host_skeleton import copy_public, make_skeleton
from sandpool.node.volumes.directories import open_directory

ME = (os.geteuid(), os.getegid())


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    found = tmp_path / "outside"
    found.mkdir()
    (found / "secret").write_text("secret")
    return found


@pytest.fixture
def root(tmp_path: Path, outside: Path) -> int:
    inside = tmp_path / "root"
    (inside / "real").mkdir(parents=True)
    (inside / "out").symlink_to(outside)
    (inside / "up").symlink_to(f"../../../../../..{outside}")
    (inside / "dangling").symlink_to("/missing")
    (inside / "loop").symlink_to("loop")
    (inside / "file").write_text("text")
    return os.open(inside, os.O_PATH)


def test_folders_are_made_inside_only(root: int, outside: Path, tmp_path: Path) -> None:
    for path in ("/a/b/c", "real/x", "/real/x", "//", "./real/./y/"):
        os.close(targets.make_directory(root, path, ME))
    assert (tmp_path / "root" / "a" / "b" / "c").is_dir()
    for path in ("/out/x", "/up/x", "/dangling", "/loop/x", "/file/x", "/a/../../x"):
        with pytest.raises((Refused, OSError)):
            os.close(targets.make_directory(root, path, ME))
    assert [path.name for path in outside.iterdir()] == ["secret"]
    os.close(root)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give anything away")
def test_what_is_put_in_the_place_of_a_folder_in_a_volume_is_not_given_away(monkeypatch: pytest.MonkeyPatch) -> None:
    root, make = os.open("/", os.O_PATH), os.mkdir
    with tempfile.TemporaryDirectory(dir="/dev/shm") as volume:
        if os.stat(volume).st_dev == os.fstat(root).st_dev:
            pytest.skip("it takes a second file system")
        os.mkdir(f"{volume}/precious")

        def exchanged(*arguments: Any, **more: Any) -> None:
            make(*arguments, **more)
            os.rename(f"{volume}/place", f"{volume}/made")
            os.rename(f"{volume}/precious", f"{volume}/place")

        monkeypatch.setattr(os, "mkdir", exchanged)
        os.close(targets.make_directory(root, f"{volume}/place", (4321, 4321)))
        monkeypatch.undo()
        assert os.stat(f"{volume}/place").st_uid == 0
        assert os.stat(f"{volume}/made").st_uid == 4321
        os.close(targets.make_file(root, f"{volume}/made/file", (4321, 4321)))
        assert os.stat(f"{volume}/made/file").st_uid == 4321
    os.close(root)


def test_files_are_made_and_read_inside_only(root: int, tmp_path: Path) -> None:
    os.close(targets.make_file(root, "/real/new", ME))
    assert (tmp_path / "root" / "real" / "new").read_text() == ""
    with pytest.raises(Refused):
        targets.make_file(root, "/dangling", ME)
    with pytest.raises(Refused):
        targets.make_file(root, "/", ME)
    assert targets.read_small(root, "file") == "text"
    assert targets.read_small(root, "file", 2) == "te"
    os.mkfifo(tmp_path / "root" / "fifo")
    for path in ("missing", "real", "fifo", "out/secret", "loop"):
        assert targets.read_small(root, path) == ""
    os.close(root)


def test_removal_is_not_afraid_of_depth_links_or_modes(tmp_path: Path, outside: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    here = os.getcwd()
    os.chdir(top)
    try:
        for _ in range(120):
            os.mkdir("d")
            os.chdir("d")
    finally:
        os.chdir(here)
    (top / "wide").mkdir()
    for number in range(300):
        (top / "wide" / f"f{number}").write_text("")
        (top / "wide" / f"d{number}").mkdir()
    (top / "link").symlink_to(outside)
    (top / "wide" / "link").symlink_to(outside)
    (top / "closed" / "in").mkdir(parents=True)
    (top / "closed" / "in" / "f").write_text("")
    (top / "closed" / "in").chmod(0)
    (top / "closed").chmod(0)
    os.link(outside / "secret", top / "hard")
    removal.empty(str(top))
    assert list(top.iterdir()) == []
    assert (outside / "secret").read_text() == "secret"
    removal.empty(str(top), itself=True)
    assert not top.exists()
    removal.empty(str(top))


def test_removal_holds_few_names_however_many_there_are(tmp_path: Path) -> None:
    """The memory that it takes is nobody's: whoever made the names is not charged for it."""
    full, wide = tmp_path / "full", tmp_path / "full" / "wide"
    wide.mkdir(parents=True)
    for number in range(2000):
        os.close(os.open(wide / str(number).rjust(200, "x"), os.O_CREAT))
    for number in range(120):
        (full / f"d{number}" / "e" / "f").mkdir(parents=True)
    tracemalloc.start()
    try:
        removal.empty(str(full))
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert list(full.iterdir()) == []
    assert most < 1 << 19


def test_only_older_runs_of_the_same_container_are_removed(tmp_path: Path) -> None:
    for name in ("main-0", "main-1", "main-x", "main", "main-1-0", "other-0"):
        (tmp_path / name / "in").mkdir(parents=True)
    removal.remove_older(str(tmp_path / "main-2"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["main", "main-1-0", "main-x", "other-0"]


def machine(folder: Path) -> Path:
    for name in (
        "usr/bin",
        "usr/local/lib/python3.11/dist-packages",
        "etc/ssl/certs",
        "etc/ssl/private",
        "etc/ssh",
        "lib64",
    ):
        (folder / name).mkdir(parents=True)
    (folder / "bin").symlink_to("usr/bin")
    for name, mode in (("shadow", 0o640), ("ssh/key", 0o600), ("ssl/private/key", 0o644), ("ssl/certs/ca.pem", 0o644),
                       ("ssl/certs/hidden.pem", 0o600), ("os-release", 0o644), ("gitconfig", 0o644)):  # fmt: skip
        (folder / "etc" / name).write_text(name)
        (folder / "etc" / name).chmod(mode)
    return folder


def test_the_skeleton_holds_nothing_secret(tmp_path: Path) -> None:
    make_skeleton(tmp_path / "made", machine(tmp_path / "machine"))
    etc = tmp_path / "made" / "etc"
    assert sorted(str(path.relative_to(etc)) for path in etc.rglob("*")) == [
        "group", "mtab", "nsswitch.conf", "os-release", "passwd", "ssl", "ssl/certs", "ssl/certs/ca.pem",
    ]  # fmt: skip
    assert os.readlink(tmp_path / "made" / "bin") == "usr/bin"
    assert (tmp_path / "made" / "lib64").is_dir()
    assert (tmp_path / "made" / "usr/local/lib/python3.11/dist-packages").is_dir()
    assert (tmp_path / "made" / "tmp").stat().st_mode & 0o7777 == 0o1777
    make_skeleton(tmp_path / "made", tmp_path / "machine")  # anew
    assert (etc / "passwd").exists()


def test_the_skeleton_of_a_probe_is_for_a_shell_alone(tmp_path: Path) -> None:
    make_skeleton(tmp_path / "made", machine(tmp_path / "machine"), whole=False)
    etc = tmp_path / "made" / "etc"
    assert sorted(path.name for path in etc.rglob("*")) == ["group", "mtab", "nsswitch.conf", "passwd"]
    assert os.readlink(tmp_path / "made" / "bin") == "usr/bin"


def test_copies_are_bounded(tmp_path: Path) -> None:
    source = tmp_path / "many"
    source.mkdir()
    for number in range(20):
        (source / f"{number:02d}").write_text("")
    copy_public(source, tmp_path / "copy", 5)
    assert len(list((tmp_path / "copy").iterdir())) == 5


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_owners_are_shifted_where_the_file_system_cannot_map_them(tmp_path: Path, outside: Path) -> None:
    base, other = owners.FIRST + 5 * owners.EACH, owners.FIRST + 9 * owners.EACH
    top = tmp_path / "volume"
    (top / "sub").mkdir(parents=True)
    (top / "sub" / "file").write_text("")
    (top / "link").symlink_to(outside)
    os.chown(top / "sub", 1000, 70000)
    os.chown(top / "sub" / "file", other + 7, other)
    for _ in range(2):  # again changes nothing
        with open_directory(top) as folder:
            owners.shift_owners(folder, base)
        found = {
            str(path.relative_to(top)): (path.lstat().st_uid - base, path.lstat().st_gid - base)
            for path in top.rglob("*")
        }
        assert found == {"sub": (1000, 0), "sub/file": (7, 0), "link": (0, 0)}
    assert top.stat().st_uid == base
    assert outside.stat().st_uid == 0


def test_a_strict_umask_closes_nothing_of_it(tmp_path: Path) -> None:
    source = machine(tmp_path / "machine")
    before = os.umask(0o077)
    try:
        make_skeleton(tmp_path / "made", source)
    finally:
        os.umask(before)
    made = [path for path in (tmp_path / "made").rglob("*") if not path.is_symlink()]
    closed = [path for path in made if not path.stat().st_mode & 0o004]
    assert [path.name for path in closed] == ["root"]


def test_what_loses_its_last_name_is_empty_for_whoever_holds_it(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("other")
    (tmp_path / "link").symlink_to("other")
    for name in ("last", "closed", "one"):
        (tmp_path / name).write_text("text")
    (tmp_path / "closed").chmod(0)
    os.link(tmp_path / "one", tmp_path / "two")
    with open_directory(tmp_path) as folder:
        files = [os.open(name, os.O_PATH, dir_fd=folder) for name in ("last", "closed", "one")]
        for name in ("last", "closed", "one", "link"):
            remove_file(name, folder)
    assert [os.fstat(file).st_size for file in files] == [0, 0, 4]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "two"]
    assert (tmp_path / "other").read_text() == "other"
    for file in files:
        os.close(file)
