"""Reads a layer or an archive: decompression, a digest of the content, and its tar entries, with limits on everything.

Understands ustar, GNU long names and pax headers, as image builders write them. tarfile is not used because it allocates as
much memory as a header claims. Sparse files and unknown kinds of entries are refused. Standard library only: this runs in a worker
process.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Protocol

BLOCK = 512
_CHUNK = 1 << 20
_LONGEST_HEADER = 1 << 20  # bytes of one pax header or long name
_LARGEST = 1 << 62
FILE, HARD_LINK, SYMLINK, CHARACTER, BLOCK_DEVICE, DIRECTORY, FIFO = b"0", b"1", b"2", b"3", b"4", b"5", b"6"
_KINDS = {b"0": FILE, b"\0": FILE, b"7": FILE} | {
    kind: kind for kind in (HARD_LINK, SYMLINK, CHARACTER, BLOCK_DEVICE, DIRECTORY, FIFO)
}


class BadArchive(Exception):
    """The archive is not what it must be; the message says what is wrong with it."""


class TooMuch(BadArchive):
    """The unpacked content has too many bytes."""


class TooMany(BadArchive):
    """The archive has too many files."""


class Readable(Protocol):
    """A stream of bytes."""

    def read(self, size: int, /) -> bytes:
        """Up to `size` bytes; fewer only at the end."""
        ...


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of an archive."""

    path: bytes  # as written
    kind: bytes
    size: int  # bytes of content, for files
    link: bytes
    mode: int
    uid: int
    gid: int
    mtime_ns: int
    offset: int  # where its content begins in the archive


class TarReader:
    """Iterate, and read an entry's content before going on to the next; what was not read is skipped."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self._at = 0
        self._left = 0  # of the current entry's content
        self._padding = 0
        self._global: dict[str, bytes] = {}

    def __iter__(self) -> Iterator[Entry]:
        while (entry := self._next()) is not None:
            yield entry

    def content(self) -> Iterator[bytes]:
        """The rest of the current entry, in pieces."""
        while self._left:
            piece = self._take(min(_CHUNK, self._left))
            self._left -= len(piece)
            yield piece

    def _next(self) -> Entry | None:
        """The next entry that is not a header for another one."""
        extra: dict[str, bytes] = {}
        while True:
            self._skip_content()
            header = self._header()
            if header is None:
                if extra:
                    raise BadArchive("it ends after a header that announces another entry")
                return None
            kind, size = header[156:157], _number(header[124:136], "size")
            if kind in (b"x", b"g", b"L", b"K"):
                self._read_extra(kind, size, extra)
                continue
            return self._entry(header, kind, size, {**self._global, **extra})

    def _read_extra(self, kind: bytes, size: int, extra: dict[str, bytes]) -> None:
        if size > _LONGEST_HEADER:
            raise BadArchive(f"a header of {size} bytes, more than {_LONGEST_HEADER}")
        content = self._take(size)
        self._skip(-size % BLOCK)
        match kind:
            case b"x":
                extra.update(_records(content))
            case b"g":
                self._global.update(_records(content))
                if sum(map(len, self._global.values())) > _LONGEST_HEADER:
                    raise BadArchive("its global headers are too long")
            case b"L":
                extra["path"] = content.split(b"\0", 1)[0]
            case _:
                extra["linkpath"] = content.split(b"\0", 1)[0]

    def _entry(self, header: bytes, kind: bytes, size: int, extra: dict[str, bytes]) -> Entry:
        if kind == b"S" or any(key.startswith("GNU.sparse") for key in extra):
            raise BadArchive("it has a sparse file; such archives cannot be unpacked")
        path = extra.get("path") or _name(header)
        if kind == b"\0" and path.endswith(b"/"):
            kind = DIRECTORY  # as the oldest archives mark directories
        known = _KINDS.get(kind)
        if known is None:
            raise BadArchive(f"entry {printable(path)} is of the unknown kind {kind!r}")
        if "size" in extra:
            size = _decimal(extra["size"], "size")
        if known != FILE:
            size = 0  # other kinds have no content, whatever their size field says: all readers must find the next header at the same offset
        self._left = size
        self._padding = -size % BLOCK
        return Entry(
            path=path,
            kind=known,
            size=size,
            link=extra.get("linkpath") or header[157:257].split(b"\0", 1)[0],
            mode=_number(header[100:108], "mode"),
            uid=_decimal(extra["uid"], "uid") if "uid" in extra else _number(header[108:116], "uid"),
            gid=_decimal(extra["gid"], "gid") if "gid" in extra else _number(header[116:124], "gid"),
            mtime_ns=_moment(extra["mtime"]) if "mtime" in extra else _seconds(header[136:148]) * 10**9,
            offset=self._at,
        )

    def _header(self) -> bytes | None:
        """The next block that is a header; None at the end, which is two empty blocks or, as some write it, nothing."""
        header = self._stream.read(BLOCK)
        self._at += len(header)
        if not header:
            return None
        if len(header) < BLOCK:
            raise BadArchive("it is cut off in the middle of a header")
        if header.count(0) == BLOCK:
            return None
        if not _checksum_fits(header):
            raise BadArchive("a header's checksum is wrong: it is damaged or no tar archive")
        return header

    def _skip_content(self) -> None:
        self._skip(self._left + self._padding)
        self._left = self._padding = 0

    def _skip(self, count: int) -> None:
        while count:
            count -= len(self._take(min(_CHUNK, count)))

    def _take(self, count: int) -> bytes:
        piece = self._stream.read(count)
        self._at += len(piece)
        if len(piece) < count:
            raise BadArchive("it is cut off in the middle of an entry")
        return piece


def printable(path: bytes) -> str:
    """A path for people: short, and on one line."""
    return ascii(path[-200:].decode(errors="backslashreplace"))


def _checksum_fits(header: bytes) -> bool:
    """Some old tools took bytes for signed numbers."""
    stated = _number(header[148:156], "checksum")
    unsigned = sum(header) - sum(header[148:156]) + 8 * 32
    if stated == unsigned:
        return True
    return stated == unsigned - 256 * sum(byte > 127 for byte in header[:148] + header[156:])


def _name(header: bytes) -> bytes:
    name = header[:100].split(b"\0", 1)[0]
    if header[257:263] == b"ustar\0":
        prefix = header[345:500].split(b"\0", 1)[0]
        if prefix:
            return prefix + b"/" + name
    return name


def _number(field: bytes, what: str) -> int:
    """Octal text, or a big-endian number where the first bit says so."""
    if field[0] & 0x80:
        value = int.from_bytes(bytes([field[0] & 0x7F]) + field[1:], "big")
        if field[0] & 0x40 or value > _LARGEST:
            raise BadArchive(f"a header's {what} is out of range")
        return value
    text = field.split(b"\0", 1)[0].strip()
    if not text:
        return 0
    if not text.isdigit() or b"8" in text or b"9" in text:
        raise BadArchive(f"a header's {what} is not a number")
    return int(text, 8)


def _seconds(field: bytes) -> int:
    return 0 if field[0] == 0xFF else _number(field, "mtime")  # before 1970


def _decimal(text: bytes, what: str) -> int:
    if not text.isdigit() or len(text) > 18:
        raise BadArchive(f"a pax header's {what} is not a number")
    return int(text)


def _moment(text: bytes) -> int:
    """Seconds with a fraction, exactly: a float would lose nanoseconds."""
    whole, _, fraction = text.partition(b".")
    if whole.startswith(b"-"):
        return 0
    if not whole.isdigit() or len(whole) > 18 or (fraction and not fraction.isdigit()):
        raise BadArchive("a pax header's mtime is not a time")
    return int(whole) * 10**9 + int(fraction[:9].ljust(9, b"0") or 0)


def _records(content: bytes) -> dict[str, bytes]:
    """The `LENGTH KEY=VALUE\\n` records of a pax header; those that matter here."""
    found, at = {}, 0
    while at < len(content):
        space = content.find(b" ", at, at + 9)
        length = content[at:space]
        if space < 0 or not length.isdigit():
            raise BadArchive("a pax header is damaged")
        end = at + int(length)
        key, equals, value = content[space + 1 : end - 1].partition(b"=")
        if end <= space + 1 or end > len(content) or content[end - 1 : end] != b"\n" or not equals:
            raise BadArchive("a pax header is damaged")
        if key in (b"path", b"linkpath", b"size", b"uid", b"gid", b"mtime") or key.startswith(b"GNU.sparse"):
            if b"\0" in value:
                raise BadArchive("a pax header has a zero byte in a value")
            if value:  # without one, what the plain header says holds
                found[key.decode(errors="replace")] = value
        at = end
    return found


_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


def decompressed(file: IO[bytes]) -> Readable:
    """The file's content, decompressed if it is compressed."""
    start = file.read(4)
    file.seek(0)
    if start.startswith(_GZIP):
        return gzip.GzipFile(fileobj=file, mode="rb")
    if start == _ZSTD:
        return _zstd(file)
    return file


def _zstd(file: IO[bytes]) -> Readable:
    try:
        module = importlib.import_module("compression.zstd")  # Python 3.14 and later
    except ImportError:
        raise BadArchive(
            "it is compressed with zstd, which this Python cannot read (3.14 and later can); push it compressed with gzip"
        ) from None
    stream: Readable = module.ZstdFile(file, "rb")
    return stream


class DigestReader:
    """A stream of which the digest is taken as it is read, and which ends with an error where it gets too long."""

    def __init__(self, stream: Readable, most: int) -> None:
        self._stream = stream
        self._sum = hashlib.sha256()
        self._most = most
        self.size = 0

    def read(self, size: int, /) -> bytes:
        """Whole, or what is left at the end."""
        pieces = bytearray()
        while len(pieces) < size:
            piece = self._piece(size - len(pieces))
            if not piece:
                break
            pieces += piece
        return bytes(pieces)

    def _piece(self, size: int) -> bytes:
        try:
            piece = self._stream.read(size)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise BadArchive(f"it cannot be decompressed: {error}") from error
        except OSError:
            raise
        except Exception as error:  # of a decompressor that may not be there, so its errors cannot be named
            raise BadArchive(f"it cannot be decompressed: {error}") from error
        self.size += len(piece)
        if self.size > self._most:
            raise TooMuch(f"it holds more than the {self._most} bytes that are left for this image")
        self._sum.update(piece)
        return piece

    def drain(self) -> None:
        """To the very end: what follows an archive counts for its digest too."""
        while self._piece(1 << 20):
            pass

    @property
    def digest(self) -> str:
        return f"sha256:{self._sum.hexdigest()}"
