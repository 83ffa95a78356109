"""The reader of tar archives: the same as tarfile for honest archives, and an end to dishonest ones."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sandpool.node.images.tar import BadArchive, TarReader
from support.images.files import Entry, device, file, folder, hard_link, layer, symlink


def read(archive: bytes) -> list[tuple[object, ...]]:
    reader = TarReader(io.BytesIO(archive))
    return [
        (
            entry.path.rstrip(b"/") if entry.kind == tarfile.DIRTYPE else entry.path,
            entry.kind,
            b"".join(reader.content()),
            entry.link,
            entry.mode,
            entry.uid,
            entry.gid,
            entry.mtime_ns,
        )
        for entry in reader
    ]


def by_tarfile(archive: bytes) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    with tarfile.open(fileobj=io.BytesIO(archive), errors="surrogateescape") as opened:
        for info in opened:
            body = opened.extractfile(info) if info.isreg() else None
            path = info.name.encode(errors="surrogateescape")
            link = info.linkname.encode(errors="surrogateescape")
            moment = int(info.mtime) * 10**9
            kind = info.type if info.type != tarfile.AREGTYPE else tarfile.REGTYPE
            found.append((path, kind, body.read() if body else b"", link, info.mode, info.uid, info.gid, moment))
    return found


NAME = st.text(st.characters(min_codepoint=33, max_codepoint=0x2FFF, exclude_characters="/"), min_size=1, max_size=60)
PATH = st.lists(NAME, min_size=1, max_size=5).map("/".join)
ENTRY = (
    st.builds(
        Entry,
        PATH,
        content=st.binary(max_size=1500),
        mode=st.integers(0, 0o7777),
        uid=st.integers(0, 1 << 40),
        gid=st.integers(0, 0o7777777),
        mtime=st.integers(0, 1 << 36),
    )
    | st.builds(Entry, PATH, st.sampled_from([tarfile.SYMTYPE, tarfile.LNKTYPE]), link=PATH)
    | st.builds(folder, PATH)
)


@settings(max_examples=40)
@given(st.lists(ENTRY, max_size=5), st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]))
@example([file("a" * 300, b"x" * 513), symlink("l", "t" * 200)], tarfile.GNU_FORMAT)
@example([file("p/" * 80 + "f", b"")], tarfile.USTAR_FORMAT)
def test_honest_archives_read_as_tarfile_reads_them(entries: list[Entry], form: int) -> None:
    archive = layer(entries, form)
    assert read(archive) == by_tarfile(archive)


def test_fractions_of_seconds_are_exact() -> None:
    archive = layer([file("a", mtime=0.0, pax={"mtime": "1700000000.123456789"})])
    assert read(archive)[0][-1] == 1700000000123456789


def test_global_headers_apply_to_all() -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT, pax_headers={"uid": "77"}) as archive:
        archive.addfile(tarfile.TarInfo("a"))
        archive.addfile(tarfile.TarInfo("b"))
    assert [entry[5] for entry in read(out.getvalue())] == [77, 77]


def test_old_archives_write_folders_with_a_slash() -> None:
    entry = tarfile.TarInfo("d/")
    entry.type = tarfile.AREGTYPE
    assert read(entry.tobuf())[0][1] == tarfile.DIRTYPE


def test_other_kinds_have_no_content_whatever_they_say() -> None:
    """Else a reader that believes it and one that does not would see different archives."""
    info = tarfile.TarInfo("l")
    info.type, info.linkname, info.size = tarfile.SYMTYPE, "t", 512
    hidden = layer([file("hidden", "x")])
    archive = info.tobuf(tarfile.USTAR_FORMAT) + hidden
    assert [entry[0] for entry in read(archive)] == [b"l", b"hidden"] == [entry[0] for entry in by_tarfile(archive)]


def test_content_that_is_not_wanted_is_skipped() -> None:
    archive = layer([file("a", b"x" * 5000), file("b", b"y")])
    assert [entry.path for entry in TarReader(io.BytesIO(archive))] == [b"a", b"b"]


def header(change: Callable[[bytearray], None], entry: Entry = file("a", b"x" * 600)) -> bytes:
    """One entry whose header was changed, with the checksum made right."""
    archive = bytearray(layer([entry], tarfile.GNU_FORMAT))
    change(archive)
    archive[148:156] = b" " * 8
    archive[148:156] = b"%06o\0 " % sum(archive[:512])
    return bytes(archive)


def put(at: int, value: bytes) -> Callable[[bytearray], None]:
    def change(archive: bytearray) -> None:
        archive[at : at + len(value)] = value

    return change


@pytest.mark.parametrize(
    ("archive", "why"),
    [
        (b"x", "middle of a header"),
        (b"x" * 512, "not a number|checksum"),
        (b"\x80" * 512, "checksum|range"),
        (layer([file("a", b"x" * 600)])[:600], "middle of an entry"),
        (layer([file("a", b"x" * 600)])[:1000], "middle of an entry"),
        (layer([file("a" * 200, b"x")])[:1024], "announces"),
        (header(put(156, b"S")), "sparse"),
        (header(put(156, b"Z")), "unknown kind"),
        (header(put(124, b"\xff" * 12)), "range"),
        (header(put(124, b"\x80" + b"\x7f" * 11)), "range"),
        (header(put(124, b"99999999999\0")), "not a number"),
        (header(put(108, b"-000001\0")), "not a number"),
        (header(put(124, b"\x80" + b"\0" * 4 + b"\xff" * 7)), "middle of an entry|range"),
        (header(put(156, b"x")), "pax header"),
        (header(lambda archive: (put(156, b"x")(archive), put(124, b"77777777777\0")(archive))[0]), "header of"),
        (header(lambda archive: (put(156, b"L")(archive), put(124, b"77777777777\0")(archive))[0]), "header of"),
        (layer([file("a", pax={"GNU.sparse.map": "0,1", "GNU.sparse.size": "99"})]), "sparse"),
        (layer([file("a", pax={"path": "a\0b"})]), "zero byte"),
        (layer([file("a", b"x", pax={"uid": "-5"})]), "uid"),
        (layer([file("a", b"x", pax={"mtime": "x"})]), "mtime"),
    ],
)  # fmt: skip
def test_dishonest_archives_are_refused(archive: bytes, why: str) -> None:
    with pytest.raises(BadArchive, match=why):
        read(archive)


@pytest.mark.parametrize(
    "record", [b"5 a=b", b"0 a=b\n", b"99 a=b\n", b"6 ab\n\n", b" a=b\n", b"x a=b\n", b"3 \n", b"99999999999 a=b\n"]
)
def test_damaged_pax_records(record: bytes) -> None:
    info = tarfile.TarInfo("h")
    info.type, info.size = tarfile.XHDTYPE, len(record)
    archive = info.tobuf(tarfile.USTAR_FORMAT) + record.ljust(512, b"\0") + layer([file("a")])
    with pytest.raises(BadArchive):
        read(archive)


@given(st.binary(max_size=2000))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    try:
        read(content)
    except BadArchive:
        pass


@given(st.data())
def test_any_damage_is_survived(data: st.DataObject) -> None:
    archive = bytearray(
        layer([folder("d"), file("d/f", b"abc"), symlink("s", "d"), hard_link("h", "d/f"), device("n")])
    )
    for _ in range(data.draw(st.integers(1, 4))):
        archive[data.draw(st.integers(0, len(archive) - 1))] = data.draw(st.integers(0, 255))
    try:
        read(bytes(archive))
    except BadArchive:
        pass
