"""Archives that a sandbox may send: read in any slices, and never able to write outside of the destination."""

from __future__ import annotations

import io
import os
import random
import stat
import tarfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandpool.sdk import archives
from sandpool.sdk.archives import Extraction, TreePieces
from sandpool.sdk.local_files import putting
from sandpool.wire.tar import LONGEST_EXTENSION, BadArchive, Member, TarReader


def archive(*members: tuple[str, bytes | str | None], kind: int = tarfile.PAX_FORMAT, **fields: Any) -> bytes:
    """A file for bytes, a symlink for text, a folder for None."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=kind) as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            for field, value in fields.items():
                setattr(member, field, value)
            if content is None:
                member.type = tarfile.DIRTYPE
                tar.addfile(member)
            elif isinstance(content, str):
                member.type, member.linkname = tarfile.SYMTYPE, content
                tar.addfile(member)
            else:
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return made.getvalue()


def read(data: bytes, size: int) -> list[tuple[Member, bytes]]:
    reader, found = TarReader(), []
    for at in range(0, len(data), size):
        for item in reader.feed(data[at : at + size]):
            if isinstance(item, Member):
                found.append([item, b""])
            else:
                found[-1][1] += item  # type: ignore[operator]
    assert reader.ended
    return [(member, content) for member, content in found]  # type: ignore[misc]


def extract(data: bytes, top: Path, size: int = 1000) -> Extraction:
    with Extraction(str(top)) as extraction:
        for at in range(0, len(data), size):
            extraction.feed(data[at : at + size])
        extraction.finish()
    return extraction


@pytest.mark.parametrize("kind", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
@pytest.mark.parametrize("size", [1, 511, 512, 513, 100_000])
def test_archives_are_read_in_any_slices(kind: int, size: int) -> None:
    long = "d/" + "n" * 90 if kind == tarfile.USTAR_FORMAT else "d/" + "nö" * 100
    data = archive(
        ("d", None), ("d/a", b"x" * 700), ("d/empty", b""), (long, b"y" * 512), ("d/l", "a"), kind=kind, mtime=7
    )
    found = read(data, size)
    assert [(member.name, member.type, content) for member, content in found] == [
        ("d", "directory", b""), ("d/a", "file", b"x" * 700), ("d/empty", "file", b""), (long, "file", b"y" * 512),
        ("d/l", "symlink", b""),
    ]  # fmt: skip
    assert (found[-1][0].target, found[1][0].modified) == ("a", 7)


def test_long_symlinks() -> None:
    target = "t/" * 200 + "end"
    for kind in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        ((member, _),) = read(archive(("l", target), kind=kind), 300)
        assert member.target == target


@given(st.binary(max_size=3000), st.integers(1, 700))
def test_any_bytes_are_read_or_refused(data: bytes, size: int) -> None:
    reader = TarReader()
    try:
        for at in range(0, len(data), size):
            reader.feed(data[at : at + size])
    except BadArchive:
        pass


@given(st.integers(0, 2**32), st.integers(1, 6))
def test_damaged_archives_are_read_or_refused(seed: int, flips: int) -> None:
    chance = random.Random(seed)
    data = bytearray(archive(("d", None), ("d/" + "n" * 200, b"x" * 700), ("l", "d"), ("e", b"")))
    for _ in range(flips):
        data[chance.randrange(len(data))] = chance.randrange(256)
    try:
        TarReader().feed(bytes(data))
    except BadArchive:
        pass


def test_an_extended_head_without_end_is_refused() -> None:
    head = tarfile.TarInfo("x")
    head.type, head.size = tarfile.XHDTYPE, LONGEST_EXTENSION + 1
    with pytest.raises(BadArchive, match="extended head"):
        TarReader().feed(head.tobuf(tarfile.USTAR_FORMAT))


@pytest.mark.parametrize("size", ["-1", "x", "9" * 40, "1e3"])
def test_a_size_that_is_no_number_is_refused(size: str) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as tar:
        member = tarfile.TarInfo("f")
        member.pax_headers = {"size": size}
        tar.addfile(member)
    with pytest.raises(BadArchive, match="no number"):
        TarReader().feed(made.getvalue())


HOSTILE = [
    ("/absolute", b"x"), ("../up", b"x"), ("a/../../up", b"x"), ("a/..", None), ("..", b"x"), ("/", b"x"), (".", b"x"),
    ("../link", "x"), ("a/b/../../../c", None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content"), HOSTILE)
def test_names_that_lead_out_are_refused(tmp_path: Path, name: str, content: bytes | None) -> None:
    inside = tmp_path / "inside"
    with pytest.raises(BadArchive):
        extract(archive(("fine", b"1"), (name, content)), inside)
    assert os.listdir(tmp_path) == ["inside"]
    assert os.listdir(inside) == ["fine"]


@pytest.mark.parametrize(
    ("place", "target"),
    [
        ("l", "/etc/passwd"),
        ("l", ".."),
        ("d/l", "../.."),
        ("l", "d/../.."),
        ("l", "x/../y"),
        ("l", "../inside2"),
        ("l", ""),
    ],
)
def test_links_that_lead_out_are_left_out(tmp_path: Path, place: str, target: str) -> None:
    found = extract(archive(("d", None), (place, target)), tmp_path / "inside")
    assert found.skipped == [place]
    assert sorted(os.listdir(tmp_path / "inside")) == ["d"]


@pytest.mark.parametrize(
    ("place", "target"), [("l", "d"), ("d/l", "../f"), ("d/l", "./x"), ("d/e/l", "../../f"), ("l", ".")]
)
def test_links_that_stay_are_made(tmp_path: Path, place: str, target: str) -> None:
    extract(archive(("d", None), ("d/e", None), (place, target)), tmp_path / "inside")
    assert os.readlink(tmp_path / "inside" / place) == target


def test_nothing_is_written_through_a_link_of_the_archive_itself(tmp_path: Path) -> None:
    """Even where the link is allowed: what comes after must be a real folder."""
    with pytest.raises(BadArchive, match="'l' is not a directory"):
        extract(archive(("d", None), ("l", "d"), ("l/f", b"x")), tmp_path / "inside")
    assert os.listdir(tmp_path / "inside" / "d") == []
    replaced = extract(archive(("f", "g"), ("g", b"kept"), ("f", b"new")), tmp_path / "other")
    assert (replaced.files, (tmp_path / "other/g").read_bytes(), (tmp_path / "other/f").read_bytes()) == (
        2,
        b"kept",
        b"new",
    )


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.LNKTYPE, b"S", b"?"])
def test_what_is_no_file_is_left_out(tmp_path: Path, kind: bytes) -> None:
    member = tarfile.TarInfo("odd")
    member.type, member.linkname = kind, "/etc/passwd"
    data = member.tobuf(tarfile.GNU_FORMAT) + archive(("f", b"x"))
    found = extract(data, tmp_path / "inside")
    assert (found.skipped, os.listdir(tmp_path / "inside")) == (["odd"], ["f"])


def test_special_bits_are_not_taken(tmp_path: Path) -> None:
    extract(archive(("f", b"x"), mode=0o6755), tmp_path / "inside")
    assert stat.S_IMODE((tmp_path / "inside/f").stat().st_mode) == 0o755


def test_other_users_of_this_machine_get_no_right_to_write(tmp_path: Path) -> None:
    """The sandbox chose the mode; who may change files here is not its to say."""
    extract(archive(("f", b"x"), ("d", None), mode=0o777), tmp_path / "inside")
    assert [stat.S_IMODE((tmp_path / "inside" / name).stat().st_mode) for name in ("f", "d")] == [0o755, 0o755]
    with putting(tmp_path / "g", 0o666) as file:
        file.write(b"x")
    assert stat.S_IMODE((tmp_path / "g").stat().st_mode) == 0o644


def test_an_archive_that_ends_early_is_told(tmp_path: Path) -> None:
    data = archive(("f", b"x" * 5000))
    for size in (0, 100, 1000, 5000):
        with pytest.raises(BadArchive, match="ends in the middle"):
            extract(data[:size], tmp_path / "inside")


def test_a_folder_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    with pytest.raises(BadArchive, match="a directory is where the file 'f' should go"):
        extract(archive(("f", b"x")), tmp_path)


def test_a_tree_becomes_an_archive_that_others_read(tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / "sub").mkdir(parents=True)
    (top / "sub" / ("ö" * 120)).write_bytes(b"x" * 1000)
    (top / "run").write_text("r")
    (top / "run").chmod(0o750)
    (top / "link").symlink_to("sub")
    tree = TreePieces(str(top))
    data = b"".join(tree)
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        assert {member.name: (member.type, member.mode, member.size) for member in tar if member.isfile()} == {
            "run": (tarfile.REGTYPE, 0o750, 1), "sub/" + "ö" * 120: (tarfile.REGTYPE, 0o644, 1000),
        }  # fmt: skip
        assert tar.getmember("link").linkname == "sub"
    assert (tree.files, tree.size, tree.measure()) == (2, 1001, 1001)


def test_a_file_that_shrinks_while_it_is_packed_keeps_its_size(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a" * 600_000)
    (tmp_path / "b").write_bytes(b"b")
    pieces = iter(TreePieces(str(tmp_path)))
    data = next(pieces)
    os.truncate(tmp_path / "a", 300_000)
    data += b"".join(pieces)
    found = {member.name: content for member, content in read(data, 9999)}
    assert (len(found["a"]), found["a"].strip(b"\0").strip(b"a"), found["b"]) == (600_000, b"", b"b")


def test_heads_that_say_nothing_of_use_are_not_kept() -> None:
    """Any number of extended heads may come before a member, each with other words."""
    reader = TarReader()
    tracemalloc.start()
    try:
        for number in range(2000):
            word = f"key{number}".encode()
            record = b" " + word + b"=" + b"v" * 50_000 + b"\n"
            length = len(record) + len(str(len(record) + 5))
            record = str(length).encode() + record
            head = tarfile.TarInfo("pax")
            head.type, head.size = tarfile.XHDTYPE, len(record)
            reader.feed(head.tobuf(tarfile.USTAR_FORMAT) + record + b"\0" * (-len(record) % 512))
        assert tracemalloc.get_traced_memory()[0] < 5 << 20
    finally:
        tracemalloc.stop()


def test_names_that_are_kept_have_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandpool.sdk.archives.MOST_NAMES", 10_000)
    for members in ([(f"{number:0100}", None) for number in range(100)], [(f"{n:0100}", "/out") for n in range(100)]):
        with pytest.raises(BadArchive, match="long names"):
            extract(archive(*members), tmp_path / "top")


def test_content_that_is_left_out_counts_too(tmp_path: Path) -> None:
    heard: list[int] = []
    head = tarfile.TarInfo("device")
    head.type, head.size = b"S", 1 << 40
    with Extraction(str(tmp_path / "top"), allowed=heard.append) as extraction:
        extraction.feed(head.tobuf(tarfile.GNU_FORMAT))
    assert heard == [1 << 40]


def test_folders_that_names_imply_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member without content costs its sender a line, and may mean two thousand folders."""
    monkeypatch.setattr(archives, "MOST_MEMBERS", 50)
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for number in range(3):
            archive.addfile(tarfile.TarInfo(f"{number}/" + "d/" * 30 + "f"))
    with (
        pytest.raises(BadArchive, match="more than 50 directories"),
        archives.Extraction(str(tmp_path / "there")) as found,
    ):
        found.feed(content.getvalue())
    assert sum(1 for _ in (tmp_path / "there").rglob("*")) <= 60
